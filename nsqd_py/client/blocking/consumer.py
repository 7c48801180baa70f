"""A consumer without gevent or threads: everything happens in the thread that iterates."""

from __future__ import annotations

import math
import os
import select
from collections import deque
from collections.abc import Iterable, Iterator
from time import monotonic

from nsqd_py.client.addresses import address_list
from nsqd_py.client.blocking.lookup import Finder
from nsqd_py.client.blocking.peer import Peer
from nsqd_py.client.consuming.base import BaseConsumer, canonical_address
from nsqd_py.client.consuming.handling import Handler
from nsqd_py.client.consuming.lane import Lane
from nsqd_py.client.consuming.membership import Membership
from nsqd_py.client.consuming.subscription import ConsumerStats
from nsqd_py.client.errors import BadClientOption
from nsqd_py.client.lookup import lookup_url
from nsqd_py.client.message import Message, MessageBatch

__all__ = ["Consumer", "ConsumerStats"]

_LOOK_EVERY_S = 0.01  # how often the network is checked while messages are queued here
_CLOSE_WAIT_S = 2.0  # how long to wait for nsqd's CLOSE_WAIT
_MS = 1000


class Consumer(BaseConsumer):
    """A consumer that blocks its thread, for scripts and for Spark.

        for message in Consumer("topic", "channel", nsqd_tcp_addresses=["127.0.0.1:4150"], max_in_flight=100):
            print(message.body)

    Heartbeats, touches and lookups happen while the loop asks for the next message, and in `message.touch()`, which
    sends at once. If the body of the loop takes longer than two heartbeat intervals, the connection is lost and its
    messages come again. Then set a larger `heartbeat_interval` (and `read_timeout`; nsqd allows
    --max-heartbeat-interval, 60s), or call `touch()` now and then. The same applies to `msg_timeout`.

    `run()` calls the handler in place of a loop. `batches()` yields messages that arrived together, which is faster.
    The body of a loop, a signal handler and another thread may call `stop()`, but nothing else. After `os.fork` the
    child opens its own connections.

    `BaseConsumer` describes the arguments and the rules for handlers.
    """

    def _set_up(self) -> None:
        if self._concurrency != 1:
            raise BadClientOption("a blocking consumer has one thread, so concurrency is 1; run more processes")
        self._peers: dict[str, Peer] = {}
        self._finders: dict[str, Finder] = {}
        self._batches: deque[MessageBatch] = deque()
        self._look_s = 0.0
        self._pid = os.getpid()
        self._is_started = self._is_stopping = self._is_stopped = False
        self._is_iterating = self._is_looking = False

    # ---- its life

    @property
    def running(self) -> bool:
        """True if the consumer was started and `stop` was not called."""
        return self._is_started and not self._is_stopping

    def start(self) -> None:
        """Connect. Idempotent; iteration does it too."""
        if not self._is_started:
            self._is_started = True
            self._look(0)

    def stop(self, timeout_s: float = _CLOSE_WAIT_S) -> None:
        """Request no more messages, requeue what is here and not answered, and close.

        Inside a loop this only sets a flag: the loop ends when it asks for the next message. `timeout_s` limits the
        wait for the last messages of each nsqd.
        """
        self._is_stopping = True
        if not self._is_iterating and not self._is_stopped:
            self._is_stopped = True
            self._close(timeout_s)

    def _close(self, timeout_s: float) -> None:
        self._leave()
        deadline_s = monotonic() + timeout_s
        while self._peers:
            self._give_back()
            self._look(max(0.0, min(self._nap_s(), deadline_s - monotonic())))
            is_late = monotonic() >= deadline_s
            for peer in [peer for peer in self._peers.values() if is_late or self._is_over(peer)]:
                self._drop(peer)

    def _leave(self) -> None:
        for finder in self._finders.values():
            finder.stop()
        self._finders.clear()
        for peer in self._peers.values():
            peer.membership.leave()

    def _give_back(self) -> None:
        """Requeue what is not answered. This must follow `_leave`, or the messages would come here again."""
        self._batches.clear()
        for lane in self._subscription.lanes.values():
            for batch in list(lane.touching):
                batch.requeue(0)

    def _drop(self, peer: Peer) -> None:
        peer.flush()
        peer.close()
        del self._peers[peer.address]

    # ---- nsqds and nsqlookupds

    def connect_to_nsqd(self, address: str) -> None:
        """Consume from this nsqd too. Raises BadAddress."""
        self._discovery.add(canonical_address(address))

    def disconnect_from_nsqd(self, address: str) -> None:
        """Disconnect once what is in flight is answered.

        If an nsqlookupd names the nsqd again, it is connected again.
        """
        canonical = canonical_address(address)
        self._discovery.remove(canonical)
        if canonical in self._peers:
            self._peers[canonical].membership.leave()

    def set_lookupd_http_addresses(self, addresses: str | Iterable[str]) -> None:
        """Replace the nsqlookupds. Connections to nsqds stay. Raises BadClientOption."""
        self._lookupds = tuple(dict.fromkeys(address_list(addresses)))
        for address in self._lookupds:
            lookup_url(address, self.topic)
        self._discovery.keep_lookupds(self._lookupds)
        for address in self._finders.keys() - set(self._lookupds):
            self._finders.pop(address).stop()

    def _on_found(self, lookupd: str, nsqds: tuple[str, ...]) -> None:
        self._discovery.answered(lookupd, nsqds)
        for address in nsqds:
            if address in self._peers:
                self._peers[address].hurry()

    def _keep_up(self) -> None:
        """Have a peer for each nsqd, and a finder for each nsqlookupd, that are in use now; remove the others."""
        for address in self._lookupds:
            if address not in self._finders:
                self._finders[address] = Finder(
                    address, self.topic, self._options, self._chance, self._log, self._on_found
                )
        for address in self._discovery.wanted:
            if address not in self._peers:
                membership = Membership(
                    address, self._subscription, self._options, self._log, monotonic, self._chance
                )  # fmt: skip
                self._peers[address] = Peer(membership, self._options)
        for peer in [peer for peer in self._peers.values() if self._is_over(peer)]:
            self._drop(peer)
        for peer in self._peers.values():
            if peer.is_due:
                peer.dial()

    def _is_over(self, peer: Peer) -> bool:
        membership = peer.membership
        if peer.connection is None:
            return membership.is_leaving or not self._discovery.is_wanted(peer.address)
        return membership.is_leaving and membership.is_drained

    # ---- iteration

    def __iter__(self) -> Iterator[Message]:
        return self.messages()

    def messages(self, idle_timeout_s: float | None = None) -> Iterator[Message]:
        """Yield each message; it is finished when the loop asks for the next.

        Ends after `idle_timeout_s` without messages.
        """
        handling = self._handling
        for batch in self.batches(idle_timeout_s):
            for message in batch.messages():
                if not handling.is_wanted(message):
                    continue
                yield message
                message.settle()
                if self._is_stopping:
                    return
                if monotonic() >= self._look_s:
                    self._look(0)

    def batches(self, idle_timeout_s: float | None = None) -> Iterator[MessageBatch]:
        """Yield messages that arrived together.

        The caller must answer them before the loop ends. Otherwise as `messages`.
        """
        self._refuse_if_handled()
        self._is_iterating = True
        try:
            while (batch := self.poll(idle_timeout_s)) is not None:
                yield batch
        finally:
            self._is_iterating = False
            self.stop()

    def poll(self, timeout_s: float | None = None) -> MessageBatch | None:
        """Return messages that arrived together, as soon as there are any; None after a time-out, or after `stop`.

        This is for other loops than `messages` and `batches`. Call `stop` in the end.
        """
        ends_s = math.inf if timeout_s is None else monotonic() + timeout_s
        self.start()
        self._look(0)
        while not self._is_stopping:
            while self._batches:
                batch = self._batches.popleft()
                if batch.is_live:
                    return batch
            left_s = ends_s - monotonic()
            if left_s < 0:
                return None
            self._look(min(left_s, self._nap_s()))
        return None

    def run(self, idle_timeout_s: float | None = None) -> None:
        """Call the handler with all messages, until `stop` is called, or none has come for `idle_timeout_s`.

        Raises BadClientOption without a handler.
        """
        self._is_iterating = True
        try:
            while self.handle_next(idle_timeout_s):
                pass
        finally:
            self._is_iterating = False
            self.stop()

    def handle_next(self, timeout_s: float | None = None) -> bool:
        """Call the handler with messages that arrived together. Return False after a time-out, or after `stop`.

        Raises BadClientOption without a handler.
        """
        if self._handler is None and self._batch_handler is None:
            raise BadClientOption("there is nothing to call: give a handler or a batch_handler, or iterate")
        batch = self.poll(timeout_s)
        if batch is None:
            return False
        if self._batch_handler is not None:
            self._handling.handle_batch(self._batch_handler, batch)
        elif self._handler is not None:
            self._handle_each(self._handler, batch)
        return not self._is_stopping

    def _handle_each(self, handler: Handler, batch: MessageBatch) -> None:
        for message in batch.messages():
            self._handling.handle(handler, message)
            if self._is_stopping:
                return
            if monotonic() >= self._look_s:
                self._look(0)

    # ---- the network

    def _on_output(self, lane: Lane, is_urgent: bool) -> None:
        if is_urgent and not self._is_looking:
            self._look(0)

    def _look(self, timeout_s: float) -> None:
        """Do everything that is due, and wait at most `timeout_s` for messages."""
        if os.getpid() != self._pid:
            self._leave_to_parent()
        self._is_looking = True
        try:
            if not self._is_stopping:
                self._keep_up()
            self._flush()
            self._exchange(timeout_s)
            self._subscription.tick()
            self._flush()
        finally:
            self._is_looking = False
            self._look_s = monotonic() + _LOOK_EVERY_S

    def _flush(self) -> None:
        for peer in self._peers.values():
            peer.flush()

    def _exchange(self, timeout_s: float) -> None:
        """Read from the connections, and continue the requests to nsqlookupds."""
        ready = self._poll(timeout_s)
        for finder in self._finders.values():
            finder.step(is_ready=finder in ready)
        for peer in self._peers.values():
            if peer in ready or peer.wants_look:
                self._batches += peer.receive()
                if peer.connection is None and not peer.membership.is_leaving:
                    for finder in self._finders.values():
                        finder.hurry()

    def _poll(self, timeout_s: float) -> set[Finder | Peer]:
        """Return the descriptors that are ready."""
        poll = select.poll()
        owners: dict[int, Finder | Peer] = {}
        for peer in self._peers.values():
            if peer.connection is not None:
                owners[peer.connection.fileno()] = peer
                poll.register(peer.connection, select.POLLIN)
                if peer.wants_look:
                    timeout_s = 0
        for finder in self._finders.values():
            if finder.question is not None:
                owners[finder.question.fileno()] = finder
                poll.register(finder.question, finder.question.mask)
        return {owners[descriptor] for descriptor, _ in poll.poll(timeout_s * _MS)}

    def _leave_to_parent(self) -> None:
        """In a child process: close the parent's descriptors without sending anything."""
        self._pid = os.getpid()
        self._batches.clear()
        for finder in self._finders.values():
            finder.stop()
        for peer in self._peers.values():
            peer.close("it belongs to the parent process")
