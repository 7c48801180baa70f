"""Portions: the messages of one batch from nsqd, or a part of them if a file ends within the batch. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Protocol

from nsq_tools.messages import Columns
from nsqd_py.client.message import AlreadyAnswered


class SourceBatch(Columns, Protocol):
    """The part of `nsqd_py.client.MessageBatch` that is used here: the messages, and the answers to nsqd."""

    def finish(self) -> None: ...

    def finish_some(self, ids: Sequence[bytes]) -> None: ...

    def requeue(self, delay_s: float | None = None, ids: Sequence[bytes] | None = None) -> None: ...


class Portion:
    """Messages `start` to `stop` (not included) of a batch, in columns; by default all."""

    __slots__ = ("_batch", "_start", "attempts", "bodies", "channel", "ids", "nsqd", "size_bytes", "timestamps_ns", "topic")

    def __init__(self, batch: SourceBatch, start: int = 0, stop: int | None = None) -> None:
        self._batch = batch
        self._start = start
        self.topic = batch.topic
        self.channel = batch.channel
        self.nsqd = batch.nsqd
        self.ids, self.bodies = batch.ids, batch.bodies
        self.timestamps_ns, self.attempts = batch.timestamps_ns, batch.attempts
        if stop is not None:
            self.ids, self.bodies = self.ids[start:stop], self.bodies[start:stop]
            self.timestamps_ns, self.attempts = self.timestamps_ns[start:stop], self.attempts[start:stop]
        self.size_bytes = sum(map(len, self.bodies))

    def __len__(self) -> int:
        return len(self.ids)

    def split(self, room_bytes: int, overhead_bytes: int) -> tuple[Portion, Portion | None]:
        """Split after the message that exceeds the room. A message takes its body and `overhead_bytes`."""
        if self.size_bytes + overhead_bytes * len(self) <= room_bytes:
            return self, None
        ends = accumulate(len(body) + overhead_bytes for body in self.bodies)
        count = next((place for place, end in enumerate(ends, 1) if end > room_bytes), len(self))
        if count == len(self):
            return self, None
        middle, stop = self._start + count, self._start + len(self)
        return Portion(self._batch, self._start, middle), Portion(self._batch, middle, stop)

    def finish(self) -> None:
        # A message that is in two batches can be answered once only. nsqd then delivers the others again.
        with suppress(AlreadyAnswered):
            if len(self) == len(self._batch):
                self._batch.finish()
            else:
                self._batch.finish_some(self.ids)

    def requeue(self) -> None:
        with suppress(AlreadyAnswered):
            self._batch.requeue(0, self.ids)


class Tally:
    """The number of messages, with the earliest and latest timestamp (ns since the epoch; None if unknown)."""

    __slots__ = ("first_timestamp_ns", "last_timestamp_ns", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.first_timestamp_ns: int | None = None
        self.last_timestamp_ns: int | None = None

    def add(self, portion: Portion) -> None:
        self.add_all(len(portion), min(portion.timestamps_ns), max(portion.timestamps_ns))

    def add_all(self, messages: int, first_ns: int | None = None, last_ns: int | None = None) -> None:
        """Add messages with their earliest and latest timestamp, if these are known."""
        self.messages += messages
        if first_ns is not None and last_ns is not None:
            first, last = self.first_timestamp_ns, self.last_timestamp_ns
            self.first_timestamp_ns = first_ns if first is None else min(first, first_ns)
            self.last_timestamp_ns = last_ns if last is None else max(last, last_ns)
