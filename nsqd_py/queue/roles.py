"""The interfaces that channels and delivery use: consumers, a source of messages, a listener, a meter, options."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from nsqd_py.batch import Batch
from nsqd_py.pqueues import Run
from nsqd_py.protocol.frames import Part
from nsqd_py.queue.in_flight import Delivery, InFlightTable


class Consumer(Protocol):
    """A connection that subscribed to a channel."""

    peer: str  # its address, as people read it
    in_flight: InFlightTable
    is_waiting: bool  # in the channel's queue of clients that can take a message
    msg_timeout_ns: int
    sample_rate: int
    message_count: int
    nearness: int  # GLOBAL, REGION_LOCAL or ZONE_LOCAL, see `nsqd_py.queue.position`

    def capacity(self) -> int:
        """Return the number of messages it takes now: RDY minus in flight, 0 while its output buffer is full."""

    def room_bytes(self) -> int:
        """Return the approximate number of bytes that may be sent to it now."""

    def send_frames(self, parts: list[Part], size_bytes: int) -> None:
        """Send parts of frames, about `size_bytes` in all."""

    def watch_deadline(self, deadline_ns: int) -> None:
        """Call `expire` of the channel no later than this."""

    def close(self, reason: str) -> None: ...


class MessageSource(Protocol):
    """The source of a channel's messages: its topic."""

    def batch_at(self, seq: int) -> Batch | None:
        """Return the batch that contains `seq`, or else the next batch, or None. Raises OSError."""

    def batches_at(self, seqs: list[int]) -> Iterator[Batch | None]:
        """Yield `batch_at` of each of these numbers, which must ascend. Neighbouring batches are not read."""

    def readable_from(self, seq: int) -> int:
        """Return the next number after `seq` from which messages may be readable, if `seq` is not."""

    def most_unfinished(self) -> int | None:
        """Return the limit on a channel's unfinished messages if they are in memory only; None while memory is free."""


class DeliveryListener(Protocol):
    """The object that records the outcome of deliveries: the channel."""

    def mark_finished(self, low: int, high: int) -> None:
        """Finish messages low..high (high excluded), none of which is finished yet."""

    def defer(self, due_ns: int, run: Run) -> None:
        """Requeue these messages at that time."""

    def queue_strays(self) -> None:
        """Requeue messages that left the in-flight table because another message has the same id."""


class FinishMeter(Protocol):
    """Measures the time of messages from publish to FIN."""

    def finished(self, deliveries: Mapping[Delivery, int]) -> None:
        """Add finished messages, counted by delivery."""

    def figures(self, others: Iterable[Any]) -> dict[str, Any]:
        """Return count and percentiles, merged with those of other meters."""


class ChannelLimits(Protocol):
    """The options that apply to channels; times in ns."""

    @property
    def enable_experiment(self) -> Sequence[str]: ...

    mem_queue_size: int
    max_msg_timeout_ns: int
    max_channel_consumers: int
