"""A consumer on gevent: passes messages of a channel, from all nsqds that have them, to handlers or into a loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import gevent
from gevent.event import Event

from nsqd_py.client.consuming.base import STOP_TIMEOUT_S, BaseConsumer, canonical_address
from nsqd_py.client.consuming.handling import AT_ONCE, ENDINGS
from nsqd_py.client.consuming.lane import Lane
from nsqd_py.client.consuming.membership import Membership
from nsqd_py.client.consuming.subscription import ConsumerStats
from nsqd_py.client.errors import NsqClientError, WrongPlace
from nsqd_py.client.gevent.links import Link
from nsqd_py.client.gevent.work_queue import WorkQueue
from nsqd_py.client.message import Message, MessageBatch
from nsqd_py.client.process import refuse_in_event_loop

if TYPE_CHECKING:
    from nsqd_py.client.gevent.lookup_client import Finder, LookupClient

__all__ = ["Consumer", "ConsumerStats"]

Item = TypeVar("Item")

_INTERRUPTED_S = 1.0  # how long what is in flight has after Ctrl-C in a loop
_CLOSE_S = 5.0  # how long closing the connections may take after the time of a stop


class Consumer(BaseConsumer):
    """A consumer on gevent. Handlers run in `concurrency` greenlets; heartbeats are answered meanwhile.

        with Consumer("topic", "channel", handle, nsqd_tcp_addresses=["127.0.0.1:4150"], max_in_flight=100) as consumer:
            consumer.wait()

    Answers are sent together at the end of an event-loop iteration. A handler that computes for long without waiting
    blocks everything else in its thread, heartbeats too.

    `BaseConsumer` describes the arguments and the rules for handlers.
    """

    _endings = (*ENDINGS, gevent.GreenletExit)

    def _set_up(self) -> None:
        self._lookup_client: LookupClient | None = None
        self._links: dict[str, Link] = {}
        self._finders: dict[str, Finder] = {}
        self._queue: WorkQueue[Any] = WorkQueue()
        self._greenlets: list[gevent.Greenlet[..., None]] = []  # the workers and the timer
        self._stopper: gevent.Greenlet[..., None] | None = None
        self._iterating: object = None  # the greenlet that iterates
        self._is_started = False
        self._takes_nothing = False
        self._takes_batches = self._batch_handler is not None
        self._hub = gevent.get_hub()
        self._loop = self._hub.loop
        self._lanes_with_output: list[Lane] = []
        self._is_due = Event()
        self._stopped = Event()

    # ---- its life

    @property
    def running(self) -> bool:
        """True if the consumer was started and `stop` was not called."""
        return self._is_started and self._stopper is None

    def start(self) -> None:
        """Connect, and begin to consume. Returns at once. Idempotent. A stopped consumer stays stopped."""
        if self._is_started or self._stopper is not None:
            return
        refuse_in_event_loop("a consumer on gevent")
        if gevent.get_hub() is not self._hub:
            raise WrongPlace("a consumer on gevent belongs to one thread: use nsqd_py.client.Consumer")
        self._is_started = True
        self._greenlets.append(gevent.spawn(self._keep_time))
        self._greenlets[0].link_exception(self._on_timer_failed)
        if self._handler is not None or self._batch_handler is not None:
            self._greenlets += [gevent.spawn(self._work) for _ in range(self._concurrency)]
        for address in self._lookupds:
            self._find_with(address)
        self._link_wanted()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Request no more messages, wait for those in flight, and close.

        After `timeout_s`, messages that no handler has begun are requeued, and running handlers are killed; their
        messages come again after their time-out. Called from a handler, or from a loop over messages, this only begins
        to stop. Ctrl-C, or another exception of a signal handler, ends the time-out.
        """
        self.begin_to_stop(timeout_s)
        if gevent.getcurrent() not in (*self._greenlets, self._iterating):
            try:
                self._stopped.wait(timeout_s + _CLOSE_S)  # Ctrl-C may have ended the greenlet that closes all
            except BaseException:
                self.begin_to_stop(0)
                raise

    def begin_to_stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        if self._stopper is None:
            self._stopper = gevent.spawn(self._stop)
        if not self._stopped.is_set():
            self._greenlets.append(gevent.spawn_later(timeout_s, self._cut))

    def wait(self, timeout_s: float | None = None) -> bool:
        has_stopped = self._stopped.wait(timeout_s)
        if has_stopped:
            self._raise_failure()
        return has_stopped

    def _stop(self) -> None:
        self._leave()
        if self._iterating is not None or self._failure is not None:
            self._give_back()
        gevent.joinall([link.greenlet for link in self._links.values()])
        self._cut()
        self._queue.close()
        gevent.killall(self._greenlets, block=False)
        self._stopped.set()

    def _cut(self) -> None:
        """End the connections: the time of the stop is over."""
        self._give_back()
        self._flush()
        for link in list(self._links.values()):
            link.cut()

    def _leave(self) -> None:
        for finder in self._finders.values():
            finder.stop()
        for link in list(self._links.values()):
            link.leave()

    def _give_back(self) -> None:
        """Requeue messages that no handler has begun. This must follow `_leave`, or they would come here again."""
        self._takes_nothing = True
        for item in self._queue.clear():
            if item.is_live and not item.is_answered:
                item.requeue(0, backoff=False)

    # ---- nsqds and nsqlookupds

    def connect_to_nsqd(self, address: str) -> None:
        """Consume from this nsqd too. Raises BadAddress."""
        self._discovery.add(canonical_address(address))
        self._link_wanted()

    def disconnect_from_nsqd(self, address: str) -> None:
        """Disconnect once what is in flight is answered.

        If an nsqlookupd names the nsqd again, it is connected again.
        """
        canonical = canonical_address(address)
        self._discovery.remove(canonical)
        link = self._links.get(canonical)
        if link is not None:
            link.leave()

    def set_lookupd_http_addresses(self, addresses: str | Iterable[str]) -> None:
        """Replace the nsqlookupds. Connections to nsqds stay. Raises BadClientOption."""
        self._take_lookupds(addresses)
        for address in self._finders.keys() - set(self._lookupds):
            self._finders.pop(address).stop()
        if self.running:
            for address in self._lookupds:
                self._find_with(address)

    def _find_with(self, lookupd: str) -> None:
        if lookupd not in self._finders:
            from nsqd_py.client.gevent.lookup_client import Finder, LookupClient  # slow: HTTP takes 12 ms

            if self._lookup_client is None:
                self._lookup_client = LookupClient(self._options)
            self._finders[lookupd] = Finder(
                lookupd, self.topic, self._lookup_client, self._options, self._chance, self._log, self._on_found
            )

    def _on_found(self, lookupd: str, nsqds: tuple[str, ...]) -> None:
        self._take_answer(lookupd, nsqds)
        for address in nsqds:
            if address in self._links:
                self._links[address].hurry()
        self._link_wanted()

    def _link_wanted(self) -> None:
        if self.running:
            for address in self._discovery.wanted:
                if address not in self._links:
                    self._add_link(address)

    def _add_link(self, address: str) -> None:
        membership = Membership(address, self._subscription, self._options, self._log, monotonic, self._chance)
        link = Link(membership, self._options, self._log, self)
        self._links[address] = link
        link.greenlet.link(lambda _: self._on_left(link))

    def is_wanted(self, address: str) -> bool:
        return self._discovery.is_wanted(address)

    def on_lost(self) -> None:
        """Ask the nsqlookupds soon, since an nsqd was lost."""
        for finder in self._finders.values():
            finder.hurry()

    def _on_left(self, link: Link) -> None:
        del self._links[link.address]
        self._link_wanted()  # it may have been added again meanwhile

    # ---- messages

    def on_batch(self, batch: MessageBatch) -> None:
        if self._takes_nothing:
            batch.requeue(0)
        elif self._takes_batches:
            self._queue.put(batch)
        else:
            self._queue.put_all(batch.messages())

    def _work(self) -> None:
        handling, queue = self._handling, self._queue
        try:
            if self._batch_handler is not None:
                while (batch := queue.take()) is not None:
                    handling.handle_batch(self._batch_handler, batch)
            elif self._handler is not None:
                while (message := queue.take()) is not None:
                    handling.handle(self._handler, message)
        except gevent.GreenletExit:
            if self._stopper is None:
                self._end_with(NsqClientError("a handler's greenlet was killed"))
        except BaseException as error:  # noqa: BLE001 - `wait` raises it
            self._end_with(error)

    def messages(self, idle_timeout_s: float | None = None) -> Iterator[Message]:
        self._refuse_if_handled()
        return self._iterate(self._each_message(idle_timeout_s))

    def batches(self, idle_timeout_s: float | None = None) -> Iterator[MessageBatch]:
        self._refuse_if_handled()
        self._takes_batches = True
        return self._iterate(self._each_batch(idle_timeout_s))

    def _iterate(self, items: Iterator[Item]) -> Iterator[Item]:
        self._iterating = gevent.getcurrent()
        self.start()
        try:
            yield from items
        except GeneratorExit:
            raise
        except BaseException:  # Ctrl-C may have come while a message was taken, which is in flight until the end then
            self.begin_to_stop(_INTERRUPTED_S)
            raise
        finally:
            self._iterating = None
            self._leave()
            self._give_back()
            self.stop()
        self._raise_failure()

    def _each_message(self, idle_timeout_s: float | None) -> Iterator[Message]:
        while (message := self._queue.take(idle_timeout_s)) is not None:
            if not self._handling.is_wanted(message):
                continue
            try:
                yield message
            except GeneratorExit:
                self._leave()
                self._handling.put_off(message, AT_ONCE)
                raise
            message.settle()
            if not self.running:
                return

    def _each_batch(self, idle_timeout_s: float | None) -> Iterator[MessageBatch]:
        while (batch := self._queue.take(idle_timeout_s)) is not None:
            if batch.is_live:
                yield batch
            if not self.running:
                return

    # ---- output and time

    def _on_timer_failed(self, timer: gevent.Greenlet[..., None]) -> None:
        self._end_with(NsqClientError(f"the timer of the consumer failed: {timer.exception!r}"))

    def _on_output(self, lane: Lane, is_urgent: bool) -> None:
        if not self._lanes_with_output:
            self._loop.run_callback(self._flush)
        self._lanes_with_output.append(lane)

    def _flush(self) -> None:
        """Send all answers of this loop iteration together."""
        lanes, self._lanes_with_output = self._lanes_with_output, []
        for lane in lanes:
            data = lane.take_output()
            if data and lane.address in self._links:
                self._links[lane.address].write(data)

    def _on_backoff(self, news: str) -> None:
        super()._on_backoff(news)
        self._is_due.set()

    def _keep_time(self) -> None:
        while True:
            self._is_due.wait(self._nap_s())
            self._is_due.clear()
            self._subscription.tick()
