"""A channel: who consumes it, and what of its topic it has delivered.

Its place in the topic is a `Position`; its messages stay in the topic's log. What changes is written to a
journal in batches, so that after a crash at most what was finished in the last 100 ms is delivered again.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from nsqd_py.batch import Batch
from nsqd_py.delivery import GLOBAL, REGION_LOCAL, TOPOLOGY_AWARE, ZONE_LOCAL, Position, by_nearness, fair_share
from nsqd_py.diskqueue.journal import Journal
from nsqd_py.diskqueue.ranges import runs_of
from nsqd_py.inflight import Delivery, Entry, InFlightTable
from nsqd_py.pqueues import Alarms, Run
from nsqd_py.progress import Progress, runs_of_entries
from nsqd_py.protocol.frames import message_frames
from nsqd_py.protocol.names import is_ephemeral
from nsqd_py.turn import Turn

MAX_ATTEMPTS = 0xFFFF
_FRAME_OVERHEAD = 26  # bytes that a message is longer on the wire to a consumer than in its batch
_RETRY_READ_NS = 1_000_000_000


class Consumer(Protocol):
    """What a channel needs of a connection that subscribed to it."""

    in_flight: InFlightTable
    is_waiting: bool  # in the channel's row of clients that could take a message
    msg_timeout_ns: int
    sample_rate: int
    message_count: int
    nearness: int  # how near it is to this nsqd, see `nsqd_py.delivery`

    def capacity(self) -> int:
        """How many messages it takes now: RDY less what is in flight, 0 while it has no room."""

    def room_bytes(self) -> int:
        """About how many bytes may be sent to it at once."""

    def send_frames(self, parts: list[bytes], size_bytes: int) -> None:
        """Send parts of frames, about `size_bytes` in all."""

    def watch_deadline(self, deadline_ns: int) -> None:
        """Call `expire` of the channel no later than this."""

    def close(self, reason: str) -> None: ...


class MessageSource(Protocol):
    """Where a channel gets bodies from: its topic."""

    def batch_at(self, seq: int) -> Batch | None:
        """The batch that holds `seq`, or the first behind it; None when there is neither."""


class FinishMeter(Protocol):
    """Who measures how long messages take from publish to finish."""

    def finished(self, deliveries: Mapping[Delivery, int]) -> None:
        """So many messages of each are being finished."""

    def figures(self, others: Iterable[Any]) -> dict[str, Any]:
        """What it measured, together with other meters."""


class ChannelLimits(Protocol):
    """The options that a channel obeys; times in ns."""

    @property
    def enable_experiment(self) -> Sequence[str]: ...

    mem_queue_size: int
    max_msg_timeout_ns: int
    max_channel_consumers: int


class Channel:
    """A channel of a topic. All times are ns on the clock of the alarms, which keeps the epoch's zero."""

    def __init__(
        self,
        name: str,
        position: Position,
        source: MessageSource,
        limits: ChannelLimits,
        turn: Turn,
        alarms: Alarms,
        clock: Callable[[], int],
        journal: Journal | None,
        on_change: Callable[[Channel], None],
        keeps_batches: bool,
    ) -> None:
        self.name = name
        self.position = position
        self.is_ephemeral = is_ephemeral(name)
        self.clients: dict[Consumer, None] = {}
        self.is_paused = False
        self.is_closed = False
        self.message_count = 0
        self.requeue_count = 0
        self.timeout_count = 0
        self.lost_count = 0
        self.latency: FinishMeter | None = None
        self._prefers_near = TOPOLOGY_AWARE in limits.enable_experiment
        self._counts_by_nearness = [0, 0, 0]
        self._source = source
        self._limits = limits
        self._turn = turn
        self._clock = clock
        self._on_change = on_change
        self._keeps_batches = keeps_batches
        self._tables: dict[InFlightTable, None] = {}
        self._waiting: deque[Consumer] = deque()
        self._in_turn = False
        self._deferred_alarm = alarms.alarm(self._on_deferred_due)
        self._orphan_alarm = alarms.alarm(self._on_orphans_due)
        self._retry_alarm = alarms.alarm(self._on_retry)
        self._orphans: dict[InFlightTable, None] = {}
        self._progress = Progress(position, journal)

    # ---- figures

    @property
    def depth(self) -> int:
        return self.position.depth

    @property
    def in_flight_count(self) -> int:
        return sum(map(len, self._tables))

    @property
    def deferred_count(self) -> int:
        return self.position.deferred.count

    def backend_depth(self, first_in_memory: int) -> int:
        """That part of the depth that is not held in memory."""
        position = self.position
        return min(max(0, min(first_in_memory, position.released) - position.next_fresh), position.fresh_count)

    # ---- consumers

    def add_client(self, client: Consumer) -> bool:
        """False when the channel has as many consumers as it may."""
        most = self._limits.max_channel_consumers
        if most and len(self.clients) >= most:
            return False
        self.clients[client] = None
        self._tables[client.in_flight] = None
        return True

    def remove_client(self, client: Consumer) -> None:
        """What it has in flight stays so until it times out, as with Go's nsqd."""
        if client not in self.clients:
            return
        del self.clients[client]
        if client.is_waiting:
            client.is_waiting = False
            self._waiting.remove(client)
        if len(client.in_flight):
            self._orphans[client.in_flight] = None
            deadline_ns = client.in_flight.next_deadline_ns
            assert deadline_ns is not None
            self._orphan_alarm.set_no_later(deadline_ns)
        else:
            self._tables.pop(client.in_flight, None)

    def client_ready(self, client: Consumer) -> None:
        """The client may take messages now: put it into the row."""
        if not client.is_waiting:
            client.is_waiting = True
            self._waiting.append(client)
        if not self._in_turn and not self.is_paused and self.position.depth > 0:
            self._want_turn()

    def owns(self, message_id: bytes) -> bool:
        """True when any client of this channel has the message in flight."""
        return any(message_id in table for table in self._tables)

    # ---- messages come

    def release(self, low: int, high: int, deferred: Sequence[tuple[int, int, int]]) -> None:
        """Messages low..high (not included) are there; `deferred` of them, as (low, high, due_ns), are not due yet."""
        self.message_count += high - low
        for deferred_low, deferred_high, due_ns in deferred:
            self._arrive(low, deferred_low)
            self._arrive_deferred(deferred_low, deferred_high, due_ns)
            low = deferred_high
        self._arrive(low, high)
        if self._waiting and not self._in_turn and not self.is_paused:
            self._want_turn()

    def _arrive(self, low: int, high: int) -> None:
        position = self.position
        position.released = high
        if self.is_ephemeral:
            # It holds no more than fits in memory: what comes then is lost, as with Go's nsqd. Whoever could take
            # messages right now has room for them beyond the queue.
            room = self._limits.mem_queue_size
            if not self.is_paused:
                room += sum(max(0, client.capacity()) for client in self._waiting)
            excess = min(position.fresh_count - room, high - low)
            if excess > 0:
                self._never_deliver(high - excess, high)

    def _arrive_deferred(self, low: int, high: int, due_ns: int) -> None:
        position = self.position
        position.released = high
        position.skip(low, high)
        batch = self._source.batch_at(low) if self._keeps_batches else None
        position.defer(due_ns, (low, high, 0, batch))
        self._deferred_alarm.set_no_later(due_ns)

    def miss(self, low: int, high: int) -> None:
        """Messages low..high (not included) were dropped from the topic before the channel saw them."""
        self.position.released = high
        self._never_deliver(low, high)

    def _never_deliver(self, low: int, high: int) -> None:
        self.position.skip(low, high)
        for gap_low, gap_high in list(self.position.finished.gaps(low, high)):
            self._finish(gap_low, gap_high)

    def _want_turn(self) -> None:
        self._in_turn = True
        self._turn.add_deliverer(self)

    # ---- messages go

    def deliver(self) -> None:
        """Called by the turn: give what there is to those who are ready, in fair shares."""
        self._in_turn = False
        now_ns = self._clock()
        if self._prefers_near:
            rows = by_nearness(self._waiting)
            self._waiting.clear()
            for row in rows:  # those further away get what those nearer cannot take
                self._share_out(row, now_ns)
                self._waiting.extend(row)
        else:
            self._share_out(self._waiting, now_ns)

    def _share_out(self, waiting: deque[Consumer], now_ns: int) -> None:
        while waiting and not self.is_paused and not self.is_closed:
            available = self.position.depth
            if available <= 0:
                return
            in_row = len(waiting)
            share = fair_share(available, in_row)
            for _ in range(min(in_row, available)):
                client = waiting.popleft()
                try:
                    self._give(client, share, now_ns)
                except OSError:  # the topic has reported it
                    waiting.appendleft(client)
                    self._retry_alarm.set(now_ns + _RETRY_READ_NS)
                    return
                if client.capacity() > 0:
                    waiting.append(client)
                else:
                    client.is_waiting = False
            if self.position.depth >= available and len(waiting) >= in_row:
                return  # nothing was taken by clients who still could: never go round in circles

    def _give(self, client: Consumer, most: int, now_ns: int) -> None:
        """Send up to `most` messages, as many as the client takes."""
        wanted = min(most, client.capacity())
        if wanted <= 0:
            return
        client.watch_deadline(now_ns + client.msg_timeout_ns)  # first: reading may fail half-way
        left = wanted
        if self.position.again:
            left -= self._give_again(client, left, now_ns)
        while left and client.room_bytes() > 0:
            low, high = self.position.peek_fresh()
            if low == high:
                break
            left -= self._give_fresh(client, low, high, left, now_ns)

    def _give_fresh(self, client: Consumer, low: int, high: int, most: int, now_ns: int) -> int:
        """Send up to `most` messages of one batch of the fresh ones low..high; 0 when those there are lost."""
        position = self.position
        batch = self._source.batch_at(low)
        if batch is None or batch.first_seq > low:
            lost_until = high if batch is None else min(batch.first_seq, high)
            position.take_fresh(lost_until - low)
            self._lose(low, lost_until)
            return 0
        first = low - batch.first_seq
        count = min(batch.count - first, high - low, most, _fit(batch, client.room_bytes()))
        position.take_fresh(count)
        self._send(client, batch, first, first + count, 1, now_ns)
        return count

    def _lose(self, low: int, high: int) -> None:
        """These messages cannot be read any more; the log has reported why."""
        self._finish(low, high)
        self.lost_count += high - low

    def _give_again(self, client: Consumer, most: int, now_ns: int) -> int:
        """Send up to `most` messages of those that are queued again; how many that were."""
        position = self.position
        given = 0
        while given < most and position.again:
            low, high, attempts, kept = position.take_again(most - given)
            while low < high:
                room = client.room_bytes()
                try:
                    batch = (kept or self._source.batch_at(low)) if room > 0 else None
                except OSError:
                    position.put_back((low, high, attempts, kept))
                    raise
                if room <= 0:
                    position.put_back((low, high, attempts, kept))
                    return given
                if batch is None or batch.first_seq > low:
                    after = high if batch is None else min(batch.first_seq, high)
                    self._lose(low, after)
                else:
                    after = min(high, batch.end_seq, low + _fit(batch, room))
                    first = low - batch.first_seq
                    self._send(client, batch, first, first + after - low, min(attempts + 1, MAX_ATTEMPTS), now_ns)
                given += after - low
                low = after
        return given

    def _send(self, client: Consumer, batch: Batch, first: int, after: int, attempts: int, now_ns: int) -> None:
        if client.sample_rate:
            for low, high in self._sample(client.sample_rate, batch, first, after):
                self._send_run(client, batch, low, high, attempts, now_ns)
        else:
            self._send_run(client, batch, first, after, attempts, now_ns)

    def _send_run(self, client: Consumer, batch: Batch, first: int, after: int, attempts: int, now_ns: int) -> None:
        parts, ids = message_frames(batch, first, after, attempts)
        delivery = Delivery(batch, attempts, now_ns, now_ns + client.msg_timeout_ns)
        client.in_flight.add(ids, batch.first_seq + first, delivery)
        count = after - first
        client.message_count += count
        self._counts_by_nearness[client.nearness] += count
        client.send_frames(parts, count * (len(batch.body) // batch.count + _FRAME_OVERHEAD))

    def _sample(self, rate: int, batch: Batch, first: int, after: int) -> Iterator[tuple[int, int]]:
        """The runs that a sampling client gets; what it does not get is finished."""
        for index in range(first, after):
            if random.randrange(100) <= rate:  # `<=`: as Go's nsqd does
                yield index, index + 1
            else:
                self._finish(batch.first_seq + index, batch.first_seq + index + 1)

    @property
    def zone_local_msg_count(self) -> int:
        """Messages sent to consumers in this nsqd's zone."""
        return self._counts_by_nearness[ZONE_LOCAL]

    @property
    def region_local_msg_count(self) -> int:
        """Messages sent to consumers in this nsqd's region, but not in its zone."""
        return self._counts_by_nearness[REGION_LOCAL]

    @property
    def global_msg_count(self) -> int:
        """Messages sent to all other consumers."""
        return self._counts_by_nearness[GLOBAL]

    # ---- what consumers say

    def finish(self, client: Consumer, ids: list[bytes]) -> list[bytes]:
        """Done with these messages. Gives the ids that the client does not have in flight."""
        if self.latency is not None:
            self.latency.finished(client.in_flight.deliveries(ids))
        finished, missing = client.in_flight.finish(ids)
        if finished:
            for low, high in runs_of(finished):
                self._finish(low, high)
        return missing

    def _finish(self, low: int, high: int) -> None:
        self.position.finished.add(low, high)
        self._progress.note_finished((low, high))
        if not self._progress.is_dirty:
            self._become_dirty()

    def requeue(self, client: Consumer, message_id: bytes, delay_ns: int) -> bool:
        """Queue a message once more, after a delay. False: not in flight with this client."""
        entry = client.in_flight.pop(message_id)
        if entry is None:
            return False
        self.requeue_count += 1
        self._wait([entry], self._clock() + delay_ns if delay_ns else 0)
        return True

    def touch(self, client: Consumer, message_id: bytes) -> bool:
        """Start a message's time-out anew. False: not in flight with this client."""
        touched = client.in_flight.touch(
            message_id, self._clock(), client.msg_timeout_ns, self._limits.max_msg_timeout_ns
        )
        if touched:
            deadline_ns = client.in_flight.next_deadline_ns
            assert deadline_ns is not None
            client.watch_deadline(deadline_ns)
        return touched

    def expire(self, table: InFlightTable, now_ns: int) -> int:
        """Queue again what timed out in a client's table; how many that were."""
        expired = table.expire(now_ns)
        if expired:
            self.timeout_count += len(expired)
            self._wait(expired, 0)
        return len(expired)

    def _wait(self, entries: list[Entry], due_ns: int) -> None:
        """Messages that were in flight are queued again, or deferred until `due_ns`."""
        position = self.position
        for low, high, delivery in runs_of_entries(entries):
            run: Run = (low, high, delivery.attempts, delivery.batch if self._keeps_batches else None)
            if due_ns:
                position.defer(due_ns, run)
            else:
                position.queue_again(run)
            self._progress.note_waiting((low, high, due_ns, delivery.attempts))
        if due_ns:
            self._deferred_alarm.set_no_later(due_ns)
        elif self._waiting and not self._in_turn and not self.is_paused:
            self._want_turn()
        if not self._progress.is_dirty:
            self._become_dirty()

    def _on_deferred_due(self, now_ns: int) -> None:
        if self.position.queue_due(now_ns) and self._waiting and not self._in_turn and not self.is_paused:
            self._want_turn()
        self._deferred_alarm.set(self.position.deferred.next_due_ns)

    def _on_retry(self, now_ns: int) -> None:
        if self._waiting and not self._in_turn:
            self._want_turn()

    def _on_orphans_due(self, now_ns: int) -> None:
        """Messages time out whose client is gone."""
        next_ns = None
        for table in list(self._orphans):
            self.expire(table, now_ns)
            deadline_ns = table.next_deadline_ns
            if deadline_ns is None:
                del self._orphans[table]
                self._tables.pop(table, None)
            elif next_ns is None or deadline_ns < next_ns:
                next_ns = deadline_ns
        self._orphan_alarm.set(next_ns)

    # ---- administration

    def pause(self) -> None:
        self.is_paused = True

    def unpause(self) -> None:
        self.is_paused = False
        if self._waiting and not self._in_turn and self.position.depth > 0:
            self._want_turn()

    def empty(self) -> None:
        """Drop everything: queued, in flight, deferred. Raises OSError when that cannot be written down."""
        for table in self._tables:
            table.clear()
        for table in self._orphans:
            self._tables.pop(table, None)
        self._orphans.clear()
        self.position.empty()
        self._deferred_alarm.set(None)
        self._orphan_alarm.set(None)
        for client in self.clients:
            if client.capacity() > 0:
                self.client_ready(client)
        self.save()

    def close(self) -> None:
        """Take leave of all consumers and ring no more."""
        self.is_closed = True
        self._deferred_alarm.set(None)
        self._orphan_alarm.set(None)
        self._retry_alarm.set(None)
        for client in list(self.clients):
            client.close("the channel is closing")
        self._waiting.clear()

    def restore(self) -> None:
        """Begin with a position that was put back: its alarm, its count of messages."""
        self._deferred_alarm.set(self.position.deferred.next_due_ns)

    # ---- the journal

    @property
    def journal(self) -> Journal | None:
        return self._progress.journal

    @property
    def is_dirty(self) -> bool:
        """Something changed that `save_changes` would write."""
        return self._progress.is_dirty

    def _become_dirty(self) -> None:
        self._progress.is_dirty = True
        self._on_change(self)

    def save_changes(self) -> None:
        """Write down what is new. Raises OSError: then it stays new."""
        self._progress.save_changes(self._tables)

    def save(self) -> None:
        """Write down everything, also how often what is in flight was tried. Raises OSError."""
        self._progress.save(self._tables)

    def save_at_the_end(self) -> None:
        """As `save`, for a clean stop: what is in flight counts as tried. Raises OSError."""
        self._progress.save(self._tables, count_in_flight=True)


def _fit(batch: Batch, room: int) -> int:
    """How many messages of about the batch's mean size go into `room` bytes; one at least."""
    return max(1, room * batch.count // len(batch.body))
