"""The producer for plain Python: any number of threads may share one.

    with Producer("127.0.0.1:4150") as producer:
        producer.publish("topic", b"waits for OK")
        futures = [producer.publish_soon("topic", line) for line in lines]
        producer.flush()

An I/O thread answers heartbeats, reconnects, and retries, whatever its callers do. Callers put their publishes into
an inbox, and wait for the result or for room. They share no lock with the I/O thread or with each other, since a signal
handler may raise an exception anywhere in a caller, and it or a `__del__` may call the producer again. One call of the
interpreter changes each state below, and only the I/O thread removes publishes from the inbox while it runs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import ref

from nsqd_py.client.blocking.backend import Backend, Waiters
from nsqd_py.client.blocking.publishing_core import PublishingCore
from nsqd_py.client.callables import check_result
from nsqd_py.client.errors import ConnectionLost, NoNsqd, NsqClientError, WrongPlace
from nsqd_py.client.process import (
    EXIT_S,
    ProcessHooks,
    call_after_fork,
    close_at_exit,
    forget,
    warn_of_dropped,
)
from nsqd_py.client.publishing.base import BaseProducer, pinged
from nsqd_py.client.publishing.publish import Done, PendingPublish, ignore_result
from nsqd_py.runtime.logs.lines import LineWriter

if TYPE_CHECKING:
    from typing import Unpack

    from nsqd_py.client.publishing.base import ProducerKeywords

# How long publishes are collected at most while answers are due. A thread that is woken for each publish takes 0.3 us
# more a publish.
_GATHERING_S = 0.001
_LOCK_S = 1.0  # how long the I/O thread waits for a lock that others hold for a few steps
_END_S = 1.0  # how long callers wait for the I/O thread after the time of a publish or of `close` is over
_SOON_S = 0.1


class PublishFuture(PendingPublish, Future[None]):
    """A publish, whose result is None once nsqd has stored it. It cannot be cancelled.

    Most futures are never asked. The I/O thread changes the state of the publish before it reads `is_asked`, and
    those who ask set that before they read the state: one of the two always sees the other.

    It has what `concurrent.futures` reads of a future: `_condition`, made when it is first read, and `_state` and `_waiters`,
    which only change under it.
    """

    __slots__ = ("log",)

    log: LineWriter
    is_asked = False
    _is_settled = False

    @staticmethod
    def make_lock() -> Any:
        """Return a lock of the kind that the interpreter has now: gevent may patch it after this module was imported."""
        return threading.Lock()

    def __repr__(self) -> str:
        return f"<PublishFuture, {self.state}>"

    def done(self) -> bool:
        return self.is_over

    def running(self) -> bool:
        return not self.is_over

    def cancelled(self) -> bool:
        return False

    def cancel(self) -> bool:
        """Return False: a publish cannot be cancelled."""
        return False

    def result(self, timeout: float | None = None) -> None:
        """Return once nsqd has stored it. Raises its error, and TimeoutError."""
        error = self.exception(timeout)
        if error is not None:
            raise error.with_traceback(None)  # others may raise the same object

    def exception(self, timeout: float | None = None) -> NsqClientError | None:
        """Return its error once it is over; None if nsqd has stored it. Raises TimeoutError."""
        if not self.is_over:
            askers: Waiters = vars(self).setdefault("_askers", Waiters(self.make_lock))
            self.is_asked = True
            if not askers.wait_until(lambda: self.is_over, timeout):
                raise TimeoutError
        return self.error

    def add_done_callback(self, fn: Callable[[PublishFuture], object]) -> None:
        """Call `fn` with this future when it is over: at once, or in the thread that reads the answers.

        An exception of `fn` is logged.
        """
        vars(self).setdefault("_calls", deque()).append(fn)
        self.is_asked = True
        if self.is_over:
            self.notify()

    def notify(self) -> None:
        """Report that the publish is over. Each callback is called by the thread that removes it."""
        state = vars(self)
        if "_askers" in state:
            state["_askers"].wake_all()
        if "_its_condition" in state:
            self._settle()
        if "_calls" in state:
            with suppress(IndexError):
                while True:
                    self._call(state["_calls"].popleft())

    def _call(self, fn: Callable[[PublishFuture], object]) -> None:
        try:
            check_result(fn, fn(self))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.log.exception("callback of a publish: %r", error)

    # ---- for `concurrent.futures.wait` and `as_completed`

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        state = vars(self)
        if "_its_condition" not in state:
            state.setdefault("_waiters", [])
            state.setdefault("_its_condition", threading.Condition())
            self.is_asked = True
            if self.is_over:
                self._settle()
        condition: threading.Condition = state["_its_condition"]
        return condition

    @property
    def _state(self) -> str:  # type: ignore[override]
        return "FINISHED" if self._is_settled else "RUNNING"

    def _settle(self) -> None:
        """Notify those who wait with `concurrent.futures`, once."""
        condition = vars(self)["_its_condition"]
        # Ctrl-C may have ended another thread between two steps of `concurrent.futures`, while it held the lock.
        has_lock = condition.acquire(timeout=_LOCK_S)
        try:
            if not self._is_settled:
                self._is_settled = True
                for waiter in vars(self)["_waiters"]:
                    if self.error is None:
                        waiter.add_result(self)
                    else:
                        waiter.add_exception(self)
        finally:
            if has_lock:
                condition.release()


class Producer(BaseProducer[None, PublishFuture], ProcessHooks):
    __doc__ = BaseProducer.__doc__

    _make_publish: type[PublishFuture] = PublishFuture
    _make_backend: type[Backend] = Backend

    def _set_up(self) -> None:
        self._backend = self._make_backend()
        self._begin()
        call_after_fork(self)

    def _begin(self) -> None:
        """Set the state of a producer without connections, threads or publishes."""
        make_lock = self._backend.make_lock
        self._core = PublishingCore(self.settings, self._backend)
        on_over: Callable[[Any], None] = partial(_notify_all, self.settings.log)
        self._core.on_over = on_over
        self._log = self.settings.log
        self._publish_timeout_s = self.settings.publish_timeout_s
        self._most = self.settings.window
        self._most_bytes = self.settings.window_bytes
        self._room_waiters = Waiters(make_lock)
        self._settled_waiters = Waiters(make_lock)
        self._inbox: deque[PublishFuture] = deque()
        self._inbox_bytes = 0  # about: several threads change it
        self._must_check = True  # before a publish is taken: the producer is not started, refused, or closed
        self._refusal: NsqClientError | None = None
        self._is_idle = True  # apart from the inbox
        self._is_asleep = False
        self._is_closed = False
        self._failure: Exception | None = None  # in the I/O thread
        self._close_by_s: float | None = None  # at the end of the process
        self._has_ended = False
        self._is_starting = False
        # Taken by the I/O thread, or by what closes without it, and never released.
        self._is_started = make_lock()
        self._io_task: object = None

    # ---- publishing

    def _publish(self, head: bytes, body: bytes = b"") -> None:
        self._refuse_to_wait("publish")
        publish = self._publish_soon(head, body, ignore_result)
        try:
            publish.result(_SOON_S)
        except TimeoutError:
            self._wake_again()
            try:
                publish.result(self._publish_timeout_s + _END_S)
            except TimeoutError:
                raise self._still_open() from None

    def _wake_again(self) -> None:
        """Wake the I/O thread before a wait: this may be a signal handler that has interrupted `_wake_io` before its end."""
        if not self._is_closed:
            self._core.poller.wake()

    def _publish_soon(self, head: bytes, body: bytes, on_done: Done | None) -> PublishFuture:
        publish = self._make_publish(head, body, monotonic() + self._publish_timeout_s, on_done)
        publish.log = self._log
        inbox = self._inbox
        if self._must_check or len(inbox) >= self._most or self._inbox_bytes >= self._most_bytes:
            self._make_room(publish)
        inbox.append(publish)
        self._inbox_bytes += publish.size_bytes
        if self._is_asleep:  # read after `append`; the I/O thread sets it before it reads the inbox
            self._wake_io()
        return publish

    def _wake_io(self) -> None:
        self._is_asleep = False
        if not self._is_closed:
            self._core.held = self
            self._core.poller.wake()
            return
        self._is_asleep = True  # it has emptied the inbox for the last time
        self._refuse_left(self._closed_error())

    def _make_room(self, publish: PendingPublish) -> None:
        self._check_that_there_is_any()
        self._start()
        if self._has_room() or self._backend.current() == self._io_task:
            return  # `on_done` publishes: no other thread makes room
        self._refuse_to_wait("publish_soon without room")
        if not self._room_waiters.wait_until(self._has_room, publish.deadline_s - monotonic()):
            raise self._still_open()

    def _has_room(self) -> bool:
        self._check_that_there_is_any()
        inbox = self._inbox
        return not inbox or (len(inbox) < self._most and self._inbox_bytes < self._most_bytes)

    def _check_that_there_is_any(self) -> None:
        if self._is_closed:
            raise self._closed_error()
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)

    def _closed_error(self) -> NoNsqd:
        if self._failure is not None:
            return NoNsqd(f"the producer has ended because of an error: {self._failure!r}")
        return NoNsqd("the producer is closed")

    def _refuse_to_wait(self, method: str) -> None:
        if self._backend.current() == self._io_task:
            raise WrongPlace(f"{method} in on_done would wait for itself: use publish_soon")
        self._backend.refuse_to_wait(method)

    # ---- waiting

    def flush(self, timeout_s: float | None = None) -> None:
        is_own_thread = self._backend.current() == self._io_task
        # Once all is over, the I/O thread is about to see it. That is not waited for in an event loop, nor reported.
        if not self._is_settled() and (self._open_count or is_own_thread):
            self._refuse_to_wait("flush")
        self._wake_again()
        wait_until_settled = partial(self._settled_waiters.wait_until, self._is_settled)
        if not wait_until_settled(timeout_s) and (self._open_count or not wait_until_settled(_END_S)):
            raise self._still_open()
        self._core.failures.raise_new()

    @property
    def _open_count(self) -> int:
        return len(self._inbox) + self._core.dispatcher.unfinished

    def _still_open(self) -> NsqClientError:
        return self._core.dispatcher.still_open(self._open_count)

    def _is_settled(self) -> bool:
        # In this order: the I/O thread changes them in the other one.
        return not self._inbox and self._is_idle

    def ping(self) -> None:
        self._refuse_to_wait("ping")
        self._check_that_there_is_any()
        self._start()
        if not self._room_waiters.wait_until(self._is_connected, self._publish_timeout_s):
            raise self._core.dispatcher.not_connected(self._publish_timeout_s)

    def _is_connected(self) -> bool:
        if self._core.dispatcher.is_connected:
            return True
        self._check_that_there_is_any()
        return False

    # ---- the I/O thread

    def _start(self) -> None:
        if self._is_starting:
            return
        self._core.held = self
        close_at_exit(self)
        try:
            self._is_starting = True
            self._backend.spawn("nsqd-py producer", self._run, ref(self), self._core, self.settings.log)
        except RuntimeError as error:  # the system has no more threads: the next call retries
            self._is_starting = False
            raise NoNsqd(str(error)) from error
        except BaseException:  # of a signal handler
            self._is_starting = False
            raise

    @staticmethod
    def _run(producer_ref: ref[Producer], core: PublishingCore, log: Any) -> None:
        """Do what is due, then wait. Without publishes, this does not keep the producer alive."""
        producer = producer_ref()
        if producer is None or not producer._is_started.acquire(blocking=False):
            return
        producer._io_task = producer._backend.current()
        del producer
        try:
            core.step(0.0)  # begins to connect
            while (producer := producer_ref()) is not None:
                wait_s = producer._turn()
                if wait_s is None:
                    break
                del producer
                core.step(wait_s)
        except Exception as error:
            producer = producer_ref()
            if producer is not None:
                producer._failure = error
                del producer
            with suppress(Exception):  # the log may be what failed; publishes raise the error
                log.exception("producer: %r", error)
        finally:
            producer = producer_ref()
            if producer is None:
                warn_of_dropped(f"producer for {', '.join(core.settings.nsqds + core.settings.lookupds)}")
                core.close()
            elif producer._io_task == producer._backend.current():  # no longer in a forked child
                producer._let_go()

    def _turn(self) -> float | None:
        """Hand publishes to the core. Return how long to wait for answers at most; None at the end."""
        core = self._core
        inbox = self._inbox
        self._is_asleep = False
        if self._is_closed or (
            self._close_by_s is not None and (self._is_settled() or monotonic() > self._close_by_s)
        ):
            return None
        self._refusal = core.refusal
        self._must_check = self._refusal is not None
        can_take = self._must_check or (core.has_discovered and core.dispatcher.has_room)
        has_taken = bool(inbox) and can_take and self._take_in()
        if inbox and not can_take:
            self._refuse_overdue()
        self._is_idle = not core.dispatcher.unfinished
        self._notify()
        # To be woken is of use if the next publish can leave, and no others will soon.
        if has_taken:
            return _GATHERING_S
        if inbox and not can_take:
            return self.settings.sweep_interval_s
        # Before it falls asleep: `_wake_io` keeps it again.
        core.held = self if core.dispatcher.unfinished else None
        self._is_asleep = True
        return 0.0 if inbox else core.idle_s

    def _take_in(self) -> bool:
        """Hand the inbox to the core, or refuse it. Return True if the core has publishes now."""
        self._is_idle = False
        if self._refusal is not None:
            self._refuse_left(self._refusal)
            return False
        publishes = self._empty_inbox()
        size_bytes = sum([publish.size_bytes for publish in publishes])
        self._core.dispatcher.submit_all(publishes, size_bytes)
        return True

    def _refuse_overdue(self) -> None:
        self._is_idle = False
        now_s = monotonic()
        overdue = []
        while self._inbox and self._inbox[0].deadline_s <= now_s:
            overdue.append(self._inbox.popleft())
        for publish in overdue:
            publish.fail(self._core.dispatcher.not_taken(publish))
        self._core.report(overdue)

    def _refuse_left(self, error: NsqClientError) -> None:
        publishes = self._empty_inbox()
        for publish in publishes:
            publish.fail(error)
        self._core.report(publishes)

    def _empty_inbox(self) -> list[PublishFuture]:
        publishes: list[PublishFuture] = []
        take = self._inbox.popleft
        try:
            for _ in range(len(self._inbox)):
                publishes.append(take())
        except IndexError:  # after the end, several threads do this; `suppress` would take 0.5 us
            pass
        self._inbox_bytes = 0
        return publishes

    def _notify(self) -> None:
        """Wake those who wait for what is true now."""
        if 2 * len(self._inbox) <= self._most and 2 * self._inbox_bytes <= self._most_bytes:
            self._room_waiters.wake_all()
        if self._is_settled():
            self._settled_waiters.wake_all()

    # ---- its end

    def close(self, timeout_s: float | None = None) -> None:
        if self._is_closed:
            return
        try:
            self.flush(timeout_s)
        finally:
            self._end()

    def _end(self) -> None:
        self._is_closed = True
        self._must_check = True
        forget(self)
        self._core.poller.wake()
        if self._is_started.acquire(blocking=False):  # from now on no thread can start
            self._let_go()
        elif self._backend.current() != self._io_task:
            self._settled_waiters.wait_until(lambda: self._has_ended, _END_S)

    def _let_go(self) -> None:
        """Fail what is left, and close. The I/O thread, if there is one, does this last."""
        self._is_closed = self._must_check = self._is_asleep = True  # in this order: see `_wake_io`
        try:
            self._refuse_left(self._closed_error())
            self._core.close(self._closed_error())
        finally:
            self._io_task = None
            self._is_idle = True
            self._has_ended = True
            self._room_waiters.wake_all()
            self._settled_waiters.wake_all()

    def _begin_at_exit(self) -> None:
        if self._backend.is_usable:
            self._close_by_s = monotonic() + EXIT_S
            self._core.poller.wake()

    def _at_exit(self, left_s: float) -> None:
        if not self._backend.is_usable:
            self.settings.log.warning(
                "producer: %d publishes of a thread that has ended are lost", self._open_count
            )
            return
        try:
            self.close(left_s)
        except NsqClientError as error:
            self.settings.log.warning("producer: at the end of the process: %s", error)

    def _after_fork(self) -> None:
        """In the child: fail the publishes of the parent, which are the parent's, and leave its connections alone."""
        self._backend.after_fork()
        self._backend.kill(self._io_task)
        lost = ConnectionLost("", "the publish belongs to the parent process")
        for publish in [*self._inbox, *self._core.dispatcher.give_up(lost)]:
            publish.fail(lost)
        self._core.after_fork()
        self._begin()


def connect(*addresses: str, **settings: Unpack[ProducerKeywords]) -> Producer:
    """Return a producer that is connected. Takes the arguments of `Producer`. Raises BadClientOption, NoNsqd."""
    return pinged(Producer(*addresses, **settings))


def _notify_all(log: Any, publishes: Sequence[PublishFuture]) -> None:
    for publish in publishes:
        if publish.is_asked:
            try:
                publish.notify()
            except BaseException as error:
                log.exception("callback of a publish: %r", error)
