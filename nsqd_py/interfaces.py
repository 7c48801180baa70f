"""Interfaces of objects that do I/O, for the rooms that must not import them: logs, files and the event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from nsqd_py.batch import Batch
from nsqd_py.memory_budget import MemoryBudget

# ---- log lines


class LineWriter(Protocol):
    """A log; `text % args` is the line. `nsqd_py.runtime.logs.Log` and `logging.Logger` fit."""

    def debug(self, text: str, /, *args: object) -> None: ...
    def info(self, text: str, /, *args: object) -> None: ...
    def warning(self, text: str, /, *args: object) -> None: ...
    def error(self, text: str, /, *args: object) -> None: ...
    def exception(self, text: str, /, *args: object) -> None: ...


class DaemonLog(LineWriter, Protocol):
    """The log of a daemon; `of_clients` is for lines that clients can cause."""

    @property
    def of_clients(self) -> LineWriter: ...


# ---- the event loop


class Committer(Protocol):
    """A topic with publishes that are not in its log yet."""

    def write(self) -> None:
        """Write them to the log. Then their publishers are answered."""

    def accept(self) -> None:
        """Do what their publishers need not wait for, such as the release to the channels."""


class Deliverer(Protocol):
    """A channel that may have something for a client that is ready."""

    def deliver(self) -> None: ...


class Flusher(Protocol):
    """A connection or log with something to write."""

    def flush(self) -> None: ...


class IterationEnd(Protocol):
    """The work for the end of this event-loop iteration: `nsqd_py.net.loop_iteration.LoopIteration`."""

    def add_committer(self, committer: Committer, /) -> None: ...
    def add_deliverer(self, deliverer: Deliverer, /) -> None: ...
    def add_patient_deliverer(self, deliverer: Deliverer, /) -> None: ...
    def add_flusher(self, flusher: Flusher, /) -> None: ...
    def is_late(self) -> bool: ...


# ---- files


class AppendSteps(Protocol):
    """A write of batches in steps of one system call each: `nsqd_py.diskqueue.syncing.Appending`."""

    is_written: bool

    def step(self) -> None: ...


class MessageLog(Protocol):
    """The log of a topic, as the topic uses it: `nsqd_py.diskqueue.log.TopicLog`. Its methods raise OSError."""

    next_seq: int
    latest_due_ns: int

    @property
    def size_bytes(self) -> int: ...

    def use_budget(self, budget: MemoryBudget, /) -> None: ...
    def allocate_ahead(self, *, wanted: bool) -> None: ...
    def leave_last_file(self) -> None: ...

    def append_at_once(self, batches: list[Batch], size: int, /) -> bool: ...
    def waits_for_descriptor(self, size: int, /) -> bool: ...
    def begin_append(self, batches: list[Batch], /) -> AppendSteps: ...
    def end_append(self, appending: Any, /) -> None: ...

    def read(self, seq: int, /) -> list[Batch]: ...
    def read_each(self, seqs: Sequence[int], /) -> Iterator[Batch | None]: ...
    def readable_from(self, seq: int, /) -> int: ...
    def first_published_since(self, steady_ns: int, low: int, *, by_timestamp: bool) -> int | None: ...


class SnapshotWrite(Protocol):
    """A large snapshot of a journal that a thread writes: `nsqd_py.diskqueue.journal.LargeSnapshot`."""

    def write(self) -> None: ...
    def finish(self) -> None: ...
    def abandon(self) -> None: ...


Ranges = Iterable[tuple[int, int]]
Waits = Iterable[tuple[int, int, int, int]]


class PositionJournal(Protocol):
    """The journal of a channel: `nsqd_py.diskqueue.journal.Journal`. Its methods raise OSError."""

    version: int
    size_bytes: int
    is_unsynced: bool

    def change(self, floor: int, finished: Ranges, waiting: Waits, /) -> None: ...
    def snapshot(self, floor: int, finished: Ranges, waiting: Waits, /) -> None: ...
    def wants_snapshot(self, ranges: int, runs: int, /) -> bool: ...
    def begin_large_snapshot(self, make: Callable[[], tuple[int, Ranges, Waits]], /) -> SnapshotWrite: ...
    def mark_deleted(self) -> None: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...
    def remove(self) -> None: ...
