"""The non-blocking core of all consumers: connects to nsqds, reads messages, and sends the answers to them.

It works only while one of its methods runs, and waits only in `step`. Connecting, and asking nsqlookupds, take place where
the backend spawns them, in threads of their own by default: an nsqd that hangs does not delay the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from selectors import EVENT_READ, EVENT_WRITE
from time import monotonic
from typing import Any

from nsqd_py.client.addresses import Discovery
from nsqd_py.client.blocking.backend import MOST_DIALS, Backend
from nsqd_py.client.blocking.connection import ClientContext
from nsqd_py.client.blocking.lookup import Finder
from nsqd_py.client.blocking.nsqd_subscription import NsqdSubscription
from nsqd_py.client.consuming.base import STOP_TIMEOUT_S, BaseConsumer
from nsqd_py.client.consuming.subscription import Subscription
from nsqd_py.client.message import MessageBatch
from nsqd_py.client.process import ProcessHooks, call_after_fork

_LONGEST_NAP_S = 0.5


class ConsumingCore:
    """The connections of one consumer, and its messages in flight. Only one thread at a time may use it.

    A round is `receive`, `work` and `next_wait`, and then a wait. `step` does all of them. The thread of a `Consumer` calls
    each of them, and waits without this object, which refers to the consumer: so the consumer can be dropped.

    nsqds       the subscriptions, by address
    poller      ends the wait when it is woken: the first answer to a message after a round does that
    stop_by_s   when the time of a stop is over; None before `stop`
    is_leaving  True once `work` has seen the stop: no more messages are requested
    has_ended   True once `step` has closed everything: it must not be called again
    """

    def __init__(
        self,
        subscription: Subscription,
        discovery: Discovery,
        lookupds: Collection[str],
        context: ClientContext,
    ) -> None:
        self.nsqds: dict[str, NsqdSubscription] = {}
        self.poller = context.poller
        self.stop_by_s: float | None = None
        self.is_leaving = self.has_ended = False
        self._subscription = subscription
        self._discovery = discovery
        self._lookupds = lookupds
        self._context = context
        self._finders = [Finder(address, subscription.topic, context) for address in lookupds]
        self._is_asleep = False
        self._due_s = 0.0

    # ---- for event loops

    def step(self, timeout_s: float) -> list[MessageBatch]:
        """Wait for input for at most `timeout_s` seconds, read it, and do what is due. Return the batches that came.

        An event loop watches `descriptors` for at most `wait_s` seconds, and then calls `step(0)`. The caller answers all
        messages, at once or later; a later `step` sends the answers.
        """
        ready = self.poller.wait(self.descriptors, min(timeout_s, self.wait_s))
        batches = list(self.receive(ready))
        if self.work():
            _, nap_s = self.next_wait()
            self._due_s = monotonic() + nap_s
        else:
            self.has_ended = True
            self.close()
        return batches

    @property
    def wait_s(self) -> float:
        """Return how long to wait for the descriptors before the next `step`."""
        return max(0.0, self._due_s - monotonic())

    @property
    def descriptors(self) -> dict[int, int]:
        """Return the descriptors to watch, with the events of `selectors` that need a `step`. Each `step` may change them."""
        watched = {self.poller.fileno(): EVENT_READ}
        for nsqd in self.nsqds.values():
            if nsqd.connection is not None:
                events = EVENT_READ | EVENT_WRITE if nsqd.connection.has_unsent else EVENT_READ
                watched[nsqd.connection.fileno()] = events
        return watched

    # ---- a round

    def receive(self, ready: Collection[int]) -> Iterator[MessageBatch]:
        """Read from the connections whose descriptors are ready. Yield the batches."""
        self._is_asleep = False
        for nsqd in self.nsqds.values():
            if nsqd.wants_to_receive or (nsqd.connection is not None and nsqd.connection.fileno() in ready):
                yield from nsqd.receive()
                if nsqd.connection is None and not nsqd.is_leaving:
                    for finder in self._finders:
                        finder.retry_soon()

    def work(self) -> bool:
        """Connect to nsqds or, after `stop`, wait for what is in flight. Return False once nothing is, or its time is over."""
        if self.stop_by_s is None:
            self._keep_up()
        elif not self.is_leaving:
            self.is_leaving = True
            self.leave()
        for nsqd in [nsqd for nsqd in self.nsqds.values() if nsqd.is_over]:
            nsqd.flush()
            nsqd.close()
            del self.nsqds[nsqd.address]
        return self.stop_by_s is None or (bool(self.nsqds) and monotonic() < self.stop_by_s)

    def next_wait(self) -> tuple[list[Any], float]:
        """Send all output. Return the sockets to wait for, and for how long.

        Neither refers to the consumer, so that it can be dropped.
        """
        with self._subscription.lock:
            self._subscription.tick()
            self._is_asleep = True
            timeout_s = self._nap_s()
        if self.stop_by_s is not None:
            timeout_s = min(timeout_s, max(0.0, self.stop_by_s - monotonic()))
        sockets = []
        for nsqd in self.nsqds.values():
            nsqd.flush()
            if nsqd.connection is not None:
                sockets.append(nsqd.connection.sock)
                if nsqd.wants_to_receive or nsqd.is_over:  # over since the last answer was sent
                    timeout_s = 0.0
        return sockets, timeout_s

    def _nap_s(self) -> float:
        """Return the time until something other than a message needs attention."""
        subscription = self._subscription
        timeouts_s = [window.msg_timeout_s for window in subscription.windows.values()]
        # New messages may add an earlier deadline.
        longest_s = min([_LONGEST_NAP_S, *(timeout_s / 10 for timeout_s in timeouts_s)])
        return min(longest_s, max(0.0, subscription.due_s - monotonic()))

    # ---- nsqds and nsqlookupds

    def _keep_up(self) -> None:
        """Have a subscription for each nsqd, and a finder for each nsqlookupd, that are in use now."""
        with self._subscription.lock:
            needed = self._discovery.needed
            for address, nsqd in self.nsqds.items():
                if nsqd.connection is None and address not in needed:
                    nsqd.leave()
        for finder in self._finders:
            nsqds = finder.step()
            if nsqds is not None:
                self._on_found(finder.address, nsqds)
        for address in needed:
            if address not in self.nsqds:
                self.nsqds[address] = NsqdSubscription(address, self._subscription, self._context)
        dials = sum(nsqd.is_dialling for nsqd in self.nsqds.values())
        for nsqd in self.nsqds.values():
            dials += nsqd.keep_connected(may_dial=dials < MOST_DIALS)

    def _on_found(self, lookupd: str, nsqds: tuple[str, ...]) -> None:
        with self._subscription.lock:
            self._take_answer(lookupd, nsqds)
        for address in nsqds:
            if address in self.nsqds:
                self.nsqds[address].retry_soon()
        self.poller.wake()  # to connect at once

    def _take_answer(self, lookupd: str, nsqds: tuple[str, ...]) -> None:
        """Use what an nsqlookupd answered. Log once that no nsqd has the topic."""
        was_unknown = self._discovery.is_empty(self._lookupds)
        self._discovery.answered(lookupd, nsqds)
        if self._discovery.is_empty(self._lookupds) and not was_unknown:
            self._context.log.warning(
                "no nsqd has the topic %s: waiting until one does", self._subscription.topic
            )

    # ---- its end

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Request no more messages, and end when those in flight are answered, or after `timeout_s`. Does not wait.

        Any thread may call this.
        """
        stop_by_s = monotonic() + timeout_s
        with self._subscription.lock:
            self.stop_by_s = stop_by_s if self.stop_by_s is None else min(self.stop_by_s, stop_by_s)
        self.poller.wake()

    def leave(self) -> None:
        """Request no more messages. The caller stops the consumer. Any thread may call this."""
        with self._subscription.lock:
            for nsqd in list(self.nsqds.values()):
                nsqd.leave()

    def close(self) -> None:
        """Send the last output, and close. Messages that are not answered are redelivered."""
        try:
            for finder in self._finders:
                finder.kill()
            for nsqd in self.nsqds.values():
                nsqd.flush()
                nsqd.close()
            self.nsqds.clear()
        finally:
            self.poller.close()

    def abandon(self) -> None:
        """In a forked child: close the descriptors of the parent, without sending anything."""
        for finder in self._finders:
            finder.kill()
        for nsqd in self.nsqds.values():
            nsqd.abandon()
        self.poller.close()

    # ---- from any thread

    def on_output(self) -> None:
        """End the wait: there is output now."""
        if self._is_asleep:
            self._is_asleep = False
            self.poller.wake()


class NonBlockingConsumer(BaseConsumer, ProcessHooks):
    """A consumer without a thread: it works only while `core.step` runs. Only one thread at a time may use it.

    It takes the arguments of `BaseConsumer` but for handlers. A `step` does not wait for room in a socket.
    """

    _make_backend: type[Backend] = Backend

    def _set_up(self) -> None:
        self._refuse_if_handled()
        self._begin()
        call_after_fork(self)

    def _begin(self) -> None:
        backend = self._make_backend()
        poller = backend.make_poller()
        context = ClientContext(self._options, self._log, self._chance, backend, poller, waits=False)
        self.core = ConsumingCore(self._subscription, self._discovery, self._lookupds, context)

    def _on_output(self) -> None:
        self.core.on_output()

    def _after_fork(self) -> None:
        self.core.abandon()
        self._begin()
