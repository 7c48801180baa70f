"""A topic: where publishes become batches in a log, and are released to channels.

Publishes of one turn of the event loop gather here and become one batch: one id range, one record, one write.
Only when that is done are they released to the channels and answered.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable
from typing import Protocol

from nsqd_py.batch import SIZE_BYTES, Batch, uniform_stride
from nsqd_py.channel import Channel
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.guid import IDS_PER_TICK, GuidFactory
from nsqd_py.logs import Log
from nsqd_py.protocol.names import is_ephemeral
from nsqd_py.topic_rules import TopicPolicy
from nsqd_py.turn import Turn

_SEAL_ABOVE = 1024 * 1024  # bytes at which gathered publishes become a record of their own
_MOST_BATCHES_IN_MEMORY = 50_000
_TRIM_EVERY = 64
_SLACK_FROM = 1024


class Publisher(Protocol):
    """Who published: told when it came to nothing. Success needs no word, the answer is under way."""

    def publish_failed(self, ticket: int, error: OSError) -> None: ...

    def hold(self) -> None: ...

    def release(self) -> None: ...


class Syncer(Protocol):
    """Brings a topic's log to the disk."""

    every: int

    def written(self, topic: Topic, publishers: list[tuple[Publisher, int]]) -> None:
        """Something is there to be synced: the first since the last sync, or `every` messages by now."""


