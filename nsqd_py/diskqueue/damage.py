"""Reports of what a log lacks: damaged bytes, which are copied aside, and missing files.

Bytes that belong to no valid record are damaged. They stay where they are, and a copy is kept next to the log file.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nsqd_py.diskqueue.files.log_file import LogFile, log_file_name, replace_file
from nsqd_py.diskqueue.journals.ranges import ByteRanges, Range, SeqRanges, common, count_of, union


class DamageReport:
    """Damage found since the start. A byte is counted once, also if several readers meet it with different neighbours.

    bytes_found     bytes that could not be read
    bytes_repaired  of these
    missing_count   messages that a channel needed and that were in no file at the start
    removed_files   files that another program removed or cut while they were in use
    restored_files  those of them that were written back
    """

    __slots__ = (
        "_known",
        "_on_damage",
        "bytes_found",
        "bytes_repaired",
        "missing_count",
        "removed_files",
        "restored_files",
    )

    def __init__(self, on_damage: Callable[[str], None]) -> None:
        self.bytes_found = 0
        self.bytes_repaired = 0
        self.missing_count = 0
        self.removed_files = 0
        self.restored_files = 0
        self._on_damage = on_damage
        self._known: dict[str, ByteRanges] = {}  # what was found and is not repaired, by name

    def report(self, file: LogFile, start: int, end: int) -> None:
        """Report bytes that are skipped, once for each range. Raises OSError if they cannot be copied aside."""
        if self._knows(file.name, start, end):
            return
        aside = self._keep_aside(file, start, end)
        self._count(file.name, start, end)
        self._on_damage(f"{file.name}: {end - start} damaged bytes at {start} passed over, kept as {aside}")

    def report_stored(self, name: str, start: int, end: int) -> None:
        """Report bytes of a stored file that are skipped, once for each range. They stay where they are."""
        if not self._knows(name, start, end):
            self._count(name, start, end)
            self._on_damage(f"{name}: {end - start} damaged bytes at {start} passed over")

    def note(self, file: LogFile, start: int, end: int) -> int:
        """Count damaged bytes that no one has read yet, and copy them aside. Return how many were not known before."""
        if self._knows(file.name, start, end):
            return 0
        with suppress(OSError):  # they may be repaired; a reader that skips them copies them first
            self._keep_aside(file, start, end)
        return self._count(file.name, start, end)

    def _overlapping(self, name: str, start: int, end: int) -> list[Range]:
        return self._known.get(name, ByteRanges()).overlapping(start, end)

    def _keep_aside(self, file: LogFile, start: int, end: int) -> str:
        """Copy damaged bytes aside, with known ones that they overlap, and return the name of the copy. Raises OSError."""
        known = self._overlapping(file.name, start, end)
        ((low, high),) = union([(start, end), *known])
        name = keep_aside(file, low, high)
        for other, _ in known:
            if other != low:
                aside_path(file, other).unlink(missing_ok=True)
        return name

    def _knows(self, name: str, start: int, end: int) -> bool:
        return any(low <= start and end <= high for low, high in self._overlapping(name, start, end))

    def _count(self, name: str, start: int, end: int) -> int:
        new = self._known.setdefault(name, ByteRanges()).add(start, end)
        self.bytes_found += new
        return new

    def repaired(self, file: LogFile, start: int, end: int, left: Iterable[Range] = ()) -> int:
        """Count bytes that were reported and can be read again, except for those in `left`. Return how many these are."""
        known = self._known.setdefault(file.name, ByteRanges())
        for low, _ in known.overlapping(start, end):
            aside_path(file, low).unlink(missing_ok=True)
        repaired = known.remove(start, end)
        for left_start, left_end in left:
            repaired -= known.add(left_start, left_end)
            with suppress(OSError):
                keep_aside(file, left_start, left_end)
        if not known:
            del self._known[file.name]
        self.bytes_repaired += repaired
        return repaired

    def report_torn(self, file: LogFile, start: int, end: int) -> None:
        """Report a torn record at the end. Raises OSError if it cannot be copied aside."""
        keep_aside(file, start, end)
        self._on_damage(f"{file.name}: a torn record at {start} is cut off ({end - start} bytes)")


def aside_path(file: LogFile, start: int) -> Path:
    """Return the path of the copy of damaged bytes."""
    return file.path.with_name(f"{file.path.stem}.{start}.damaged")


def keep_aside(file: LogFile, start: int, end: int) -> str:
    """Copy damaged bytes to a separate file, once, and return its name. Raises OSError."""
    aside = aside_path(file, start)
    if not aside.exists() or aside.stat().st_size < end - start:
        data = os.pread(file.fileno(), end - start, start)
        try:
            replace_file(aside, data, is_synced=False)
        except OSError as error:
            text = f"{error.strerror}: {len(data)} damaged bytes of {file.name} could not be kept aside"
            raise OSError(error.errno, text) from error
    return aside.name


@dataclass(frozen=True, slots=True)
class MissingFile:
    """A missing log file, or several in a row.

    low, high  the numbers of the missing messages, `high` not included
    count      the number of them that a channel still needed
    """

    name: str
    low: int
    high: int
    count: int

    @property
    def detail(self) -> str:
        return f"{self.count:,} messages that were not finished, numbers {self.low} to {self.high - 1}, were in it"


def needed_of(holes: Iterable[Range], finished: SeqRanges, until: int) -> list[Range]:
    """Return the parts of `holes`, below the number `until`, that are not finished."""
    return finished.gaps_in(common(holes, [(0, until)]))


def missing_files(
    topic: str, holes: Iterable[Range], needed: Iterable[Range], file_seqs: Sequence[int]
) -> list[MissingFile]:
    """Return a file for each hole in the log in which messages are still needed.

    `file_seqs` are the first numbers of the files at the last clean stop, if these are known.
    """
    merged = union(holes)
    lows = [low for low, _ in merged]
    parts_by_hole: dict[int, list[Range]] = {}
    for part in common(needed, merged):
        hole_low = lows[bisect_right(lows, part[0]) - 1]
        parts_by_hole.setdefault(hole_low, []).append(part)
    found = []
    for hole_low, parts in parts_by_hole.items():
        low = parts[0][0]
        high = parts[-1][1]
        known = [seq for seq in file_seqs if hole_low <= seq <= low]
        # The first hole also covers files that were dropped long ago: the start of the missing one is only an estimate.
        if known:
            first_seq = known[-1]
        else:
            first_seq = hole_low or low
        found.append(MissingFile(log_file_name(topic, first_seq), low, high, count_of(parts)))
    return found
