"""What is done about bytes that are no message: stop and say where, or pass over them and count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nsq_spark.archive.errors import DamagedArchive

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
