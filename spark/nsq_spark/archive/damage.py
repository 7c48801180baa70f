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


@dataclass(slots=True)
class Skipped:
    """What was passed over in one file. A stretch of damage counts as one record, whatever it held."""

    records: int = 0
    size_bytes: int = 0


class Damage:
    """Told of all damage by the readers. `counts`: by path, what was passed over."""

    def __init__(self, policy: Policy = "fail") -> None:
        self.policy = policy
        self.counts: dict[str, Skipped] = {}

    def found(self, path: str, start: int, end: int, what: str) -> None:
        """Bytes `start` to `end` (not included) are no message. Raises DamagedArchive unless they are skipped."""
        if self.policy == "fail":
            raise DamagedArchive(path, start, what)
        skipped = self.counts.setdefault(path, Skipped())
        skipped.records += 1
        skipped.size_bytes += max(0, end - start)

    def add(self, counts: dict[str, Skipped]) -> None:
        """Take over what another reader counted."""
        for path, other in counts.items():
            skipped = self.counts.setdefault(path, Skipped())
            skipped.records += other.records
            skipped.size_bytes += other.size_bytes
