"""The non-blocking core of all producers: connects to nsqds, sends publishes, and reads the answers.

It works only while one of its methods runs, and waits only in `step`. Connecting, and asking nsqlookupds, happen in
threads of their own: an nsqd that hangs does not delay the others.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic

from nsqd_py.client.addresses import Discovery
from nsqd_py.client.blocking.backend import MOST_DIALS, THREADS, Backend, WorkerThread
from nsqd_py.client.blocking.connection import ClientContext, Connection, opened
from nsqd_py.client.blocking.lookup import Finder
from nsqd_py.client.callables import check_result
from nsqd_py.client.errors import ConnectionLost, HandshakeFailed, NoNsqd, NsqClientError, NsqdSaid
from nsqd_py.client.lookup import LookupFailed
from nsqd_py.client.process import ProcessHooks, call_after_fork
from nsqd_py.client.publishing.base import FIRST_PAUSE_S, MOST_PAUSE_S, BaseProducer, ProducerSettings
from nsqd_py.client.publishing.dispatcher import ConnectionWriter, Dispatcher, WindowLimits
from nsqd_py.client.publishing.publish import Done, Failures, PendingPublish, commands, ignore_result
from nsqd_py.protocol.incoming import Responses
from nsqd_py.runtime.logs.hidden import hidden_url
from nsqd_py.runtime.logs.outages import Backoff

_OK = b"OK"
_IDLE_S = 2.0  # how long an idle producer may take to see that nothing refers to it
_SHORTEST_WAIT_S = 0.001
_LASTED_S = 2.0  # a connection that lasted this long has ended the outage before it
_REMIND_EVERY_S = 60.0

_POLL_INTERVAL_S = 0.05  # a publish first reads the answers of nsqd if they were last read this long ago


class PublishingCore:
    """The connections and publishes of one producer. Only one thread at a time may use it.

    dispatcher    which publish is where
    connected     the writers that have a connection, by its descriptor
    has_discovered  True once all nsqlookupds were asked: a publish before that waits for them
    refusal       why no publish can be taken: every nsqd was tried, and none ever connected
    failures      publishes without `on_done` that failed
    poller        ends the wait of `step` when it is woken
    on_over       called with publishes that are over, after their `on_done`
    on_opened, on_lost   called with a writer that has a connection now, or is about to lose it
    held          what must not be dropped now, since it has publishes that are not over
    waits         False in an event loop: connections do not wait for room in a socket
    """

    def __init__(self, settings: ProducerSettings, backend: Backend = THREADS, *, waits: bool = True) -> None:
        self.settings = settings
        self.log = settings.log
        self.failures = Failures()
        self.on_over: Callable[[Sequence[PendingPublish]], object] = ignore_result
        self.on_opened: Callable[[ConnectionWriter], object] = ignore_result
        self.on_lost: Callable[[ConnectionWriter], object] = ignore_result
        self.logged_errors: type[BaseException] = (
            BaseException  # of `on_done`: it must not end what reads the answers
        )
        self.held: object = None
        self.waits = waits
        self._backend = backend
        self._begin()

    def _begin(self) -> None:
        """Set the state without connections, threads or publishes."""
        settings = self.settings
        limits = WindowLimits(settings.window, settings.window_bytes)
        self.dispatcher = Dispatcher(
            limits, retry_unknown=settings.retry_unknown, answer_timeout_s=settings.answer_timeout_s
        )
        self.poller = self._backend.make_poller()
        self.connected: dict[int, ConnectionWriter] = {}
        self.has_discovered = not settings.lookupds
        self.refusal: NsqClientError | None = None
        self._opening: dict[str, WorkerThread[Connection]] = {}
        context = ClientContext(settings.options, self.log, random.random, self._backend, self.poller)
        self._finders = [Finder(address, "", context) for address in settings.lookupds]
        self._discovery = Discovery(settings.nsqds)
        self._next_sweep_s = 0.0
        for address in settings.lookupds:
            self.dispatcher.lookup_failures[address] = LookupFailed(
                f"{hidden_url(address)}: has not answered yet"
            )
        if self.has_discovered:
            self._add_writers()  # so that errors name them from the beginning

    # ---- work

    def step(self, timeout_s: float) -> None:
        """Do what is due, and read what nsqds answer; wait for an answer for at most `timeout_s` seconds.

        Every publish of an answer that came is over then, and its `on_done` has been called.
        """
        self.work()
        for writer in self.connected.values():
            if writer.connection.has_unsent:
                writer.connection.send_unsent()
        self.pump()
        if self.receive(timeout_s):
            self.pump()

    def pump(self, *, waits: bool = True) -> bool:
        """Send the publishes that a connection has room for. Return False if `step` must be called for the rest.

        With `waits=False`, this neither waits nor reports results.
        """
        has_sent = True
        while self.dispatcher.waiting and (order := self.dispatcher.next_to_send(monotonic())) is not None:
            connection = order.writer.connection
            try:
                for piece in commands(order.publishes):
                    connection.send(piece, waits=waits)
            except ConnectionLost:
                return False  # `receive` reads its last events, which may hold the reason
            has_sent = has_sent and not connection.has_unsent
        return has_sent

    def work(self) -> None:
        """Connect, ask nsqlookupds, and fail publishes whose time is over: a few times a second."""
        now_s = monotonic()
        if now_s >= self._next_sweep_s or not self.dispatcher.is_connected:
            self._next_sweep_s = now_s + self.settings.sweep_interval_s
            self._discover()
            self._connect(now_s)
            self._expire(now_s)
            if self.has_discovered and not self._opening:
                self.refusal = self.dispatcher.no_nsqd()
            else:
                self.refusal = None

    def receive(self, timeout_s: float) -> bool:
        """Read what nsqds have sent, and wait for it if nothing is here. Return False if nothing came."""
        connected = self.connected
        ready = [writer for writer in connected.values() if writer.connection.has_events]
        if not ready:
            if connected:
                longest_s = timeout_s
            else:
                longest_s = min(timeout_s, self.until_dial_s())
            ready = [connected[descriptor] for descriptor in self.poller.wait(connected, longest_s)]
        for writer in ready:
            self.receive_from(writer)
        return bool(ready)

    def receive_from(self, writer: ConnectionWriter) -> None:
        """Read what one nsqd has sent."""
        if writer.connection is None:
            return
        try:
            for event in writer.connection.receive(0):
                if isinstance(event, Responses):
                    if event.data == _OK:
                        self.report(self.dispatcher.answered_ok(writer, event.times, monotonic()))
                elif isinstance(event, NsqdSaid):
                    failed = self.dispatcher.answered_error(writer, event.code, event.text, monotonic())
                    self.report(failed)
        except ConnectionLost as error:
            self._lost(writer, error.reason)

    def _lost(self, writer: ConnectionWriter, reason: str) -> None:
        self.on_lost(writer)
        if monotonic() - writer.opened_s >= _LASTED_S:
            writer.reported_s = None
        self._log_outage(writer, "producer: %s: connection lost: %s", writer.address, reason)
        self._disconnect(writer)
        self.report(self.dispatcher.closed(writer, reason, monotonic()))

    def _log_outage(self, writer: ConnectionWriter, text: str, *args: object) -> None:
        """Log the first failure of an outage, and one each minute while publishes wait."""
        now_s = monotonic()
        since_s = now_s - (writer.reported_s or 0.0)
        if writer.reported_s is None or (self.dispatcher.unfinished and since_s >= _REMIND_EVERY_S):
            writer.reported_s = now_s
            self.log.warning(text, *args)

    def _disconnect(self, writer: ConnectionWriter) -> None:
        del self.connected[writer.connection.fileno()]
        writer.connection.close()
        writer.connection = None

    def _expire(self, now_s: float) -> None:
        overdue, hung = self.dispatcher.expire(now_s)
        self.report(overdue)
        for writer in hung:
            self._lost(writer, f"no answer for {self.settings.answer_timeout_s:g}s")
        for writer in list(self.connected.values()):
            if writer.has_refused and not writer.unanswered:
                self._lost(writer, "refused a publish")

    def report(self, publishes: Sequence[PendingPublish]) -> None:
        """Report the results of publishes that are over."""
        for publish in publishes:
            if publish.on_done is not None:
                try:
                    result = publish.on_done(publish.error)
                    if result is not None:
                        check_result(publish.on_done, result)
                except self.logged_errors as error:
                    self.log.exception("on_done of a publish: %r", error)
            elif publish.error is not None:
                self.failures.add(publish.error)
        self.on_over(publishes)

    # ---- connecting

    def _connect(self, now_s: float) -> None:
        if self.has_discovered:
            self._add_writers()
        for writer in list(self.dispatcher.writers.values()):
            opening = self._opening.get(writer.address)
            if opening is not None and opening.is_done:
                del self._opening[writer.address]
                self._opened(writer, opening)
        for writer in self.dispatcher.writers.values():
            may_dial = (
                len(self._opening) < MOST_DIALS
                and writer.connection is None
                and writer.address not in self._opening
            )
            if may_dial and not self.dispatcher.pause_s(writer, now_s):
                call = partial(
                    opened, writer.address, self.settings.options, b"", self._backend, waits=self.waits
                )
                self._opening[writer.address] = WorkerThread(
                    self._backend, self.poller, call, Connection.close
                )

    def _add_writers(self) -> None:
        for address in self._discovery.needed:
            self.dispatcher.add_writer(address, Backoff(FIRST_PAUSE_S, MOST_PAUSE_S, random.random))

    def until_dial_s(self) -> float:
        """Return the time until an nsqd may be connected that is not; a connection that opens wakes the poller."""
        if not self.has_discovered or len(self._opening) >= MOST_DIALS:
            return math.inf
        now_s = monotonic()
        writers = self.dispatcher.writers.values()
        due_s = []
        for writer in writers:
            if writer.connection is None and writer.address not in self._opening:
                due_s.append(self.dispatcher.pause_s(writer, now_s))
        return max(_SHORTEST_WAIT_S, min(due_s, default=math.inf))

    @property
    def idle_s(self) -> float:
        """Return how long to wait if there is nothing to publish. What comes from elsewhere wakes the poller.

        A thousand producers in a process wake each other's threads as rarely as they can.
        """
        interval_s = self.settings.sweep_interval_s
        if self._finders or self.dispatcher.unfinished:
            return interval_s
        return max(interval_s, min(_IDLE_S, self.until_dial_s()))

    def _opened(self, writer: ConnectionWriter, opening: WorkerThread[Connection]) -> None:
        try:
            writer.connection = opening.result()
        except NsqClientError as error:
            self._log_outage(writer, "producer: %s", error)
            self.report(self.dispatcher.not_opened(writer, error, monotonic()))
        else:
            writer.opened_s = monotonic()
            self.connected[writer.connection.fileno()] = writer
            self.dispatcher.opened(writer)
            self.on_opened(writer)

    def _discover(self) -> None:
        for finder in self._finders:
            if not self.dispatcher.is_connected:  # an nsqd that comes back may have another address
                finder.retry_soon()
            nsqds = finder.step()
            if finder.failure is not None:
                self.dispatcher.lookup_failures[finder.address] = finder.failure
            if nsqds is not None:
                self.dispatcher.lookup_failures.pop(finder.address, None)
                self._discovery.answered(finder.address, nsqds)
                for writer in self.dispatcher.keep_writers(self._discovery.needed):
                    opening = self._opening.pop(writer.address, None)
                    if opening is not None:
                        opening.kill()
        self.has_discovered = all(finder.has_asked for finder in self._finders)

    # ---- its end

    def flush(self, timeout_s: float | None) -> None:
        """Return when all publishes are over. Raises TimedOut, and FlushFailed."""
        deadline_s = None if timeout_s is None else monotonic() + timeout_s
        while self.dispatcher.unfinished:
            if deadline_s is not None and monotonic() >= deadline_s:
                raise self.dispatcher.still_open(self.dispatcher.unfinished)
            self.step(self.settings.sweep_interval_s)
        self.failures.raise_new()

    def leave_event_loop(self) -> None:
        """Work without the event loop: it has ended, or another thread closes the connections."""
        self.waits = True
        self.on_over = ignore_result
        self.on_opened = ignore_result
        self.on_lost = ignore_result
        for writer in self.connected.values():
            writer.connection.waits = True

    def close(self, error: NsqClientError | None = None) -> None:
        """Fail all publishes, by default since the producer is closed, and close."""
        self.report(self.dispatcher.give_up(error or NoNsqd("the producer is closed")))
        for writer in list(self.connected.values()):
            self._disconnect(writer)
            self.dispatcher.closed(writer, "closed", monotonic())
        self._stop_workers()
        self.poller.close()

    def _stop_workers(self) -> None:
        for opening in self._opening.values():
            opening.kill()
        for finder in self._finders:
            finder.kill()
        self._opening.clear()
        self._finders = []

    def after_fork(self) -> None:
        """In the child: drop the parent's publishes and connections."""
        self._stop_workers()
        for writer in self.connected.values():
            writer.connection.close()
        self.poller.close()
        self._begin()


