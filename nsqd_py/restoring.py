"""A channel's position put back from its journal and its topic's log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nsqd_py.delivery import Position
from nsqd_py.diskqueue.journal import SavedPosition, Wait


def restore_position(
    saved: SavedPosition, released: int, deferred: Iterable[tuple[int, int, int]], now_ns: int
) -> Position:
    """A position as its journal left it: everything unfinished comes again, with its attempts and due time.

    `deferred` are the messages that were published to be delivered later, as (low, high, due_ns).
    """
    position = Position(saved.finished.floor, released)
    position.finished = saved.finished
    covers = saved.finished.covers
    waiting = {seq: state for seq, state in saved.waiting.items() if not covers(seq, seq + 1)}
    for low, high, due_ns in deferred:
        for gap_low, gap_high in saved.finished.gaps(low, min(high, released)):
            for seq in range(gap_low, gap_high):
                waiting.setdefault(seq, (due_ns, 0))
    spans = [(low, high) for low, high in saved.finished.islands() if low < released]
    for low, high, due_ns, attempts in group_waiting(waiting, released):
        spans.append((low, high))
        if due_ns > now_ns:
            position.defer(due_ns, (low, high, attempts, None))
        else:
            position.queue_again((low, high, attempts, None))
    for low, high in sorted(spans):
        position.skip(low, min(high, released))
    return position


def group_waiting(waiting: dict[int, tuple[int, int]], released: int) -> Iterator[Wait]:
    """Single waiting messages as runs of one state."""
    low = previous = -2
    state = (0, 0)
    for seq in sorted(waiting):
        if seq >= released:
            break
        if seq == previous + 1 and waiting[seq] == state:
            previous = seq
            continue
        if low >= 0:
            yield low, previous + 1, *state
        low = previous = seq
        state = waiting[seq]
    if low >= 0:
        yield low, previous + 1, *state
