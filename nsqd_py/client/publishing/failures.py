"""What can be wrong with a publish before it leaves, and with some of many afterwards."""

from __future__ import annotations

from typing import Any

from nsqd_py.client.errors import NsqClientError, PublishFailed


class BadBody(NsqClientError, ValueError):
    """Nothing that could be published; nsqd was not asked."""


class FlushFailed(PublishFailed):
    """Some of the publishes failed that nobody was waiting for.

    count  how many
    first  why the first of them did; `address`, `code` and `text` are those of it, where it has any
    """

    def __init__(self, count: int, first: NsqClientError) -> None:
        super().__init__(getattr(first, "address", ""), getattr(first, "code", ""), getattr(first, "text", str(first)))
        self.args = (f"{count} publish{'es' if count > 1 else ''} failed, the first because of {first}",)
        self.count = count
        self.first = first

    def __reduce__(self) -> tuple[type[FlushFailed], tuple[Any, ...]]:
        return type(self), (self.count, self.first)


class Failures:
    """Failed publishes that nobody was told about."""

    __slots__ = ("_count", "_first")

    def __init__(self) -> None:
        self._count = 0
        self._first: NsqClientError | None = None

    def add(self, error: NsqClientError) -> None:
        self._count += 1
        if self._first is None:
            self._first = error

    def take(self) -> FlushFailed | None:
        """The error to raise for them, once."""
        count, first = self._count, self._first
        self._count, self._first = 0, None
        return FlushFailed(count, first) if first is not None else None