class NonBlockingProducer(BaseProducer[None, PendingPublish], ProcessHooks):
    """A producer that works only while one of its methods runs, for Spark. Only one thread at a time may use it.

    It has only the methods that do not wait for `OK`, and `step`. It raises TimedOut if its window is full.
    """

    def _set_up(self) -> None:
        self._core = PublishingCore(self.settings)
        self._core.logged_errors = Exception  # `on_done` is called in the thread of the caller
        self._received_s = 0.0
        call_after_fork(self)

    def _publish_soon(self, head: bytes, body: bytes, on_done: Done | None) -> PendingPublish:
        now_s = monotonic()
        publish = PendingPublish(head, body, now_s + self.settings.publish_timeout_s, on_done)
        if now_s - self._received_s >= _POLL_INTERVAL_S:
            self._received_s = now_s
            self._core.receive(0)  # connections may have ended, and answers arrived
        dispatcher = self._core.dispatcher
        if not dispatcher.is_connected:
            self._core.work()
            if self._core.refusal is not None:
                raise self._core.refusal
        if not dispatcher.has_room:
            raise dispatcher.not_taken(publish)
        dispatcher.submit(publish)
        self._core.pump()
        return publish

    def step(self, timeout_s: float) -> None:
        """Do what is due, and read what nsqds answer; wait for an answer for at most `timeout_s` seconds.

        Every publish of an answer that came is over then, and its `on_done` has been called.
        """
        self._core.step(timeout_s)
        self._received_s = monotonic()

    @property
    def has_discovered(self) -> bool:
        """True once all nsqlookupds were asked: a publish before that waits for them."""
        return self._core.has_discovered

    @property
    def nsqd_count(self) -> int:
        """The number of nsqds that are known, at least 1."""
        return max(1, len(self._core.dispatcher.writers))

    @property
    def is_refused(self) -> bool:
        """True if every nsqd refused the handshake, because of a secret or certificate, and none ever took it."""
        failures = [writer.failure for writer in self._core.dispatcher.writers.values()]
        refused = all(isinstance(failure, HandshakeFailed) and failure.is_lasting for failure in failures)
        return bool(failures) and refused and self._core.dispatcher.no_nsqd() is not None

    def close(self, timeout_s: float | None = None) -> None:
        try:
            self._core.flush(timeout_s)
        finally:
            self._core.close()

    def _after_fork(self) -> None:
        """In the child: drop the parent's publishes and connections."""
        self._core.after_fork()
