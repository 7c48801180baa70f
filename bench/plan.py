"""The order of runs: first one round of every row, then more rounds for as long as the time lasts."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar


class Repeatable(Protocol):
    """A row that is measured in rounds."""

    @property
    def is_over(self) -> bool:
        """True if it needs no more rounds."""
        ...

    @property
    def last_round_s(self) -> float:
        """Return how long its last round took."""
        ...


R = TypeVar("R", bound=Repeatable)


def in_passes(rows: Iterable[R], left_s: Callable[[], float]) -> Iterator[R]:
    """Yield each row whenever it is its turn for a round.

    All rows have one round, even if the time is not enough. After that, a row has another one only if its last round
    would fit into the time that is left.
    """
    again = []
    for row in rows:
        yield row
        again.append(row)
    is_time_left = True
    while is_time_left:
        is_time_left = False
        for row in again:
            if not row.is_over and row.last_round_s <= left_s():
                yield row
                is_time_left = True
