"""The producer for asyncio.

    async with Producer("127.0.0.1:4150") as producer:
        await producer.publish("topic", b"waits for OK")
        futures = [await producer.publish_soon("topic", line) for line in lines]
        await producer.flush()

All tasks of one event loop share it. The loop does its input and output; only connecting and asking nsqlookupds
happen in threads. All publishes of one loop iteration are sent together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from nsqd_py.client.blocking.publishing_core import PublishingCore
from nsqd_py.client.errors import NoNsqd, NsqClientError, WrongPlace
from nsqd_py.client.options import Delay
from nsqd_py.client.process import ProcessHooks, call_after_fork, close_at_exit, forget
from nsqd_py.client.publishing.base import BaseProducer
from nsqd_py.client.publishing.dispatcher import ConnectionWriter
from nsqd_py.client.publishing.publish import Body, Done, PendingPublish, ignore_result, several, single

if TYPE_CHECKING:
    from typing import Unpack

    from nsqd_py.client.publishing.base import ProducerKeywords

_CONNECTING_INTERVAL_S = 0.05  # how often to poll for what is due while no nsqd is connected
_UNCLOSED: set[Producer] = set()  # for the end of the interpreter, when no event loop holds them any more


class _LoopPublish(PendingPublish):
    """A publish with a future of the event loop."""

    __slots__ = ("future",)

    future: asyncio.Future[None]


class Producer(
    BaseProducer[Coroutine[Any, Any, None], Coroutine[Any, Any, asyncio.Future[None]]], ProcessHooks
):
    __doc__ = BaseProducer.__doc__

    __enter__ = __exit__ = None  # type: ignore[assignment]  # a `with` without `async` fails

    def _set_up(self) -> None:
        self._core = PublishingCore(self.settings, waits=False)
        self._core.on_over = self._deliver
        self._core.on_opened = self._watch
        self._core.on_lost = self._unwatch
        self._publish_timeout_s = self.settings.publish_timeout_s
        self._begin()
        call_after_fork(self)

    def _begin(self) -> None:
        """Set the state of a producer that no event loop uses."""
        self._dispatcher = self._core.dispatcher
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pump_is_due = False
        self._is_closed = False
        self._has_changed = asyncio.Event()  # there may be room, or a connection, or an error
        self._is_idle = asyncio.Event()

    # ---- publishing. These are coroutine functions, so that type checkers and the interpreter see a missing `await`.

    async def publish(self, topic: str, body: Body, *, defer_s: Delay = 0) -> None:
        await self._publish(single(topic, body, defer_s))

    async def multi_publish(self, topic: str, bodies: Sequence[Body]) -> None:
        await self._publish(*several(topic, bodies))

    async def publish_soon(
        self, topic: str, body: Body, on_done: Done | None = None, *, defer_s: Delay = 0
    ) -> asyncio.Future[None]:
        return await self._publish_soon(single(topic, body, defer_s), b"", on_done)

    async def multi_publish_soon(
        self, topic: str, bodies: Sequence[Body], on_done: Done | None = None
    ) -> asyncio.Future[None]:
        return await self._publish_soon(*several(topic, bodies), on_done)

    async def send_mpub_body(
        self, topic: str, body: bytes, count: int, on_done: Done | None = None
    ) -> asyncio.Future[None]:
        return await super().send_mpub_body(topic, body, count, on_done)

    async def send_mpub_pieces(
        self, topic: str, pieces: Sequence[Body], on_done: Done | None = None
    ) -> asyncio.Future[None]:
        return await super().send_mpub_pieces(topic, pieces, on_done)

    async def _publish(self, head: bytes, body: bytes = b"") -> None:
        await (await self._publish_soon(head, body, ignore_result))

    async def _publish_soon(self, head: bytes, body: bytes, on_done: Done | None) -> asyncio.Future[None]:
        if not (self._pump_is_due and self._dispatcher.has_room):
            await self._get_ready()
        assert self._loop is not None
        publish = _LoopPublish(head, body, monotonic() + self._publish_timeout_s, on_done)
        future = self._loop.create_future()
        publish.future = future
        self._dispatcher.submit(publish)
        if not self._pump_is_due:
            self._pump_is_due = True
            self._loop.call_soon(self._pump)
        return future

    async def _get_ready(self) -> None:
        """Wait until a publish may be submitted. Raises if it never may.

        It is called once in a loop iteration, and without room: `get_running_loop` alone takes 0.5
        us in Python 3.11.
        """
        self._start()
        deadline_s = monotonic() + self._publish_timeout_s
        self._check_that_there_is_any()
        while not (self._dispatcher.has_room and self._core.has_discovered):
            await self._change(deadline_s, self._still_open)
            self._check_that_there_is_any()

    def _still_open(self) -> NsqClientError:
        return self._dispatcher.still_open(self._dispatcher.unfinished)

    async def _change(self, deadline_s: float, make_error: Callable[[], NsqClientError]) -> None:
        """Wait until there may be room or a connection. Raises the error after the deadline."""
        self._has_changed.clear()
        try:
            async with asyncio.timeout(max(0.0, deadline_s - monotonic())):
                await self._has_changed.wait()
        except TimeoutError:
            raise make_error() from None

    def _check_that_there_is_any(self) -> None:
        if self._is_closed:
            raise NoNsqd("the producer is closed")
        refusal = self._core.refusal
        if refusal is not None:
            raise refusal

    # ---- the event loop

    def _start(self) -> None:
        """Begin to connect, at the first use. Raises WrongPlace in another event loop."""
        loop = asyncio.get_running_loop()
        if self._loop is loop or self._is_closed:
            return
        if self._loop is not None:
            raise WrongPlace("the producer belongs to another event loop: make one for each")
        self._loop = loop
        _UNCLOSED.add(self)
        close_at_exit(self)
        self._loop.add_reader(self._core.poller.fileno(), self._work)
        self._work()
        self._keep_time()

    def _keep_time(self) -> None:
        """Do what is due a few times a second."""
        assert self._loop is not None
        self._work()
        interval_s = self.settings.sweep_interval_s
        if not self._dispatcher.is_connected:
            interval_s = min(interval_s, max(_CONNECTING_INTERVAL_S, self._core.until_dial_s()))
        self._timer = self._loop.call_later(interval_s, self._keep_time)

    def _work(self) -> None:
        """Connect, ask nsqlookupds, and fail publishes whose time is over, as far as it is due."""
        self._core.step(0.0)
        self._send_later()
        self._has_changed.set()

    def _pump(self) -> None:
        self._pump_is_due = False
        if self._core.pump():
            self._announce_room()
        else:
            self._work()

    def _watch(self, writer: ConnectionWriter) -> None:
        assert self._loop is not None
        self._loop.add_reader(writer.connection.fileno(), self._on_readable, writer)

    def _unwatch(self, writer: ConnectionWriter) -> None:
        assert self._loop is not None
        self._loop.remove_reader(writer.connection.fileno())
        self._loop.remove_writer(writer.connection.fileno())

    def _on_readable(self, writer: ConnectionWriter) -> None:
        self._core.receive_from(writer)
        self._core.pump()
        if writer.connection is not None and writer.connection.has_events and self._loop is not None:
            self._loop.call_soon(self._receive_more, writer)  # a few bytes were decompressed to many
        self._send_later()
        self._announce_room()

    def _receive_more(self, writer: ConnectionWriter) -> None:
        if writer.connection is not None:
            self._on_readable(writer)

    def _send_later(self) -> None:
        """Continue to send when the sockets have room again."""
        assert self._loop is not None
        for writer in self._core.connected.values():
            if writer.connection.has_unsent:
                self._loop.add_writer(writer.connection.fileno(), self._on_writable, writer)

    def _on_writable(self, writer: ConnectionWriter) -> None:
        assert self._loop is not None
        writer.connection.send_unsent()
        if not writer.connection.has_unsent:
            self._loop.remove_writer(writer.connection.fileno())

    # ---- results

    def _deliver(self, publishes: Sequence[PendingPublish]) -> None:
        for publish in publishes:
            future = publish.future  # type: ignore[attr-defined]
            if not future.done():  # it may be cancelled
                if publish.error is None:
                    future.set_result(None)
                else:
                    future.set_exception(publish.error)
                    future.exception()  # `flush` reports it to those who do not ask
        if not self._dispatcher.unfinished:
            self._is_idle.set()

    def _announce_room(self) -> None:
        """Wake those who wait for room if there is much, so that they do not wake for each message."""
        if self._dispatcher.is_half_empty:
            self._has_changed.set()

    # ---- waiting

    async def flush(self, timeout_s: float | None = None) -> None:  # type: ignore[override]
        try:
            async with asyncio.timeout(timeout_s):
                while self._dispatcher.unfinished:
                    self._is_idle.clear()
                    await self._is_idle.wait()
        except TimeoutError:
            raise self._still_open() from None
        self._core.failures.raise_new()

    async def ping(self) -> None:  # type: ignore[override]
        """Connect to an nsqd, if none is connected. Raises NoNsqd."""
        deadline_s = monotonic() + self._publish_timeout_s
        self._start()
        self._check_that_there_is_any()
        while not self._dispatcher.is_connected:
            await self._change(deadline_s, partial(self._dispatcher.not_connected, self._publish_timeout_s))
            self._check_that_there_is_any()

    async def close(self, timeout_s: float | None = None) -> None:  # type: ignore[override]
        """`flush`, then close the connections, even if that raises or is cancelled."""
        if self._is_closed:
            return
        try:
            await self.flush(timeout_s)
        finally:
            self._end()
            await asyncio.shield(asyncio.to_thread(self._core.close))

    def _end(self) -> None:
        """Take it out of the event loop. Fail what is not published."""
        self._is_closed = True
        self._pump_is_due = False
        self._forget()
        if self._loop is not None:
            self._loop.remove_reader(self._core.poller.fileno())
            for writer in self._core.connected.values():
                self._unwatch(writer)
        if self._timer is not None:
            self._timer.cancel()
        self._core.report(self._dispatcher.give_up(NoNsqd("the producer is closed")))
        self._core.leave_event_loop()
        self._has_changed.set()

    def _forget(self) -> None:
        forget(self)
        _UNCLOSED.discard(self)

    def _at_exit(self, left_s: float) -> None:
        """Publish what is left, although the event loop has ended."""
        self._core.leave_event_loop()
        try:
            self._core.flush(left_s)
        except NsqClientError as error:
            self._core.log.warning("producer: at the end of the process: %s", error)
        finally:
            self._core.close()

    def _after_fork(self) -> None:
        """In the child: leave everything to the parent. Another event loop may use the producer here."""
        _UNCLOSED.discard(self)
        self._core.after_fork()
        self._begin()

    async def __aenter__(self) -> Self:
        self._start()
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
