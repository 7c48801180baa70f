"""A topic: it writes publishes to its log as batches, and releases them to its channels.

Publishes of one event-loop iteration are collected in the topic's publish buffer and become one batch: one range of
ids, one record, one write. After the write they are released to the channels and answered.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from nsqd_py.diskqueue.memory_budget import CountedBatch, MemoryAccount, MemoryBudget
from nsqd_py.diskqueue.records import RECORD_HEADER_BYTES
from nsqd_py.errors import InternalError
from nsqd_py.pqueues.alarms import Clock
from nsqd_py.protocol.batch import SIZE_BYTES, Batch
from nsqd_py.protocol.message_ids import GuidFactory
from nsqd_py.protocol.names import is_ephemeral
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.dead_letters import MOST_REMEMBERED, TopicPolicy
from nsqd_py.queue.publish_buffer import NOTHING, PublishBuffer, Publisher, Tickets
from nsqd_py.queue.reading.batch_cache import BatchCache
from nsqd_py.queue.reading.message_reader import MessageReader, publish_time_ns
from nsqd_py.queue.storage import MessageLog, WriteRefused
from nsqd_py.runtime.disk_speed import SLOW_NS, UNMEASURED, DiskSpeed
from nsqd_py.runtime.iteration_end import IterationEnd
from nsqd_py.runtime.logs.lines import DaemonLog

_TRIM_EVERY = 64

# The disk refuses writes to the file, or another program has removed or replaced it.
_LEAVES_FILE = (errno.EIO, errno.ENOENT, errno.ESTALE)

_NO_POLICY = TopicPolicy()

# A larger publish is written in a thread, also while the disk is quick. A publish of 5 MB blocked the loop for 7 to 15
# ms, for its checksum and the copy to the page cache; now for 1.5 ms, or 5 ms if it has a million messages.
_AT_ONCE_BYTES = 2 * 1024 * 1024


# The log of a topic, which the owner of the topic knows better.
L = TypeVar("L", bound=MessageLog)


class BatchWriter(Protocol):
    """Writes batches to a log in a thread."""

    is_idle: bool

    def add(self, batches: list[Batch], publishers: Tickets) -> None:
        """Write these batches next; their numbers continue from those added before."""

    def go_on(self, appending: Any, publishers: Tickets) -> None:
        """Finish a write that the event loop began. Call it only when this writer is idle."""

    def join(self) -> None:
        """Wait until all batches are written or refused. Blocks this greenlet."""


class Syncer(Protocol):
    """Syncs the logs of topics."""

    every: int

    def written(self, topic: AnyTopic, publishers: Tickets) -> None:
        """Called when the topic has its first unsynced message, or at least `every` unsynced messages."""


class SpaceGrants(Protocol):
    """Grants disk space to the logs of topics: `nsqd_py.queue.disk_limits.DiskSpace`."""

    def grant(self, topic: AnyTopic, size_bytes: int, /) -> int:
        """Return the bytes that the topic may write before it asks again, at least `size_bytes`. Raises WriteRefused."""


class WritePlace(Protocol):
    """Says whether the next start finds what is written now: `nsqd_py.broker.data_path.DataPath`.

    check_due_ns  when `check_again` must be called before a write, by `DiskSpeed.now_ns`
    """

    check_due_ns: int

    def check_again(self, now_ns: int) -> None:
        """Raise WriteRefused if the next start would not find what is written."""


class Anywhere:
    """The place of a log that is always found."""

    check_due_ns = sys.maxsize

    def check_again(self, now_ns: int) -> None:
        """Do nothing."""


class DiskUse(NamedTuple):
    """The way in which a topic writes to its log. By default, the event loop makes all writes, of any size.

    speed        says whether the disk is slow
    space        grants the bytes that the topic may write
    make_writer  returns the writer of the topic, which writes in a thread while the disk is slow
    on_write     called with the topic and the error of a write that failed, and with None after the next one that succeeds
    place        asked before writes of the event loop
    """

    speed: DiskSpeed = UNMEASURED
    space: SpaceGrants | None = None
    make_writer: Callable[[AnyTopic], BatchWriter] | None = None
    on_write: Callable[[AnyTopic, OSError | None], None] | None = None
    place: WritePlace = Anywhere()


class Topic(Generic[L]):
    """A topic and its channels.

    buffer    publishes that are not written yet
    messages  reads messages from memory or from the log
    next_seq  the number of the next message
    released  the number after the last message that was released to the channels
    unsynced  messages written since the last sync
    policy    the settings of this topic

    dead_letters   the last dead letters that were moved to this topic, see `nsqd_py.queue.dead_letters`
    dropped_count  messages that an ephemeral topic without channels had no memory for
    expired_count  messages that expired before they were released to channels
    quota_bytes    the bytes that it may write to its log before it asks `space` for more
    disk_speed     says whether the disk is slow; while the disk is slow, `slow_writer` writes in a thread
    """

    __slots__ = (
        "_account",
        "_commits",
        "_mem_queue_size",
        "_on_write",
        "_place",
        "_recent",
        "_report",
        "_syncer",
        "_write_failed",
        "_written",
        "buffer",
        "channels",
        "dead_letters",
        "dropped_count",
        "expired_count",
        "is_closed",
        "is_ephemeral",
        "is_paused",
        "is_started",
        "log",
        "message_bytes",
        "message_count",
        "messages",
        "name",
        "next_seq",
        "disk_speed",
        "policy",
        "released",
        "quota_bytes",
        "slow_writer",
        "space",
        "unreleased_deferred",
        "unsynced",
    )

    def __init__(
        self,
        name: str,
        log: L | None,
        guids: GuidFactory,
        mem_queue_size: int,
        iteration: IterationEnd,
        wall_clock: Clock,
        syncer: Syncer | None,
        report: DaemonLog,
        id_clock: Clock | None = None,
        policy: TopicPolicy = _NO_POLICY,
        budget: MemoryBudget | None = None,
        disk: DiskUse | None = None,
    ) -> None:
        """The messages in memory count in `budget`, which calls `shrink` when there are too many."""
        disk = disk or DiskUse()
        self.next_seq = log.next_seq if log is not None else 0
        self.buffer = PublishBuffer(
            self.next_seq, guids, wall_clock, id_clock or wall_clock, iteration.add_committer, self
        )
        self.name = name
        self.is_ephemeral = is_ephemeral(name)
        self.log = log
        self.channels: dict[str, Channel] = {}
        self.is_paused = False
        self.is_started = True
        self.is_closed = False
        self.released = self.next_seq
        self.message_count = 0
        self.message_bytes = 0
        self.expired_count = 0
        self.dropped_count = 0
        self.dead_letters: Sequence[dict[str, Any]] = ()
        self.unreleased_deferred: list[tuple[int, int, int]] = []
        self.policy = policy
        self.space = disk.space
        self.quota_bytes = sys.maxsize if disk.space is None else 0
        self.disk_speed = disk.speed
        self.slow_writer: BatchWriter | None = None
        self._on_write = disk.on_write
        self._place = disk.place
        self._mem_queue_size = mem_queue_size
        self._syncer = syncer
        self._report = report
        self._recent = BatchCache(mem_queue_size) if log is not None else BatchCache()
        self.messages = MessageReader(name, log, self._recent, wall_clock, report)
        self._account: MemoryAccount | None = None
        self._commits = 0
        self._written: list[Batch] = NOTHING
        self._write_failed = False
        self.unsynced = 0
        if budget is not None and log is None:
            self._account = budget.account()
        elif budget is not None and log is not None:
            self._recent.report_changes_to(lambda change_bytes: budget.note(self, change_bytes))
            log.use_budget(budget)
        if disk.make_writer is not None:
            self.slow_writer = disk.make_writer(self)

    def remember_dead_letter(self, summary: dict[str, Any]) -> None:
        """Add to `dead_letters`."""
        self.dead_letters = [*self.dead_letters, summary][-MOST_REMEMBERED:]

    # ---- statistics

    @property
    def depth(self) -> int:
        """Messages that are not released to channels yet."""
        return self.next_seq - self.released

    @property
    def oldest_ns(self) -> int:
        """The publish time of the oldest message that is not released, in ns since the epoch; 0 if it is unknown."""
        if self.depth:
            return publish_time_ns(self.messages, self.released)
        return 0

    @property
    def first_in_memory(self) -> int:
        """From this number on, all needed messages are in memory."""
        return min(self.messages.memory_from, self.next_seq)

    @property
    def backend_depth(self) -> int:
        return max(0, self.first_in_memory - self.released)

    @property
    def is_held(self) -> bool:
        """True while messages are not released: it is paused, has no channels, or has not started."""
        return self.is_paused or not self.channels or not self.is_started

    @property
    def has_journals(self) -> bool:
        """True if a channel keeps its position on disk: then that, not the position of the topic, shows what it has."""
        return any(channel.journal is not None for channel in self.channels.values())

    @property
    def retained_floor(self) -> int:
        """The number from which on a restart must find messages by the position of the topic.

        Without journals, messages that a channel has not finished come back to the topic, except lost ones.
        """
        if self.has_journals:
            return self.released
        return min(
            (channel.position.settled_floor for channel in self.channels.values()), default=self.released
        )

    # ---- memory

    @property
    def memory_bytes(self) -> int:
        """The memory of its cached messages; for an ephemeral topic, of all messages, also in flight or deferred."""
        if self._account is not None:
            return self._account.memory_bytes
        return self._recent.size_bytes

    def shrink(self, most_bytes: int) -> None:
        """Drop the oldest messages from memory until the rest takes at most `most_bytes`."""
        self.trim_memory()
        self._recent.keep_bytes(most_bytes)

    def most_unfinished(self) -> int | None:
        """Return the limit on unfinished messages of each channel of an ephemeral topic; None while memory is free."""
        most_bytes = self._account.most_bytes() if self._account is not None else None
        if most_bytes is None:
            return None
        mean_bytes = self._recent.size_bytes // max(1, self._recent.count) or 1
        return most_bytes // max(1, len(self.channels)) // mean_bytes

    # ---- publishing

    def publish_dead_letters(self, batch: Batch, died_ns: int, publisher: Publisher, ticket: int) -> None:
        """Publish messages of another topic with their ids and timestamps; their time to live restarts."""
        self.buffer.republish(batch, died_ns if self.policy.ttl_ns else 0, publisher, ticket)

    def commit(self) -> None:
        """Write the publish buffer to the log and release its messages, or report the failure to the publishers."""
        self.write()
        self.accept()

    def write(self) -> None:
        """Write the publish buffer to the log, or report the failure to the publishers. `accept` must follow."""
        batches, publishers = self.buffer.take()
        if not batches:
            return
        if self.log is not None:
            try:
                size_bytes = 0
                for batch in batches:
                    size_bytes += RECORD_HEADER_BYTES + len(batch.body)
                if size_bytes > self.quota_bytes:
                    assert self.space is not None
                    self.quota_bytes = self.space.grant(self, size_bytes)
                self.quota_bytes -= size_bytes
                if not self._append(self.log, batches, size_bytes, publishers):
                    return
            except OSError as error:
                self.refuse(batches, publishers, error)
                return
            except BaseException as error:  # a bug must not leave the publishers with an OK
                self.refuse(batches, publishers, InternalError(error))
                raise
        if self._syncer is not None and self._syncer.every == 1:  # the answers may have to wait for it
            self.accept_written(batches, publishers)
        else:
            self._written = [*self._written, *batches] if self._written else batches

    def accept(self) -> None:
        """Release the messages that `write` has written."""
        if self._written:
            written, self._written = self._written, NOTHING
            self.accept_written(written, [])

    def _append(self, log: MessageLog, batches: list[Batch], size_bytes: int, publishers: Tickets) -> bool:
        """Append batches to a log. Return False if a thread writes them, or the rest of them. Raises OSError."""
        disk_speed = self.disk_speed
        writer = self.slow_writer
        if writer is not None and (not writer.is_idle or disk_speed.is_slow or size_bytes > _AT_ONCE_BYTES):
            writer.add(batches, publishers)
            return False
        began_ns = disk_speed.now_ns()
        if began_ns >= self._place.check_due_ns:
            self._place.check_again(began_ns)
        try:
            if log.append_at_once(batches, size_bytes):  # one system call
                return True
        finally:
            took_ns = disk_speed.now_ns() - began_ns
            if took_ns >= SLOW_NS:
                disk_speed.note(took_ns)
        if writer is not None and log.waits_for_descriptor(size_bytes):
            writer.add(batches, publishers)
            return False
        appending = log.begin_append(batches)
        try:
            while not appending.is_written:
                if writer is not None and disk_speed.is_slow:  # after a slow call, a thread does the rest
                    writer.go_on(appending, publishers)
                    return False
                disk_speed.timed(appending.step)
        except BaseException:
            log.end_append(appending)
            raise
        log.end_append(appending)
        return True

    def accept_written(self, batches: list[Batch], publishers: Tickets) -> None:
        """Count written batches, cache them, release them, and notify the syncer."""
        if self.is_ephemeral and self.is_held:
            batches = self._cut_overflow(batches)
        before = self.next_seq
        recent = self._recent
        for batch in batches:
            count = batch.count
            first_seq = batch.first_seq
            self.message_count += count
            self.message_bytes += len(batch.body) - SIZE_BYTES * count
            if self._account is not None:
                batch = CountedBatch(batch, self._account)
            if batch.due_ns:
                self.unreleased_deferred.append((first_seq, first_seq + count, batch.due_ns))
                if self.log is not None:
                    self.log.latest_due_ns = max(self.log.latest_due_ns, batch.due_ns)
            recent.batches.append(batch)
            recent.first_seqs.append(first_seq)
            recent.count += count
            recent.size_bytes += batch.memory_bytes
            self.next_seq = first_seq + count
        if self.is_ephemeral:
            self.buffer.end_seq = self.next_seq
        if self.channels:
            self.release()
            if self.log is None:  # memory must not keep batches that all channels have finished
                recent.drop_unneeded(self.is_needed)
        self._commits += 1
        # Not each time: removing from the front of a list moves the rest, and the check alone is 5 % of a single PUB.
        if recent.count > recent.trim_above or self._commits % _TRIM_EVERY == 0:
            self.trim_memory()
        elif recent.size_bytes > recent.report_above:
            recent.report()
        if self._write_failed:
            self._write_failed = False
            self._report_write(None)
        syncer = self._syncer
        if syncer is not None:
            were_unsynced = self.unsynced
            self.unsynced = were_unsynced + self.next_seq - before
            if not were_unsynced or self.unsynced >= syncer.every:
                syncer.written(self, publishers)

    def refuse(self, batches: list[Batch], publishers: Tickets, error: OSError) -> None:
        """Drop batches that could not be written, and report the error to their publishers."""
        self.buffer.end_seq = batches[0].first_seq
        if not isinstance(error, WriteRefused):
            self._write_failed = True
            self._report.of_clients.error("TOPIC(%s): failed to write message to disk - %s", self.name, error)
            if self.log is not None and error.errno in _LEAVES_FILE:
                self.log.leave_last_file()
            self._report_write(error)
        for publisher, ticket in publishers:
            publisher.publish_failed(ticket, error)

    def _report_write(self, error: OSError | None) -> None:
        if self._on_write is not None:
            self._on_write(self, error)

    # ---- a slow disk

    @property
    def is_writing(self) -> bool:
        """True while a thread writes to the log."""
        return self.slow_writer is not None and not self.slow_writer.is_idle

    @property
    def is_slow(self) -> bool:
        """True while writes are done in a thread."""
        return self.is_writing or self.disk_speed.is_slow

    def settle(self) -> None:
        """Wait until all publishes are written or refused. May block this greenlet."""
        self.commit()
        while self.slow_writer is not None and self.is_writing:
            self.slow_writer.join()
            self.commit()

    def _cut_overflow(self, batches: list[Batch]) -> list[Batch]:
        """Return the batches without the messages that an ephemeral topic without channels has no memory for."""
        room = self._mem_queue_size - self.depth
        if self.depth and self._account is not None and self._account.most_bytes() is not None:
            room = 0
        if not self.is_started and room < sum(batch.count for batch in batches):
            self.start()  # losing messages is worse than missing a channel that is not known yet
            if not self.is_held:
                return batches
        fitted = []
        for batch in batches:
            fitting = max(0, min(room, batch.count))
            room -= fitting
            fits = batch.part(0, fitting)
            self.dropped_count += batch.count - fitting
            self.message_count += batch.count - fitting
            self.message_bytes += len(batch.body) - len(fits.body) - SIZE_BYTES * (batch.count - fitting)
            if fitting:
                fitted.append(fits)
        return fitted

    # ---- releasing

    def release(self) -> None:
        """Release all messages to the channels, unless the topic is held."""
        low = self.released
        high = self.next_seq
        if low == high or self.is_held:
            return
        self.released = high
        deferred = self.unreleased_deferred
        if deferred:
            self.unreleased_deferred = []
        for channel in self.channels.values():
            channel.release(low, high, deferred)

    def wake_channels(self) -> None:
        """Resume delivery after a thread has read messages."""
        for channel in self.channels.values():
            channel.distributor.wake()

    def trim_memory(self) -> None:
        """Drop from memory the messages that all channels have passed, and the oldest above the limit."""
        passed = min((channel.position.cursor for channel in self.channels.values()), default=self.released)
        self._recent.trim(min(passed, self.released))

    # ---- administration

    def pause(self) -> None:
        self.commit()
        self.is_paused = True

    def unpause(self) -> None:
        self.is_paused = False
        for channel in self.channels.values():
            channel.begin_to_flow()
        self.release()

    def wait_for_channels(self) -> None:
        """Release nothing until `start`, because some channels are not created yet."""
        self.is_started = False

    def start(self) -> None:
        """Begin or resume releasing."""
        self.is_started = True
        self.release()

    def empty(self) -> None:
        """Drop the messages that are not released yet, as Go's nsqd does; channels keep theirs."""
        self.commit()
        self.unreleased_deferred.clear()
        low, self.released = self.released, self.next_seq
        for channel in self.channels.values():
            channel.miss(low, self.released)
        self.trim_memory()

    def is_needed(self, low: int, high: int) -> bool:
        """True if this range has messages that are unreleased, or neither finished nor lost in a channel."""
        if high > self.released:
            return True
        return any(not channel.position.is_settled(low, high) for channel in self.channels.values())

    def close(self) -> None:
        """Write the buffer, and close the channels."""
        self.commit()
        self.is_closed = True
        for channel in list(self.channels.values()):
            channel.close()

    def free(self) -> None:
        """Drop all references to the closed topic and its channels, after it was deleted.

        Otherwise each deleted topic would be a reference cycle, which takes memory until the collector runs.
        """
        for channel in self.channels.values():
            channel.free()
        self.channels.clear()
        self.buffer.close()
        self._on_write = None
        self.slow_writer = None
        self._recent.report_changes_to(_ignore)


def _ignore(_: object) -> None:
    pass


# A topic, whatever its log is.
AnyTopic = Topic[Any]
