"""The damage of a log: bytes that cannot be read, and messages that are in no file although a channel needs them."""

from __future__ import annotations

import contextlib
import errno
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nsqd_py.diskqueue.files import LogFile, log_file_name
from nsqd_py.diskqueue.ranges import Range, SeqRanges, common, count_of, union
from nsqd_py.runtime.private_files import open_file


class DamageReport:
    """Damage found since the start.

    bytes_found     bytes that could not be read
    missing_count   messages that a channel needed and that were in no file at the start
    removed_files   files that another program removed while they were in use, and that were written again
    """

    __slots__ = ("_on_damage", "_reported", "bytes_found", "missing_count", "removed_files")

    def __init__(self, on_damage: Callable[[str], None]) -> None:
        self.bytes_found = 0
        self.missing_count = 0
        self.removed_files = 0
        self._on_damage = on_damage
        self._reported: set[tuple[str, int]] = set()

    def report(self, file: LogFile, start: int, end: int) -> None:
        """Report bytes that are skipped, once for each place. Raises OSError if they cannot be copied aside."""
        if (file.path.name, start) in self._reported:
            return
        aside = keep_aside(file, start, end)
        self._reported.add((file.path.name, start))
        self.bytes_found += end - start
        self._on_damage(f"{file.path.name}: {end - start} damaged bytes at {start} passed over, kept as {aside}")

    def report_torn(self, file: LogFile, start: int, end: int) -> None:
        """Report a torn record at the end. Raises OSError if it cannot be copied aside."""
        keep_aside(file, start, end)
        self._on_damage(f"{file.path.name}: a torn record at {start} is cut off ({end - start} bytes)")


def keep_aside(file: LogFile, start: int, end: int) -> str:
    """Copy damaged bytes to a separate file, once, and return its name. Raises OSError."""
    aside = file.path.with_name(f"{file.path.stem}.{start}.damaged")
    if not aside.exists():
        data = os.pread(file.fileno(), end - start, start)
        try:
            write_aside(aside, data)
        except OSError as error:
            text = f"{error.strerror}: {len(data)} damaged bytes of {file.path.name} could not be kept aside"
            raise OSError(error.errno, text) from error
    return aside.name


def write_aside(aside: Path, data: bytes) -> None:
    """Write a file that exists with all of `data`, or not at all. Raises OSError."""
    temporary = aside.with_name(aside.name + ".tmp")
    try:
        descriptor = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            if os.write(descriptor, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)
        os.rename(temporary, aside)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


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
    return [gap for low, high in holes if low < until for gap in finished.gaps(low, min(high, until))]


def missing_files(topic: str, holes: Iterable[Range], needed: Iterable[Range], file_seqs: Sequence[int]) -> list[MissingFile]:
    """Return a file for each hole in the log in which messages are still needed.

    `file_seqs` are the first numbers of the files at the last clean stop, if these are known.
    """
    merged = union(holes)
    lows = [low for low, _ in merged]
    parts_by_hole: dict[int, list[Range]] = {}
    for part in common(needed, merged):
        parts_by_hole.setdefault(lows[bisect_right(lows, part[0]) - 1], []).append(part)
    found = []
    for hole_low, parts in parts_by_hole.items():
        low, high = parts[0][0], parts[-1][1]
        known = [seq for seq in file_seqs if hole_low <= seq <= low]
        # The first hole also covers files that were dropped long ago: the start of the missing one is only an estimate.
        first_seq = known[-1] if known else (hole_low or low)
        found.append(MissingFile(log_file_name(topic, first_seq), low, high, count_of(parts)))
    return found
