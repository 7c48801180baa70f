"""A producer that works only while one of its methods runs: for Spark, and as the core of the threaded producer.

    with SteppingProducer("127.0.0.1:4150") as producer:
        for line in lines:
            producer.publish_soon("topic", line)
        producer.flush()

A message of `publish_soon` is sent when enough have been collected, or during a later call, and at the latest by
`flush` or `close`. Only one thread at a time may use it.
"""

from __future__ import annotations

import random
import select
from collections.abc import Sequence
from functools import partial
from time import monotonic

from nsqd_py.client.discovery import Discovery
from nsqd_py.client.errors import ConnectionLost, HandshakeFailed, NoNsqd, NsqClientError, NsqdSaid, TimedOut
from nsqd_py.client.options import ClientOptions
from nsqd_py.client.process import AfterFork, tell_after_fork
from nsqd_py.client.publishing.base import FIRST_PAUSE_S, MOST_PAUSE_S, BaseProducer
from nsqd_py.client.publishing.dispatcher import Dispatcher
from nsqd_py.client.publishing.outlet import Outlet
from nsqd_py.client.publishing.publish import Done, Publish, commands
from nsqd_py.client.session import Event
from nsqd_py.client.threads.aside import Aside, Waker
from nsqd_py.client.threads.connection import Connection, opened
from nsqd_py.protocol import outgoing
from nsqd_py.protocol.incoming import Responses
from nsqd_py.runtime.outages import Backoff

_OK = b"OK"
# While answers are due, messages of `publish_soon` are collected up to this size before they are sent ...
_GATHERED_BYTES = 64 * 1024
# ... unless the answers of nsqd were last read this long ago.
_LOOK_INTERVAL_S = 0.05

# The nsqds that each nsqlookupd names, or its error.
_Answers = dict[str, "tuple[str, ...] | NsqClientError"]


