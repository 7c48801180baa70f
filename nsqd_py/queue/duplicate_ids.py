"""Messages with one id: a dead letter of several channels, or one that died again after a crash.

A consumer answers by id, so it gets one of them at a time. Ids are looked up only where two have met: then what the
first of them stood for has to be found once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nsqd_py.queue.in_flight import InFlightTable
from nsqd_py.queue.position import Position


def strays(position: Position, tables: Iterable[InFlightTable]) -> list[tuple[int, int]]:
    """Released messages that are not queued, deferred, finished or in flight."""
    missing = []
    reached = position.finished.floor
    for low, high in sorted(_accounted(position, tables)):
        if low > reached:
            missing.append((reached, low))
        reached = max(reached, high)
    if reached < position.released:
        missing.append((reached, position.released))
    return missing


def _accounted(position: Position, tables: Iterable[InFlightTable]) -> Iterator[tuple[int, int]]:
    yield from position.finished.islands()
    yield from ((low, high) for low, high, _, _ in position.queued(position.depth))
    yield from ((low, high) for _, (low, high, _, _) in position.deferred)
    for table in tables:
        yield from ((seq, seq + 1) for seq, _ in table.entries())
