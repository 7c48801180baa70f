"""Messages in columns, as tools take them from a consumer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Columns(Protocol):
    """Messages of one topic, as `nsqd_py.client.MessageBatch` has them: an item in each list for each message."""

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
