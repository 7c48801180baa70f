"""The files of one log in order of sequence numbers, and finding one of them by number."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from nsqd_py.diskqueue.files import LogFile


class FileList:
    """The files in order. They change only through these methods, which keep `first_seqs` beside them."""

    __slots__ = ("_first_seqs", "files")

    def __init__(self) -> None:
        self.files: list[LogFile] = []
        self._first_seqs: list[int] = []

    def add(self, file: LogFile) -> None:
        """Add a file behind all others."""
        self.files.append(file)
        self._first_seqs.append(file.first_seq)

    def set(self, files: list[LogFile]) -> None:
        """Replace the list."""
        self.files = files
        self._first_seqs = [file.first_seq for file in files]

    @property
    def first_seq(self) -> int | None:
        """The number of the first message; None without files."""
        return self._first_seqs[0] if self._first_seqs else None

    def earliest_whole_seq(self, next_seq: int) -> int:
        """Return the number from which on, up to `next_seq`, no file is sparse."""
        earliest = next_seq
        for file in reversed(self.files):
            if not file.is_whole:
                break
            earliest = file.first_seq
        return earliest

    def reaching(self, seq: int) -> Iterator[LogFile]:
        """Yield the files with messages from `seq` on."""
        place = max(0, bisect_right(self._first_seqs, seq) - 1)
        return (file for file in self.files[place:] if file.end_seq > seq)

    def by_file(self, seqs: Sequence[int]) -> Iterator[tuple[LogFile | None, Sequence[int]]]:
        """Yield ascending numbers grouped by the file that begins at or before them; None: before all files."""
        at = 0
        while at < len(seqs):
            place = bisect_right(self._first_seqs, seqs[at]) - 1
            is_last = place + 1 == len(self.files)
            after = len(seqs) if is_last else bisect_left(seqs, self._first_seqs[place + 1], at)
            yield (self.files[place] if place >= 0 else None), seqs[at:after]
            at = after
