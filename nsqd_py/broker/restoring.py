"""A channel's position put back from its journal and its topic's log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter

from nsqd_py.diskqueue.journal import SavedPosition, Wait
from nsqd_py.queue.position import Position


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
    queued: list[tuple[int, int, int, int]] = []  # the number it stands behind, due time, sequence number, attempts
    later: dict[int, tuple[int, int]] = {}
    last = position.end_of_queue
    for seq, (due_ns, attempts) in waiting.items():
        if seq >= released:
            continue
        if due_ns > now_ns:
            later[seq] = due_ns, attempts
        elif due_ns < 0:
            queued.append((min(-1 - due_ns, last), -1, seq, attempts))
        else:  # since when it was queued again is not known: it goes behind what waits, in the order of the due times
            queued.append((last, due_ns, seq, attempts))
    for low, high, due_ns, attempts in group_waiting(later, released):
        spans.append((low, high))
        position.defer(due_ns, (low, high, attempts, None))
    queued.sort(key=_place_in_queue)
    for low, high, after, attempts in _runs(queued):
        spans.append((low, high))
        position.queue_again((low, high, attempts, None), after)
    for low, high in sorted(spans):
        position.skip(low, min(high, released))
    return position


_place_in_queue = itemgetter(0, 1)


def _runs(queued: Iterable[tuple[int, int, int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """Single messages as runs (low, high not included, after, attempts)."""
    low = high = after = attempts = -1
    for next_after, _, seq, next_attempts in queued:
        if seq == high and next_after == after and next_attempts == attempts:
            high += 1
            continue
        if high > low:
            yield low, high, after, attempts
        low, high, after, attempts = seq, seq + 1, next_after, next_attempts
    if high > low:
        yield low, high, after, attempts


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
