"""The consumer for asyncio: handlers are coroutine functions, or plain ones in threads, or `async for` takes the messages."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from nsqd_py.client.aio.handler_threads import HandlerThreads
from nsqd_py.client.blocking import consumer as blocking
from nsqd_py.client.callables import check_handler_result, is_coroutine_function
from nsqd_py.client.consuming.base import AT_ONCE, ENDINGS, STOP_TIMEOUT_S, BaseConsumer
from nsqd_py.client.errors import NsqClientError, WrongPlace
from nsqd_py.client.message import Message, MessageBatch, whole_batches

if TYPE_CHECKING:
    from typing import Unpack

    from nsqd_py.client.consuming.base import AnyBatchHandler, AnyHandler, ConsumerKeywords

_CANCEL_S = 1.0  # how long handlers may take to end when they are cancelled
Item = TypeVar("Item")

_SLICE_S = 0.01  # how often a task that never waits lets others run


# The errors of a queue that is empty, or that another thread empties between the check and the removal.
_TAKEN_ELSEWHERE = asyncio.QueueEmpty, IndexError


class TaskQueue(Generic[Item]):
    """Items for idle tasks. `take` waits for one."""

    def __init__(self) -> None:
        self._items: asyncio.Queue[Item | None] = asyncio.Queue()
        self._rest_s = 0.0

    def put_all(self, items: Iterable[Item]) -> None:
        for item in items:
            self._items.put_nowait(item)

    def clear(self) -> list[Item]:
        """Remove and return the items that no task has taken. Any thread may call this."""
        items: list[Item] = []
        with suppress(*_TAKEN_ELSEWHERE):
            while (item := self._items.get_nowait()) is not None:
                items.append(item)
        return items

    def close(self) -> None:
        """Close the queue: `take` returns None once it is empty."""
        self._items.put_nowait(None)

    async def take(self, timeout_s: float | None = None) -> Item | None:
        """Return the next item; None after the time-out, or once the queue is closed and empty."""
        if monotonic() > self._rest_s:
            await asyncio.sleep(0)
            self._rest_s = monotonic() + _SLICE_S
        try:
            async with nullcontext() if timeout_s is None else asyncio.timeout(timeout_s):
                item = await self._next()
        except TimeoutError:
            return None
        if item is None:
            self.close()  # for the other tasks
        return item

    async def _next(self) -> Item | None:
        while True:
            with suppress(*_TAKEN_ELSEWHERE):
                return await self._items.get()


class Consumer(blocking.Consumer):
    __doc__ = BaseConsumer.__doc__

    _awaits_handlers = True
    _endings = (*ENDINGS, GeneratorExit)
    # A `with` or `for` without `async` fails.
    __enter__ = __exit__ = __iter__ = None  # type: ignore[assignment]

    if TYPE_CHECKING:  # the arguments of `BaseConsumer`

        def __init__(
            self,
            topic: str,
            channel: str,
            handler: AnyHandler | None = None,
            *,
            batch_handler: AnyBatchHandler | None = None,
            on_give_up: AnyHandler | None = None,
            **keywords: Unpack[ConsumerKeywords],
        ) -> None: ...

    def _begin(self) -> None:
        super()._begin()
        self._threads = HandlerThreads(self._concurrency)
        self._is_taking = False
        self._tasks: TaskQueue[Any] = TaskQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handlers: list[asyncio.Task[None]] = []
        self._iterating_task: asyncio.Task[Any] | None = None
        self._has_ended = asyncio.Event()

    # ---- its life

    async def start(self) -> None:  # type: ignore[override]
        """Connect, and begin to consume. Returns at once. Idempotent. Raises WrongPlace if the consumer was stopped.

        One that was stopped before it was started starts nothing.
        """
        self._go_on()
        if self._loop is not None:
            if self._loop is not asyncio.get_running_loop():
                raise WrongPlace("the consumer belongs to another event loop: make one for each")
            return
        self._loop = asyncio.get_running_loop()
        super().start()
        if self._io_task is None:  # stopped before it was started
            self._has_ended.set()
        elif not self._is_iterated:
            self._handlers = [asyncio.create_task(self._handle_all()) for _ in range(self._concurrency)]

    def _start_handlers(self) -> None:
        """Start no threads: handlers run in tasks."""

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:  # type: ignore[override]
        """Request no more messages, wait for those in flight, and close.

        After `timeout_s`, messages that no handler has begun are requeued, and running handlers are cancelled; their
        messages are redelivered. Called from a handler, or from a loop over messages, this only begins to stop. A message
        that `next` returned in this task is requeued, unless it was answered.
        """
        if self._given_to is asyncio.current_task():
            self._return_given()
        self.begin_to_stop(timeout_s)
        if self._loop is None:
            self._has_ended.set()
        elif asyncio.current_task() not in (self._iterating_task, *self._handlers):
            await self._has_ended.wait()

    async def wait(self, timeout_s: float | None = None) -> bool:  # type: ignore[override]
        """Wait until the consumer has stopped. Return False after the time-out.

        Raises the exception that ended the consumer, such as the SystemExit of a handler.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._has_ended.wait()
        if self._has_ended.is_set():
            self._raise_failure()
        return self._has_ended.is_set()

    async def run(self) -> None:  # type: ignore[override]
        """Call the handler with all messages until `stop` is called. Raises BadClientOption without a handler."""
        self._refuse_without_handler()
        async with self:
            await self.wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._return_given()
        self._iterating_task = None
        await self.stop()

    # ---- in the I/O thread

    def _give_up(self) -> None:
        """Cancel the handlers that still run. Their messages are requeued before the connections are closed."""
        super()._give_up()
        assert self._loop is not None
        ending = self._cancel_handlers()
        try:
            asyncio.run_coroutine_threadsafe(ending, self._loop).result(_CANCEL_S)
        # If the loop is busy, the messages are redelivered after their time-out.
        except (RuntimeError, TimeoutError):
            if self._loop.is_closed():  # no handler runs
                ending.close()

    async def _cancel_handlers(self) -> None:
        self._tasks.close()
        running = [task for task in self._handlers if task is not asyncio.current_task()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _close(self) -> None:
        try:
            super()._close()
        finally:
            self._threads.close()
            self._call_soon(self._end)

    def _end(self) -> None:
        self._tasks.close()
        self._has_ended.set()

    def _call_soon(self, call: Callable[..., object], *args: object) -> bool:
        """Let the event loop call it. Return False if the loop is closed."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            return False
        return True

    def _hand_out(self, batch: MessageBatch) -> None:
        if not self._call_soon(self._arrived, batch):
            self.begin_to_stop(0)
            batch.requeue(0)

    def _give_back(self) -> None:
        super()._give_back()
        self._requeue(self._tasks.clear())

    # ---- messages

    def _arrived(self, batch: MessageBatch) -> None:
        if self._takes_nothing:
            batch.requeue(0)
        else:
            self._tasks.put_all([batch] if self._takes_batches else batch.messages())

    async def _handle_all(self) -> None:
        try:
            while (item := await self._tasks.take()) is not None:
                await self._handle(item)
        except asyncio.CancelledError:
            if self.running:
                self._end_with(NsqClientError("a handler's task was cancelled"))
            raise
        except BaseException as error:  # noqa: BLE001 - `wait` raises it; here, it would end the event loop
            self._end_with(error)

    async def _handle(self, message: Message | MessageBatch) -> None:  # type: ignore[override]
        if not message.is_live:
            return
        is_spent = self._is_spent(message)
        handler = self._giving_up(message) if is_spent else self._handler
        try:
            await self._call(handler, message)
        except BaseException as error:
            if self._fail(message, error, handler):
                raise
        else:
            if is_spent:
                self._subscription.gave_up()
            message.settle()

    async def _call(self, handler: Callable[[Any], object], item: Message | MessageBatch) -> None:
        """Call a coroutine function here, and another function in a thread. Await the result, which may itself be awaitable."""
        if is_coroutine_function(handler):
            result: Any = handler(item)
        else:
            result = await self._threads.run(handler, item)
        while inspect.isawaitable(result):
            result = await result
        check_handler_result(handler, result)

    def _ends(self, error: BaseException) -> bool:
        # Other code cancelled the task, or the handler raised it.
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            return task is not None and task.cancelling() > 0
        return super()._ends(error)

    def __aiter__(self) -> MessageLoop[Message]:
        return self.messages()

    def messages(self, idle_timeout_s: float | None = None) -> MessageLoop[Message]:  # type: ignore[override]
        """Yield each message, which is finished when the loop asks for the next one.

        Ends when the consumer is stopped, or after `idle_timeout_s` without a message: then another loop goes on. Leaving
        the loop by `break` stops the consumer a moment later: `async with contextlib.aclosing(...)` stops it at once.
        `anext` may have a time limit. Raises BadClientOption if the consumer has a handler, and WrongPlace if it was
        stopped, or a loop was left.
        """
        self._refuse_if_handled()
        return MessageLoop(self, idle_timeout_s, takes_batches=False)

    def batches(self, idle_timeout_s: float | None = None) -> MessageLoop[MessageBatch]:  # type: ignore[override]
        """Yield messages that arrived together. The caller must answer them. Otherwise as `messages`."""
        self._refuse_if_handled()
        return MessageLoop(self, idle_timeout_s, takes_batches=True)

    async def next(self, timeout_s: float | None = None) -> Message | None:  # type: ignore[override]
        """Return the next message; None after the time-out, or once when the consumer was stopped since the last call.

        The first call starts the consumer, and `stop` or `async with` ends it. The next call finishes the message, unless it
        was answered or detached. Raises as `messages`, and WrongPlace while another task waits for a message.
        """
        self._refuse_if_handled()
        self._refuse_another()
        if self._given is not None:
            self._given.settle()
            self._given = None
        if self._reports_stop():
            return None
        await self._begin_to_take(takes_batches=False)
        self._must_tell = True
        try:
            self._given = await self._take(timeout_s)
        finally:
            self._iterating_task = None
        if self._given is None:
            self._reports_stop()
        self._given_to = asyncio.current_task()
        return self._given

    def _refuse_another(self) -> None:
        if self._is_taking:
            raise WrongPlace("another task waits for the next message of this consumer: one at a time may")

    async def _begin_to_take(self, *, takes_batches: bool) -> None:
        """Start, if that is not done."""
        self._takes_batches = takes_batches
        self._iterating_task = asyncio.current_task()
        await self.start()

    async def _take(self, timeout_s: float | None) -> Any:
        """Return the next message, or batch; None after the time-out, or when the consumer stops.

        A task that is cancelled here has taken no message.
        """
        self._refuse_another()
        self._is_taking = True
        try:
            while self.running and (item := await self._tasks.take(timeout_s)) is not None:
                if self._takes_batches:
                    item = self._whole_batch(item)
                    if item is not None and item.is_live:
                        return item
                elif self._is_spent(item):
                    await self._give_up_one(item)
                elif item.is_live:
                    return item
        finally:
            self._is_taking = False
        return None

    async def _give_up_one(self, message: Message) -> None:
        try:
            await self._handle(message)  # calls `on_give_up`
        except BaseException:
            self._put_off(message, AT_ONCE)
            raise

    def _whole_batch(self, item: Message | MessageBatch) -> MessageBatch | None:
        if isinstance(item, MessageBatch):
            return item
        batches, rest = whole_batches([item, *self._tasks.clear()])
        self._requeue(rest)
        self._tasks.put_all(batches[1:])
        return batches[0] if batches else None

    def _end_loop(self, message: Message | None) -> None:
        """Stop, since a loop has ended. Any thread may call this: loops that were left end where they are collected."""
        self._leave()
        if message is not None:
            self._put_off(message, AT_ONCE)
        self._give_back()
        self._iterating_task = None
        self._request_stop(STOP_TIMEOUT_S)

    def _note_idle(self) -> None:
        """Note that a loop ends because no message came: another one may go on."""
        with self._lock:
            self._may_go_on = self.running


class MessageLoop(Generic[Item]):
    """The messages, or batches, of a consumer, for `async for` and `anext`. See `Consumer.messages`."""

    def __init__(self, consumer: Consumer, idle_timeout_s: float | None, *, takes_batches: bool) -> None:
        self._consumer = consumer
        self._idle_timeout_s = idle_timeout_s
        self._takes_batches = takes_batches
        self._message: Message | None = None  # that was yielded last
        self._has_begun = False
        self._is_over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        if self._is_over:
            raise StopAsyncIteration
        consumer = self._consumer
        consumer._refuse_another()
        if self._message is not None:
            self._message.settle()
            self._message = None
        try:
            if not self._has_begun:
                await consumer._begin_to_take(takes_batches=self._takes_batches)
                self._has_begun = True
            consumer._iterating_task = asyncio.current_task()
            item = await consumer._take(self._idle_timeout_s)
        except asyncio.CancelledError:  # perhaps by a time limit: the next call goes on
            raise
        except BaseException:
            await self.aclose()
            raise
        if item is None:
            consumer._note_idle()
            await self.aclose()
            consumer._raise_failure()
            raise StopAsyncIteration
        if not self._takes_batches:
            self._message = item
        found: Item = item
        return found

    async def aclose(self) -> None:
        """Stop the consumer, and return the last message to nsqd unless it was answered."""
        self._close()
        if self._has_begun:
            await self._consumer._has_ended.wait()

    def _close(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._has_begun:
            self._consumer._end_loop(self._message)
        self._message = None

    def __del__(self) -> None:
        self._close()
