"""What handing out messages needs of others: consumers, a source of bodies, somebody who keeps the books."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from nsqd_py.batch import Batch
from nsqd_py.pqueues import Run
from nsqd_py.queue.in_flight import InFlightTable


class Consumer(Protocol):
    """What a channel needs of a connection that subscribed to it."""

    in_flight: InFlightTable
    is_waiting: bool  # in the channel's row of clients that could take a message
    msg_timeout_ns: int
    sample_rate: int
    message_count: int
    nearness: int  # how near it is to this nsqd, see `nsqd_py.queue.position`

    def capacity(self) -> int:
        """How many messages it takes now: RDY less what is in flight, 0 while it has no room."""

    def room_bytes(self) -> int:
        """About how many bytes may be sent to it at once."""

    def send_frames(self, parts: list[bytes], size_bytes: int) -> None:
        """Send parts of frames, about `size_bytes` in all."""

    def watch_deadline(self, deadline_ns: int) -> None:
        """Call `expire` of the channel no later than this."""

    def close(self, reason: str) -> None: ...


class MessageSource(Protocol):
    """Where a channel gets bodies from: its topic."""

    def batch_at(self, seq: int) -> Batch | None:
        """The batch that holds `seq`, or the first behind it; None when there is neither. Raises OSError."""

    def batches_at(self, seqs: list[int]) -> Iterator[Batch | None]:
        """For each of these numbers, in rising order, what `batch_at` gives: without those around it."""

    def readable_from(self, seq: int) -> int:
        """From which number on there may be messages to read, when those from `seq` on cannot be."""

    def most_unfinished(self) -> int | None:
        """How many messages a channel may hold of those that are in memory only; None while there is room."""


class Books(Protocol):
    """Who writes down what becomes of messages: the channel."""

    def mark_finished(self, low: int, high: int) -> None:
        """Messages low..high (not included), of which none was, are done with."""

    def defer(self, due_ns: int, run: Run) -> None:
        """Queue these again at that time."""

    def queue_strays(self) -> None:
        """Some messages are neither queued nor in flight, since others with their ids are."""
