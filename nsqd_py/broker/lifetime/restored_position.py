"""A position, as its journal left it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain

from nsqd_py.diskqueue.journals.journal import SavedPosition
from nsqd_py.diskqueue.journals.ranges import Range, SeqRanges, ranges_of
from nsqd_py.diskqueue.journals.waits import PackedWaits, grouped, parts, without
from nsqd_py.pqueues.deferred import Wait
from nsqd_py.queue.position import Position


def restore_position(
    saved: SavedPosition, released: int, deferred: Sequence[PackedWaits], now_ns: int, lost: Iterable[Range]
) -> Position:
    """Return a position as its journal left it; unfinished messages keep their attempts and due times.

    `deferred` are the runs of messages that were published with a delay. `lost` are unfinished messages that are not in
    the log.
    """
    position = Position(saved.finished.floor, released)
    position.finished = saved.finished
    position.lost = SeqRanges(0, lost)
    if position.has_lost:
        waits = parts(saved.waiting.rising(), position.lost.parts)
        position.lost_waits = list(grouped(waits))
    waiting: Iterable[Range] = ()
    if deferred or len(saved.waiting):
        waiting = _restore_waiting(position, saved.waiting, deferred, now_ns)
    for low, high in merge(saved.finished.islands(), ranges_of(position.lost), waiting):
        position.skip(low, min(high, released))
    return position


def _restore_waiting(
    position: Position, saved: PackedWaits, deferred: Sequence[PackedWaits], now_ns: int
) -> Iterator[Range]:
    """Defer and queue what waited, and return its ranges in rising order.

    There may be millions of messages: before they are deferred or queued, none of them has an object.
    """
    released = position.released

    def unsettled(low: int, high: int) -> Iterator[Range]:
        return position.unsettled(low, min(high, released))

    requeued = PackedWaits(parts(saved, unsettled))
    waits = parts(chain.from_iterable(deferred), unsettled)
    published = PackedWaits(waits).latest()
    if len(requeued):
        published = PackedWaits(without(published.rising(), requeued.rising()))
    _defer_later(position, merge(requeued.rising(), published.rising()), now_ns)
    _queue_due(position, chain(requeued, published), now_ns)
    return ((low, high) for low, high, _, _ in merge(requeued.rising(), published.rising()))


def _defer_later(position: Position, rising: Iterable[Wait], now_ns: int) -> None:
    """Defer what is not due yet."""
    for low, high, due_ns, attempts in grouped(wait for wait in rising if wait[2] > now_ns):
        position.defer(due_ns, (low, high, attempts, None))


def _queue_due(position: Position, waits: Iterable[Wait], now_ns: int) -> None:
    """Queue what is due, each run behind those that were queued before it was."""
    last = position.end_of_queue

    def after(wait: Wait) -> int:
        # If the time of a requeue is unknown, the run goes to the end of the queue, in the order of due times.
        if wait[2] < 0:
            return min(-1 - wait[2], last)
        return last

    def order_in_queue(wait: Wait) -> int:
        return after(wait) << 64 | max(wait[2] + 1, 0)

    due = PackedWaits(wait for wait in waits if wait[2] <= now_ns).in_order(order_in_queue)
    for low, high, until, attempts in grouped((wait[0], wait[1], after(wait), wait[3]) for wait in due):
        position.requeue((low, high, attempts, None), until)
