"""The producer on gevent. Many greenlets may share one, and its connections.

    with Producer("127.0.0.1:4150") as producer:
        producer.publish("topic", b"waits for OK")
        for line in lines:
            producer.publish_soon("topic", line)
        producer.flush()

All publishes of one event-loop iteration are sent together.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - gevent resolves host names with it, and it cannot be imported at the end
import random
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Unpack

import gevent
from gevent.event import Event
from gevent.hub import Waiter

from nsqd_py.client.discovery import Discovery
from nsqd_py.client.errors import NoNsqd, NsqClientError, NsqdSaid, WrongPlace
from nsqd_py.client.gevent.links import OutletLink
from nsqd_py.client.keywords import ProducerKeywords
from nsqd_py.client.process import AfterFork, AtExit, forget, refuse_in_event_loop, tell_after_fork, tell_at_exit
from nsqd_py.client.publishing.base import FIRST_PAUSE_S, MOST_PAUSE_S, BaseProducer, pinged
from nsqd_py.client.publishing.dispatcher import Dispatcher
from nsqd_py.client.publishing.outlet import Outlet
from nsqd_py.client.publishing.publish import Done, Publish, commands
from nsqd_py.protocol import outgoing
from nsqd_py.runtime.outages import Backoff

if TYPE_CHECKING:
    from nsqd_py.client.gevent.lookup_client import LookupClient


class Producer(BaseProducer[Publish], AfterFork, AtExit):
    __doc__ = BaseProducer.__doc__

    def _set_up(self) -> None:
        self._begin()
        tell_after_fork(self)

    def _begin(self) -> None:
        """Set the state of a producer without connections, greenlets or publishes."""
        settings = self.settings
        self._dispatcher = Dispatcher(
            settings.window, retry_unknown=settings.retry_unknown, answer_timeout_s=settings.answer_timeout_s
        )
        # The hub wakes waiting callers, not the greenlet that reads the answer.
        self._hub = gevent.get_hub()
        self._later: Callable[..., object] = self._hub.loop.run_callback
        self._links: dict[str, OutletLink] = {}
        self._greenlets: list[gevent.Greenlet[..., None]] = []
        self._discovery = Discovery(settings.nsqds)
        self._has_discovered = Event()
        self._publish_timeout_s = settings.publish_timeout_s
        self._pump_is_due = False
        self._blocked: deque[Waiter[None]] = deque()
        self._is_idle = Event()
        self._is_started = False
        self._is_closed = False

    # ---- publishing

    def _publish(self, head: bytes, body: bytes = b"") -> None:
        waiter: Waiter[NsqClientError | None] = Waiter()
        self._publish_soon(head, body, lambda error: self._later(waiter.switch, error))
        error = waiter.get()
        if error is not None:
            raise error.with_traceback(None)  # others may raise the same object

    def _publish_soon(self, head: bytes, body: bytes, on_done: Done | None) -> Publish:
        if not self._pump_is_due:  # once a loop iteration: 0.06 us
            self._refuse_other_threads()
        publish = Publish(head, body, monotonic() + self._publish_timeout_s, on_done)
        dispatcher = self._dispatcher
        if not dispatcher.is_connected or not dispatcher.waiting.has_room:
            self._make_room(publish)
        dispatcher.submit(publish)
        if not self._pump_is_due:
            self._pump_is_due = True
            self._later(self._pump)
        return publish

    def _refuse_other_threads(self) -> None:
        if gevent.get_hub() is not self._hub:
            raise WrongPlace("a producer on gevent belongs to one thread: use nsqd_py.client.Producer, or one for each")

    def _make_room(self, publish: Publish) -> None:
        """Wait until a publish may be submitted. Raises if it never may."""
        self._start()
        while not self._dispatcher.waiting.has_room:
            self._wait_for_change()
            if monotonic() >= publish.deadline_s:
                raise self._dispatcher.not_taken(publish)
        if self._dispatcher.no_nsqd() is not None:
            gevent.sleep(0)  # a caller that retries at once must let the links run
        self._check_that_there_is_any()

    def _check_that_it_is_open(self) -> None:
        if self._is_closed:
            raise NoNsqd("the producer is closed")

    def _check_that_there_is_any(self) -> None:
        self._check_that_it_is_open()
        error = self._dispatcher.no_nsqd()
        if error is not None:
            raise error

    def _pump(self) -> None:
        """Send the publishes that a connection has room for."""
        self._pump_is_due = False
        now_s = monotonic()
        while (order := self._dispatcher.next_to_send(now_s)) is not None:
            for piece in commands(order.publishes):
                order.outlet.connection.write(piece)
        if self._blocked and self._dispatcher.waiting.is_half_empty:
            self._wake()

    # ---- those who wait

    def _wait_for_change(self) -> None:
        """Block this greenlet until there may be room or a connection; at most until the next sweep."""
        waiter: Waiter[None] = Waiter()
        self._blocked.append(waiter)
        waiter.get()

    def _wake(self) -> None:
        """Wake no more callers than there may be room for, so that thousands do not wake in vain."""
        for _ in range(min(len(self._blocked), self.settings.window.publishes)):
            self._later(self._blocked.popleft().switch, None)

    def _wake_all(self) -> None:
        while self._blocked:
            self._later(self._blocked.popleft().switch, None)

    def flush(self, timeout_s: float | None = None) -> None:
        self._wait_until_idle(timeout_s)
        self._failures.raise_new()

    def _wait_until_idle(self, timeout_s: float | None) -> None:
        deadline_s = None if timeout_s is None else monotonic() + timeout_s
        while self._dispatcher.unfinished:
            self._is_idle.clear()
            left_s = None if deadline_s is None else deadline_s - monotonic()
            if left_s is not None and left_s <= 0 or not self._is_idle.wait(left_s):
                raise self._dispatcher.still_open()

    def ping(self) -> None:
        self._start()
        deadline_s = monotonic() + self.settings.publish_timeout_s
        while not self._dispatcher.is_connected:
            self._check_that_there_is_any()
            if monotonic() >= deadline_s:
                raise self._dispatcher.not_connected(self.settings.publish_timeout_s)
            self._wait_for_change()
        for outlet in self._dispatcher.outlets.values():
            if outlet.is_open:
                outlet.connection.write(outgoing.NOP)

    # ---- what the links tell

    def opened(self, outlet: Outlet) -> None:
        self._dispatcher.opened(outlet)
        self._pump()
        self._wake_all()

    def not_opened(self, outlet: Outlet, error: NsqClientError) -> None:
        self._over(self._dispatcher.not_opened(outlet, error, monotonic()))
        self._wake_all()

    def pause_s(self, outlet: Outlet) -> float:
        return self._dispatcher.pause_s(outlet, monotonic())

    def answered_ok(self, outlet: Outlet, count: int) -> None:
        self._over(self._dispatcher.answered_ok(outlet, count, monotonic()))
        if self._dispatcher.waiting:
            self._pump()

    def answered_error(self, outlet: Outlet, error: NsqdSaid) -> None:
        self._over(self._dispatcher.answered_error(outlet, error.code, error.text, monotonic()))
        self._pump()
        if not outlet.window:
            outlet.connection.close()

    def closed(self, outlet: Outlet, reason: str) -> None:
        if not self._is_closed:
            self.log.warning("producer: %s: connection lost: %s", outlet.address, reason)
        self._over(self._dispatcher.closed(outlet, reason, monotonic()))
        self._pump()

    def _over(self, publishes: list[Publish]) -> None:
        self._tell(publishes)
        if not self._dispatcher.unfinished:
            self._is_idle.set()

    # ---- its greenlets

    def _start(self) -> None:
        """Begin to connect, at the first use. Returns when the nsqds are known."""
        self._refuse_other_threads()
        refuse_in_event_loop("a producer on gevent")
        self._check_that_it_is_open()
        if not self._is_started:
            self._is_started = True
            tell_at_exit(self)
            self._greenlets.append(gevent.spawn(self._sweep))
            if self.settings.lookupds:
                self._greenlets.append(gevent.spawn(self._discover))
            else:
                self._connect_wanted()
                self._has_discovered.set()
        self._has_discovered.wait()

    def _sweep(self) -> None:
        while True:
            gevent.sleep(self.settings.sweep_interval_s)
            overdue = self._dispatcher.expire(monotonic())
            self._over(overdue.publishes)
            for outlet in overdue.hung:
                outlet.connection.close(f"no answer for {self.settings.answer_timeout_s:g}s")
            self._wake_all()

    def _discover(self) -> None:
        from nsqd_py.client.gevent.lookup_client import LookupClient  # slow: HTTP takes 12 ms

        client = LookupClient(self.settings.options)
        options = self.settings.options
        while True:
            for address in self.settings.lookupds:
                self._ask(client, address)
            self._connect_wanted()
            self._has_discovered.set()
            jitter = options.lookupd_poll_jitter * random.random()
            gevent.sleep(options.lookupd_poll_interval_s * (1 + jitter))

    def _ask(self, client: LookupClient, address: str) -> None:
        try:
            self._discovery.answered(address, client.nodes(address))
        except NsqClientError as error:
            self.log.warning("producer: nsqlookupd %s", error)
            self._dispatcher.lookup_failures[address] = error
        else:
            self._dispatcher.lookup_failures.pop(address, None)

    def _connect_wanted(self) -> None:
        wanted = self._discovery.wanted
        for outlet in self._dispatcher.keep_outlets(wanted):
            self._links.pop(outlet.address).close()
        for address in wanted:
            outlet = self._dispatcher.add_outlet(address, Backoff(FIRST_PAUSE_S, MOST_PAUSE_S))
            link = self._links.get(address)
            if link is None or link.outlet is not outlet:  # the outlet was forgotten, and added again
                self._links[address] = OutletLink(outlet, self.settings.options, self, self.log)

    # ---- its end

    def close(self, timeout_s: float | None = None) -> None:
        if self._is_closed:
            return
        try:
            self.flush(timeout_s)
        finally:
            self._is_closed = True
            self._let_go()

    def _at_exit(self, left_s: float) -> None:
        if gevent.get_hub() is not self._hub:
            if count := self._dispatcher.unfinished:
                self.log.warning("producer: %d publishes of a thread that has ended are lost", count)
            return
        try:
            self.close(left_s)
        except NsqClientError as error:
            self.log.warning("producer: at the end of the process: %s", error)

    def _let_go(self) -> None:
        forget(self)
        gevent.killall(self._greenlets)
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._over(self._dispatcher.give_up(NoNsqd("the producer is closed")))
        self._wake_all()

    def _after_fork(self) -> None:
        """In the child: drop the parent's publishes and connections."""
        gevent.reinit()
        for link in self._links.values():
            link.abandon()
        gevent.killall(self._greenlets, block=False)
        self._begin()


def connect(*addresses: str, **settings: Unpack[ProducerKeywords]) -> Producer:
    """Return a producer that is connected. Takes the arguments of `Producer`. Raises BadClientOption, NoNsqd."""
    return pinged(Producer(*addresses, **settings))
