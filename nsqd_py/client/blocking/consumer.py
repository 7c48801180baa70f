"""The blocking consumer: a thread, or greenlet, does all input and output, others run handlers or iterate."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from weakref import ref

from nsqd_py.client.blocking.backend import Latch, WorkQueue
from nsqd_py.client.blocking.consuming_core import ConsumingCore
from nsqd_py.client.consuming.base import AT_ONCE, STOP_TIMEOUT_S
from nsqd_py.client.consuming.subscription import ConsumerStats
from nsqd_py.client.errors import WrongPlace
from nsqd_py.client.message import Message, MessageBatch, whole_batches
from nsqd_py.client.process import call_after_fork, close_at_exit, warn_of_dropped
from nsqd_py.runtime.logs.lines import LineWriter

if TYPE_CHECKING:
    from typing import Unpack

    from nsqd_py.client.consuming.base import BatchHandler, ConsumerKeywords, Handler

__all__ = ["Consumer", "ConsumerStats"]

_EXIT_S = 1.0  # how long running handlers have after Ctrl-C in a loop, and at the end of the interpreter
_CLOSE_S = 5.0  # how long closing the connections may take after the time of a stop
# How long handlers may work before the I/O thread goes on. Without this pause it would read the next messages before
# handlers begin with the first ones, and nsqd would get the answers to both later, together: it would have nothing to
# do in the meantime.
_HANDLING_S = 0.005


class Consumer(ConsumingCore):
    """A consumer for plain Python. Handlers run in `concurrency` threads.

        with Consumer("topic", "channel", handle, nsqd_tcp_addresses=["127.0.0.1:4150"], max_in_flight=100) as consumer:
            consumer.wait()

    A separate thread keeps the connections: heartbeats, touches, discovery and answers go on whatever handlers do.
    Any thread may call any method, and answer any message. After a fork the child has a consumer that is not started,
    with its own connections. A consumer ends when nothing refers to it, its messages or its running handlers.

    `BaseConsumer` describes the arguments and the rules for handlers.
    """

    _io_task: Any = None

    if TYPE_CHECKING:  # the arguments of `BaseConsumer`

        def __init__(
            self,
            topic: str,
            channel: str,
            handler: Handler | None = None,
            *,
            batch_handler: BatchHandler | None = None,
            on_give_up: Handler | None = None,
            **keywords: Unpack[ConsumerKeywords],
        ) -> None: ...

    def _begin(self) -> None:
        """Set the state of a consumer without connections and threads."""
        super()._begin()
        backend = self._backend
        self._queue: WorkQueue[Any] = WorkQueue(backend)
        self._io_task = None
        self._workers: set[object] = set()
        self._iterating: object = None  # the thread that iterates
        self._is_started = backend.make_lock()  # taken by what starts the threads, and never released
        self._has_started = Latch(backend.make_lock)
        self._takes_nothing = False
        self._stopped = Latch(backend.make_lock)
        self._may_go_on = False  # it has stopped only because a loop was idle
        self._given: Message | None = None  # by `next`
        self._given_to: object = None  # the thread that called it
        self._must_tell = False  # `next` returns None once after a stop
        self._failure: BaseException | None = None

    # ---- its life

    @property
    def running(self) -> bool:
        """True if the consumer was started and `stop` was not called."""
        return self._io_task is not None and self._stop_by_s is None

    def start(self) -> None:
        """Connect, and begin to consume. Returns at once. Idempotent. Raises WrongPlace if the consumer was stopped.

        One that was stopped before it was started starts nothing.
        """
        self._go_on()
        if self._io_task is None and self._stop_by_s is None:
            arguments = ref(self), self._poller, self._queue, str(self._subscription), self._log
            try:
                self._backend.spawn("nsqd-py consumer", self._do_io, *arguments)
            except RuntimeError as error:  # the system has no more threads
                self._end_with(error)
            else:
                self._has_started.wait()

    def _go_on(self) -> None:
        """Let a consumer whose last loop was idle begin again. Raises WrongPlace if it was stopped in another way."""
        if self._stop_by_s is None:
            return
        if self._io_task is None:
            if self._failure is None:
                self._log.warning(
                    "the consumer of %s was stopped before it was started: it consumes nothing",
                    self._subscription,
                )
            return
        if not (self._may_go_on and self._stopped.is_set):
            raise WrongPlace(
                f"the consumer of {self._subscription} was stopped, or its loop was left: make another one, or call `next` "
                "where single messages are wanted"
            )
        self._begin()
        call_after_fork(self)

    def _begin_io(self) -> bool:
        """Start the handlers. Return False if another thread does the input and output, or if nothing is left to do."""
        if not self._is_started.acquire(blocking=False):
            return False
        try:
            with self._lock:
                if self._stop_by_s is not None:
                    return False
                self._io_task = self._backend.current()
            close_at_exit(self)
            if not self._is_iterated:
                self._start_handlers()
        except RuntimeError as error:
            self._end_with(error)
        finally:
            self._has_started.set()
        return True

    def _start_handlers(self) -> None:
        for number in range(self._concurrency):
            self._backend.spawn(f"nsqd-py handler {number}", self._work, ref(self), self._queue)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Request no more messages, wait for those in flight, and close.

        After `timeout_s`, messages that no handler has begun are requeued. Handlers that still run go on, but their
        messages are redelivered after their time-out. Called from a handler, or from a loop over messages, this only begins
        to stop. A message that `next` returned in this thread is requeued, unless it was answered. Ctrl-C, or another exception
        of a signal handler, ends the time-out.
        """
        if self._given_to == self._backend.current():
            self._return_given()
        self.begin_to_stop(timeout_s)
        self._wait_for_stop()

    def _wait_for_stop(self) -> None:
        if self._backend.current() not in (self._io_task, self._iterating, *self._workers):
            self._backend.refuse_to_wait("stop")
            assert self._stop_by_s is not None
            try:
                self._stopped.wait(self._stop_by_s + _CLOSE_S - monotonic())
            except BaseException:
                self.begin_to_stop(0)
                raise

    def begin_to_stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop as `stop` does, but return at once."""
        self._may_go_on = False
        self._request_stop(timeout_s)

    def _request_stop(self, timeout_s: float) -> None:
        super().begin_to_stop(timeout_s)
        if self._io_task is None:  # nor will there be one: `_begin_io` looks at the stop under the lock
            self._stopped.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the consumer has stopped. Return False after the time-out.

        Raises the exception that ended the consumer, such as the SystemExit of a handler.
        """
        self._backend.refuse_to_wait("wait")
        has_stopped = self._stopped.wait(timeout_s)
        if has_stopped:
            self._raise_failure()
        return has_stopped

    def _end_with(self, error: BaseException) -> None:
        """Stop because of an error, which `wait`, `run` and loops raise."""
        self._failure = self._failure or error
        self.begin_to_stop()
        with suppress(Exception):  # the log may be what failed; `wait` raises the error
            self._log.exception("the consumer of %s/%s stops: %r", self.topic, self.channel, error)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def run(self) -> None:
        """Call the handler with all messages until `stop` is called. Raises BadClientOption without a handler."""
        self._refuse_without_handler()
        with self:
            self.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _begin_at_exit(self) -> None:
        if self._backend.is_usable:
            self.begin_to_stop(_EXIT_S)

    def _at_exit(self, left_s: float) -> None:
        if self._backend.is_usable:
            self._stopped.wait(left_s)

    def _after_fork(self) -> None:
        """In the child: close the descriptors of the parent, without sending anything."""
        self._backend.after_fork()
        for task in (self._io_task, *self._workers):
            self._backend.kill(task)
        super()._after_fork()

    # ---- messages, in the threads of the callers

    def __iter__(self) -> Iterator[Message]:
        return self.messages()

    def messages(self, idle_timeout_s: float | None = None) -> Iterator[Message]:
        """Yield each message, which is finished when the loop asks for the next one.

        Ends when the consumer is stopped, or after `idle_timeout_s` without a message: then another loop goes on. Raises
        BadClientOption if the consumer has a handler, and WrongPlace if it was stopped, or a loop was left.
        """
        self._refuse_if_handled()
        return self._iterate(idle_timeout_s, takes_batches=False)

    def batches(self, idle_timeout_s: float | None = None) -> Iterator[MessageBatch]:
        """Yield messages that arrived together. The caller must answer them. Otherwise as `messages`."""
        self._refuse_if_handled()
        return self._iterate(idle_timeout_s, takes_batches=True)

    def next(self, timeout_s: float | None = None) -> Message | None:
        """Return the next message; None after the time-out, or once when the consumer was stopped since the last call.

        The first call starts the consumer, and `stop` or `with` ends it. The next call finishes the message, unless it was
        answered or detached. Raises as `messages`, and WrongPlace while another thread has a message that is not answered.
        """
        self._refuse_if_handled()
        self._backend.refuse_to_wait("next")
        self._settle_given()
        if self._reports_stop():
            return None
        try:
            self._iterating = self._backend.current()
            self._takes_batches = False
            self.start()
            self._must_tell = True
            self._given = self._next_item(timeout_s)
        except BaseException:  # Ctrl-C may have come while a message was taken: it is in flight
            self.begin_to_stop(_EXIT_S)
            raise
        finally:
            self._iterating = None
        if self._given is None:
            self._reports_stop()
        self._given_to = self._backend.current()
        return self._given

    def _reports_stop(self) -> bool:
        """True if `next` returns None because of a stop: once. Raises what ended the consumer."""
        if self.running or not self._must_tell:
            return False
        self._must_tell = False
        self._raise_failure()
        return True

    def _settle_given(self) -> None:
        """Finish the message that `next` returned last. Raises WrongPlace if it was in another thread."""
        given = self._given
        if given is not None and not (given.is_answered or given.is_detached):
            if self._given_to != self._backend.current():
                raise WrongPlace(
                    f"{given} was returned in another thread, and is not answered: answer it, or detach it"
                )
            given.settle()
        self._given = None

    def _return_given(self) -> None:
        """Requeue the message that `next` returned last, unless it was answered."""
        given, self._given = self._given, None
        if given is not None:
            self._put_off(given, AT_ONCE)

    def _next_item(self, timeout_s: float | None) -> Any:
        """Return the next message, or batch in a loop over batches; None after the time-out, or when the consumer stops."""
        while self.running and (item := self._queue.take(timeout_s)) is not None:
            if self._takes_batches:
                item = self._whole_batch(item)
                if item is not None and item.is_live:
                    return item
            elif self._is_spent(item):
                try:
                    self._handle(item)  # calls `on_give_up`
                except BaseException:
                    self._put_off(item, AT_ONCE)
                    raise
            elif item.is_live:
                return item
        return None

    def _whole_batch(self, item: Message | MessageBatch) -> MessageBatch | None:
        """Return the batch. Of messages that arrived before the loop over batches, return the first whole batch."""
        if isinstance(item, MessageBatch):
            return item
        batches, rest = whole_batches([item, *self._queue.clear()])
        self._requeue(rest)
        self._queue.put_all(batches[1:])
        return batches[0] if batches else None

    def _iterate(self, idle_timeout_s: float | None, *, takes_batches: bool) -> Iterator[Any]:
        self._backend.refuse_to_wait("iterating")
        self._go_on()
        message: Message | None = None
        try:
            self._iterating = self._backend.current()
            self._takes_batches = takes_batches
            self.start()
            while (item := self._next_item(idle_timeout_s)) is not None:
                if not takes_batches:
                    message = item
                yield item
                if not takes_batches:
                    item.settle()
            with self._lock:
                self._may_go_on = self.running
        except BaseException as error:
            self._leave()
            if message is not None:
                self._put_off(message, AT_ONCE)
            # Ctrl-C may have come while a message was taken: it is in flight.
            if not isinstance(error, GeneratorExit):
                self.begin_to_stop(_EXIT_S)
            raise
        finally:
            self._end_iteration()
        self._raise_failure()

    def _end_iteration(self) -> None:
        self._leave()
        self._give_back()
        self._iterating = None
        self._request_stop(STOP_TIMEOUT_S)
        self._wait_for_stop()

    @staticmethod
    def _work(consumer_ref: ref[Consumer], queue: WorkQueue[Any]) -> None:
        """Call the handler. A worker that waits does not keep the consumer alive."""
        consumer = consumer_ref()
        if consumer is None:
            return
        consumer._workers.add(consumer._backend.current())
        try:
            while True:
                del consumer
                item = queue.take()
                consumer = consumer_ref()
                if item is None or consumer is None:
                    return
                consumer._handle(item)
                del item
        except BaseException as error:  # noqa: BLE001 - `wait` raises it
            consumer = consumer_ref()
            if consumer is not None and consumer._backend.current() in consumer._workers:
                consumer._worker_failed(error)

    def _worker_failed(self, error: BaseException) -> None:
        self._end_with(error)

    # ---- the I/O thread

    @staticmethod
    def _do_io(
        consumer_ref: ref[Consumer], poller: Any, queue: WorkQueue[Any], name: str, log: LineWriter
    ) -> None:
        """Do what is due, then wait, without keeping the consumer alive."""
        consumer = consumer_ref()
        if consumer is None or not consumer._begin_io():
            return
        ready: set[int] = set()
        sockets: list[Any] = []
        try:
            while consumer is not None:
                turn = consumer._turn(ready)
                del consumer
                if turn is None:
                    return
                sockets, timeout_s = turn
                ready = poller.wait([sock.fileno() for sock in sockets], timeout_s)
                consumer = consumer_ref()
        except BaseException as error:  # noqa: BLE001 - `wait` raises it
            consumer = consumer_ref()
            # No longer in a forked child.
            if consumer is not None and consumer._io_task == consumer._backend.current():
                consumer._end_with(error)
                consumer._close()
            return
        queue.close()
        for closing in (*sockets, poller):
            closing.close()
        log.warning("nothing refers to the consumer of %s, which was not stopped: it ends", name)
        warn_of_dropped(f"consumer of {name}")

    def _turn(self, ready: Collection[int]) -> tuple[list[Any], float] | None:
        """Handle input, and do everything that is due. Return as `_next_wait`; None if the consumer has stopped."""
        for batch in self._receive(ready):
            if self._takes_nothing:
                batch.requeue(0)
            else:
                self._hand_out(batch)
        self._queue.wait_until_empty(_HANDLING_S)
        had_left = self._is_leaving
        goes_on = self._goes_on()
        if self._is_iterated and self._is_leaving and not had_left:
            self._queue.close()
            self._give_back()
        if not goes_on:
            self._give_up()
            self._close()
            return None
        if self._failure is not None:
            self._give_back()  # the worker that would take it may have ended
        return self._next_wait()

    def _give_up(self) -> None:
        """The time of the stop is over."""
        self._give_back()

    def _close(self) -> None:
        try:
            super()._close()
        finally:
            self._queue.close()
            self._stopped.set()

    def _give_back(self) -> None:
        """Requeue messages that no handler has begun. They must not come here again, so their nsqds have been left."""
        self._takes_nothing = True
        self._requeue(self._queue.clear())

    def _requeue(self, items: Iterable[Any]) -> None:
        for item in items:
            if item.is_live and not item.is_answered:
                item.requeue(0, backoff=False)

    def _hand_out(self, batch: MessageBatch) -> None:
        self._queue.put_all([batch] if self._takes_batches else batch.messages())
