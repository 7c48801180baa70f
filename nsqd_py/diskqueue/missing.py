"""Messages that are in no file although somebody still needs them: what of a log was removed or cut."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nsqd_py.diskqueue.files import log_file_name
from nsqd_py.diskqueue.ranges import SeqRanges
from nsqd_py.diskqueue.space import Range, count_of, union


@dataclass(frozen=True, slots=True)
class GoneFile:
    """A log file, or several in a row, that is not there.

    low, high  the numbers of the missing messages, `high` not included
    count      how many of them some channel still needed
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


def common(ranges: Iterable[Range], others: Iterable[Range]) -> list[Range]:
    """Return the numbers that are in both."""
    found: list[Range] = []
    left, right = union(ranges), union(others)
    place = 0
    for low, high in left:
        while place < len(right) and right[place][1] <= low:
            place += 1
        at = place
        while at < len(right) and right[at][0] < high:
            found.append((max(low, right[at][0]), min(high, right[at][1])))
            at += 1
    return found


def gone_files(topic: str, holes: Iterable[Range], needed: Iterable[Range], file_seqs: Sequence[int]) -> list[GoneFile]:
    """Return a file for each hole in the log in which messages are still needed.

    `file_seqs` are the first numbers of the files that there were at the last clean stop, as far as that is known.
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
        # The first hole holds files that went long ago, too: where the missing one began is known roughly.
        first_seq = known[-1] if known else (hole_low or low)
        found.append(GoneFile(log_file_name(topic, first_seq), low, high, count_of(parts)))
    return found
