"""The producer for plain Python: any number of threads may share one.

    with Producer("127.0.0.1:4150") as producer:
        producer.publish("topic", b"waits for OK")
        futures = [producer.publish_soon("topic", line) for line in lines]
        producer.flush()

An I/O thread answers heartbeats, connects again, and retries, whatever its callers do. Callers put their publishes into
an inbox, and wait for the result or for room. They share no lock with the I/O thread or with each other, since a signal
handler may raise an exception anywhere in a caller, and it or a `__del__` may call the producer again. One call of the
interpreter changes each state below, and only the I/O thread removes publishes from the inbox while it runs.

A synchronous `publish` takes 72 to 143 us of processor in both threads, in the median 129 (seven runs of 5,000 on a
shared machine); with a Condition for each wait it took the same, 73 to 160 us and 129.
"""

from __future__ import annotations

import _thread
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import ExitStack, suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Unpack, cast
from weakref import ref

from nsqd_py.client.errors import ConnectionLost, NoNsqd, NsqClientError, WrongPlace
from nsqd_py.client.keywords import ProducerKeywords
from nsqd_py.client.process import (
    EXIT_S,
    AfterFork,
    AtExit,
    forget,
    refuse_in_event_loop,
    tell_after_fork,
    tell_at_exit,
    warn_of_dropped,
)
from nsqd_py.client.publishing.base import BaseProducer, pinged
from nsqd_py.client.publishing.publish import Done, Publish
from nsqd_py.client.threads.stepping import SteppingProducer
from nsqd_py.client.threads.waiters import Waiters

# How long publishes are collected at most while answers are due. A thread that is woken for each publish takes 0.3 us
# more a publish.
_GATHERING_S = 0.001
_END_S = 1.0  # how long callers wait for the I/O thread after the time of a publish or of `close` is over


class PublishFuture(Publish, Future[None]):
    """A publish, whose result is None once nsqd has stored it. It cannot be cancelled.

    Most futures are never asked, so none has the state of a Future at first, which takes 1.7 us; `wait` and
    `as_completed` of concurrent.futures make it. The I/O thread changes the state of the publish before it looks at
    `is_asked`, and those who ask set that before they look at the state: one of the two always sees the other.
    """

    is_asked = False
    is_watched = False  # by functions that use the state and the lock of a Future

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def running(self) -> bool:
        return not self.is_over

    def done(self) -> bool:
        return self.is_over

    def result(self, timeout: float | None = None) -> None:
        error = self.exception(timeout)
        if error is not None:
            raise error.with_traceback(None)  # others may raise the same object

    def exception(self, timeout: float | None = None) -> NsqClientError | None:
        if not self.is_over:
            waiters: Waiters = vars(self).setdefault("_result_waiters", Waiters())
            self.is_asked = True
            if not waiters.wait_until(lambda: self.is_over, timeout):
                raise TimeoutError
        return self.error

    def add_done_callback(self, fn: Callable[[Future[None]], object]) -> None:
        vars(self).setdefault("_calls", deque()).append(fn)
        self.is_asked = True
        if self.is_over:
            self.tell_those_who_asked()

    def tell_those_who_asked(self) -> None:
        """Note that the publish is over. Each callback is called by the thread that removes it."""
        state = vars(self)
        if "_result_waiters" in state:
            state["_result_waiters"].wake_all()
        if "_calls" in state:
            with ExitStack() as stack, suppress(IndexError):  # the stack calls all, even if one raises
                while True:
                    stack.callback(state["_calls"].pop(), self)

    def settle(self) -> None:
        """Set the state of a Future, for `wait` and `as_completed`. Takes its lock, which other threads hold."""
        with suppress(InvalidStateError):  # another thread has settled it
            self.set_exception(self.error) if self.error is not None else self.set_result(None)

    if not TYPE_CHECKING:  # type checkers know the attributes

        def __getattr__(self, name: str) -> Any:
            """Make the state of a Future when some code first uses it."""
            state = vars(Future())
            if name not in state:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            for key, value in state.items():
                vars(self).setdefault(key, value)  # unless another thread was faster
            self.is_watched = self.is_asked = True
            if self.is_over:
                self.settle()
            return vars(self)[name]


