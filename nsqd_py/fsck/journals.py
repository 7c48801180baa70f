"""A channel's journal, entry by entry, also behind damage."""

from __future__ import annotations

from dataclasses import dataclass

from nsqd_py.diskqueue.journal import SavedPosition, decode_journal, entry_bytes, next_entry


@dataclass(frozen=True, slots=True)
class ReadJournal:
    """What a journal says.

    saved    by all entries that can be read; later ones add to what earlier ones say, so one that is lost in the
             middle means that messages come again, and not that later ones are wrong
    damaged  byte ranges with entries behind them
    torn     the byte range at the end that is no whole entry, as a power cut may leave it
    """

    saved: SavedPosition
    damaged: tuple[tuple[int, int], ...]
    torn: tuple[int, int] | None

    @property
    def is_damaged(self) -> bool:
        return bool(self.damaged)


def read_journal(data: bytes) -> ReadJournal:
    """Every entry of the file that can be read."""
    good: list[bytes] = []
    damaged = []
    position = 0
    while position < len(data):
        start = next_entry(data, position)
        if start > position:
            damaged.append((position, start))
        size = entry_bytes(data, start)
        good.append(data[start : start + size])
        position = start + size
    saved, _ = decode_journal(b"".join(good))
    if damaged and damaged[-1][1] == len(data) and good[:-1]:
        return ReadJournal(saved, tuple(damaged[:-1]), damaged[-1])
    return ReadJournal(saved, tuple(damaged), None)
