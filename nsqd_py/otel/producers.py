"""Producers whose publishes have spans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

# Returns a block that is the span of a publish; it yields the bodies to send.
Publishing = Callable[[str, Sequence[Any]], AbstractContextManager[list[Any]]]


class TracedProducer:
    """A producer of the threaded or of the gevent client, whose publishes have spans.

    Other calls and attributes are those of the producer.
    """

    def __init__(self, producer: Any, publishing: Publishing) -> None:
        self._producer = producer
        self._publishing = publishing

    def publish(self, topic: str, body: bytes, *, defer_s: float = 0) -> None:
        """Publish as the producer does, in a span."""
        with self._publishing(topic, [body]) as (wrapped,):
            self._producer.publish(topic, wrapped, defer_s=defer_s)

    def multi_publish(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Publish as the producer does, in one span. All messages carry the same context."""
        with self._publishing(topic, bodies) as wrapped:
            self._producer.multi_publish(topic, wrapped)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def __enter__(self) -> Self:
        self._producer.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._producer.__exit__(*error)
