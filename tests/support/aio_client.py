"""The client for asyncio behind the methods of the other clients, so that the same tests run on it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, wraps
from typing import Any, TypeVar

from nsqd_py.client import aio

T = TypeVar("T")

_DEADLINE_S = 60.0
_making_loop = threading.Lock()  # `cache` lets several threads make one each


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """An event loop that runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="event loop", daemon=True).start()
    return loop


def run(awaitable: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine in that loop."""
    with _making_loop:
        loop = _loop()
    return asyncio.run_coroutine_threadsafe(awaitable, loop).result(_DEADLINE_S)


def run_in_new_loop(awaitable: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine in an event loop of its own.

    It has a thread of its own too: in this one, Playwright's sync API runs a loop, if a test has used it before.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, awaitable).result(_DEADLINE_S)


async def until(condition: Callable[[], object]) -> None:
    """Return when the condition is true. The event loop goes on in the meantime."""
    async with asyncio.timeout(_DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.001)


class SoonPublished:
    """What `publish_soon` returns."""

    def __init__(self, future: asyncio.Future[None]) -> None:
        self._future = future

    @property
    def is_over(self) -> bool:
        return self._future.done()

    @property
    def error(self) -> BaseException | None:
        return self._future.exception()


class AioProducer:
    """The methods of a `BaseProducer`."""

    def __init__(self, *addresses: str, **settings: Any) -> None:
        self.producer = aio.Producer(*addresses, **settings)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.producer, name)

        def call(*args: Any, **keywords: Any) -> Any:
            result = run(method(*args, **keywords))
            return SoonPublished(result) if isinstance(result, asyncio.Future) else result

        return call

    def __enter__(self) -> AioProducer:
        return self

    def __exit__(self, *error: object) -> None:
        run(self.producer.__aexit__(*error))  # type: ignore[arg-type]


class AioConsumer:
    """The methods of a `BaseConsumer`. Handlers run in threads, and may wait."""

    def __init__(
        self,
        topic: str,
        channel: str,
        handler: Callable[[Any], object] | None = None,
        *,
        batch_handler: Callable[[Any], object] | None = None,
        **settings: Any,
    ) -> None:
        self.consumer = aio.Consumer(
            topic, channel, _in_thread(handler), batch_handler=_in_thread(batch_handler), **settings
        )
        self._is_inside = False  # of a handler or a loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self.consumer, name)

    def start(self) -> None:
        run(self.consumer.start())

    def stop(self, timeout_s: float = 30.0) -> None:
        if self._is_inside or threading.current_thread().name.startswith("asyncio"):
            asyncio.run_coroutine_threadsafe(self.consumer.stop(timeout_s), _loop())
        else:
            run(self.consumer.stop(timeout_s))

    def wait(self, timeout_s: float | None = None) -> bool:
        return run(self.consumer.wait(timeout_s))

    def run(self) -> None:
        run(self.consumer.run())

    def next(self, timeout_s: float | None = None) -> Any:
        return run(self.consumer.next(timeout_s))

    def messages(self, idle_timeout_s: float | None = None) -> Iterator[Any]:
        return self._iterate(self.consumer.messages(idle_timeout_s))

    def batches(self, idle_timeout_s: float | None = None) -> Iterator[Any]:
        return self._iterate(self.consumer.batches(idle_timeout_s))

    def __iter__(self) -> Iterator[Any]:
        return self.messages()

    def _iterate(self, items: Any) -> Iterator[Any]:
        async def following() -> Any:
            return await anext(items, None)

        async def leave() -> None:
            await items.aclose()

        try:
            while (item := run(following())) is not None:
                self._is_inside = True
                yield item
                self._is_inside = False
        finally:
            self._is_inside = False
            run(leave())

    def __enter__(self) -> AioConsumer:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        run(self.consumer.__aexit__(*error))  # type: ignore[arg-type]


def _in_thread(handler: Callable[[Any], object] | None) -> Any:
    if handler is None:
        return None

    @wraps(handler)
    async def handle(item: Any) -> object:
        return await asyncio.to_thread(handler, item)

    return handle