class SteppingProducer(BaseProducer[Publish], AfterFork):
    __doc__ = BaseProducer.__doc__

    _on_done_failures: type[BaseException] = Exception  # `on_done` is called in the thread of the caller
    _waits = True  # for room in a socket

    def _set_up(self) -> None:
        self._begin()
        tell_after_fork(self)

    def _begin(self) -> None:
        """Set the state of a producer without connections, threads or publishes."""
        settings = self.settings
        self._dispatcher = Dispatcher(
            settings.window, retry_unknown=settings.retry_unknown, answer_timeout_s=settings.answer_timeout_s
        )
        self._waker = Waker()  # of `_look`, by the threads that connect or ask
        self._opening: dict[str, Aside[Connection]] = {}
        self._asking: Aside[_Answers] | None = None
        self._ask_again_s = 0.0
        self._discovery = Discovery(settings.nsqds)
        self._has_discovered = not settings.lookupds
        self._pump_at_bytes = _GATHERED_BYTES
        self._sweep_again_s = 0.0
        self._looked_s = 0.0
        self._is_closed = False

    # ---- publishing

    def _publish(self, head: bytes, body: bytes = b"") -> None:
        publish = self._submit(head, body, _ignore)
        self._pump()
        while not publish.is_over:
            self._step()
        if publish.error is not None:
            raise publish.error.with_traceback(None)  # others may raise the same object

    def _publish_soon(self, head: bytes, body: bytes, on_done: Done | None) -> Publish:
        publish = self._submit(head, body, on_done)
        waiting = self._dispatcher.waiting
        if waiting.size_bytes >= self._pump_at_bytes or len(waiting) == self._dispatcher.unfinished:
            self._pump()
        return publish

    def still_open(self) -> TimedOut:
        """Return the error of a `flush` whose time is over."""
        return self._dispatcher.still_open()

    def not_connected(self) -> NoNsqd:
        """Return the error of a `ping` whose time is over."""
        return self._dispatcher.not_connected(self.settings.publish_timeout_s)

    def _submit(self, head: bytes, body: bytes, on_done: Done | None) -> Publish:
        now_s = monotonic()
        publish = Publish(head, body, now_s + self.settings.publish_timeout_s, on_done)
        if not self._is_closed and now_s - self._looked_s >= _LOOK_INTERVAL_S:
            self._look(0)  # meanwhile connections may have ended, and answers arrived
        if not self._dispatcher.is_connected or not self._dispatcher.waiting.has_room:
            self._make_room(publish)
        self._dispatcher.submit(publish)
        return publish

    def _make_room(self, publish: Publish) -> None:
        """Wait until a publish may be submitted. Raises if it never may."""
        self._work()
        self._check_that_there_is_any()
        while not self._has_discovered or not self._dispatcher.waiting.has_room:
            if monotonic() >= publish.deadline_s:
                raise self._dispatcher.not_taken(publish)
            self._step()
            self._check_that_there_is_any()

    def _check_that_there_is_any(self) -> None:
        if self._is_closed:
            raise NoNsqd("the producer is closed")
        error = self._dispatcher.no_nsqd()
        if error is not None and self._has_discovered and not self._opening:
            raise error

    def _pump(self) -> None:
        """Send the publishes that a connection has room for."""
        while (order := self._dispatcher.next_to_send(monotonic())) is not None:
            try:
                for piece in commands(order.publishes):
                    order.outlet.connection.send(piece)
            except ConnectionLost:
                self._hear_the_last(order.outlet)
        self._pump_at_bytes = self._dispatcher.waiting.size_bytes + _GATHERED_BYTES

    def flush(self, timeout_s: float | None = None) -> None:
        deadline_s = None if timeout_s is None else monotonic() + timeout_s
        self._pump()
        while self._dispatcher.unfinished:
            if deadline_s is not None and monotonic() >= deadline_s:
                raise self.still_open()
            self._step()
        self._failures.raise_new()

    def ping(self) -> None:
        deadline_s = monotonic() + self.settings.publish_timeout_s
        self._look(0)
        self._work()
        while not self._dispatcher.is_connected:
            self._check_that_there_is_any()
            if monotonic() >= deadline_s:
                raise self.not_connected()
            self._step()
        for outlet in self._connected():
            outlet.connection.send(outgoing.NOP)

    # ---- for callers that also look after other things

    def step(self, timeout_s: float) -> None:
        """Do what is due, and read what nsqds answer; wait for an answer for at most `timeout_s` seconds.

        Every publish of an answer that came is over then, and its `on_done` has been called.
        """
        self._work()
        self._pump()
        self._look(timeout_s)
        self._pump()

    @property
    def has_discovered(self) -> bool:
        """True once all nsqlookupds were asked: a publish before that waits for them."""
        return self._has_discovered

    @property
    def nsqd_count(self) -> int:
        """The number of nsqds that are known, at least 1."""
        return max(1, len(self._dispatcher.outlets))

    @property
    def is_refused(self) -> bool:
        """True if every nsqd refused the handshake, because of a secret or certificate, and none ever took it."""
        outlets = self._dispatcher.outlets.values()
        refused = all(isinstance(outlet.failure, HandshakeFailed) for outlet in outlets)
        return bool(outlets) and refused and self._dispatcher.no_nsqd() is not None

    # ---- what happens

    def _step(self) -> None:
        """Do what is due, and wait a short time for the next event."""
        self._work()
        self._look(self.settings.sweep_interval_s)
        self._pump()

    def _work(self) -> None:
        """Do what is due a few times a second."""
        now_s = monotonic()
        if now_s >= self._sweep_again_s or not self._dispatcher.is_connected:
            self._sweep_again_s = now_s + self.settings.sweep_interval_s
            self._discover(now_s)
            self._connect(now_s)
            self._expire(now_s)
            self._pump()

    def _look(self, timeout_s: float) -> None:
        """Read what nsqds have sent, and wait for it if nothing is here."""
        self._looked_s = monotonic()
        for outlet in self._readable(timeout_s):
            self._hear(outlet)

    def _readable(self, timeout_s: float) -> list[Outlet]:
        """Return the connections that can be read, as soon as there are any, or the waker is called."""
        outlets = self._connected()
        ready = [outlet for outlet in outlets if outlet.connection.has_events]
        if ready:
            return ready
        by_descriptor = {outlet.connection.fileno(): outlet for outlet in outlets}
        waker = self._waker.fileno()
        poll = select.poll()
        for descriptor in (waker, *by_descriptor):
            poll.register(descriptor, select.POLLIN)
        longest_s = timeout_s if outlets else min(timeout_s, FIRST_PAUSE_S / 2)
        found = [descriptor for descriptor, _ in poll.poll(longest_s * 1000)]
        if waker in found:
            self._waker.reset()
        return [by_descriptor[descriptor] for descriptor in found if descriptor in by_descriptor]

    def _connected(self) -> list[Outlet]:
        return [outlet for outlet in self._dispatcher.outlets.values() if outlet.connection is not None]

    def _hear(self, outlet: Outlet) -> None:
        try:
            for event in outlet.connection.receive(0):
                self._happened(outlet, event)
        except ConnectionLost as error:
            self._lost(outlet, error.reason)

    def _hear_the_last(self, outlet: Outlet) -> None:
        """Read the last events of a connection that has ended, which may hold the reason."""
        while outlet.connection is not None:
            self._hear(outlet)

    def _happened(self, outlet: Outlet, event: Event) -> None:
        now_s = monotonic()
        if isinstance(event, Responses):
            if event.data == _OK:
                self._tell(self._dispatcher.answered_ok(outlet, event.times, now_s))
        elif isinstance(event, NsqdSaid):
            self._tell(self._dispatcher.answered_error(outlet, event.code, event.text, now_s))

    def _lost(self, outlet: Outlet, reason: str) -> None:
        self.log.warning("producer: %s: connection lost: %s", outlet.address, reason)
        outlet.connection.close()
        outlet.connection = None
        self._tell(self._dispatcher.closed(outlet, reason, monotonic()))

    def _expire(self, now_s: float) -> None:
        overdue = self._dispatcher.expire(now_s)
        self._tell(overdue.publishes)
        for outlet in overdue.hung:
            self._lost(outlet, f"no answer for {self.settings.answer_timeout_s:g}s")
        for outlet in self._connected():
            if outlet.has_refused and not outlet.window:
                self._lost(outlet, "refused a publish")

    # ---- connecting, beside this thread: an nsqd that hangs is not to keep the others waiting

    def _connect(self, now_s: float) -> None:
        for address in self._discovery.wanted if self._has_discovered else ():
            self._dispatcher.add_outlet(address, Backoff(FIRST_PAUSE_S, MOST_PAUSE_S))
        for outlet in list(self._dispatcher.outlets.values()):
            opening = self._opening.get(outlet.address)
            if opening is not None and opening.is_done:
                del self._opening[outlet.address]
                self._opened(outlet, opening)
            elif opening is None and outlet.connection is None and not self._dispatcher.pause_s(outlet, now_s):
                call = partial(opened, outlet.address, self.settings.options, waits=self._waits)
                self._opening[outlet.address] = Aside(call, self._waker)

    def _opened(self, outlet: Outlet, opening: Aside[Connection]) -> None:
        try:
            outlet.connection = opening.result()
        except NsqClientError as error:
            self.log.warning("producer: %s", error)
            self._tell(self._dispatcher.not_opened(outlet, error, monotonic()))
        else:
            self._dispatcher.opened(outlet)

    def _discover(self, now_s: float) -> None:
        if self._asking is not None and self._asking.is_done:
            self._answered(self._asking.result())
            self._asking = None
            self._has_discovered = True
        elif self._asking is None and self.settings.lookupds and now_s >= self._ask_again_s:
            options = self.settings.options
            jitter = options.lookupd_poll_jitter * random.random()
            self._ask_again_s = now_s + options.lookupd_poll_interval_s * (1 + jitter)
            self._asking = Aside(partial(_ask, self.settings.lookupds, options), self._waker)

    def _answered(self, answers: _Answers) -> None:
        for lookupd, answer in answers.items():
            if isinstance(answer, NsqClientError):
                self.log.warning("producer: nsqlookupd %s", answer)
                self._dispatcher.lookup_failures[lookupd] = answer
            else:
                self._dispatcher.lookup_failures.pop(lookupd, None)
                self._discovery.answered(lookupd, answer)
        self._dispatcher.keep_outlets(self._discovery.wanted)

    # ---- its end

    def close(self, timeout_s: float | None = None) -> None:
        if self._is_closed:
            return
        try:
            self.flush(timeout_s)
        finally:
            self._is_closed = True
            self._let_go()

    def _let_go(self) -> None:
        self._tell(self._dispatcher.give_up(NoNsqd("the producer is closed")))
        for outlet in self._connected():
            outlet.connection.close()
            outlet.connection = None
            self._dispatcher.closed(outlet, "closed", monotonic())
        self._opening.clear()  # a caller must not destroy it: threading has a callback for that, where Ctrl-C is lost
        self._asking = None
        self._waker.close()

    def _after_fork(self) -> None:
        """In the child: drop the parent's publishes and connections."""
        for outlet in self._connected():
            outlet.connection.close()
        self._waker.close()
        self._begin()


def _ignore(error: NsqClientError | None) -> None:
    """The `on_done` of a publish whose caller checks its result."""


def _ask(lookupds: Sequence[str], options: ClientOptions) -> _Answers:
    from nsqd_py.client.threads.lookup import LookupClient  # imported only if there are nsqlookupds

    client = LookupClient(options)
    answers: _Answers = {}
    for lookupd in lookupds:
        try:
            answers[lookupd] = client.nodes(lookupd)
        except NsqClientError as error:
            answers[lookupd] = error
    return answers
