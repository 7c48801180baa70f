"""The non-blocking core of all consumers: connects to nsqds, reads messages, and sends the answers to them.

It works only while one of its methods runs, and does not wait. Connecting, and asking nsqlookupds, happen where the
backend spawns them, in threads of their own by default: an nsqd that hangs does not delay the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from time import monotonic
from typing import Any

from nsqd_py.client.addresses import parse_address
from nsqd_py.client.blocking.backend import MOST_DIALS, Backend
from nsqd_py.client.blocking.connection import ClientContext
from nsqd_py.client.blocking.lookup import Finder
from nsqd_py.client.blocking.nsqd_subscription import NsqdSubscription
from nsqd_py.client.consuming.base import BaseConsumer
from nsqd_py.client.errors import NsqClientError
from nsqd_py.client.message import MessageBatch
from nsqd_py.client.process import ProcessHooks, call_after_fork, forget


class ConsumingCore(BaseConsumer, ProcessHooks):
    """The connections of a consumer, and its messages in flight, in turns. Only one thread at a time may take turns.

    A turn is `_receive`, `_goes_on`, and `_next_wait` or, at the end, `_close`. Then the caller waits for the sockets and the
    poller, which the first answer to a message wakes.
    """

    _make_backend: type[Backend] = Backend
    _waits = True  # for room in a socket

    def _set_up(self) -> None:
        self._backend = self._make_backend()
        self._begin()
        call_after_fork(self)

    def _begin(self) -> None:
        """Set the state of a consumer without connections."""
        backend = self._backend
        self._lock = self._subscription.lock = backend.make_answer_lock()
        self._poller = backend.make_poller()
        self._nsqds: dict[str, NsqdSubscription] = {}
        self._context = ClientContext(
            self._options, self._log, self._chance, backend, self._poller, self._waits
        )
        self._finders = [Finder(address, self.topic, self._context) for address in self._lookupds]
        self._stop_by_s: float | None = None  # set by `begin_to_stop`
        self._is_leaving = False
        self._is_asleep = False

    def begin_to_stop(self, timeout_s: float) -> None:
        """Request no more messages, and end once those in flight are answered, or after `timeout_s`. Does not wait."""
        stop_by_s = monotonic() + timeout_s
        with self._lock:
            if self._stop_by_s is None:
                self._stop_by_s = stop_by_s
            else:
                self._stop_by_s = min(self._stop_by_s, stop_by_s)
        self._poller.wake()

    def _after_fork(self) -> None:
        """In the child: close the descriptors of the parent, without sending anything."""
        for finder in self._finders:
            finder.kill()
        for nsqd in self._nsqds.values():
            nsqd.abandon()
        self._poller.close()
        self._begin()

    # ---- nsqds and nsqlookupds

    def connect_to_nsqd(self, address: str) -> None:
        """Consume from this nsqd too. Raises BadAddress."""
        with self._lock:
            self._discovery.add(str(parse_address(address)))
        self._poller.wake()

    def unconnected(self) -> dict[str, NsqClientError | None]:
        """Return the nsqds in use that have no subscription of this consumer, with the last error of each.

        Any thread may call this: it copies the dict in one step.
        """
        nsqds = list(self._nsqds.values())
        return {nsqd.address: nsqd.error for nsqd in nsqds if nsqd.window is None}

    # ---- the parts of a turn

    def _receive(self, ready: Collection[int]) -> Iterator[MessageBatch]:
        """Read from the connections, and yield the batches that came."""
        self._is_asleep = False
        for nsqd in self._nsqds.values():
            if nsqd.wants_to_receive or (nsqd.connection is not None and nsqd.connection.fileno() in ready):
                yield from nsqd.receive()
                if nsqd.connection is None and not nsqd.is_leaving:
                    for finder in self._finders:
                        finder.retry_soon()

    def _goes_on(self) -> bool:
        """Connect to nsqds or, after `stop`, wait for what is in flight until its time is over."""
        if self._stop_by_s is None:
            self._keep_up()
        elif not self._is_leaving:
            self._is_leaving = True
            self._leave()
        ended = [nsqd for nsqd in self._nsqds.values() if nsqd.is_over]
        for nsqd in ended:
            nsqd.flush()
            nsqd.close()
            del self._nsqds[nsqd.address]
        if self._stop_by_s is None:
            return True
        return bool(self._nsqds) and monotonic() < self._stop_by_s

    def _leave(self) -> None:
        """Request no more messages. The caller stops the consumer."""
        with self._lock:
            for nsqd in list(self._nsqds.values()):
                nsqd.leave()

    def _close(self) -> None:
        try:
            forget(self)
            for finder in self._finders:
                finder.kill()
            for nsqd in self._nsqds.values():
                nsqd.flush()
                nsqd.close()
            self._nsqds.clear()
        finally:
            self._poller.close()

    def _keep_up(self) -> None:
        """Have a subscription for each nsqd, and a finder for each nsqlookupd, that are in use now."""
        with self._lock:
            needed = self._discovery.needed
            for address, nsqd in self._nsqds.items():
                if nsqd.connection is None and address not in needed:
                    nsqd.leave()
        for finder in self._finders:
            nsqds = finder.step()
            if nsqds is not None:
                self._on_found(finder.address, nsqds)
        for address in needed:
            if address not in self._nsqds:
                self._nsqds[address] = NsqdSubscription(address, self._subscription, self._context)
        dials = sum(nsqd.is_dialling for nsqd in self._nsqds.values())
        for nsqd in self._nsqds.values():
            dials += nsqd.keep_connected(may_dial=dials < MOST_DIALS)

    def _on_found(self, lookupd: str, nsqds: tuple[str, ...]) -> None:
        """Use what an nsqlookupd answered. Log once that no nsqd has the topic."""
        with self._lock:
            was_unknown = self._discovery.is_empty(self._lookupds)
            self._discovery.answered(lookupd, nsqds)
            if self._discovery.is_empty(self._lookupds) and not was_unknown:
                self._log.warning("no nsqd has the topic %s: waiting until one does", self.topic)
        for address in nsqds:
            if address in self._nsqds:
                self._nsqds[address].retry_soon()
        self._poller.wake()  # to connect at once

    def _next_wait(self) -> tuple[list[Any], float]:
        """Send all output. Return the sockets to wait for, and for how long.

        Neither refers to the consumer, so that it can be dropped.
        """
        with self._lock:
            self._subscription.tick()
            self._is_asleep = True
            timeout_s = self._nap_s()
        if self._stop_by_s is not None:
            timeout_s = min(timeout_s, max(0.0, self._stop_by_s - monotonic()))
        sockets = []
        for nsqd in self._nsqds.values():
            nsqd.flush()
            if nsqd.connection is not None:
                sockets.append(nsqd.connection.sock)
                if nsqd.wants_to_receive or nsqd.is_over:  # over since the last answer was sent
                    timeout_s = 0.0
        return sockets, timeout_s

    # ---- from any thread

    def _on_output(self) -> None:
        if self._is_asleep:
            self._is_asleep = False
            self._poller.wake()


class NonBlockingConsumer(ConsumingCore):
    """A consumer without a thread: it works only while `step` runs, and does not wait for room in a socket.

    It takes the arguments of `BaseConsumer` but for handlers. Any thread may answer messages.

    watched  what to wait for until the next `step`: objects that have a `fileno`. Each `step` may change them
    wait_s   how long to wait for them
    """

    _waits = False

    def _begin(self) -> None:
        self._refuse_if_handled()
        super()._begin()
        self.watched = [self._poller]
        self.wait_s = 0.0

    def step(self, timeout_s: float) -> list[MessageBatch] | None:
        """Wait for input for at most `timeout_s` seconds, read it, send answers, and do what is due.

        Return the batches that came. The caller answers their messages, at once or later. Return None once, after
        `begin_to_stop`, all messages are answered or its time is over: then all is closed, and this is not called again.
        """
        ready = self._poller.wait(self.watched, min(timeout_s, self.wait_s))
        batches = list(self._receive(ready))
        if not self._goes_on():
            self._close()
            return None
        sockets, self.wait_s = self._next_wait()
        self.watched = [self._poller, *sockets]
        return batches
