"""The consumer for plain Python: a thread does all input and output, others run handlers or iterate."""

from __future__ import annotations

import _thread
import math
import select
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from time import monotonic
from typing import Any
from weakref import ref

from nsqd_py.client.consuming.base import STOP_TIMEOUT_S, BaseConsumer, canonical_address
from nsqd_py.client.consuming.handling import AT_ONCE
from nsqd_py.client.consuming.lane import Lane
from nsqd_py.client.consuming.membership import Membership
from nsqd_py.client.consuming.subscription import ConsumerStats
from nsqd_py.client.message import Message, MessageBatch
from nsqd_py.client.options import ClientLog
from nsqd_py.client.process import AfterFork, AtExit, forget, refuse_in_event_loop, tell_after_fork, tell_at_exit, warn_of_dropped
from nsqd_py.client.threads.aside import Waker
from nsqd_py.client.threads.locked_batch import LockedBatch
from nsqd_py.client.threads.lookup import Finder
from nsqd_py.client.threads.peer import Peer
from nsqd_py.client.threads.waiters import Latch
from nsqd_py.client.threads.work_queue import WorkQueue

__all__ = ["Consumer", "ConsumerStats"]

_EXIT_S = 1.0  # how long running handlers have after Ctrl-C in a loop, and at the end of the interpreter
_CLOSE_S = 5.0  # how long closing the connections may take after the time of a stop
# How long handlers may work before the I/O thread goes on. Without this pause it would read the next messages before
# handlers begin with the first ones, and nsqd would get the answers to both later, together: it would have nothing to
# do meanwhile.
_HANDLING_S = 0.005
_MS = 1000


