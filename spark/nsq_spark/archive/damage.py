"""Errors of archives, and policies for bytes that are no message: stop and say where, or pass over them and count.

Each error is one line that names the file, and can be sent between processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


class ArchiveError(Exception):
    """A file cannot be found, opened, or understood."""


class DamagedArchive(ArchiveError):
    """Bytes of a file that are no message; `position` is the first of them, in the decompressed file."""

    def __init__(self, path: str, position: int, what: str) -> None:
        super().__init__(path, position, what)
        self.path = path
        self.position = position
        self.what = what

    def __str__(self) -> str:
        return f"{self.path} is damaged at {self.position}: {self.what}; --skip-damaged reads what is left of it"


Policy = Literal["fail", "skip"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A stretch of a file that is no message: where it begins, in the decompressed file, and how long it is."""

    file: str
    position: int
    bytes: int
    what: str


@dataclass(slots=True)
class Skipped:
    """What was skipped in one file. A stretch of damage counts as one record, whatever it held."""

    records: int = 0
    size_bytes: int = 0


class Damage:
    """Collects the damage that readers find: `findings`, and by path, `counts` of what was skipped."""

    def __init__(self, policy: Policy = "fail") -> None:
        self.policy = policy
        self.findings: list[Finding] = []
        self.counts: dict[str, Skipped] = {}

    def found(self, path: str, start: int, end: int, what: str) -> None:
        """Report bytes `start` to `end` (not included) that are no message. Raises DamagedArchive unless skipping."""
        if self.policy == "fail":
            raise DamagedArchive(path, start, what)
        finding = Finding(path, start, max(0, end - start), what)
        self.findings.append(finding)
        self.add({path: Skipped(1, finding.bytes)})

    def add(self, counts: dict[str, Skipped]) -> None:
        """Add what another reader counted."""
        for path, other in counts.items():
            skipped = self.counts.setdefault(path, Skipped())
            skipped.records += other.records
            skipped.size_bytes += other.size_bytes
