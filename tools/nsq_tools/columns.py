"""The interface of a batch of messages in columns, and such batches from a log of nsqd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from nsqd_py.batch import Batch
    from nsqd_py.diskqueue.messages import Messages


class Columns(Protocol):
    """Messages of one topic. Each sequence has one item a message. `nsqd_py.client.MessageBatch` implements it."""

    def __len__(self) -> int: ...

    @property
    def topic(self) -> str: ...

    @property
    def channel(self) -> str: ...

    @property
    def nsqd(self) -> str: ...

    @property
    def ids(self) -> Sequence[bytes]: ...

    @property
    def bodies(self) -> Sequence[bytes]: ...

    @property
    def timestamps_ns(self) -> Sequence[int]: ...

    @property
    def attempts(self) -> Sequence[int]: ...


def published(batch: Batch, topic: str, nsqd: str = "") -> Messages:
    """Return the messages of a batch as it was published: without a channel, after no attempt."""
    from nsqd_py.diskqueue.messages import Messages
    from nsqd_py.protocol.frames import hex_ids

    count = batch.count
    bodies = list(map(batch.message, range(count)))
    return Messages(topic, "", nsqd, [batch.timestamp_ns] * count, [0] * count, hex_ids(batch.base_id, count), bodies)


def tail_of(messages: Messages, low: int) -> Messages:
    """Return the messages from index `low` on."""
    from dataclasses import replace

    columns = ("timestamps_ns", "attempts", "ids", "bodies")
    return replace(messages, **{name: getattr(messages, name)[low:] for name in columns})
