"""The interface of a batch of messages in columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


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
