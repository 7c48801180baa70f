"""Producers whose publishes have spans. Calls and attributes that are not here are those of the producer itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from nsqd_py.client.errors import NsqClientError
from nsqd_py.client.publishing.publish import Done, Failures
from nsqd_py.otel.operation import Operation

# Begins the span of a publish, and returns the bodies to send.
Begin = Callable[[str, Sequence[Any]], tuple[Operation, list[Any]]]


class _Traced:
    def __init__(self, producer: Any, begin: Begin) -> None:
        self._producer = producer
        self._begin = begin
        # `on_done` is ours, so the producer's `flush` does not raise what it reports.
        self._failures = Failures()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def _done(self, publish: Operation, on_done: Done | None) -> Done:
        def end(error: NsqClientError | None) -> None:
            publish.end(error)
            if on_done is not None:
                on_done(error)
            elif error is not None:
                self._failures.add(error)

        return end


class TracedProducer(_Traced):
    """A producer of threads or of gevent."""

    def publish(self, topic: str, body: Any, *, defer_s: float = 0) -> None:
        publish, (wrapped,) = self._begin(topic, [body])
        with publish.run():
            self._producer.publish(topic, wrapped, defer_s=defer_s)

    def multi_publish(self, topic: str, bodies: Sequence[Any]) -> None:
        publish, wrapped = self._begin(topic, bodies)
        with publish.run():
            self._producer.multi_publish(topic, wrapped)

    def publish_soon(self, topic: str, body: Any, on_done: Done | None = None, *, defer_s: float = 0) -> Any:
        publish, (wrapped,) = self._begin(topic, [body])
        with publish.end_on_error():
            return self._producer.publish_soon(topic, wrapped, self._done(publish, on_done), defer_s=defer_s)

    def multi_publish_soon(self, topic: str, bodies: Sequence[Any], on_done: Done | None = None) -> Any:
        publish, wrapped = self._begin(topic, bodies)
        with publish.end_on_error():
            return self._producer.multi_publish_soon(topic, wrapped, self._done(publish, on_done))

    def flush(self, timeout_s: float | None = None) -> None:
        self._producer.flush(timeout_s)
        self._failures.raise_new()

    def close(self, timeout_s: float | None = None) -> None:
        self._producer.close(timeout_s)
        self._failures.raise_new()

    def __enter__(self) -> Self:
        self._producer.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._producer.__exit__(kind, error, trace)
        if error is None:  # the first error says more
            self._failures.raise_new()


class AsyncTracedProducer(_Traced):
    """A producer of asyncio."""

    async def publish(self, topic: str, body: Any, *, defer_s: float = 0) -> None:
        publish, (wrapped,) = self._begin(topic, [body])
        with publish.run():
            await self._producer.publish(topic, wrapped, defer_s=defer_s)

    async def multi_publish(self, topic: str, bodies: Sequence[Any]) -> None:
        publish, wrapped = self._begin(topic, bodies)
        with publish.run():
            await self._producer.multi_publish(topic, wrapped)

    async def publish_soon(
        self, topic: str, body: Any, on_done: Done | None = None, *, defer_s: float = 0
    ) -> Any:
        publish, (wrapped,) = self._begin(topic, [body])
        with publish.end_on_error():
            return await self._producer.publish_soon(
                topic, wrapped, self._done(publish, on_done), defer_s=defer_s
            )

    async def multi_publish_soon(self, topic: str, bodies: Sequence[Any], on_done: Done | None = None) -> Any:
        publish, wrapped = self._begin(topic, bodies)
        with publish.end_on_error():
            return await self._producer.multi_publish_soon(topic, wrapped, self._done(publish, on_done))

    async def flush(self, timeout_s: float | None = None) -> None:
        await self._producer.flush(timeout_s)
        self._failures.raise_new()

    async def close(self, timeout_s: float | None = None) -> None:
        await self._producer.close(timeout_s)
        self._failures.raise_new()

    async def __aenter__(self) -> Self:
        await self._producer.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: Any
    ) -> None:
        await self._producer.__aexit__(kind, error, trace)
        if error is None:  # the first error says more
            self._failures.raise_new()
