"""The delivery of a channel's messages to its ready clients."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from nsqd_py.diskqueue.journals.ranges import Range, runs_of
from nsqd_py.pqueues.alarms import Alarms, Clock
from nsqd_py.pqueues.deferred import Run
from nsqd_py.pqueues.in_flight import Delivery, InFlightTable
from nsqd_py.protocol.batch import Batch
from nsqd_py.protocol.frames import Part, hex_ids, message_frames
from nsqd_py.queue.position import Position
from nsqd_py.queue.reading.lookahead import LONGEST_RUN, Lookahead
from nsqd_py.queue.reading.message_reader import BatchSource, published_ns
from nsqd_py.queue.reading.unreadable import UnreadableRanges
from nsqd_py.runtime.iteration_end import IterationEnd

# Attempts in a message frame have two bytes.
MOST_ATTEMPTS = 0xFFFF
# The nearness of a consumer to this nsqd. Without --enable-experiment=topology-aware-consumption all are GLOBAL.
GLOBAL, REGION_LOCAL, ZONE_LOCAL = range(3)

_FRAME_OVERHEAD = 26  # bytes of a message frame in addition to its size in the batch
# Failing reads of a broken disk are slow. After this number of them delivery stops until _GO_ON_AFTER_NS later.
_MOST_FAILED_READS = 4
_GO_ON_AFTER_NS = 250_000_000
# Delivery does not wait for more messages when there are this many for each waiting client: a send and a read of FINs
# take about 20 us more than their messages.
_FULL_QUOTA = 32
_DUPLICATE_WAITS_NS = 1_000_000_000  # a message whose id the client has in flight


def nearness(zone: str, region: str, client_zone: str, client_region: str) -> int:
    """Return the nearness of a client in this zone and region."""
    if client_zone == zone:
        return ZONE_LOCAL
    return REGION_LOCAL if client_region == region else GLOBAL


class SubscribedClient(Protocol):
    """A connection that subscribed to a channel."""

    peer: str  # its address, as people read it
    in_flight: InFlightTable
    is_waiting: bool  # in the channel's queue of clients that can take a message
    msg_timeout_ns: int
    sample_rate: int
    message_count: int
    nearness: int  # GLOBAL, REGION_LOCAL or ZONE_LOCAL
    rdy: int

    def is_in_sample(self) -> bool:
        """Return True for `sample_rate` percent of all messages, if that is not 0."""

    def capacity(self) -> int:
        """Return the number of messages it takes now: RDY minus in flight, 0 while its output buffer is full."""

    def free_bytes(self) -> int:
        """Return the approximate number of bytes that may be sent to it now."""

    def send_frames(self, parts: list[Part], size_bytes: int) -> None:
        """Send parts of frames, about `size_bytes` in all."""

    def watch_deadline(self, deadline_ns: int) -> None:
        """Call `expire` of the channel no later than this."""

    def close(self, reason: str) -> None: ...


class DeliveryListener(Protocol):
    """The object that records the outcome of deliveries: the channel."""

    def mark_finished(self, low: int, high: int) -> None:
        """Finish messages low..high (high excluded), none of which is finished yet."""

    def mark_lost(self, low: int, high: int, attempts: int) -> None:
        """Count messages low..high (high excluded) as lost; they were taken for delivery."""

    def defer(self, due_ns: int, run: Run) -> None:
        """Requeue these messages at that time."""


class Distributor:
    """The queue of a channel's clients that can take messages, and the delivery to them.

    waiting             the clients, in the order in which they became ready
    is_paused           True while the channel is paused: nothing is delivered
    is_closed           True after `close`
    has_ended           True when nsqd stops: nothing is delivered, but what consumers answer still counts
    counts_by_nearness  messages sent, by the nearness of the client
    lost_count          messages that were not delivered because they are damaged or missing
    expired_count       messages that were not delivered because they are older than their time to live
    unreadable          messages that could not be read from disk yet
    expire_before_ns    returns the publish time before which messages are expired; called once an iteration
    """

    def __init__(
        self,
        position: Position,
        source: BatchSource,
        iteration: IterationEnd,
        alarms: Alarms,
        clock: Clock,
        listener: DeliveryListener,
        *,
        prefers_near: bool,
        keeps_batches: bool = False,
    ) -> None:
        self.waiting: deque[SubscribedClient] = deque()
        self.is_paused = False
        self.is_closed = False
        self.has_ended = False
        self.lost_count = 0
        self.expired_count = 0
        self.unreadable = UnreadableRanges(position)
        self.expire_before_ns: Clock | None = None
        self._prefers_near = prefers_near
        self._keeps_batches = keeps_batches
        self.counts_by_nearness = [0, 0, 0]
        self._position = position
        self._source = source
        self._iteration = iteration
        self._clock = clock
        self._finish: Callable[[int, int], None] = listener.mark_finished
        self._mark_lost: Callable[[int, int, int], None] = listener.mark_lost
        self._defer: Callable[[int, Run], None] = listener.defer
        self._oldest_ns = 0
        self._failed_reads = 0
        self._in_iteration = False
        self._is_postponed = False
        self._ahead = Lookahead(position, source, iteration.is_late)
        self._resume_ns: int | None = None  # delivery stopped, and goes on at this time
        self._turn_ns = 0  # the last time when it had time for requeued messages
        self._retry_alarm = alarms.alarm(lambda _now_ns: self.wake())

    @property
    def unreadable_count(self) -> int:
        """The number of deferred messages that could not be read from disk."""
        return self.unreadable.count

    def add(self, client: SubscribedClient) -> None:
        """Add a client that can take messages to the queue of clients."""
        if not client.is_waiting:
            client.is_waiting = True
            self.waiting.append(client)
        if not self._in_iteration and not self.is_paused and self._position.depth > 0:
            self._want_turn()

    def remove(self, client: SubscribedClient) -> None:
        if client.is_waiting:
            client.is_waiting = False
            self.waiting.remove(client)

    def wake(self) -> None:
        """Schedule delivery if clients wait, because there may be new messages.

        A few new ones may wait for more, for 1 ms at most. That saves nsqd a tenth of its user time with 16 publishers and 4
        consumers: 6.5 us a message instead of 7.4.
        """
        if self.waiting and not self._in_iteration and not self.is_paused:
            if self._position.depth >= _FULL_QUOTA * len(self.waiting):
                self._want_turn()
            elif not self._is_postponed:
                self._is_postponed = True
                self._iteration.add_deferred_deliverer(self)

    def close(self) -> None:
        """End all delivery, and drop the references to the listener, which refers to this object."""
        self.is_closed = True
        self.has_ended = True
        self._retry_alarm.close()
        self.waiting.clear()
        self._finish = _ignore
        self._defer = _ignore
        self._mark_lost = _ignore

    def _want_turn(self) -> None:
        self._in_iteration = True
        self._iteration.add_deliverer(self)

    def deliver(self) -> None:
        """Deliver queued messages to the waiting clients in equal numbers. Called at the end of an iteration."""
        self._in_iteration = False
        self._is_postponed = False
        now_ns = self._clock()
        self._failed_reads = 0
        if self._position.requeued and not self._iteration.is_late():
            self._turn_ns = now_ns
        if self.expire_before_ns is not None:
            self._oldest_ns = self.expire_before_ns()
        if self._prefers_near:
            rows = by_nearness(self.waiting)
            self.waiting.clear()
            for row in rows:  # distant clients get the messages that nearer ones cannot take
                self._distribute(row, now_ns)
                self.waiting.extend(row)
        else:
            self._distribute(self.waiting, now_ns)
        if self._resume_ns is not None:
            self._retry_alarm.set(self._resume_ns)
            self._resume_ns = None

    def _distribute(self, waiting: deque[SubscribedClient], now_ns: int) -> None:
        while waiting and not self.is_paused and not self.has_ended and self._resume_ns is None:
            available = self._position.depth
            if available <= 0:
                return
            in_row = len(waiting)
            quota = -(-available // in_row)  # rounded up
            for _ in range(min(in_row, available)):
                client = waiting.popleft()
                if self._deliver_to(client, quota, now_ns):
                    waiting.append(client)
                else:
                    client.is_waiting = False
            if self._position.depth >= available and len(waiting) >= in_row:
                return  # clients with capacity took nothing: another round would not end

    def _deliver_to(self, client: SubscribedClient, most: int, now_ns: int) -> bool:
        """Send up to `most` messages, as far as the client has capacity. Return True if it can take more."""
        capacity = client.capacity()
        if capacity <= 0:
            return False
        left = min(most, capacity)
        client.watch_deadline(now_ns + client.msg_timeout_ns)  # before sending: a later read may fail
        position = self._position
        while left and client.free_bytes() > 0 and self._resume_ns is None:
            low, high = position.peek_new()
            if position.requeued:
                after = position.requeued_after[0]
                if after <= low or low == high:
                    reached = low if low < high else sys.maxsize
                    left -= self._send_requeued(client, reached, left, now_ns)
                    continue
                high = min(high, after)
            elif low == high:
                break
            left -= self._send_new(client, low, high, left, now_ns)
        return client.capacity() > 0

    def _send_new(self, client: SubscribedClient, low: int, high: int, most: int, now_ns: int) -> int:
        """Send up to `most` messages of one batch from low..high. Return the number, 0 if they cannot be sent."""
        position = self._position
        try:
            batch = self._source.batch_at(low)
        except BlockingIOError:  # a thread reads it, and then wakes this channel
            self._resume_ns = now_ns + _GO_ON_AFTER_NS
            return 0
        except OSError:  # the topic has reported it
            self._set_new_aside(low, now_ns)
            return 0
        if batch is None or batch.first_seq > low:
            lost_until = high if batch is None else min(batch.first_seq, high)
            position.take_new(lost_until - low)
            self._lose(low, lost_until, 0)
            return 0
        if self._oldest_ns and published_ns(batch) < self._oldest_ns:
            after = min(batch.end_seq, high)
            position.take_new(after - low)
            self.expire(low, after)
            return 0
        first = low - batch.first_seq
        count = min(batch.count - first, high - low, most)
        if count > 1:
            count = min(count, _fit(batch, client.free_bytes()))
        position.cursor = low + count
        self._send(client, batch, first, first + count, 1, now_ns)
        return count

    def _lose(self, low: int, high: int, attempts: int) -> None:
        """Pass over messages that are damaged or missing, and count them; the log has reported them."""
        self._mark_lost(low, high, attempts)
        self.lost_count += high - low

    def expire(self, low: int, high: int) -> None:
        """Finish and count expired messages."""
        self._finish(low, high)
        self.expired_count += high - low

    def _set_new_aside(self, low: int, now_ns: int) -> None:
        """Defer unreadable messages from `low` on, and continue with those behind them."""
        end, due_ns = self._reading_failed(low, now_ns)
        for run_low, run_high in self._position.take_new_below(end):
            self._defer(due_ns, (run_low, run_high, 0, None))

    def _set_requeued_aside(self, low: int, now_ns: int) -> None:
        """Defer unreadable requeued messages from `low` on."""
        end, due_ns = self._reading_failed(low, now_ns)
        position = self._position
        for run_low, run_high, attempts, retained in position.take_requeued_where(
            lambda run: low <= run[0] < end
        ):
            self._defer(due_ns, (run_low, min(run_high, end), attempts, retained))
            if run_high > end:
                position.put_back((end, run_high, attempts, retained))

    def _reading_failed(self, low: int, now_ns: int) -> tuple[int, int]:
        """Return the number from which reading may succeed, and the time of the next try at `low`."""
        self._failed_reads += 1
        if self._failed_reads >= _MOST_FAILED_READS:
            self._resume_ns = now_ns + _GO_ON_AFTER_NS
        end = max(low + 1, self._source.readable_from(low))
        return end, now_ns + self.unreadable.failed(low, end)

    def _send_requeued(self, client: SubscribedClient, reached: int, most: int, now_ns: int) -> int:
        """Send up to `most` requeued messages that are not queued behind number `reached`; return how many."""
        position = self._position
        left = most
        while (
            left
            and (room := client.free_bytes()) > 0
            and position.requeued
            and position.requeued_after[0] <= reached
        ):
            if self._is_read(left, now_ns):
                left -= self._send_requeued_run(client, position.take_requeued(left), room, now_ns)
            if self._resume_ns is None and self._iteration.is_late():
                # A channel without time in this iteration is the first in the next.
                self._resume_ns = self._turn_ns
            if self._resume_ns is not None:
                break
        return most - left

    def _is_read(self, needed: int, now_ns: int) -> bool:
        """True if the next requeued run is read. False while a thread reads it, or until the next iteration."""
        low, high, _, retained = self._position.requeued[0]
        if retained is None and high - low <= LONGEST_RUN:
            try:
                if not self._ahead.prepare(low, needed):
                    self._resume_ns = self._turn_ns
            except BlockingIOError:  # a thread reads it, and then wakes this channel
                self._resume_ns = now_ns + _GO_ON_AFTER_NS
        return self._resume_ns is None

    def _send_requeued_run(self, client: SubscribedClient, run: Run, room: int, now_ns: int) -> int:
        """Send the part of a taken run that is in one batch, and put the rest back. Return the number sent."""
        low, high, attempts, retained = run
        try:
            batch = self._batch_of(run)
        except BlockingIOError:  # a thread reads it, and then wakes this channel
            self._position.put_back(run)
            self._resume_ns = now_ns + _GO_ON_AFTER_NS
            return 0
        except OSError:
            self._position.put_back(run)
            self._set_requeued_aside(low, now_ns)
            return 0
        given = 0
        if batch is None or batch.first_seq > low:
            after = high if batch is None else min(batch.first_seq, high)
            self._lose(low, after, attempts)
        elif self._oldest_ns and published_ns(batch) < self._oldest_ns:
            after = min(high, batch.end_seq)
            self.expire(low, after)
        else:
            after = min(high, batch.end_seq, low + _fit(batch, room))
            first = low - batch.first_seq
            given = after - low
            self._send(client, batch, first, first + given, min(attempts + 1, MOST_ATTEMPTS), now_ns)
        if after < high:
            if retained is None and batch is not None and high <= batch.end_seq:
                retained = batch
            self._position.put_back((after, high, attempts, retained))
        if self.unreadable:
            self.unreadable.read(low)
        return given

    def _batch_of(self, run: Run) -> Batch | None:
        """Return the batch that contains the start of a run, or else the next batch, or None. Raises OSError."""
        low, high, _, retained = run
        batch = retained if retained is not None else self._ahead.take(low)
        if batch is not None:
            return batch
        if high - low > LONGEST_RUN:
            return self._source.batch_at(low)
        return next(self._source.batches_at([low]))

    def forget_read(self) -> None:
        """Drop the messages that were read ahead, after the position has changed."""
        self._ahead.forget()

    def _send(
        self, client: SubscribedClient, batch: Batch, first: int, after: int, attempts: int, now_ns: int
    ) -> None:
        if not client.sample_rate and self._send_run(client, batch, first, after, attempts, now_ns):
            return
        for low, high in self._sample(client, batch, first, after):
            for run_low, run_high in self._without_duplicates(client, batch, low, high, attempts, now_ns):
                self._send_run(client, batch, run_low, run_high, attempts, now_ns)

    def _send_run(
        self, client: SubscribedClient, batch: Batch, first: int, after: int, attempts: int, now_ns: int
    ) -> bool:
        """Send messages of a batch. Return False, and send none, if one has the id of a message that the client has."""
        parts, ids = message_frames(batch, first, after, attempts)
        retained = batch if self._keeps_batches else None
        delivery = Delivery(retained, batch.timestamp_ns, attempts, now_ns, now_ns + client.msg_timeout_ns)
        if not client.in_flight.add(ids, batch.first_seq + first, delivery):
            return False
        count = after - first
        client.message_count += count
        self.counts_by_nearness[client.nearness] += count
        client.send_frames(parts, count * (len(batch.body) // batch.count + _FRAME_OVERHEAD))
        return True

    def _without_duplicates(
        self, client: SubscribedClient, batch: Batch, first: int, after: int, attempts: int, now_ns: int
    ) -> Iterator[Range]:
        """Yield the runs whose ids the client does not have in flight; defer the other messages for 1 s."""
        free = []
        for index, message_id in enumerate(hex_ids(batch.base_id + first, after - first), first):
            if message_id in client.in_flight:
                seq = batch.first_seq + index
                retained = batch if self._keeps_batches else None
                self._defer(now_ns + _DUPLICATE_WAITS_NS, (seq, seq + 1, attempts - 1, retained))
            else:
                free.append(index)
        return runs_of(free) if free else iter(())

    def _sample(self, client: SubscribedClient, batch: Batch, first: int, after: int) -> Iterator[Range]:
        """Yield the runs that a sampling client gets; finish the other messages."""
        if not client.sample_rate:
            yield first, after
            return
        for index in range(first, after):
            if client.is_in_sample():
                yield index, index + 1
            else:
                self._finish(batch.first_seq + index, batch.first_seq + index + 1)


def _ignore(*_: object) -> None:
    pass


def _fit(batch: Batch, room: int) -> int:
    """Return the number of messages of the batch's mean size that fit into `room` bytes, at least one."""
    return max(1, room * batch.count // len(batch.body))


def by_nearness(clients: Iterable[SubscribedClient]) -> list[deque[SubscribedClient]]:
    """Return the clients grouped by nearness, nearest first. The order within a group stays the same."""
    rows: dict[int, deque[SubscribedClient]] = {ZONE_LOCAL: deque(), REGION_LOCAL: deque(), GLOBAL: deque()}
    for client in clients:
        rows[client.nearness].append(client)
    return [row for row in rows.values() if row]
