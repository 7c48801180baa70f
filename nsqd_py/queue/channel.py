"""A channel: its consumers, and the state of its messages.

The state is a `Position`; the messages stay in the topic's log. Changes are written to a journal in batches, so that
after a crash at most the messages that were finished in the last 100 ms are redelivered.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from nsqd_py.diskqueue.journals.ranges import Range, SeqRanges, count_of, minus, runs_of
from nsqd_py.pqueues.alarms import Alarms, Clock
from nsqd_py.pqueues.deferred import Run, queued_after
from nsqd_py.pqueues.in_flight import Delivery, Entry, InFlightTable, runs_of_entries
from nsqd_py.protocol.names import TOPOLOGY_AWARE, is_ephemeral
from nsqd_py.queue.dead_letters import DeadLetters
from nsqd_py.queue.delivery import Distributor, SubscribedClient
from nsqd_py.queue.journaled_position import JournaledPosition
from nsqd_py.queue.latency import LatencyMeter
from nsqd_py.queue.position import Position
from nsqd_py.queue.reading.message_reader import BatchSource, publish_time_ns
from nsqd_py.queue.storage import PositionJournal
from nsqd_py.runtime.iteration_end import IterationEnd

# Requeued runs in which `discard` searches for a message: as many as a peek shows.
_MOST_SEARCHED = 1000
_MOST_EXPIRED_AT_ONCE = 2000  # requeued runs that one sweep for expired messages checks
# Requeued runs that are compared for the oldest: 50 us. Those that were requeued first are rarely younger.
_MOST_COMPARED = 1000
_MOST_DUE_AT_ONCE = 700  # runs: 2 ms; 300,000 runs that were due at one moment took 0.6 s
# A channel whose consumers finish nothing for this long is reported as stalled.
_STALLED_AFTER_NS = 10 * 1_000_000_000
# In-flight tables in which an unknown id is searched: 7 us.
_MOST_SEARCHED_TABLES = 64


class ChannelLimits(Protocol):
    """The options of nsqd that channels use."""

    max_channel_consumers: int
    max_msg_timeout_ns: int
    mem_queue_size: int

    @property
    def enable_experiment(self) -> Container[str]: ...


class Channel(JournaledPosition):
    """A channel of a topic; `limits` are the options of nsqd. All times are ns since the epoch, on the clock of the alarms."""

    def __init__(
        self,
        name: str,
        position: Position,
        source: BatchSource,
        most_unfinished: Callable[[], int | None],
        limits: ChannelLimits,
        iteration: IterationEnd,
        alarms: Alarms,
        clock: Clock,
        journal: PositionJournal | None,
        on_change: Callable[[Channel], None],
        keeps_batches: bool,
    ) -> None:
        super().__init__(position, journal)
        self.name = name
        self.is_ephemeral = is_ephemeral(name)
        self.clients: dict[SubscribedClient, None] = {}
        self.message_count = 0
        self.finish_count = 0
        self.requeue_count = 0
        self.timeout_count = 0
        self.dropped_count = 0  # messages in memory only, for which there was no room
        self.latency: LatencyMeter | None = None
        self.dead_letters: DeadLetters | None = None
        self.distributor = Distributor(
            position,
            source,
            iteration,
            alarms,
            clock,
            self,
            prefers_near=TOPOLOGY_AWARE in limits.enable_experiment,
            keeps_batches=keeps_batches,
        )
        self.counts_by_nearness = self.distributor.counts_by_nearness
        self._waiting = self.distributor.waiting
        self._source = source
        self._most_unfinished = most_unfinished
        self._limits = limits
        self._clock = clock
        self._on_change = on_change
        self._keeps_batches = keeps_batches
        self._deferred_alarm = alarms.alarm(self._on_deferred_due)
        self._orphan_alarm = alarms.alarm(self._on_orphans_due)
        self._orphans: dict[InFlightTable, None] = {}
        self._oldest = (-1, 0)
        # The last time at which consumers finished something, or at which messages could begin to flow.
        self._moved_ns = clock()
        self._most_tried = (0, 0, 0)  # attempts, and the messages low..high (high excluded) with this number

    # ---- statistics

    @property
    def is_paused(self) -> bool:
        return self.distributor.is_paused

    @property
    def is_closed(self) -> bool:
        return self.distributor.is_closed

    @property
    def lost_count(self) -> int:
        """Messages that are damaged or missing in the log."""
        return self.distributor.lost_count

    @property
    def dead_letter_count(self) -> int:
        """Messages that were moved to the dead letter topic."""
        if self.dead_letters is not None:
            return self.dead_letters.count
        return 0

    @property
    def dead_letter_error(self) -> str:
        """Why messages with too many attempts are not moved; empty if there are none, or if they are."""
        letters = self.dead_letters
        if letters is None or not letters.error:
            return ""
        if self.most_attempts < letters.max_attempts:  # they were finished or moved since
            letters.error = ""
        return letters.error

    @property
    def depth(self) -> int:
        return self.position.depth

    @property
    def in_flight_count(self) -> int:
        return sum(map(len, self.tables))

    @property
    def deferred_count(self) -> int:
        return self.position.deferred.count

    @property
    def oldest_ns(self) -> int:
        """The publish time of the oldest queued message, in ns since the epoch; 0 if there is none or it is unknown."""
        seq = self.position.oldest(_MOST_COMPARED)
        if seq is None:
            return 0
        if seq != self._oldest[0] or not self._oldest[1]:  # it is read only when it is another message
            self._oldest = seq, publish_time_ns(self._source, seq)
        return self._oldest[1]

    @property
    def stalled_ns(self) -> int:
        """The time since which messages wait, consumers are connected and nothing is finished; 0 if they flow."""
        if not self.clients or self.is_paused or self.depth <= 0:
            return 0
        since_ns = max(self._moved_ns, self.oldest_ns)
        if self._clock() - since_ns >= _STALLED_AFTER_NS:
            return since_ns
        return 0

    @property
    def ready_count(self) -> int:
        """The sum of the RDY of all consumers."""
        return sum(client.rdy for client in self.clients)

    @property
    def most_attempts(self) -> int:
        """The attempts of the message that was requeued or timed out most often, and is not finished; 0 if there is none."""
        attempts, low, high = self._most_tried
        if attempts and not any(True for _ in self.position.finished.gaps(low, high)):
            self._most_tried = (0, 0, 0)
            return 0
        return attempts

    def backend_depth(self, first_in_memory: int) -> int:
        """Return the part of the depth that is not in memory; 0 for an ephemeral channel, as in Go's nsqd."""
        if self.is_ephemeral:
            return 0
        position = self.position
        return min(max(0, min(first_in_memory, position.released) - position.cursor), position.new_count)

    # ---- consumers

    def move_dead_letters(self, dead_letters: DeadLetters) -> None:
        """Move messages with too many attempts with `dead_letters`."""
        self.dead_letters = dead_letters
        self.tables[dead_letters.moving] = None

    def add_client(self, client: SubscribedClient) -> bool:
        """Add a consumer. Return False if the channel has --max-channel-consumers already."""
        most = self._limits.max_channel_consumers
        if most and len(self.clients) >= most:
            return False
        if not self.clients:
            self.begin_to_flow()
        self.clients[client] = None
        self.tables[client.in_flight] = None
        return True

    def remove_client(self, client: SubscribedClient) -> None:
        """Remove a consumer. Its messages stay in flight until they time out, as in Go's nsqd."""
        if client not in self.clients:
            return
        del self.clients[client]
        self.distributor.remove(client)
        if len(client.in_flight):
            self._orphans[client.in_flight] = None
            deadline_ns = client.in_flight.next_deadline_ns
            assert deadline_ns is not None
            self._orphan_alarm.set_no_later(deadline_ns)
        else:
            self.tables.pop(client.in_flight, None)

    def client_ready(self, client: SubscribedClient) -> None:
        """Deliver to a consumer that can take messages."""
        self.distributor.add(client)

    def owns(self, message_id: bytes) -> bool:
        """True if any client of this channel has the message in flight. Only the text of an error depends on it.

        With many clients it is False without a search, so that thousands of invalid ids cost little.
        """
        return len(self.tables) <= _MOST_SEARCHED_TABLES and any(message_id in table for table in self.tables)

    def in_flight(self, most: int) -> Iterator[tuple[int, int, Delivery, SubscribedClient | None]]:
        """Yield runs (low, high, delivery, client) of up to `most` in-flight messages, the oldest of each client first.

        The client is None if it has disconnected, or if the messages are being moved as dead letters.
        """
        clients = {client.in_flight: client for client in self.clients}
        for table in self.tables:
            entries = list(islice(table.entries(), most))
            most -= len(entries)
            for low, high, delivery in runs_of_entries(entries):
                yield low, high, delivery, clients.get(table)
            if not most:
                return

    # ---- messages from the topic

    def release(self, low: int, high: int, deferred: Sequence[tuple[int, int, int]]) -> None:
        """Add messages low..high (high excluded); the ranges `deferred`, as (low, high, due_ns), are not due yet."""
        self.message_count += high - low
        if self._keeps_batches and self._holds_too_much():
            self.dropped_count += high - low
            self.miss(low, high)
            return
        for deferred_low, deferred_high, due_ns in deferred:
            self._arrive(low, deferred_low)
            self._arrive_deferred(deferred_low, deferred_high, due_ns)
            low = deferred_high
        self._arrive(low, high)
        if self._waiting:
            self.distributor.wake()

    def _holds_too_much(self) -> bool:
        """True if messages are in memory only, and this channel has used its quota: new messages are then dropped."""
        most = self._most_unfinished()
        return most is not None and self.depth + self.deferred_count + self.in_flight_count > most

    def _arrive(self, low: int, high: int) -> None:
        position = self.position
        position.released = high
        if self.is_ephemeral:
            # It holds at most --mem-queue-size messages and drops later ones, as Go's nsqd does. Messages that ready
            # clients can take now do not count.
            room = self._limits.mem_queue_size
            if not self.is_paused:
                room += sum(max(0, client.capacity()) for client in self._waiting)
            excess = min(position.new_count - room, high - low)
            if excess > 0:
                self.dropped_count += excess
                self._never_deliver(high - excess, high)

    def _arrive_deferred(self, low: int, high: int, due_ns: int) -> None:
        position = self.position
        position.released = high
        position.skip(low, high)
        batch = self._source.batch_at(low) if self._keeps_batches else None
        self.defer(due_ns, (low, high, 0, batch))

    def defer(self, due_ns: int, run: Run) -> None:
        """Requeue these messages at that time."""
        self.position.defer(due_ns, run)
        self._deferred_alarm.set_no_later(due_ns)

    def miss(self, low: int, high: int) -> None:
        """Skip messages low..high (high excluded), which the topic dropped before it released them."""
        self.position.released = high
        self._never_deliver(low, high)

    def expire_before(self, seq: int, requeued: Container[int]) -> None:
        """Drop expired messages: those below `seq`, and the requeued runs that begin with one of these numbers.

        Lost ones below `seq` are finished: they would have expired too.
        """
        position = self.position
        self.accept_lost([(0, seq)])
        for low, high in position.take_new_below(seq):
            self.distributor.expire(low, high)
        if requeued:
            for low, high, _, _ in position.take_requeued_where(
                lambda run: run[0] in requeued, _MOST_EXPIRED_AT_ONCE
            ):
                self.distributor.expire(low, high)

    def _never_deliver(self, low: int, high: int) -> None:
        self.position.skip(low, high)
        for gap_low, gap_high in list(self.position.finished.gaps(low, high)):
            self.mark_finished(gap_low, gap_high)

    # ---- answers of consumers

    def finish(self, client: SubscribedClient, ids: list[bytes]) -> list[bytes]:
        """Finish these messages. Return the ids that the client does not have in flight."""
        if self.latency is not None:
            self.latency.finished(client.in_flight.deliveries(ids))
        finished, missing = client.in_flight.finish(ids)
        if finished:
            self.finish_count += len(finished)
            self._moved_ns = self._clock()  # 0.2 us for all messages that one read has finished
            add = self.position.finished.add
            note = self._new_finished.append
            for run in runs_of(finished):
                add(*run)
                note(run)
            self.save_soon()
        return missing

    def mark_finished(self, low: int, high: int) -> None:
        """Finish messages low..high (high excluded), none of which is finished yet."""
        self.position.finished.add(low, high)
        self._new_finished.append((low, high))
        self.save_soon()

    def mark_lost(self, low: int, high: int, attempts: int) -> None:
        """Count messages low..high (high excluded) as lost: they were taken for delivery, and are not in the log."""
        self.position.lose(low, high, attempts)
        self.save_soon()  # nothing new is written of them, but files may not be needed any more

    def find_lost(self, ranges: Iterable[Range]) -> int:
        """Queue those of these messages again that were lost; the log has them again. Return their number."""
        self._begin_to_flow_if_idle()
        waits = self.position.lost_waits[:]
        found = self.position.forget_lost(ranges)
        found_again = SeqRanges(0, found)
        tried: list[Range] = []
        for low, high, _, attempts in waits:
            for run_low, run_high in found_again.parts(low, high):
                self.position.requeue((run_low, run_high, attempts, None))
                tried.append((run_low, run_high))
        for low, high in minus(found, tried):
            self.position.requeue((low, high, 0, None))
        count = count_of(found)
        self.distributor.lost_count = max(0, self.distributor.lost_count - count)
        if count:
            self.distributor.wake()
            self.save_soon()
        return count

    def accept_lost(self, ranges: Iterable[Range]) -> int:
        """Finish those of these messages that are lost; return their number."""
        found = self.position.forget_lost(ranges)
        for low, high in found:
            self.mark_finished(low, high)
        return count_of(found)

    def requeue(self, client: SubscribedClient, message_id: bytes, delay_ns: int) -> bool:
        """Requeue a message after a delay. Return False if it is not in flight to this client."""
        entry = client.in_flight.pop(message_id)
        if entry is None:
            return False
        self.requeue_count += 1
        due_ns = self._clock() + delay_ns if delay_ns else 0
        self._wait([entry], due_ns)
        return True

    def touch(self, client: SubscribedClient, message_id: bytes) -> bool:
        """Restart a message's timeout. Return False if it is not in flight to this client."""
        touched = client.in_flight.touch(
            message_id, self._clock(), client.msg_timeout_ns, self._limits.max_msg_timeout_ns
        )
        if touched:
            deadline_ns = client.in_flight.next_deadline_ns
            assert deadline_ns is not None
            client.watch_deadline(deadline_ns)
        return touched

    def expire(self, table: InFlightTable, now_ns: int) -> int:
        """Requeue the messages of a client that have timed out, and return their number."""
        expired = table.expire(now_ns)
        if expired:
            self.timeout_count += len(expired)
            self._wait(expired, 0)
        return len(expired)

    def begin_to_flow(self) -> None:
        """Count the time in which nothing is finished from now on: messages could not flow before."""
        self._moved_ns = self._clock()

    def _begin_to_flow_if_idle(self) -> None:
        """Call `begin_to_flow` unless messages wait: those that are queued next are old, and did not wait until now."""
        if self.position.depth <= 0:
            self.begin_to_flow()

    def _wait(self, entries: list[Entry], due_ns: int) -> None:
        """Requeue messages that were in flight, or defer them until `due_ns`, or move them as dead letters."""
        if self.dead_letters is not None:
            entries = self.dead_letters.take(entries, due_ns)
        if entries:
            self.wait(entries, due_ns)

    def wait(self, entries: list[Entry], due_ns: int) -> None:
        """Requeue messages that were in flight, or defer them until `due_ns` if it is not 0."""
        if not due_ns:
            self._begin_to_flow_if_idle()
        for low, high, delivery in runs_of_entries(entries):
            run: Run = (low, high, delivery.attempts, delivery.batch)
            if delivery.attempts >= self._most_tried[0]:
                self._most_tried = delivery.attempts, low, high
            if due_ns:
                self.defer(due_ns, run)
                self._new_waiting.append((low, high, due_ns, delivery.attempts))
            else:
                after = self.position.end_of_queue
                self.position.requeue(run, after)
                self._new_waiting.append((low, high, queued_after(after), delivery.attempts))
        if not due_ns:
            self.distributor.wake()
        self.save_soon()

    def _on_deferred_due(self, now_ns: int) -> None:
        self._begin_to_flow_if_idle()
        if self.position.queue_due(now_ns, _MOST_DUE_AT_ONCE):
            self.distributor.wake()
        next_ns = self.position.deferred.next_due_ns
        # The other due runs follow in the next event-loop iteration: no alarm rings twice at one time.
        if next_ns is not None:
            next_ns = max(next_ns, now_ns + 1)
        self._deferred_alarm.set(next_ns)

    def _on_orphans_due(self, now_ns: int) -> None:
        """Requeue messages of disconnected clients that have timed out."""
        next_ns = None
        for table in list(self._orphans):
            self.expire(table, now_ns)
            deadline_ns = table.next_deadline_ns
            if deadline_ns is None:
                del self._orphans[table]
                self.tables.pop(table, None)
            elif next_ns is None or deadline_ns < next_ns:
                next_ns = deadline_ns
        self._orphan_alarm.set(next_ns)

    # ---- administration

    def pause(self) -> None:
        self.distributor.is_paused = True

    def unpause(self) -> None:
        self.distributor.is_paused = False
        self.begin_to_flow()
        if self.position.depth > 0:
            self.distributor.wake()

    def empty(self) -> None:
        """Drop all queued, in-flight and deferred messages. Raises OSError if the journal cannot be written."""
        self.position.empty()
        self._move(0)

    def discard(self, seq: int) -> bool:
        """Finish one queued message without delivering it. Return False if it is not queued.

        A requeued message is found only among the first 1000 requeued runs.
        """
        if not self.position.take_queued(seq, _MOST_SEARCHED):
            return False
        self.distributor.forget_read()
        self.mark_finished(seq, seq + 1)
        return True

    def seek(
        self, seq: int, not_due: Iterable[tuple[int, int, int]], holes: Sequence[Range], skip_below: int
    ) -> int:
        """Move to `seq`, and return the number of skipped messages, as `Position.seek` does.

        In-flight messages from `seq` on are queued. Raises OSError if the journal cannot be written.
        """
        in_flight: list[Run] = []
        for table in self.tables:
            behind = [entry for entry in table.entries() if entry[0] >= seq]
            for low, high, delivery in runs_of_entries(behind):
                in_flight.append((low, high, delivery.attempts, delivery.batch))
        skipped = self.position.seek(seq, not_due, holes, skip_below, in_flight)
        self._move(seq)
        return skipped

    def _move(self, seq: int) -> None:
        """Forget what is in flight from `seq` on, after a change of the position, and save it."""
        self.begin_to_flow()
        for table in self.tables:
            table.forget_from(seq)
        self.distributor.forget_read()
        self._deferred_alarm.set(self.position.deferred.next_due_ns)
        self._on_orphans_due(self._clock())
        for client in self.clients:
            if client.capacity() > 0:
                self.client_ready(client)
        self.distributor.wake()  # else a client that waits with RDY 0 would not be served when it raises its RDY
        try:
            self.save_snapshot()
        except OSError:
            self.save_soon()  # before a file is removed that only the journal needs
            raise

    def end_delivery(self) -> None:
        """Deliver nothing more, since nsqd stops. What consumers answer still counts."""
        self.distributor.has_ended = True

    def close(self) -> None:
        """Disconnect all consumers and cancel the alarms."""
        self.distributor.is_closed = True
        self.end_delivery()
        self._deferred_alarm.close()
        self._orphan_alarm.close()
        for client in list(self.clients):
            client.close("the channel is closing")
        self.distributor.close()

    def free(self) -> None:
        """Drop the references to the closed channel, after it was deleted. Dead letters still move."""
        self.dead_letters = None

    def restore(self) -> None:
        """Set the alarm for the deferred messages of a position that was read from disk."""
        self._deferred_alarm.set(self.position.deferred.next_due_ns)

    # ---- the journal

    def on_first_change(self) -> None:
        self._on_change(self)

    def save_final(self) -> None:
        if self.dead_letters is not None:
            self.dead_letters.settle()
        super().save_final()
