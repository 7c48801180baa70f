"""A position, and its changes that are not in the channel's journal yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from nsqd_py.diskqueue.journals.ranges import Range
from nsqd_py.pqueues.deferred import DeferredQueue, Run, Wait, queued_after
from nsqd_py.pqueues.in_flight import InFlightTable, runs_of_entries
from nsqd_py.queue.position import Position
from nsqd_py.queue.storage import PositionJournal, SnapshotWrite

_LARGE_SNAPSHOT = 3000  # runs and ranges; 1 us each
_MANY_CHANGES = 3000  # ranges and runs; 0.8 us each


@dataclass(slots=True)
class JournalChange:
    """Changes that are being written to a journal.

    put    writes them
    error  the error of a failed write
    """

    put: Callable[[], None]
    finished: list[Range]
    waiting: list[Wait]
    error: OSError | None = None

    def write(self) -> None:
        """Write the changes, and set `error` if that fails. May run in a thread."""
        try:
            self.put()
        except OSError as error:
            self.error = error


class JournaledPosition:
    """A position, and its changes between two writes of the journal. Without a journal they are dropped.

    is_dirty  True if there are changes for `save_changes` to write
    tables    the in-flight messages of all clients
    """

    def __init__(self, position: Position, journal: PositionJournal | None) -> None:
        self.position = position
        self.journal = journal
        self.is_dirty = False
        self.tables: dict[InFlightTable, None] = {}
        self._new_finished: list[Range] = []
        self._new_waiting: list[Wait] = []

    def on_first_change(self) -> None:
        """Schedule the next write."""

    def save_soon(self) -> None:
        """Write the position with the next changes, also if it has none: the journal is behind it."""
        if not self.is_dirty:
            self.is_dirty = True
            self.on_first_change()

    def save_changes(self) -> None:
        """Write the changes. Raises OSError; then the next save writes them again."""
        unsaved = self.begin_save()
        unsaved.write()
        self.end_save(unsaved)

    def begin_save(self) -> JournalChange:
        """Return what `save_changes` would write. The caller writes it, perhaps in a thread, and calls `end_save`."""
        put: Callable[[], None] = _nothing
        journal = self.journal
        floor = self.position.finished.floor
        new_finished = self._new_finished[:]
        new_waiting = self._new_waiting[:]
        if journal is not None and self.wants_snapshot:
            waiting = self._all_waiting(count_in_flight=False)
            put = partial(journal.snapshot, floor, self.position.finished.islands(), waiting)
        elif journal is not None:
            put = partial(_put_change, journal, floor, new_finished, new_waiting)
        self._clear()
        return JournalChange(put, new_finished, new_waiting)

    def end_save(self, unsaved: JournalChange) -> None:
        """Complete the write. Raises OSError if it failed; then the next save writes the changes again."""
        if unsaved.error is not None:
            self._new_finished[:0] = unsaved.finished
            self._new_waiting[:0] = unsaved.waiting
            self.is_dirty = True
            raise unsaved.error

    def save_snapshot(self) -> None:
        """Write a snapshot, which includes the attempts of in-flight messages. Raises OSError."""
        if self.journal is not None:
            finished = self.position.finished
            self.journal.snapshot(
                finished.floor, finished.islands(), self._all_waiting(count_in_flight=False)
            )
        self._clear()

    def save_final(self) -> None:
        """Write what the journal lacks at a clean stop: the present attempt of in-flight messages counts.

        Raises OSError.
        """
        journal = self.journal
        finished = self.position.finished
        if journal is None:
            return
        waiting = self._all_waiting(count_in_flight=True)
        if self._wants_any_snapshot:
            journal.snapshot(finished.floor, finished.islands(), waiting)
        # The journal does not say where in the queue messages are that were deferred. A rename instead of an append takes
        # ten times as long.
        elif self.is_dirty or self.position.requeued or any(self.tables):
            journal.change(finished.floor, _merged(self._new_finished, finished.floor), waiting)

    def _clear(self) -> None:
        self._new_finished.clear()
        self._new_waiting.clear()
        self.is_dirty = False

    @property
    def has_many_changes(self) -> bool:
        """True if the next save takes so long that a thread must do it."""
        return len(self._new_finished) + len(self._new_waiting) > _MANY_CHANGES

    @property
    def _wants_any_snapshot(self) -> bool:
        if self.journal is None:
            return False
        runs = self._waiting_runs + sum(map(len, self.tables))
        return self.journal.wants_snapshot(self.position.finished.island_count, runs)

    @property
    def _waiting_runs(self) -> int:
        return len(self.position.requeued) + len(self.position.deferred)

    @property
    def _is_large(self) -> bool:
        return self._waiting_runs + self.position.finished.island_count > _LARGE_SNAPSHOT

    @property
    def wants_snapshot(self) -> bool:
        """True if the next save replaces the journal by a snapshot that is small enough for the event loop."""
        return not self._is_large and self._wants_any_snapshot

    @property
    def wants_large_snapshot(self) -> bool:
        """True if a snapshot is due that would block the event loop for long, so that a thread must write it."""
        return self._is_large and self._wants_any_snapshot

    def begin_large_snapshot(self) -> SnapshotWrite:
        """Return a snapshot of the present state. Later changes are appended to the journal as usual."""
        journal = self.journal
        position = self.position
        assert journal is not None
        floor = position.finished.floor
        finished = position.finished.unordered_islands()
        requeued = list(position.requeued)
        requeued_after = list(position.requeued_after)
        deferred = position.deferred.copy()
        in_flight = [*self._in_flight_waits(count_in_flight=False), *position.lost_waits]
        return journal.begin_large_snapshot(
            lambda: (floor, finished, [*_waits(requeued, requeued_after, deferred), *in_flight])
        )

    def _all_waiting(self, *, count_in_flight: bool) -> list[Wait]:
        position = self.position
        waits = _waits(position.requeued, position.requeued_after, position.deferred)
        return [*waits, *self._in_flight_waits(count_in_flight=count_in_flight), *position.lost_waits]

    def _in_flight_waits(self, *, count_in_flight: bool) -> list[Wait]:
        waits = []
        queued = queued_after(self.position.end_of_queue)
        for table in self.tables:
            for low, high, delivery in runs_of_entries(list(table.entries())):
                attempts = delivery.attempts if count_in_flight else delivery.attempts - 1
                if attempts:
                    waits.append((low, high, queued, attempts))
        return waits


def _waits(requeued: Iterable[Run], requeued_after: Iterable[int], deferred: DeferredQueue) -> Iterator[Wait]:
    for (low, high, attempts, _), after in zip(requeued, requeued_after, strict=True):
        yield low, high, queued_after(after), attempts
    for due_ns, (low, high, attempts, _) in deferred:
        yield low, high, due_ns, attempts


def _nothing() -> None:
    pass


def _put_change(journal: PositionJournal, floor: int, finished: list[Range], waiting: list[Wait]) -> None:
    """Write these changes. May run in a thread, to which the lists are lent until `JournalChange.write` has returned."""
    journal.change(floor, _merged(finished, floor), waiting)


def _merged(finished: list[Range], floor: int) -> list[Range]:
    """Return the ranges above the floor; adjacent ones are merged."""
    merged: list[Range] = []
    for low, high in sorted(finished):
        if high <= floor:
            continue
        if merged and merged[-1][1] == low:
            low = merged.pop()[0]
        merged.append((low, high))
    return merged
