"""The interface of the event loop: what is done at the end of an iteration, and for whom."""

from __future__ import annotations

from typing import Protocol


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
    def add_deferred_deliverer(self, deliverer: Deliverer, /) -> None: ...
    def add_flusher(self, flusher: Flusher, /) -> None: ...
    def is_late(self) -> bool: ...
