"""The producer for asyncio.

    async with Producer("127.0.0.1:4150") as producer:
        await producer.publish("topic", b"waits for OK")
        futures = [await producer.publish_soon("topic", line) for line in lines]
        await producer.flush()

All tasks of one event loop share it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Self, Unpack

from nsqd_py.client.errors import NsqClientError, WrongPlace
from nsqd_py.client.keywords import ProducerKeywords
from nsqd_py.client.publishing import encoding
from nsqd_py.client.publishing.base import BaseProducer
from nsqd_py.client.publishing.encoding import Body
from nsqd_py.client.publishing.publish import Done, Failures, Publish
from nsqd_py.client.threads import producer as threads

# So many publishes go to the I/O thread in the midst of a loop iteration, so that both work at the same time.
_BATCH = 500


class _LoopPublish(Publish):
    """A publish with a future of the event loop. Its `on_done` belongs to the loop too."""

    __slots__ = ("future", "on_loop_done")

    def __init__(
        self, head: bytes, body: bytes, deadline_s: float, future: asyncio.Future[None], on_done: Done | None
    ) -> None:
        super().__init__(head, body, deadline_s, _told_by_the_loop)
        self.future = future
        self.on_loop_done = on_done


def _told_by_the_loop(error: NsqClientError | None) -> None:
    """The I/O thread calls nobody: the event loop does."""


class _Threaded(threads.Producer):
    """The threaded producer, without the methods that wait.

    on_over  called in the I/O thread with publishes that are over
    """

    on_over: Callable[[Sequence[Publish]], None]

    def check(self) -> None:
        """Begin to connect, at the first use. Raises NoNsqd if the producer is closed, or every nsqd refused."""
        if self._must_wait:
            with self._lock:
                self._start()
                self._check_that_there_is_any()

    def take(self, publishes: Sequence[Publish], size_bytes: int) -> None:
        """Hand publishes of `size_bytes` together to the I/O thread."""
        with self._lock:
            self._inbox.extend(publishes)
            self._inbox_bytes += size_bytes
            self._wake_io()

    @property
    def room(self) -> tuple[int, int]:
        """How many publishes, of how many bytes, may be unanswered."""
        return self._most, self._most_bytes

    def not_taken(self) -> NsqClientError:
        return self._core.still_open()

    def end(self) -> None:
        """Fail what is left, and close. Waits for the I/O thread."""
        self._end()

    def _deliver(self, publishes: Sequence[Publish]) -> None:
        if publishes:
            self.on_over(publishes)


class Producer:
    __doc__ = BaseProducer.__doc__

    def __init__(self, *addresses: str, **settings: Unpack[ProducerKeywords]) -> None:
        """Takes the arguments of `nsqd_py.client.Producer`. Raises BadClientOption."""
        self._threaded = _Threaded(*addresses, **settings)
        self.settings = self._threaded.settings
        self._threaded.on_over = self._on_over
        self._publish_timeout_s = self.settings.publish_timeout_s
        self._failures = Failures()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._most, self._most_bytes = self._threaded.room
        self._batch: list[Publish] = []  # to be handed to the I/O thread at the end of this loop iteration
        self._batch_bytes = 0
        self._has_room = asyncio.Event()
        self._unfinished = 0
        self._unfinished_bytes = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    # ---- publishing

    async def publish(self, topic: str, body: Body, *, defer_s: float = 0) -> None:
        """Publish one message, and return when it is stored. With `defer_s`, its delivery is delayed."""
        await self._publish(encoding.single(topic, body, defer_s))

    async def publish_deferred(self, topic: str, body: Body, delay_s: float) -> None:
        """Publish one message that is delivered at the earliest after `delay_s`."""
        await self._publish(encoding.single(topic, body, delay_s))

    async def multi_publish(self, topic: str, bodies: Sequence[Body]) -> None:
        """Publish all messages or none: they are one command."""
        await self._publish(*encoding.several(topic, bodies))

    async def publish_soon(
        self, topic: str, body: Body, on_done: Done | None = None, *, defer_s: float = 0
    ) -> asyncio.Future[None]:
        """Send one message. Waits only while the window has no room.

        The event loop calls `on_done` with None or the error. Without it, `flush` raises errors. The future has the
        result too; cancelling it does not take the message back.
        """
        return await self._submit(encoding.single(topic, body, defer_s), b"", on_done)

    async def multi_publish_soon(
        self, topic: str, bodies: Sequence[Body], on_done: Done | None = None
    ) -> asyncio.Future[None]:
        """Send messages as `publish_soon`, in one command: much faster, and nsqd stores all or none."""
        return await self._submit(*encoding.several(topic, bodies), on_done)

    async def send_mpub_body(
        self, topic: str, body: bytes, count: int, on_done: Done | None = None
    ) -> asyncio.Future[None]:
        """Send a finished body as `multi_publish_soon`; see `nsqd_py.client.Producer`."""
        return await self._submit(*encoding.finished(topic, body, count), on_done)

    async def _publish(self, head: bytes, body: bytes = b"") -> None:
        await (await self._submit(head, body, _told_by_the_loop))

    async def _submit(self, head: bytes, body: bytes, on_done: Done | None) -> asyncio.Future[None]:
        loop = self._running_loop()
        deadline_s = monotonic() + self._publish_timeout_s
        publish = _LoopPublish(head, body, deadline_s, loop.create_future(), on_done)
        self._threaded.check()
        if self._unfinished >= self._most or self._unfinished_bytes >= self._most_bytes:
            await self._wait_for_room(deadline_s)
        if not self._unfinished:
            self._is_idle.clear()
        self._unfinished += 1
        self._unfinished_bytes += publish.size_bytes
        if not self._batch:
            loop.call_soon(self._hand_over)
        self._batch.append(publish)
        self._batch_bytes += publish.size_bytes
        if len(self._batch) >= _BATCH:
            self._hand_over()
        return publish.future

    async def _wait_for_room(self, deadline_s: float) -> None:
        while self._unfinished >= self._most or self._unfinished_bytes >= self._most_bytes:
            self._has_room.clear()
            try:
                async with asyncio.timeout(max(0.0, deadline_s - monotonic())):
                    await self._has_room.wait()
            except TimeoutError:
                raise self._threaded.not_taken() from None
            self._threaded.check()

    def _hand_over(self) -> None:
        if self._batch:
            self._threaded.take(self._batch, self._batch_bytes)
            self._batch, self._batch_bytes = [], 0

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                raise WrongPlace("the producer belongs to another event loop: make one for each")
            self._loop = loop
        return loop

    # ---- results, of which the I/O thread tells

    def _on_over(self, publishes: Sequence[Publish]) -> None:
        self._call_soon(self._resolve, publishes)

    def _call_soon(self, call: Callable[..., object], *args: object) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(call, *args)

    def _resolve(self, publishes: Iterable[_LoopPublish]) -> None:
        for publish in publishes:
            future, error = publish.future, publish.error
            if not future.done():  # it may be cancelled
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)
                    future.exception()  # `flush` reports it to those who do not look
            self._unfinished -= 1
            self._unfinished_bytes -= publish.size_bytes
            self._tell(publish, error)
        if 2 * self._unfinished <= self._most and 2 * self._unfinished_bytes <= self._most_bytes:
            self._has_room.set()
        if not self._unfinished:
            self._is_idle.set()

    def _tell(self, publish: _LoopPublish, error: NsqClientError | None) -> None:
        if publish.on_loop_done is None:
            if error is not None:
                self._failures.add(error)
        elif publish.on_loop_done is not _told_by_the_loop:
            try:
                publish.on_loop_done(error)
            except Exception as bug:
                self._threaded.log.exception("on_done of a publish: %r", bug)

    # ---- waiting

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything sent is answered.

        Raises FlushFailed if publishes without `on_done` have failed since the last call, and TimedOut after
        `timeout_s`.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while self._unfinished:
                    await self._is_idle.wait()
        except TimeoutError:
            raise self._threaded.not_taken() from None
        failed = self._failures.take()
        if failed is not None:
            raise failed

    async def ping(self) -> None:
        """Connect to an nsqd, if none is connected. Raises NoNsqd."""
        self._running_loop()
        await asyncio.to_thread(self._threaded.ping)

    async def close(self, timeout_s: float | None = None) -> None:
        """`flush`, then close the connections, even if that raises or is cancelled."""
        try:
            await self.flush(timeout_s)
        finally:
            await asyncio.shield(asyncio.to_thread(self._threaded.end))

    async def __aenter__(self) -> Self:
        self._running_loop()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except NsqClientError:
            if error is None:  # the first error says more
                raise


async def connect(*addresses: str, **settings: Unpack[ProducerKeywords]) -> Producer:
    """Return a producer that is connected. Takes the arguments of `Producer`. Raises BadClientOption, NoNsqd."""
    producer = Producer(*addresses, **settings)
    try:
        await producer.ping()
    except BaseException:
        await producer.close(0.0)
        raise
    return producer
