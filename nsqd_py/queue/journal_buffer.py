"""Changes of a channel's position that are not written to its journal yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from nsqd_py.diskqueue.journal import CHANGE, SNAPSHOT, Journal, Replacement, Wait, encode_entry, queued_after
from nsqd_py.diskqueue.ranges import Range
from nsqd_py.pqueues import DeferredQueue, Run
from nsqd_py.queue.in_flight import Delivery, Entry, InFlightTable
from nsqd_py.queue.position import Position

_LARGE_SNAPSHOT = 3000  # runs and ranges; 1 us each


@dataclass(slots=True)
class Unsaved:
    """Changes that are being written to a journal.

    put    writes the entry; None without a journal
    error  the error of a failed write
    """

    put: Callable[[bytes], None] | None
    entry: bytes
    finished: list[Range]
    waiting: list[Wait]
    error: OSError | None = None

    def write(self) -> None:
        """Write the entry, and set `error` if that fails. May run in a thread."""
        if self.put is not None:
            try:
                self.put(self.entry)
            except OSError as error:
                self.error = error


class JournalBuffer:
    """Collects changes of a position between two writes. Without a journal they are dropped.

    is_dirty  True if there are changes; the caller sets it with the first one, and schedules the next write
    """

    __slots__ = ("_new_finished", "_new_waiting", "_position", "is_dirty", "journal", "note_finished", "note_waiting")

    def __init__(self, position: Position, journal: Journal | None) -> None:
        self.journal = journal
        self.is_dirty = False
        self._position = position
        self._new_finished: list[Range] = []
        self._new_waiting: list[Wait] = []
        self.note_finished = self._new_finished.append
        self.note_waiting = self._new_waiting.append

    def save_changes(self, tables: Iterable[InFlightTable]) -> None:
        """Write the changes. Raises OSError; then the changes are kept."""
        self.is_dirty = False
        journal = self.journal
        if journal is not None:
            try:
                if self.wants_small_snapshot(tables):
                    self.save(tables)
                else:
                    journal.change(self._position.finished.floor, self._changed_ranges(), self._new_waiting)
            except OSError:
                self.is_dirty = True
                raise
        self._new_finished.clear()
        self._new_waiting.clear()

    def take_changes(self, tables: Iterable[InFlightTable]) -> Unsaved:
        """Return what `save_changes` would write. The caller writes it, perhaps in a thread, and calls `end_save`."""
        put, entry = None, b""
        journal = self.journal
        floor = self._position.finished.floor
        if journal is not None and self.wants_small_snapshot(tables):
            waiting = self._all_waiting(tables, count_in_flight=False)
            put, entry = journal.replace, encode_entry(SNAPSHOT, floor, self._position.finished.islands(), waiting)
        elif journal is not None:
            put, entry = journal.append, encode_entry(CHANGE, floor, self._changed_ranges(), self._new_waiting)
        unsaved = Unsaved(put, entry, self._new_finished[:], self._new_waiting[:])
        self._new_finished.clear()
        self._new_waiting.clear()
        self.is_dirty = False
        return unsaved

    def end_save(self, unsaved: Unsaved) -> None:
        """Complete the write. Raises OSError if it failed; then the changes are kept."""
        if unsaved.error is not None:
            self._new_finished[:0] = unsaved.finished
            self._new_waiting[:0] = unsaved.waiting
            self.is_dirty = True
            raise unsaved.error

    def _changed_ranges(self) -> list[Range]:
        """Return the newly finished ranges above the floor; adjacent ranges are merged."""
        floor = self._position.finished.floor
        merged: list[Range] = []
        for low, high in sorted(self._new_finished):
            if high <= floor:
                continue
            if merged and merged[-1][1] == low:
                low = merged.pop()[0]
            merged.append((low, high))
        return merged

    def save(self, tables: Iterable[InFlightTable]) -> None:
        """Write a snapshot, which includes the attempts of in-flight messages. Raises OSError."""
        if self.journal is not None:
            finished = self._position.finished
            waiting = self._all_waiting(tables, count_in_flight=False)
            self.journal.snapshot(finished.floor, finished.islands(), waiting)
        self._new_finished.clear()
        self._new_waiting.clear()
        self.is_dirty = False

    def save_at_the_end(self, tables: Iterable[InFlightTable]) -> None:
        """Write what the journal lacks at a clean stop: the present attempt of in-flight messages counts.

        Raises OSError.
        """
        journal, finished = self.journal, self._position.finished
        if journal is None:
            return
        waiting = self._all_waiting(tables, count_in_flight=True)
        if self._wants_snapshot(tables):
            journal.snapshot(finished.floor, finished.islands(), waiting)
        # The places of queued messages that were deferred are not in the journal. A rename instead of an append takes
        # ten times as long.
        elif self.is_dirty or self._position.again or any(tables):
            journal.change(finished.floor, self._changed_ranges(), waiting)

    def _wants_snapshot(self, tables: Iterable[InFlightTable]) -> bool:
        position = self._position
        runs = len(position.again) + len(position.deferred) + sum(map(len, tables))
        return self.journal is not None and self.journal.wants_snapshot(position.finished.island_count, runs)

    def wants_small_snapshot(self, tables: Iterable[InFlightTable]) -> bool:
        """True if the next save replaces the journal by a snapshot that is small enough for the event loop."""
        return not self._is_large and self._wants_snapshot(tables)

    def wants_replacement(self, tables: Iterable[InFlightTable]) -> bool:
        """True if a snapshot is due that would block the event loop for long, so that a thread must write it."""
        return self._is_large and self._wants_snapshot(tables)

    @property
    def _is_large(self) -> bool:
        position = self._position
        return len(position.again) + len(position.deferred) + position.finished.island_count > _LARGE_SNAPSHOT

    def begin_replacement(self, tables: Iterable[InFlightTable]) -> Replacement:
        """Return a snapshot of the present state. Later changes are appended to the journal as usual."""
        assert self.journal is not None
        position = self._position
        floor, finished = position.finished.floor, position.finished.unordered_islands()
        again, again_after = list(position.again), list(position.again_after)
        deferred = position.deferred.copy()
        in_flight = self._in_flight(tables, count_in_flight=False)
        return self.journal.begin_replacement(
            lambda: encode_entry(SNAPSHOT, floor, finished, [*_waits(again, again_after, deferred), *in_flight])
        )

    def _all_waiting(self, tables: Iterable[InFlightTable], *, count_in_flight: bool) -> list[Wait]:
        position = self._position
        waits = _waits(position.again, position.again_after, position.deferred)
        return [*waits, *self._in_flight(tables, count_in_flight=count_in_flight)]

    def _in_flight(self, tables: Iterable[InFlightTable], *, count_in_flight: bool) -> list[Wait]:
        waits = []
        queued = queued_after(self._position.end_of_queue)
        for table in tables:
            for low, high, delivery in runs_of_entries(list(table.entries())):
                attempts = delivery.attempts if count_in_flight else delivery.attempts - 1
                if attempts:
                    waits.append((low, high, queued, attempts))
        return waits


def _waits(again: Iterable[Run], again_after: Iterable[int], deferred: DeferredQueue) -> Iterator[Wait]:
    for (low, high, attempts, _), after in zip(again, again_after, strict=True):
        yield low, high, queued_after(after), attempts
    for due_ns, (low, high, attempts, _) in deferred:
        yield low, high, due_ns, attempts


def runs_of_entries(entries: list[Entry]) -> Iterator[tuple[int, int, Delivery]]:
    """Yield runs (low, high, delivery) of entries with consecutive numbers and the same delivery."""
    entries.sort(key=lambda entry: entry[0])
    start = 0
    for index in range(1, len(entries) + 1):
        if index == len(entries) or entries[index][0] != entries[index - 1][0] + 1 or entries[index][1] is not entries[start][1]:
            yield entries[start][0], entries[index - 1][0] + 1, entries[start][1]
            start = index