class Core(SteppingProducer):
    """The connections of a producer. Only its I/O thread uses it.

    deliver  called with publishes that are over, after their `on_done`
    kept     the producer while it has publishes that are not over: it may be dropped before they are
    """

    kept: object = None
    _on_done_failures = BaseException
    deliver: Callable[[Sequence[Publish]], None]

    def _set_up(self) -> None:
        self._begin()  # the owner tells it of forks

    @property
    def has_room(self) -> bool:
        return self._dispatcher.waiting.has_room

    @property
    def is_connected(self) -> bool:
        return self._dispatcher.is_connected

    @property
    def unfinished(self) -> int:
        return self._dispatcher.unfinished

    def take_all(self, publishes: Collection[Publish], size_bytes: int) -> None:
        self._dispatcher.submit_all(publishes, size_bytes)

    def raise_failures(self) -> None:
        self._failures.raise_new()

    def wake(self) -> None:
        """End the wait of `step`. Any thread may call this."""
        self._waker.wake()

    def refusal(self) -> NsqClientError | None:
        """Return why no publish can be taken: every nsqd was tried, and none ever connected."""
        return self._dispatcher.no_nsqd() if self._has_discovered and not self._opening else None

    def refuse(self, publishes: Sequence[Publish], error: NsqClientError | None = None) -> None:
        """Fail publishes that were not taken, by default because their time is over."""
        for publish in publishes:
            publish.fail(error or self._dispatcher.not_taken(publish))
        self._tell(publishes)

    def give_up(self, error: NsqClientError) -> list[Publish]:
        """Fail all publishes without a word to their callers. Return them."""
        return self._dispatcher.give_up(error)

    def let_go(self) -> None:
        """Fail all publishes, and close."""
        self._let_go()

    def _tell(self, publishes: Sequence[Publish]) -> None:  # type: ignore[override]
        super()._tell(publishes)
        self.deliver(publishes)


