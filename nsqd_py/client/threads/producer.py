"""The producer for plain Python: any number of threads may share one.

    with Producer("127.0.0.1:4150") as producer:
        producer.publish("topic", b"waits for OK")
        futures = [producer.publish_soon("topic", line) for line in lines]
        producer.flush()

A thread of its own does all input and output: it answers heartbeats, connects again, and retries, whatever its callers
do. Callers put their publishes into an inbox, and wait for the result or for room.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, RUNNING
from functools import cached_property
from time import monotonic
from typing import Any, Unpack

from nsqd_py.client.errors import ConnectionLost, NoNsqd, NsqClientError, WrongPlace
from nsqd_py.client.keywords import ProducerKeywords
from nsqd_py.client.process import (
    AfterFork,
    AtExit,
    forget_at_exit,
    refuse_in_event_loop,
    tell_after_fork,
    tell_at_exit,
)
from nsqd_py.client.publishing.base import BaseProducer, pinged
from nsqd_py.client.publishing.publish import Done, Publish
from nsqd_py.client.threads.stepping import SteppingProducer

# How long publishes are collected at most while answers are due. A thread that is woken for each publish takes 0.3 us
# more a publish.
_GATHERING_S = 0.001
_MAKING = threading.Lock()  # of the locks of futures


class PublishFuture(Publish, Future[None]):
    """A publish, whose result is None once nsqd has stored it. It cannot be cancelled.

    Most futures are never asked, so each makes its lock only when it is, and its state is that of the publish: this
    costs 0.2 us a publish, `Future.__init__` and `set_result` 1.7 us. The I/O thread changes the state before it looks
    for a lock, and those who ask make the lock before they look at the state: one of the two always sees the other.
    """

    # The attributes of a Future.
    _result = None
    _is_asked = False

    @property
    def _state(self) -> str:  # type: ignore[override]
        return FINISHED if self.is_over else RUNNING

    @property
    def _exception(self) -> BaseException | None:  # type: ignore[override]
        return self.error

    @cached_property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        with _MAKING:
            if "_condition" not in self.__dict__:
                self._waiters: list[Any] = []
                self._done_callbacks: list[Any] = []
                self.__dict__["_condition"] = threading.Condition()
                self._is_asked = True
            condition: threading.Condition = self.__dict__["_condition"]
            return condition

    def cancel(self) -> bool:
        return False

    def tell_those_who_asked(self) -> None:
        """Note that the publish is over."""
        if self._is_asked:
            with self._condition:
                for waiter in self._waiters:
                    waiter.add_result(self)
                self._condition.notify_all()
            self._invoke_callbacks()  # type: ignore[attr-defined]

    def abandon(self, error: NsqClientError) -> None:
        """In a forked child: fail. A thread of the parent may have held the lock."""
        self.__dict__.pop("_condition", None)
        self._is_asked = False
        self.fail(error)


class Core(SteppingProducer):
    """The connections of a producer. Only its I/O thread uses it.

    deliver  called with publishes that are over, after their `on_done`
    """

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

    def take_failure(self) -> NsqClientError | None:
        return self._failures.take()

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


class Producer(BaseProducer, AfterFork, AtExit):
    __doc__ = BaseProducer.__doc__

    def _set_up(self) -> None:
        self._begin()
        tell_after_fork(self)

    def _begin(self) -> None:
        """Set the state of a producer without connections, threads or publishes."""
        self._core = Core(**self.settings.arguments(), log=self.log)
        self._core.deliver = self._deliver
        self._publish_timeout_s = self.settings.publish_timeout_s
        self._most = self.settings.window.publishes
        self._most_bytes = self.settings.window.size_bytes
        self._lock = threading.Lock()
        self._has_room = threading.Condition(self._lock)
        self._has_settled = threading.Condition(self._lock)
        self._inbox: deque[Publish] = deque()
        self._inbox_bytes = 0
        self._must_wait = True  # a publish cannot be taken at once: not started, no room, refused, or closed
        self._refusal: NsqClientError | None = None
        self._is_idle = True  # apart from the inbox
        self._is_asleep = False
        self._is_closed = False
        self._thread: threading.Thread | None = None

    # ---- publishing

    def _publish(self, head: bytes, body: bytes = b"") -> None:
        self._refuse_to_wait("publish")
        error = self._publish_soon(head, body, _ignore).exception()
        if error is not None:
            raise error.with_traceback(None)  # others may raise the same object

    def _publish_soon(self, head: bytes, body: bytes, on_done: Done | None) -> PublishFuture:
        publish = PublishFuture(head, body, monotonic() + self._publish_timeout_s, on_done)
        inbox = self._inbox
        with self._lock:
            if self._must_wait:
                self._make_room(publish)
            inbox.append(publish)
            self._inbox_bytes += publish.size_bytes
            if len(inbox) >= self._most or self._inbox_bytes >= self._most_bytes:
                self._must_wait = True
            self._wake_io()
        return publish

    def _wake_io(self) -> None:
        if self._is_asleep:
            self._is_asleep = False
            self._core.wake()

    def _make_room(self, publish: Publish) -> None:
        self._start()
        while self._must_wait:
            self._check_that_there_is_any()
            if threading.current_thread() is self._thread:
                return  # `on_done` publishes: nothing would make room meanwhile
            self._refuse_to_wait("publish_soon without room")
            left_s = publish.deadline_s - monotonic()
            if left_s <= 0:
                raise self._core.still_open()
            self._has_room.wait(left_s)

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
        with self._lock:
            if not self._is_settled():
                self._refuse_to_wait("flush")
            if not self._has_settled.wait_for(self._is_settled, timeout_s):
                raise self._core.still_open()
            failed = self._core.take_failure()
        if failed is not None:
            raise failed

    def _is_settled(self) -> bool:
        return self._is_idle and not self._inbox

    def ping(self) -> None:
        self._refuse_to_wait("ping")
        deadline_s = monotonic() + self.settings.publish_timeout_s
        with self._lock:
            self._start()
            while not self._core.is_connected:
                self._check_that_there_is_any()
                if monotonic() >= deadline_s:
                    raise self._core.not_connected()
                self._has_room.wait(self.settings.sweep_interval_s)

    # ---- the I/O thread

    def _start(self) -> None:
        if self._is_closed:
            raise NoNsqd("the producer is closed")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="nsqd-py producer", daemon=True)
            self._thread.start()
            tell_at_exit(self)

    def _run(self) -> None:
        core, nap_s = self._core, self.settings.sweep_interval_s
        try:
            core.step(0.0)  # begins to connect
            while True:
                with self._lock:
                    if self._is_closed:
                        break
                    unfinished = core.unfinished
                    overdue = self._take_in()
                    has_taken = core.unfinished > unfinished
                    self._is_idle = not (overdue or core.unfinished)
                    # To be woken is of use if the next publish can leave, and no others will soon.
                    self._is_asleep = not (overdue or has_taken or self._inbox)
                    self._notify()
                if overdue:
                    core.refuse(overdue, self._refusal)
                else:
                    core.step(_GATHERING_S if has_taken else nap_s)
        except BaseException as error:
            self.log.exception("producer: %r", error)
            raise
        finally:
            self._let_go()

    def _take_in(self) -> list[Publish]:
        """Hand the inbox to the core, if that has room. Return the publishes that cannot be published any more."""
        core, inbox = self._core, self._inbox
        self._refusal = core.refusal()
        overdue: list[Publish] = []
        if self._refusal is not None:
            overdue += self._empty_inbox()
        elif inbox and core.has_discovered and core.has_room:
            size_bytes = self._inbox_bytes
            core.take_all(self._empty_inbox(), size_bytes)
        now_s = monotonic()
        while inbox and inbox[0].deadline_s <= now_s:
            overdue.append(inbox.popleft())
            self._inbox_bytes -= overdue[-1].size_bytes
        return overdue

    def _empty_inbox(self) -> list[Publish]:
        publishes = list(self._inbox)
        self._inbox.clear()
        self._inbox_bytes = 0
        return publishes

    def _notify(self) -> None:
        """Wake those who wait for what is true now."""
        has_room = 2 * len(self._inbox) <= self._most and 2 * self._inbox_bytes <= self._most_bytes
        self._must_wait = self._refusal is not None or self._is_closed or (self._must_wait and not has_room)
        if has_room or self._must_wait:
            self._has_room.notify_all()
        if self._is_settled():
            self._has_settled.notify_all()

    def _deliver(self, publishes: Sequence[Publish]) -> None:
        for publish in publishes:
            if publish._is_asked:  # type: ignore[attr-defined]
                publish.tell_those_who_asked()  # type: ignore[attr-defined]

    # ---- its end

    def close(self, timeout_s: float | None = None) -> None:
        if self._is_closed:
            return
        try:
            self.flush(timeout_s)
        finally:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self._is_closed = self._must_wait = True
            thread = self._thread
        forget_at_exit(self)
        self._core.wake()
        if thread is None:
            self._core.let_go()
        elif thread is not threading.current_thread():
            thread.join()

    def _let_go(self) -> None:
        """Fail what is left, and close. The I/O thread does this last."""
        with self._lock:
            self._is_closed = self._must_wait = True
            left = self._empty_inbox()
        self._core.refuse(left, NoNsqd("the producer is closed"))
        self._core.let_go()
        with self._lock:
            self._is_idle = True
            self._notify()

    def at_exit(self, left_s: float) -> None:
        try:
            self.close(left_s)
        except NsqClientError as error:
            self.log.warning("producer: at the end of the process: %s", error)

    def after_fork(self) -> None:
        """In the child: fail the publishes of the parent, which are the parent's, and leave its connections alone."""
        lost = ConnectionLost("", "the publish belongs to the parent process")
        left = [*self._inbox, *self._core.give_up(lost)]
        self._core.after_fork()
        self._begin()
        for publish in left:
            if isinstance(publish, PublishFuture):
                publish.abandon(lost)


def connect(*addresses: str, **settings: Unpack[ProducerKeywords]) -> Producer:
    """Return a producer that is connected. Takes the arguments of `Producer`. Raises BadClientOption, NoNsqd."""
    return pinged(Producer(*addresses, **settings))


def _ignore(error: NsqClientError | None) -> None:
    """The `on_done` of a publish whose caller checks its result."""