class Consumer(BaseConsumer, AfterFork, AtExit):
    """A consumer for plain Python. Handlers run in `concurrency` threads.

        with Consumer("topic", "channel", handle, nsqd_tcp_addresses=["127.0.0.1:4150"], max_in_flight=100) as consumer:
            consumer.wait()

    A thread of its own keeps the connections: heartbeats, touches, discovery and answers go on whatever handlers do.
    Any thread may call any method, and answer any message. After a fork the child has a consumer that is not started,
    with connections of its own. A consumer ends when nothing refers to it, its messages or its running handlers.

    `BaseConsumer` describes the arguments and the rules for handlers.
    """

    _io_thread: threading.Thread | None = None

    def _set_up(self) -> None:
        self._begin()
        tell_after_fork(self)

    def _begin(self) -> None:
        """Set the state of a consumer without connections and threads."""
        self._lock = threading.RLock()  # of everything that the I/O thread shares with those that answer messages
        self._subscription.make_batch = partial(LockedBatch, lock=self._lock)
        self._waker = Waker()
        self._peers: dict[str, Peer] = {}
        self._finders: dict[str, Finder] = {}
        self._queue: WorkQueue[Any] = WorkQueue()
        self._owners: dict[int, Finder | Peer] = {}  # of the descriptors that the I/O thread waits for
        self._io_thread = None
        self._workers: list[threading.Thread] = []
        self._is_started = threading.Lock()  # taken by what starts the threads, and kept
        self._has_started = Latch()
        self._iterating: threading.Thread | None = None
        self._is_iterated = self._handler is None and self._batch_handler is None
        self._takes_batches = self._batch_handler is not None
        self._takes_nothing = False
        self._stop_by_s: float | None = None  # set by `stop`
        self._is_leaving = False
        self._stopped = Latch()
        self._is_asleep = False
        self._failure = None

    # ---- its life

    @property
    def running(self) -> bool:
        """True if the consumer was started and `stop` was not called."""
        return self._io_thread is not None and self._stop_by_s is None

    def start(self) -> None:
        """Connect, and begin to consume. Returns at once. Idempotent. A stopped consumer stays stopped."""
        if self._io_thread is None and self._stop_by_s is None:
            _thread.start_new_thread(self._start_threads, ())  # a signal handler would interrupt their start here
            self._has_started.wait()

    def _start_threads(self) -> None:
        if not self._is_started.acquire(blocking=False):
            return
        arguments = ref(self), self._queue, str(self._subscription), self._log
        io_thread = threading.Thread(target=self._do_io, args=arguments, name="nsqd-py consumer", daemon=True)
        if self._handler is not None or self._batch_handler is not None:
            self._workers = [
                threading.Thread(target=self._work, args=(ref(self), self._queue), name=f"nsqd-py handler {number}", daemon=True)
                for number in range(self._concurrency)
            ]
        try:
            if self._stop_by_s is None:
                io_thread.start()
                self._io_thread = io_thread
                tell_at_exit(self)
                for worker in self._workers:
                    worker.start()
        except RuntimeError as error:  # the system has no more threads
            self._end_with(error)
        finally:
            self._has_started.set()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Request no more messages, wait for those in flight, and close.

        After `timeout_s`, messages that no handler has begun are requeued. Handlers that still run go on, but their
        messages come again after their time-out. Called from a handler, or from a loop over messages, this only begins
        to stop. Ctrl-C, or another exception of a signal handler, ends the time-out.
        """
        self.begin_to_stop(timeout_s)
        if threading.current_thread() not in (self._io_thread, self._iterating, *self._workers):
            refuse_in_event_loop("stop")
            assert self._stop_by_s is not None
            try:
                self._stopped.wait(self._stop_by_s + _CLOSE_S - monotonic())
            except BaseException:
                self.begin_to_stop(0)
                raise

    def begin_to_stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        stop_by_s = monotonic() + timeout_s
        with self._lock:
            self._stop_by_s = stop_by_s if self._stop_by_s is None else min(self._stop_by_s, stop_by_s)
            if self._io_thread is None:
                self._stopped.set()
        self._waker.wake()

    def wait(self, timeout_s: float | None = None) -> bool:
        refuse_in_event_loop("wait")
        has_stopped = self._stopped.wait(timeout_s)
        if has_stopped:
            self._raise_failure()
        return has_stopped

    def _begin_at_exit(self) -> None:
        self.begin_to_stop(_EXIT_S)

    def _at_exit(self, left_s: float) -> None:
        self._stopped.wait(left_s)

    def _after_fork(self) -> None:
        """In the child: close the descriptors of the parent, without sending anything."""
        self._lock = threading.RLock()
        for finder in self._finders.values():
            finder.stop()
        for peer in self._peers.values():
            peer.abandon("it belongs to the parent process")
        self._waker.close()
        self._begin()

    # ---- nsqds and nsqlookupds

    def connect_to_nsqd(self, address: str) -> None:
        """Consume from this nsqd too. Raises BadAddress."""
        with self._lock:
            self._discovery.add(canonical_address(address))
        self._waker.wake()

    def disconnect_from_nsqd(self, address: str) -> None:
        """Disconnect once what is in flight is answered.

        If an nsqlookupd names the nsqd again, it is connected again.
        """
        canonical = canonical_address(address)
        with self._lock:
            self._discovery.remove(canonical)
            if canonical in self._peers:
                self._peers[canonical].membership.leave()
        self._waker.wake()

    def set_lookupd_http_addresses(self, addresses: str | Iterable[str]) -> None:
        """Replace the nsqlookupds. Connections to nsqds stay. Raises BadClientOption."""
        with self._lock:
            self._take_lookupds(addresses)
        self._waker.wake()

    # ---- messages, in the threads of the callers

    def __iter__(self) -> Iterator[Message]:
        return self.messages()

    def messages(self, idle_timeout_s: float | None = None) -> Iterator[Message]:
        self._refuse_if_handled()
        return self._iterate(idle_timeout_s)

    def batches(self, idle_timeout_s: float | None = None) -> Iterator[MessageBatch]:
        self._refuse_if_handled()
        self._takes_batches = True
        return self._iterate_batches(idle_timeout_s)

    def _iterate(self, idle_timeout_s: float | None) -> Iterator[Message]:
        refuse_in_event_loop("iterating")
        message: Message | None = None
        try:
            self._begin_iteration()
            while self.running and (message := self._queue.take(idle_timeout_s)) is not None:
                if self._handling.is_wanted(message):
                    yield message
                    message.settle()
        except BaseException as error:
            self._leave()
            if message is not None:
                self._handling.put_off(message, AT_ONCE)
            self._hurry_after(error)
            raise
        finally:
            self._end_iteration()
        self._raise_failure()

    def _iterate_batches(self, idle_timeout_s: float | None) -> Iterator[MessageBatch]:
        refuse_in_event_loop("iterating")
        try:
            self._begin_iteration()
            while self.running and (batch := self._queue.take(idle_timeout_s)) is not None:
                if batch.is_live:
                    yield batch
        except BaseException as error:
            self._hurry_after(error)
            raise
        finally:
            self._end_iteration()
        self._raise_failure()

    def _begin_iteration(self) -> None:
        self._iterating = threading.current_thread()
        self.start()

    def _hurry_after(self, error: BaseException) -> None:
        """Stop soon after Ctrl-C: it may have come while a message was taken, which is in flight until the end then."""
        if not isinstance(error, GeneratorExit):
            self.begin_to_stop(_EXIT_S)

    def _end_iteration(self) -> None:
        self._leave()
        self._give_back()
        self._iterating = None
        self.stop()

    @staticmethod
    def _work(consumer_ref: ref[Consumer], queue: WorkQueue[Any]) -> None:
        """Call the handler. A worker that waits does not keep the consumer alive."""
        while (item := queue.take()) is not None:
            consumer = consumer_ref()
            if consumer is None or not consumer._handle(item):
                return
            del consumer, item

    def _handle(self, item: Any) -> bool:
        """Return False if the worker ends."""
        try:
            if self._batch_handler is not None:
                self._handling.handle_batch(self._batch_handler, item)
            elif self._handler is not None:
                self._handling.handle(self._handler, item)
        except BaseException as error:  # noqa: BLE001 - `wait` raises it
            self._end_with(error)
            return False
        return True

    # ---- the I/O thread

    @staticmethod
    def _do_io(consumer_ref: ref[Consumer], queue: WorkQueue[Any], name: str, log: ClientLog) -> None:
        """Do what is due, then wait, without keeping the consumer alive."""
        sockets: list[Any] = []
        ready: list[tuple[int, int]] = []
        while (consumer := consumer_ref()) is not None:
            turn = consumer._turn(ready)
            if turn is None:
                return
            wait, sockets = turn
            del consumer
            ready = wait()
        log.warning("nothing refers to the consumer of %s, which was not stopped: it ends", name)
        warn_of_dropped(f"consumer of {name}")
        queue.close()
        for sock in sockets:
            sock.close()

    def _turn(self, ready: list[tuple[int, int]]) -> tuple[Callable[[], list[tuple[int, int]]], list[Any]] | None:
        """Handle input, and do everything that is due. Return as `_next_wait`; None if the consumer has stopped."""
        try:
            self._exchange({descriptor for descriptor, _ in ready})
            if self._goes_on():
                return self._next_wait()
        except BaseException as error:  # noqa: BLE001 - `wait` raises it
            self._end_with(error)
        self._close()
        return None

    def _goes_on(self) -> bool:
        """Connect to nsqds or, after `stop`, wait for what is in flight until its time is over."""
        if self._stop_by_s is None:
            self._keep_up()
        elif not self._is_leaving:
            self._is_leaving = True
            self._leave()
            if self._is_iterated:
                self._queue.close()
                self._give_back()
        for peer in [peer for peer in self._peers.values() if peer.is_over]:
            peer.flush()
            peer.close()
            del self._peers[peer.address]
        if self._stop_by_s is None or (self._peers and monotonic() < self._stop_by_s):
            if self._failure is not None:
                self._give_back()  # the worker that would take it may have ended
            return True
        self._give_up()
        return False

    def _give_up(self) -> None:
        """The time of the stop is over."""
        self._give_back()

    def _leave(self) -> None:
        """Request no more messages. The caller stops the consumer."""
        with self._lock:
            for peer in list(self._peers.values()):
                peer.membership.leave()

    def _close(self) -> None:
        try:
            forget(self)
            for finder in self._finders.values():
                finder.stop()
            for peer in self._peers.values():
                peer.flush()
                peer.close()
            self._peers.clear()
        finally:
            self._queue.close()
            self._waker.close()
            self._stopped.set()

    def _give_back(self) -> None:
        """Requeue messages that no handler has begun. They must not come here again, so their nsqds have been left."""
        self._takes_nothing = True
        for item in self._queue.clear():
            if item.is_live and not item.is_answered:
                item.requeue(0, backoff=False)

    def _keep_up(self) -> None:
        """Have a peer for each nsqd, and a finder for each nsqlookupd, that are in use now."""
        with self._lock:
            lookupds, wanted = self._lookupds, self._discovery.wanted
            for address, peer in self._peers.items():
                if peer.connection is None and not self._discovery.is_wanted(address):
                    peer.membership.leave()
        for address in self._finders.keys() - set(lookupds):
            self._finders.pop(address).stop()
        for address in lookupds:
            if address not in self._finders:
                self._finders[address] = Finder(address, self.topic, self._options, self._chance, self._log, self._on_found)
        for address in wanted:
            if address not in self._peers:
                self._add_peer(address)
        for peer in self._peers.values():
            peer.keep_connected()

    def _add_peer(self, address: str) -> None:
        membership = Membership(address, self._subscription, self._options, self._log, monotonic, self._chance)
        self._peers[address] = Peer(membership, self._options, self._lock, self._waker)

    def _on_found(self, lookupd: str, nsqds: tuple[str, ...]) -> None:
        with self._lock:
            self._take_answer(lookupd, nsqds)
        for address in nsqds:
            if address in self._peers:
                self._peers[address].hurry()

    def _exchange(self, ready: set[int]) -> None:
        """Read from the connections, and continue the requests to nsqlookupds."""
        self._is_asleep = False
        if self._waker.fileno() in ready:
            self._waker.reset()
        owners = {self._owners[descriptor] for descriptor in ready if descriptor in self._owners}
        for finder in list(self._finders.values()):
            finder.step(is_ready=finder in owners)
        for peer in self._peers.values():
            if peer in owners or peer.wants_look:
                self._hear(peer)
        self._queue.wait_until_empty(_HANDLING_S)

    def _hear(self, peer: Peer) -> None:
        for batch in peer.receive():
            if self._takes_nothing:
                batch.requeue(0)
            else:
                self._hand_out(batch)
        if peer.connection is None and not peer.membership.is_leaving:
            for finder in self._finders.values():
                finder.hurry()

    def _hand_out(self, batch: MessageBatch) -> None:
        self._queue.put_all([batch] if self._takes_batches else batch.messages())

    def _next_wait(self) -> tuple[Callable[[], list[tuple[int, int]]], list[Any]]:
        """Send all output. Return the wait for input, a wake-up, or the next time, and all that it must close.

        Neither refers to the consumer, so that it can be dropped. The garbage collector closes sockets that nothing
        else refers to.
        """
        with self._lock:
            self._subscription.tick()
            self._is_asleep = True
            timeout_s = self._nap_s()
        if self._stop_by_s is not None:
            timeout_s = min(timeout_s, max(0.0, self._stop_by_s - monotonic()))
        poll = select.poll()
        sockets: list[Any] = [self._waker]
        self._owners = {}
        poll.register(self._waker, select.POLLIN)
        for peer in self._peers.values():
            peer.flush()
            if peer.connection is not None:
                self._owners[peer.connection.fileno()] = peer
                poll.register(peer.connection, select.POLLIN)
                sockets.append(peer.connection.sock)
                if peer.wants_look:
                    timeout_s = 0
        for finder in self._finders.values():
            if finder.question is not None:
                self._owners[finder.question.fileno()] = finder
                poll.register(finder.question, finder.question.mask)
                sockets.append(finder.question.sock)
        return partial(poll.poll, math.ceil(timeout_s * _MS)), sockets

    # ---- from any thread

    def _on_output(self, lane: Lane, is_urgent: bool) -> None:
        if self._is_asleep:
            self._is_asleep = False
            self._waker.wake()

    def stats(self) -> ConsumerStats:
        with self._lock:
            return super().stats()

    @property
    def is_starved(self) -> bool:
        with self._lock:
            return super().is_starved

    def set_max_in_flight(self, count: int) -> None:
        with self._lock:
            super().set_max_in_flight(count)

    def pause(self) -> None:
        with self._lock:
            super().pause()

    def resume(self) -> None:
        with self._lock:
            super().resume()
