"""What was passed over, told where a user looks for it: in the log of the executor, and in files.

A task cannot tell Spark's driver anything but rows. So each task that passed over damage writes a file of its own,
an object a line: {"file":"/archive/a.framed","position":4096,"bytes":312,"what":"..."}. One that is tried again
writes the same file again.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from nsq_spark.archive.damage import Damage, Policy, Skipped
from nsq_spark.archive.errors import ArchiveError
from nsq_spark.archive.storage import local_path

_log = logging.getLogger("nsqd_py.spark")


@dataclass(frozen=True, slots=True)
class Finding:
    """A stretch of a file that is no message: where it begins, in the decompressed file, and how long it is."""

    file: str
    position: int
    bytes: int
    what: str


class FindingDamage(Damage):
    """Remembers each stretch, not only how many there were."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self.findings: list[Finding] = []

    def found(self, path: str, start: int, end: int, what: str) -> None:
        super().found(path, start, end, what)
        self.findings.append(Finding(path, start, max(0, end - start), what))


def say(findings: list[Finding]) -> None:
    """A line for each file in the log of the executor, which is stderr in local mode."""
    for path, skipped in counts(findings).items():
        _log.warning("%s: %d damaged records passed over, %d bytes", path, skipped.records, skipped.size_bytes)


def counts(findings: list[Finding]) -> dict[str, Skipped]:
    """By path."""
    found: dict[str, Skipped] = defaultdict(Skipped)
    for finding in findings:
        found[finding.file].records += 1
        found[finding.file].size_bytes += finding.bytes
    return found


def write_report(directory: str, name: str, findings: list[Finding]) -> None:
    """Nobody sees half a file. Raises ArchiveError."""
    lines = b"".join(orjson.dumps(asdict(finding)) + b"\n" for finding in findings)
    path = Path(local_path(directory), f"{name}.jsonl")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{name}.tmp")
        temporary.write_bytes(lines)
        temporary.replace(path)
    except OSError as error:
        raise ArchiveError(f"nsq: option damageReport: {directory} cannot be written to: {error}") from error