class Producer(BaseProducer[PublishFuture], AfterFork, AtExit):
    __doc__ = BaseProducer.__doc__

    def _set_up(self) -> None:
        self._begin()
        tell_after_fork(self)

    def _begin(self) -> None:
        """Set the state of a producer without connections, threads or publishes."""
        self._core = Core(**self.settings.arguments(), log=self.log)
        self._core.deliver = partial(_deliver, self.log)
        self._publish_timeout_s = self.settings.publish_timeout_s
        self._most = self.settings.window.publishes
        self._most_bytes = self.settings.window.size_bytes
        self._room_waiters = Waiters()
        self._settled_waiters = Waiters()
        self._inbox: deque[PublishFuture] = deque()
        self._inbox_bytes = 0  # about: several threads change it
        self._must_check = True  # before a publish is taken: the producer is not started, refused, or closed
        self._refusal: NsqClientError | None = None
        self._is_idle = True  # apart from the inbox
        self._is_asleep = False
        self._is_closed = False
        self._close_by_s: float | None = None  # at the end of the process
        self._has_ended = False
        self._is_starting = False
        self._is_started = threading.Lock()  # taken by what starts the I/O thread or closes without it, and kept
        self._thread: threading.Thread | None = None

    # ---- publishing

    def _publish(self, head: bytes, body: bytes = b"") -> None:
        self._refuse_to_wait("publish")
        publish = self._publish_soon(head, body, _ignore)
        try:
            publish.result(self._publish_timeout_s + _END_S)
        except TimeoutError:
            raise self._core.still_open() from None

    def _publish_soon(self, head: bytes, body: bytes, on_done: Done | None) -> PublishFuture:
        publish = PublishFuture(head, body, monotonic() + self._publish_timeout_s, on_done)
        inbox = self._inbox
        if self._must_check or len(inbox) >= self._most or self._inbox_bytes >= self._most_bytes:
            self._make_room(publish)
        inbox.append(publish)
        self._inbox_bytes += publish.size_bytes
        if self._is_asleep:  # looked at after `append`; the I/O thread sets it before it looks into the inbox
            self._wake_io()
        return publish

    def _wake_io(self) -> None:
        self._is_asleep = False
        if not self._is_closed:
            self._core.kept = self
            self._core.wake()
            return
        self._is_asleep = True  # it has emptied the inbox for the last time
        self._refuse_left(NoNsqd("the producer is closed"))

    def _make_room(self, publish: Publish) -> None:
        self._check_that_there_is_any()
        self._start()
        if self._has_room() or threading.current_thread() is self._thread:
            return  # `on_done` publishes: no other thread makes room
        self._refuse_to_wait("publish_soon without room")
        if not self._room_waiters.wait_until(self._has_room, publish.deadline_s - monotonic()):
            raise self._core.still_open()

    def _has_room(self) -> bool:
        self._check_that_there_is_any()
        inbox = self._inbox
        return not inbox or (len(inbox) < self._most and self._inbox_bytes < self._most_bytes)

    def _check_that_there_is_any(self) -> None:
        if self._is_closed:
            raise NoNsqd("the producer is closed")
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)

    def _refuse_to_wait(self, method: str) -> None:
        if threading.current_thread() is self._thread:
            raise WrongPlace(f"{method} in on_done would wait for itself: use publish_soon")
        refuse_in_event_loop(method)

    # ---- waiting

    def flush(self, timeout_s: float | None = None) -> None:
        is_own_thread = threading.current_thread() is self._thread
        # Once all is over, the I/O thread is about to see it.
        if not self._is_settled() and (self._inbox or self._core.unfinished or is_own_thread):
            self._refuse_to_wait("flush")
        if not self._settled_waiters.wait_until(self._is_settled, timeout_s):
            raise self._core.still_open()
        self._core.raise_failures()

    def _is_settled(self) -> bool:
        return not self._inbox and self._is_idle  # in this order: the I/O thread changes them in the other one

    def ping(self) -> None:
        self._refuse_to_wait("ping")
        self._check_that_there_is_any()
        self._start()
        if not self._room_waiters.wait_until(self._is_connected, self._publish_timeout_s):
            raise self._core.not_connected()

    def _is_connected(self) -> bool:
        if self._core.is_connected:
            return True
        self._check_that_there_is_any()
        return False

    # ---- the I/O thread

    def _start(self) -> None:
        """Start the I/O thread from a thread that no signal handler interrupts, as it would the start of this one."""
        if self._is_starting:
            return
        self._core.kept = self
        tell_at_exit(self)
        try:
            self._is_starting = True
            _thread.start_new_thread(self._start_io, ())
        except BaseException:  # also of a signal handler: the next call tries again
            self._is_starting = False
            raise

    def _start_io(self) -> None:
        if not self._is_started.acquire(blocking=False):
            return
        try:
            arguments = ref(self), self._core, self.log
            self._thread = threading.Thread(target=self._run, args=arguments, name="nsqd-py producer", daemon=True)
            self._thread.start()
        except RuntimeError as error:
            self._thread = None
            self._is_started.release()
            self._is_starting = False
            self._refuse_left(NoNsqd(str(error)))

    @staticmethod
    def _run(producer_ref: ref[Producer], core: Core, log: Any) -> None:
        """Do what is due, then wait. Without publishes, this does not keep the producer alive."""
        try:
            core.step(0.0)  # begins to connect
            while (producer := producer_ref()) is not None:
                wait_s = producer._turn()
                if wait_s is None:
                    break
                del producer
                core.step(wait_s)
        except BaseException as error:
            log.exception("producer: %r", error)
            raise
        finally:
            producer = producer_ref()
            if producer is None:
                warn_of_dropped(f"producer for {', '.join(core.settings.nsqds + core.settings.lookupds)}")
                core.let_go()
            else:
                producer._let_go()

    def _turn(self) -> float | None:
        """Hand publishes to the core. Return how long to wait for answers at most; None at the end."""
        core, inbox = self._core, self._inbox
        self._is_asleep = False
        if self._is_closed or (self._close_by_s is not None and (self._is_settled() or monotonic() > self._close_by_s)):
            return None
        self._refusal = core.refusal()
        self._must_check = self._refusal is not None
        can_take = self._must_check or (core.has_discovered and core.has_room)
        has_taken = bool(inbox) and can_take and self._take_in()
        if inbox and not can_take:
            self._refuse_overdue()
        self._is_idle = not core.unfinished
        self._notify()
        # To be woken is of use if the next publish can leave, and no others will soon.
        if has_taken:
            return _GATHERING_S
        if inbox and not can_take:
            return self.settings.sweep_interval_s
        core.kept = self if core.unfinished else None  # before it falls asleep: `_wake_io` keeps it again
        self._is_asleep = True
        return 0.0 if inbox else self.settings.sweep_interval_s

    def _take_in(self) -> bool:
        """Hand the inbox to the core, or refuse it. Return True if the core has publishes now."""
        self._is_idle = False
        if self._refusal is not None:
            self._refuse_left(self._refusal)
            return False
        publishes = self._empty_inbox()
        self._core.take_all(publishes, sum([publish.size_bytes for publish in publishes]))
        return True

    def _refuse_overdue(self) -> None:
        self._is_idle = False
        now_s = monotonic()
        overdue = []
        while self._inbox and self._inbox[0].deadline_s <= now_s:
            overdue.append(self._inbox.popleft())
        self._core.refuse(overdue)

    def _refuse_left(self, error: NsqClientError) -> None:
        self._core.refuse(self._empty_inbox(), error)

    def _empty_inbox(self) -> list[PublishFuture]:
        publishes: list[PublishFuture] = []
        take = self._inbox.popleft
        with suppress(IndexError):  # after the end, several threads do this
            for _ in range(len(self._inbox)):
                publishes.append(take())
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
        self._is_closed = self._must_check = True
        forget(self)
        self._core.wake()
        if self._is_started.acquire(blocking=False):  # from now on no thread can start
            self._let_go()
        elif threading.current_thread() is not self._thread:
            self._settled_waiters.wait_until(lambda: self._has_ended, _END_S)

    def _let_go(self) -> None:
        """Fail what is left, and close. The I/O thread, if there is one, does this last."""
        self._is_closed = self._must_check = self._is_asleep = True  # in this order: see `_wake_io`
        try:
            self._refuse_left(NoNsqd("the producer is closed"))
            self._core.let_go()
        finally:
            self._thread = None  # not for a caller to destroy: threading has a callback for that, where Ctrl-C is lost
            self._is_idle = self._has_ended = True
            self._room_waiters.wake_all()
            self._settled_waiters.wake_all()

    def _begin_at_exit(self) -> None:
        self._close_by_s = monotonic() + EXIT_S
        self._core.wake()

    def _at_exit(self, left_s: float) -> None:
        try:
            self.close(left_s)
        except NsqClientError as error:
            self.log.warning("producer: at the end of the process: %s", error)

    def _after_fork(self) -> None:
        """In the child: fail the publishes of the parent, which are the parent's, and leave its connections alone."""
        lost = ConnectionLost("", "the publish belongs to the parent process")
        for publish in [*self._inbox, *self._core.give_up(lost)]:
            publish.fail(lost)
        self._core._after_fork()
        self._begin()


def connect(*addresses: str, **settings: Unpack[ProducerKeywords]) -> Producer:
    """Return a producer that is connected. Takes the arguments of `Producer`. Raises BadClientOption, NoNsqd."""
    return pinged(Producer(*addresses, **settings))


def _ignore(error: NsqClientError | None) -> None:
    """The `on_done` of a publish whose caller checks its result."""


def _deliver(log: Any, publishes: Sequence[Publish]) -> None:
    asked = [publish for publish in cast("Sequence[PublishFuture]", publishes) if publish.is_asked]
    for publish in asked:
        try:
            publish.tell_those_who_asked()
        except BaseException as error:
            log.exception("callback of a publish: %r", error)
    watched = [publish for publish in asked if publish.is_watched]
    if watched:  # a signal handler may have interrupted a caller that holds their locks
        _thread.start_new_thread(_settle_all, (watched,))


def _settle_all(publishes: Sequence[PublishFuture]) -> None:
    for publish in publishes:
        publish.settle()
