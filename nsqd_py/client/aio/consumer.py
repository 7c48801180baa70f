"""The consumer for asyncio: handlers are coroutines, or `async for` takes the messages."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from nsqd_py.client.blocking import consumer as blocking
from nsqd_py.client.callables import check_handler_result, refuse_what_does_not_run
from nsqd_py.client.consuming.base import STOP_TIMEOUT_S, BaseConsumer
from nsqd_py.client.consuming.handling import AT_ONCE, ENDINGS, ignore
from nsqd_py.client.consuming.subscription import ConsumerStats
from nsqd_py.client.errors import BadClientOption, NsqClientError, WrongPlace
from nsqd_py.client.message import Message, MessageBatch, Requeue

Handler = Callable[[Message], Awaitable[object] | None]
BatchHandler = Callable[[MessageBatch], Awaitable[object] | None]

_CANCEL_S = 1.0  # how long handlers may take to end when they are cancelled
Item = TypeVar("Item")

_SLICE_S = 0.01  # how often a task that never waits lets others run


class TaskQueue(Generic[Item]):
    """Items for idle tasks. `take` waits for one. Many items wake one task, which wakes the next if there is more."""

    __slots__ = ("_idle", "_is_closed", "_items", "_rest_s")

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._is_closed = False
        self._rest_s = 0.0

    def put_all(self, items: Iterable[Item]) -> None:
        self._items.extend(items)
        self._wake_one()

    def clear(self) -> list[Item]:
        """Remove and return the items that no task has taken. Any thread may call this."""
        items = []
        while self._items:
            items.append(self._items.popleft())
        return items

    def close(self) -> None:
        """Close the queue: `take` returns None once it is empty."""
        self._is_closed = True
        while self._idle:
            self._wake_one()

    async def take(self, timeout_s: float | None = None) -> Item | None:
        """Return the next item; None after the time-out, or once the queue is closed and empty."""
        if monotonic() > self._rest_s:
            await asyncio.sleep(0)
            self._rest_s = monotonic() + _SLICE_S
        try:
            async with asyncio.timeout(timeout_s):
                while not self._items and not self._is_closed:
                    await self._wait()
        except TimeoutError:
            return None
        return self._items.popleft() if self._items else None

    async def _wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._idle.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._idle:
                self._idle.remove(waiter)
            elif self._items:
                self._wake_one()
            raise
        self._rest_s = monotonic() + _SLICE_S
        if len(self._items) > 1:
            self._wake_one()

    def _wake_one(self) -> None:
        if self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)


class _Threaded(blocking.Consumer):
    """The threaded consumer, without the methods that wait.

    on_batch, on_left, on_over, on_stopped  called in the I/O thread: with batches; when what no handler has begun must
    be given back; when the time of a stop is over; and last
    """

    _awaits_handlers = True

    on_batch: Callable[[MessageBatch], None]
    on_left: Callable[[], None]
    on_over: Callable[[], None]
    on_stopped: Callable[[], None]

    @property
    def handling(self) -> Any:
        return self._handling

    def set_kind(self, *, takes_batches: bool, is_iterated: bool) -> None:
        self._takes_batches, self._is_iterated = takes_batches, is_iterated

    def leave(self) -> None:
        self._leave()

    def end_with(self, error: BaseException) -> None:
        self._end_with(error)

    def raise_failure(self) -> None:
        self._raise_failure()

    def give_back(self) -> None:
        self._give_back()

    def _hand_out(self, batch: MessageBatch) -> None:
        self.on_batch(batch)

    def _give_back(self) -> None:
        super()._give_back()
        self.on_left()

    def _give_up(self) -> None:
        super()._give_up()
        self.on_over()

    def _close(self) -> None:
        try:
            super()._close()
        finally:
            self.on_stopped()


class Consumer:
    __doc__ = BaseConsumer.__doc__

    def __init__(
        self,
        topic: str,
        channel: str,
        handler: Handler | None = None,
        *,
        batch_handler: BatchHandler | None = None,
        concurrency: int = 1,
        **settings: Any,
    ) -> None:
        """Takes the arguments of `nsqd_py.client.Consumer`; it awaits what handlers return. Raises as it does."""
        if handler is not None and batch_handler is not None:
            raise BadClientOption("give a handler or a batch_handler, not both")
        refuse_what_does_not_run("handler", handler, is_awaited=True)
        refuse_what_does_not_run("batch_handler", batch_handler, is_awaited=True)
        self._handler = handler
        self._batch_handler = batch_handler
        self._concurrency = concurrency
        self._threaded = _Threaded(topic, channel, concurrency=concurrency, **settings)
        self._threaded.on_batch = self._on_batch
        self._threaded.on_left = self._on_left
        self._threaded.on_over = self._on_over
        self._threaded.on_stopped = self._on_stopped
        self._threaded.set_kind(takes_batches=batch_handler is not None, is_iterated=handler is None and batch_handler is None)
        self._handling = self._threaded.handling
        self._takes_batches = batch_handler is not None
        self._takes_nothing = False
        self._queue: TaskQueue[Any] = TaskQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._workers: list[asyncio.Task[None]] = []
        self._iterating: asyncio.Task[Any] | None = None
        self._stopped = asyncio.Event()

    # ---- its life

    @property
    def running(self) -> bool:
        """True if the consumer was started and `stop` was not called."""
        return self._threaded.running

    async def start(self) -> None:
        """Connect, and begin to consume. Returns at once. Idempotent. A stopped consumer stays stopped."""
        if self._loop is not None:
            if self._loop is not asyncio.get_running_loop():
                raise WrongPlace("the consumer belongs to another event loop: make one for each")
            return
        self._loop = asyncio.get_running_loop()
        self._threaded.start()
        if self._handler is not None or self._batch_handler is not None:
            self._workers = [asyncio.create_task(self._work()) for _ in range(self._concurrency)]

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Request no more messages, wait for those in flight, and close.

        After `timeout_s`, messages that no handler has begun are requeued, and running handlers are cancelled; their
        messages come again. Called from a handler, or from a loop over messages, this only begins to stop.
        """
        self._threaded.begin_to_stop(timeout_s)
        if self._loop is None:
            self._stopped.set()
        elif asyncio.current_task() not in (self._iterating, *self._workers):
            await self._stopped.wait()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the consumer has stopped. Return False after the time-out.

        Raises the exception that ended the consumer, such as the SystemExit of a handler.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._stopped.wait()
        if self._stopped.is_set():
            self._threaded.raise_failure()
        return self._stopped.is_set()

    async def run(self) -> None:
        """Call the handler with all messages until `stop` is called. Raises BadClientOption without a handler."""
        if self._handler is None and self._batch_handler is None:
            raise BadClientOption("there is nothing to call: give a handler or a batch_handler, or iterate")
        async with self:
            await self.wait()

    def _on_over(self) -> None:
        """Cancel the handlers that still run. Their messages are requeued before the connections are closed."""
        assert self._loop is not None
        ending = self._cancel_workers()
        try:
            asyncio.run_coroutine_threadsafe(ending, self._loop).result(_CANCEL_S)
        except RuntimeError:  # the loop is closed: no handler runs
            ending.close()
        except TimeoutError:
            pass  # the loop is busy: the messages come again after their time-out

    async def _cancel_workers(self) -> None:
        self._queue.close()
        running = [worker for worker in self._workers if worker is not asyncio.current_task()]
        for worker in running:
            worker.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _on_stopped(self) -> None:
        self._call_soon(self._end)

    def _end(self) -> None:
        self._queue.close()
        self._stopped.set()

    def _call_soon(self, call: Callable[..., object], *args: object) -> bool:
        """Let the event loop call it. Return False if the loop is closed."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            return False
        return True

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    # ---- messages

    def _on_batch(self, batch: MessageBatch) -> None:
        if not self._call_soon(self._arrived, batch):
            self._threaded.begin_to_stop(0)
            batch.requeue(0)

    def _arrived(self, batch: MessageBatch) -> None:
        if self._takes_nothing:
            batch.requeue(0)
        else:
            self._queue.put_all([batch] if self._takes_batches else batch.messages())

    def _on_left(self) -> None:
        """Requeue what no handler has begun."""
        self._takes_nothing = True
        for item in self._queue.clear():
            if item.is_live and not item.is_answered:
                item.requeue(0, backoff=False)

    async def _work(self) -> None:
        try:
            if self._batch_handler is not None:
                while (batch := await self._queue.take()) is not None:
                    await self._handle_batch(self._batch_handler, batch)
            elif self._handler is not None:
                while (message := await self._queue.take()) is not None:
                    await self._handle(self._handler, message)
        except asyncio.CancelledError:
            if self.running:
                self._threaded.end_with(NsqClientError("a handler's task was cancelled"))
            raise
        except BaseException as error:  # noqa: BLE001 - `wait` raises it; here, it would end the event loop
            self._threaded.end_with(error)

    async def _handle(self, handler: Handler, message: Message) -> None:
        handling = self._handling
        if not message.is_live:
            return
        is_spent = handling.is_spent(message)
        if is_spent:
            handler = handling.giving_up(message)
        try:
            await _run(handler, message)
        except Requeue as request:
            handling.put_off(message, request)
        except BaseException as error:
            if _ends(error):
                handling.put_off(message, AT_ONCE)
                raise
            handling.fail(message, error, handler)
        else:
            message.settle()
            if is_spent:
                handling.given_up()

    async def _handle_batch(self, handler: BatchHandler, batch: MessageBatch) -> None:
        if not batch.is_live:
            return
        try:
            await _run(handler, batch)
        except Requeue as request:
            self._handling.put_off_batch(batch, request)
        except BaseException as error:
            if _ends(error):
                self._handling.put_off_batch(batch, AT_ONCE)
                raise
            self._handling.fail_batch(batch, error, handler)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.messages()

    def messages(self, idle_timeout_s: float | None = None) -> AsyncIterator[Message]:
        """Yield each message, which is finished when the loop asks for the next one.

        Ends when the consumer is stopped, or after `idle_timeout_s` without a message. Leaving the loop by `break`
        stops the consumer a moment later: `async with contextlib.aclosing(...)` stops it at once. Raises
        BadClientOption if the consumer has a handler.
        """
        self._refuse_if_handled()
        return self._each_message(idle_timeout_s)

    def batches(self, idle_timeout_s: float | None = None) -> AsyncIterator[MessageBatch]:
        """Yield messages that arrived together. The caller must answer them. Otherwise as `messages`."""
        self._refuse_if_handled()
        self._takes_batches = True
        return self._each_batch(idle_timeout_s)

    def _refuse_if_handled(self) -> None:
        if self._handler is not None or self._batch_handler is not None:
            raise BadClientOption("a consumer with a handler cannot be iterated: its messages go to the handler")

    async def _each_message(self, idle_timeout_s: float | None) -> AsyncIterator[Message]:
        message: Message | None = None
        try:
            while (message := await self._take(idle_timeout_s)) is not None:
                if self._handling.is_spent(message):
                    await self._handle(ignore, message)  # calls `on_give_up`
                elif message.is_live:
                    yield message
                    message.settle()
        except BaseException:
            self._threaded.leave()
            if message is not None:
                self._handling.put_off(message, AT_ONCE)
            raise
        finally:
            await self._end_iteration()
        self._threaded.raise_failure()

    async def _each_batch(self, idle_timeout_s: float | None) -> AsyncIterator[MessageBatch]:
        try:
            while (batch := await self._take(idle_timeout_s)) is not None:
                if batch.is_live:
                    yield batch
        finally:
            await self._end_iteration()
        self._threaded.raise_failure()

    async def _take(self, timeout_s: float | None) -> Any:
        """Return the next message or batch; None after the time-out, or once the consumer is stopped."""
        await self.start()
        self._iterating = asyncio.current_task()
        return await self._queue.take(timeout_s) if self.running else None

    async def _end_iteration(self) -> None:
        self._threaded.leave()
        self._threaded.give_back()
        self._iterating = None
        await self.stop()

    # ---- what needs no waiting

    @property
    def topic(self) -> str:
        return self._threaded.topic

    @property
    def channel(self) -> str:
        return self._threaded.channel

    @property
    def is_starved(self) -> bool:
        """True if some nsqd can send little or nothing before more messages are answered: time to end a batch."""
        return self._threaded.is_starved

    def stats(self) -> ConsumerStats:
        """Return the current figures."""
        return self._threaded.stats()

    def set_max_in_flight(self, count: int) -> None:
        self._threaded.set_max_in_flight(count)

    def pause(self) -> None:
        """Request no more messages; those in flight continue."""
        self._threaded.pause()

    def resume(self) -> None:
        self._threaded.resume()

    def connect_to_nsqd(self, address: str) -> None:
        """Consume from this nsqd too. Raises BadAddress."""
        self._threaded.connect_to_nsqd(address)

    def disconnect_from_nsqd(self, address: str) -> None:
        """Disconnect once what is in flight is answered."""
        self._threaded.disconnect_from_nsqd(address)

    def set_lookupd_http_addresses(self, addresses: str | Iterable[str]) -> None:
        """Replace the nsqlookupds. Connections to nsqds stay. Raises BadClientOption."""
        self._threaded.set_lookupd_http_addresses(addresses)


def _ends(error: BaseException) -> bool:
    """True if the exception of a handler ends its task; a CancelledError does only if the task was cancelled."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, (*ENDINGS, GeneratorExit))


async def _run(handler: Callable[[Any], Awaitable[object] | None], item: Message | MessageBatch) -> None:
    """Call a handler, and await its result, which may itself be awaitable."""
    result: Any = handler(item)
    while inspect.isawaitable(result):
        result = await result
    check_handler_result(handler, result)