class Topic:
    """A topic and its channels.

    next_seq  the number of the next message
    released  the number after the last message that the channels have
    unsynced  messages that no sync has covered
    policy    what the settings say of this topic
    """

    def __init__(
        self,
        name: str,
        log: TopicLog | None,
        guids: GuidFactory,
        mem_queue_size: int,
        turn: Turn,
        wall_clock: Callable[[], int],
        syncer: Syncer | None,
        report: Log,
    ) -> None:
        self.name = name
        self.is_ephemeral = is_ephemeral(name)
        self.log = log
        self.channels: dict[str, Channel] = {}
        self.is_paused = False
        self.is_started = True
        self.is_closed = False
        self.next_seq = log.next_seq if log is not None else 0
        self.released = self.next_seq
        self.message_count = 0
        self.message_bytes = 0
        self.unreleased_deferred: list[tuple[int, int, int]] = []
        self.policy = TopicPolicy()
        self.on_write: Callable[[OSError | None], None] = _ignore
        self._guids = guids
        self._mem_queue_size = mem_queue_size
        self._turn = turn
        self._wall_clock = wall_clock
        self._syncer = syncer
        self._report = report
        self._memory: list[Batch] = []
        self._memory_first_seqs: list[int] = []
        self._memory_count = 0
        slack = mem_queue_size // 8 if mem_queue_size >= _SLACK_FROM else 0
        self._memory_most = mem_queue_size + slack if log is not None else sys.maxsize
        self._commits = 0
        self._write_failed = False
        self.unsynced = 0
        self._in_turn = False
        self._gathered: list[bytes] = []
        self._gathered_count = 0
        self._gathered_bytes = 0
        self._gathered_stride = 0
        self._sealed: list[Batch] = []
        self._sealed_end = self.next_seq
        self._publishers: list[tuple[Publisher, int]] = []

    # ---- figures

    @property
    def depth(self) -> int:
        """Messages that no channel has yet."""
        return self.next_seq - self.released

    @property
    def first_in_memory(self) -> int:
        return self._memory_first_seqs[0] if self._memory_first_seqs else self.next_seq

    @property
    def backend_depth(self) -> int:
        return max(0, self.first_in_memory - self.released)

    @property
    def is_held(self) -> bool:
        """True while messages are kept from the channels: paused, none there, or not started yet."""
        return self.is_paused or not self.channels or not self.is_started

    # ---- publishing

    def publish(
        self, body: bytes, count: int, stride: int, publisher: Publisher | None, ticket: int, due_ns: int = 0
    ) -> None:
        """Take `count` messages, in the form of a batch's body. They are in the log when this turn ends.

        `publisher.publish_failed(ticket, error)` is called when they could not be written.
        """
        if self._gathered and (due_ns or self._gathered_bytes + len(body) > _SEAL_ABOVE):
            self._seal()
        if not self._gathered:
            self._gathered_stride = stride
        elif stride != self._gathered_stride:
            self._gathered_stride = 0
        self._gathered.append(body)
        self._gathered_count += count
        self._gathered_bytes += len(body)
        if due_ns:
            self._seal(due_ns)
        if publisher is not None:
            self._publishers.append((publisher, ticket))
        if not self._in_turn:
            self._in_turn = True
            self._turn.add_committer(self)

    def _seal(self, due_ns: int = 0) -> None:
        """What gathered becomes a batch, or several where one range of ids would not do."""
        bodies, count, stride = self._gathered, self._gathered_count, self._gathered_stride
        self._gathered = []
        self._gathered_count = self._gathered_bytes = 0
        body = bodies[0] if len(bodies) == 1 else b"".join(bodies)
        now_ns = self._wall_clock()
        if count <= IDS_PER_TICK:
            self._sealed.append(
                Batch(self._sealed_end, self._guids.reserve(count, now_ns), now_ns, due_ns, count, stride, body)
            )
            self._sealed_end += count
            return
        starts = Batch(0, 0, 0, 0, count, stride, body).starts
        for low in range(0, count, IDS_PER_TICK):
            part_count = min(IDS_PER_TICK, count - low)
            part = body[starts[low] - SIZE_BYTES : starts[low + part_count] - SIZE_BYTES]
            base_id = self._guids.reserve(part_count, now_ns)
            part_stride = stride or uniform_stride(part, part_count)
            self._sealed.append(Batch(self._sealed_end, base_id, now_ns, due_ns, part_count, part_stride, part))
            self._sealed_end += part_count

    def commit(self) -> None:
        """Write what was published to the log, release it, and tell those whose publish failed."""
        self._in_turn = False
        if self._gathered:
            self._seal()
        batches = self._sealed
        if not batches:
            return
        self._sealed = []
        publishers = self._publishers
        self._publishers = []
        if self.log is not None:
            try:
                self.log.append(batches)
            except OSError as error:
                self._fail(publishers, error)
                return
            except BaseException as error:  # a bug must not leave them answered with OK
                self._fail(publishers, OSError(f"internal error: {error!r}"))
                raise
        self._accept(batches)
        self._note_written(self.next_seq - batches[0].first_seq, publishers)

    def publish_now(self, body: bytes) -> bool:
        """Take one message and write it at once: what `publish` and `commit` do for a lone PUB, in half the time.

        False, with nothing done, where it has to go the long way: with others of this turn, to a topic in memory,
        or before a sync. Raises OSError, then it is as if it had never come.
        """
        log = self.log
        syncer = self._syncer
        if self._in_turn or log is None or self.is_closed or syncer is None or syncer.every == 1:
            return False
        first_seq = self.next_seq
        now_ns = self._wall_clock()
        batch = Batch(first_seq, self._guids.reserve(1, now_ns), now_ns, 0, 1, len(body), body)
        try:
            log.append_small(batch)
        except OSError as error:
            self._fail([], error)
            raise
        self._memory.append(batch)
        self._memory_first_seqs.append(first_seq)
        self._memory_count += 1
        self.message_count += 1
        self.message_bytes += len(body) - SIZE_BYTES
        self.next_seq = self._sealed_end = first_seq + 1
        if self.channels:
            self.release()
        self._commits += 1
        if self._memory_count > self._memory_most or not self._commits % _TRIM_EVERY:
            self.trim_memory()
        self._note_written(1, [])
        return True

    def _note_written(self, count: int, publishers: list[tuple[Publisher, int]]) -> None:
        """`count` messages more are in the log: the disk works, and they want a sync."""
        if self._write_failed:
            self._write_failed = False
            self.on_write(None)
        syncer = self._syncer
        if syncer is not None:
            before = self.unsynced
            self.unsynced = before + count
            if not before or self.unsynced >= syncer.every:
                syncer.written(self, publishers)

    def _fail(self, publishers: list[tuple[Publisher, int]], error: OSError) -> None:
        """The log could not take what was published: as if it had never come."""
        self._sealed_end = self.next_seq
        self._write_failed = True
        self._report.error("TOPIC(%s): failed to write message to disk - %s", self.name, error)
        self.on_write(error)
        for publisher, ticket in publishers:
            publisher.publish_failed(ticket, error)

    def _accept(self, batches: list[Batch]) -> None:
        """The batches are in the log: count them, keep the newest in memory, release them."""
        if self.is_ephemeral and self.is_held:
            batches = self._cut_overflow(batches)
        memory = self._memory
        for batch in batches:
            count = batch.count
            self.message_count += count
            self.message_bytes += len(batch.body) - SIZE_BYTES * count
            if batch.due_ns:
                self.unreleased_deferred.append((batch.first_seq, batch.first_seq + count, batch.due_ns))
            memory.append(batch)
            self._memory_first_seqs.append(batch.first_seq)
            self._memory_count += count
            self.next_seq = batch.first_seq + count
        self._sealed_end = self.next_seq
        if self.channels:
            self.release()
        self._commits += 1
        # Not each time: taking from the front of a list moves the rest, and looking alone is 5 % of a lone PUB.
        if self._memory_count > self._memory_most or self._commits % _TRIM_EVERY == 0:
            self.trim_memory()

    def _cut_overflow(self, batches: list[Batch]) -> list[Batch]:
        """An ephemeral topic without channels holds no more than fits in memory; what comes then is lost."""
        room = self._mem_queue_size - self.depth
        if not self.is_started and room < sum(batch.count for batch in batches):
            self.start()  # rather without a channel that is not known yet than without the messages
            if not self.is_held:
                return batches
        kept = []
        for batch in batches:
            fitting = max(0, min(room, batch.count))
            room -= fitting
            if fitting == batch.count:
                kept.append(batch)
                continue
            self.message_count += batch.count - fitting
            self.message_bytes += len(batch.body) - SIZE_BYTES * batch.count
            if fitting:
                body = batch.body[: batch.starts[fitting] - SIZE_BYTES]
                self.message_bytes -= len(body) - SIZE_BYTES * fitting
                kept.append(
                    Batch(batch.first_seq, batch.base_id, batch.timestamp_ns, batch.due_ns, fitting, batch.stride, body)
                )
        return kept

    # ---- releasing

    def release(self) -> None:
        """Let the channels have everything, unless the topic is held."""
        low, high = self.released, self.next_seq
        if low == high or self.is_held:
            return
        self.released = high
        deferred = self.unreleased_deferred
        if deferred:
            self.unreleased_deferred = []
        for channel in self.channels.values():
            channel.release(low, high, deferred)

    def batch_at(self, seq: int) -> Batch | None:
        """The batch that holds `seq`, or the first behind it; None when there is neither."""
        firsts = self._memory_first_seqs
        if firsts and seq >= firsts[0]:
            return self._memory[bisect_right(firsts, seq) - 1]
        if self.log is not None:
            chunk = self._read(seq)
            for batch in chunk[_place(chunk, seq) :]:
                if batch.end_seq > seq:
                    return batch
        return self._memory[0] if firsts else None

    def _read(self, seq: int) -> list[Batch]:
        assert self.log is not None
        try:
            return self.log.read(seq)
        except OSError as error:
            self._report.error("TOPIC(%s): failed to read message %d from disk - %s", self.name, seq, error)
            raise

    def trim_memory(self) -> None:
        """Forget what all channels have passed, and what is more than memory may hold."""
        memory = self._memory
        passed = min((c.position.next_fresh for c in self.channels.values()), default=self.released)
        passed = min(passed, self.released)
        if self.log is not None:
            most, most_batches = self._mem_queue_size, _MOST_BATCHES_IN_MEMORY
        else:  # there is nowhere else to read from
            most = most_batches = sys.maxsize
        drop = 0
        left = self._memory_count
        for batch in memory:
            if batch.end_seq > passed and left <= most and len(memory) - drop <= most_batches:
                break
            left -= batch.count
            drop += 1
        if drop:
            del memory[:drop]
            del self._memory_first_seqs[:drop]
            self._memory_count = left

    # ---- administration

    def pause(self) -> None:
        self.commit()
        self.is_paused = True

    def unpause(self) -> None:
        self.is_paused = False
        self.release()

    def hold(self) -> None:
        """Keep what is published from the channels until `start`: not all of them are there yet."""
        self.is_started = False

    def start(self) -> None:
        """Begin to release, or go on."""
        self.is_started = True
        self.release()

    def empty(self) -> None:
        """Drop what no channel has yet, as Go's nsqd does; the channels keep theirs."""
        self.commit()
        self.unreleased_deferred.clear()
        low, self.released = self.released, self.next_seq
        for channel in self.channels.values():
            channel.miss(low, self.released)
        self.trim_memory()

    def is_needed(self, low: int, high: int) -> bool:
        """True while some channel, or the topic itself, has unfinished messages in this range."""
        if high > self.released:
            return True
        return any(not channel.position.finished.covers(low, high) for channel in self.channels.values())

    def close(self) -> None:
        """Take no more."""
        self.commit()
        self.is_closed = True
        for channel in list(self.channels.values()):
            channel.close()


def _place(chunk: list[Batch], seq: int) -> int:
    """The index of the batch with the highest first number that is not above `seq`."""
    low, high = 0, len(chunk)
    while low < high:
        middle = (low + high) // 2
        if chunk[middle].first_seq <= seq:
            low = middle + 1
        else:
            high = middle
    return max(0, low - 1)


def _ignore(error: OSError | None) -> None:
    pass
