"""Portions: what came from nsqd together, or a part of it where a file ended in between."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Protocol

from nsq_tools.columns import Columns
from nsqd_py.client.message import AlreadyAnswered


class Batch(Columns, Protocol):
    """What of `nsqd_py.client.MessageBatch` is used here: the messages, and the answers to nsqd."""

    def finish(self) -> None: ...

    def finish_some(self, ids: Sequence[bytes]) -> None: ...

    def requeue(self, delay_s: float | None = None, ids: Sequence[bytes] | None = None) -> None: ...


class Portion:
    """Messages `start` to `stop` (not included) of a batch, in columns."""

    __slots__ = (
        "_batch", "_start", "attempts", "bodies", "channel", "ids", "nsqd", "size_bytes", "timestamps_ns", "topic",
    )  # fmt: skip

    def __init__(self, batch: Batch, start: int, stop: int) -> None:
        self._batch = batch
        self._start = start
        self.topic = batch.topic
        self.channel = batch.channel
        self.nsqd = batch.nsqd
        self.ids, self.bodies = batch.ids, batch.bodies
        self.timestamps_ns, self.attempts = batch.timestamps_ns, batch.attempts
        if stop - start < len(batch):
            self.ids, self.bodies = self.ids[start:stop], self.bodies[start:stop]
            self.timestamps_ns, self.attempts = self.timestamps_ns[start:stop], self.attempts[start:stop]
        self.size_bytes = sum(map(len, self.bodies))

    @classmethod
    def whole(cls, batch: Batch) -> Portion:
        return cls(batch, 0, len(batch))

    def __len__(self) -> int:
        return len(self.ids)

    def split(self, room_bytes: int, overhead_bytes: int) -> tuple[Portion, Portion | None]:
        """The messages up to the one that exceeds the room, at `overhead_bytes` each; and the others, if any."""
        if self.size_bytes + overhead_bytes * len(self) <= room_bytes:
            return self, None
        ends = accumulate(len(body) + overhead_bytes for body in self.bodies)
        count = next((place for place, end in enumerate(ends, 1) if end > room_bytes), len(self))
        if count == len(self):
            return self, None
        middle, stop = self._start + count, self._start + len(self)
        return Portion(self._batch, self._start, middle), Portion(self._batch, middle, stop)

    def finish(self) -> None:
        # One that is here twice cannot be answered twice: then nsqd hands all of them out once more.
        with suppress(AlreadyAnswered):
            if len(self) == len(self._batch):
                self._batch.finish()
            else:
                self._batch.finish_some(self.ids)

    def requeue(self) -> None:
        with suppress(AlreadyAnswered):
            self._batch.requeue(0, self.ids)


class Tally:
    """How many messages, and between which times (ns since the epoch; None: not known)."""

    __slots__ = ("first_timestamp_ns", "last_timestamp_ns", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.first_timestamp_ns: int | None = None
        self.last_timestamp_ns: int | None = None

    def add(self, portion: Portion) -> None:
        self.add_all(len(portion), min(portion.timestamps_ns), max(portion.timestamps_ns))

    def add_all(self, messages: int, first_ns: int | None = None, last_ns: int | None = None) -> None:
        """`messages`, of which the earliest and the latest are known, or not."""
        self.messages += messages
        if first_ns is not None and last_ns is not None:
            first, last = self.first_timestamp_ns, self.last_timestamp_ns
            self.first_timestamp_ns = first_ns if first is None else min(first, first_ns)
            self.last_timestamp_ns = last_ns if last is None else max(last, last_ns)
