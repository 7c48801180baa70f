"""The broker: which topics and channels exist, and what of them is on disk.

It makes and deletes them, keeps `nsqd.dat` (in the JSON of Go's nsqd) up to date, writes down what channels
finished, and at the start puts everything back to where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent
import gevent.lock
import gevent.pool

from nsqd_py.channel import Channel
from nsqd_py.clock import SteadyClock, wall_ns
from nsqd_py.delivery import Position
from nsqd_py.diskqueue.journal import Journal
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.drain import Drain
from nsqd_py.errors import Draining
from nsqd_py.guid import GuidFactory
from nsqd_py.logs import Log
from nsqd_py.lookup.watcher import Lookups, NoLookups
from nsqd_py.loop_lag import LoopLag
from nsqd_py.metadata import METADATA_FILE, encode_metadata, replace_file
from nsqd_py.pqueues import Alarms
from nsqd_py.protocol.names import is_ephemeral
from nsqd_py.sync import GroupSync
from nsqd_py.threads import in_thread
from nsqd_py.topic import Topic
from nsqd_py.topic_rules import policy_of
from nsqd_py.turn import Turn

if TYPE_CHECKING:
    from nsqd_py.certificates import CertificateKeeper
    from nsqd_py.http.guard import Guard
    from nsqd_py.latency import LatencyMeter
    from nsqd_py.limits import Connections

JOURNAL_DELAY_NS = 100_000_000
_RETRY_METADATA_NS = 5_000_000_000


class Broker:
    """All topics of one nsqd. `options` are those of `nsqd_py.options`."""

    def __init__(self, options: Any, log: Log, turn: Turn, alarms: Alarms, threadpool: Any) -> None:
        self.options = options
        self.log = log
        self.turn = turn
        self.alarms = alarms
        self.clock = SteadyClock()
        self.wall_clock: Callable[[], int] = wall_ns
        self.start_time = time.time()
        self.topics: dict[str, Topic] = {}
        self.open_topics = self.topics  # those that take messages: all, or none when it drains
        self.drain = Drain(self)
        self.connections: Connections | None = None
        self.clients: dict[Any, None] = {}
        self.http_clients: dict[Any, None] = {}
        self.tcp_port = -1
        self.http_port = -1
        self.lookups: Lookups = NoLookups()
        self.tls: CertificateKeeper | None = None
        self.admin_guard: Guard | None = None
        self.https_port = -1
        self.guids = GuidFactory(options.node_id)
        self.sync = GroupSync(
            options.sync_every, options.sync_timeout_ns, threadpool, alarms, self.clock, self._on_sync
        )
        self.loop_lag = LoopLag(alarms, self.clock)
        self.write_errors = 0
        self._directory = Path(options.data_path or ".")
        self._threadpool = threadpool
        self._disk_error: OSError | None = None
        self._journal_alarm = alarms.alarm(self._write_journals)
        self._dirty_channels: list[tuple[Topic, Channel]] = []
        self._background = gevent.pool.Group()
        self._deleted: list[tuple[Topic, Channel]] = []
        self._metadata_lock = gevent.lock.Semaphore()
        self._metadata_wanted = False
        self._metadata_greenlet: Any = None
        self._metadata_alarm = alarms.alarm(lambda _now_ns: self.want_metadata())
        self.is_closing = False

    # ---- health

    def health(self) -> str | None:
        """What is wrong with the disk, or that it takes no messages any more; None when all is well."""
        if self._disk_error is not None:
            return str(self._disk_error)
        return "draining" if self.drain.is_active else None

    def _on_write(self, error: OSError | None) -> None:
        self._disk_error = error
        if error is not None:
            self.write_errors += 1

    def _on_sync(self, topic: Topic, error: OSError | None) -> None:
        self._disk_error = error
        if error is not None:
            self.log.error("TOPIC(%s): failed to sync - %s", topic.name, error)

    def due_ns(self, delay_ns: int) -> int:
        """When a message is due that is published now and deferred by `delay_ns`; 0 when not deferred."""
        return self.clock() + delay_ns if delay_ns else 0

    # ---- topics

    def find_topic(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def get_topic(self, name: str) -> Topic:
        """The topic of this name to publish to, made now if there is none. Raises Draining."""
        topic = self.open_topics.get(name)
        if topic is None:
            if self.drain.is_active:
                raise Draining
            topic = self.add_topic(name, None if is_ephemeral(name) else self.make_log(name))
            self.log.info("TOPIC(%s): created", name)
            if not topic.is_ephemeral:
                self.want_metadata()
            self.lookups.topic_made(topic)
        return topic

    def wait_until_started(self, topic: Topic, timeout_s: float | None = None) -> bool:
        """Wait until the channels that a new topic has elsewhere are known; whether they are. Blocks this greenlet."""
        return topic.is_started or self.lookups.wait_until_started(topic, timeout_s)

    def wait_until_all_started(self, timeout_s: float) -> None:
        """Likewise for all topics of now. Blocks this greenlet."""
        self.lookups.wait_until_all_started(timeout_s)

    def make_log(self, topic_name: str) -> TopicLog:
        """A log with no files yet."""
        options = self.options
        return TopicLog(
            self._directory, topic_name, options.max_bytes_per_file, self._report_damage, self._run_in_background
        )

    def _run_in_background(self, work: Callable[[], None]) -> None:
        """In a thread, by way of a greenlet: the pool may make its caller wait, which the loop cannot."""
        self._background.spawn(self._try_in_thread, work)

    def _try_in_thread(self, work: Callable[[], None]) -> None:
        try:
            in_thread(self._threadpool, work)
        except OSError as error:  # a file that is not needed any more is left; the next start removes it
            self.log.error("failed to remove a file - %s", error)

    def _report_damage(self, text: str) -> None:
        self.log.error("DISKQUEUE: %s", text)

    def add_topic(self, name: str, log: TopicLog | None) -> Topic:
        """A topic on this log; nothing is written yet."""
        syncer = self.sync if log is not None else None
        topic = Topic(
            name, log, self.guids, self.options.mem_queue_size, self.turn, self.wall_clock, syncer, self.log
        )
        topic.policy = policy_of(self.options, name)
        topic.on_write = self._on_write
        self.topics[name] = topic
        return topic

    def delete_topic(self, name: str) -> None:
        """Delete a topic, its channels and everything in it. Raises KeyError, and OSError from the disk."""
        topic = self.topics.pop(name)
        self.log.info("TOPIC(%s): deleting", name)
        topic.close()
        self.sync.forget(topic)
        for channel in topic.channels.values():
            self.lookups.notify(name, channel.name, was_deleted=True)
            if channel.journal is not None:
                channel.journal.remove()
        self.lookups.notify(name, "", was_deleted=True)
        topic.channels.clear()
        if topic.log is not None:
            topic.log.remove()
            self.topic_journal(name).remove()
            self.want_metadata()

    def empty_topic(self, topic: Topic) -> None:
        """Drop what no channel has yet. Raises OSError."""
        topic.empty()
        self.save_held(topic)
        for channel in topic.channels.values():
            channel.save()
        self._tidy(topic)

    # ---- channels

    def get_channel(self, topic: Topic, name: str) -> Channel:
        """The channel of this name, made now if there is none: it begins with what is not released yet.

        Raises OSError when its journal cannot be written.
        """
        channel = topic.channels.get(name)
        if channel is None:
            topic.commit()
            channel = self.add_channel(topic, name, Position(topic.released, topic.released))
            try:
                channel.save()
            except OSError:
                del topic.channels[name]
                raise
            self.log.info("TOPIC(%s): new channel(%s)", topic.name, name)
            self.lookups.notify(topic.name, name, was_deleted=False)
            if not channel.is_ephemeral and not topic.is_ephemeral:
                self.want_metadata()
            topic.release()
        return channel

    def add_channel(self, topic: Topic, name: str, position: Position) -> Channel:
        """A channel at this position; nothing is written yet."""
        keeps_journal = topic.log is not None and not is_ephemeral(name)
        channel = Channel(
            name,
            position,
            topic,
            self.options,
            self.turn,
            self.alarms,
            self.clock,
            self.channel_journal(topic.name, name) if keeps_journal else None,
            lambda channel: self._channel_changed(topic, channel),
            keeps_batches=topic.log is None,
        )
        if self.options.e2e_processing_latency_percentile:
            channel.latency = self._latency_meter()
        topic.channels[name] = channel
        return channel

    def _latency_meter(self) -> LatencyMeter:
        from nsqd_py.latency import LatencyMeter  # only where it is asked for

        options = self.options
        return LatencyMeter(
            options.e2e_processing_latency_percentile,
            options.e2e_processing_latency_window_time_ns,
            self.clock,
            self.wall_clock,
        )

    def channel_journal(self, topic_name: str, channel_name: str) -> Journal:
        return Journal(self._directory / f"{topic_name}:{channel_name}.cursor")

    def delete_channel(self, topic: Topic, name: str) -> None:
        """Delete a channel and what it did not deliver. Raises KeyError, and OSError from the disk."""
        topic.commit()
        channel = topic.channels.pop(name)
        self.log.info("TOPIC(%s): deleting channel %s", topic.name, name)
        self.lookups.notify(topic.name, name, was_deleted=True)
        channel.close()
        if channel.journal is not None:
            channel.journal.mark_deleted()
            self._deleted.append((topic, channel))
        if not topic.channels:
            if topic.is_ephemeral:
                if self.topics.get(topic.name) is topic:
                    self.delete_topic(topic.name)
                return
            self.save_held(topic)
        if not channel.is_ephemeral:
            self.want_metadata()
        self._tidy(topic)

    def client_left(self, topic: Topic, channel: Channel, client: Any) -> None:
        """A consumer is gone; an ephemeral channel goes with its last one."""
        channel.remove_client(client)
        if channel.is_ephemeral and not channel.clients and topic.channels.get(channel.name) is channel:
            self.delete_channel(topic, channel.name)

    def empty_channel(self, topic: Topic, channel: Channel) -> None:
        """Drop what the channel has, also in flight and deferred. Raises OSError."""
        topic.commit()
        channel.empty()
        self._tidy(topic)

    # ---- pausing

    def pause_topic(self, topic: Topic, paused: bool) -> None:
        """Returns when the pause is on disk. Raises OSError. Blocks this greenlet."""
        if paused:
            topic.pause()
            self.save_held(topic)
        else:
            topic.unpause()
        self.persist_metadata()

    def pause_channel(self, topic: Topic, channel: Channel, paused: bool) -> None:
        """Returns when the pause is on disk. Raises OSError. Blocks this greenlet."""
        topic.commit()
        if paused:
            channel.pause()
        else:
            channel.unpause()
        self.persist_metadata()

    def save_held(self, topic: Topic) -> None:
        """Write down from where on a topic's messages are kept from its channels. Raises OSError."""
        if topic.log is not None and topic.is_held:
            self._write_topic_journal(topic, topic.released)

    def _write_topic_journal(self, topic: Topic, floor: int) -> None:
        journal = self.topic_journal(topic.name)
        journal.snapshot(floor, [], [])
        journal.close()

    def topic_journal(self, topic_name: str) -> Journal:
        return Journal(self._directory / f"{topic_name}.cursor")

    # ---- what is written in the background

    def _channel_changed(self, topic: Topic, channel: Channel) -> None:
        self._dirty_channels.append((topic, channel))
        if self._journal_alarm.due_ns is None:
            self._journal_alarm.set(self.clock() + JOURNAL_DELAY_NS)

    def _write_journals(self, now_ns: int) -> None:
        dirty, self._dirty_channels = self._dirty_channels, []
        topics: dict[Topic, None] = {}
        for topic, channel in dirty:
            if channel.is_closed:
                continue
            try:
                channel.save_changes()
                self._disk_error = None
            except OSError as error:
                self._disk_error = error
                self.log.error("CHANNEL(%s): failed to write its position - %s", channel.name, error)
                self._channel_changed(topic, channel)
            topics[topic] = None
        for topic in topics:
            self._save_without_channels(topic)
            self._tidy(topic)

    def _save_without_channels(self, topic: Topic) -> None:
        """Where all channels are ephemeral, and keep no journal, the topic remembers what they are done with."""
        if topic.log is None or any(channel.journal is not None for channel in topic.channels.values()):
            return
        floor = min((channel.position.finished.floor for channel in topic.channels.values()), default=topic.released)
        try:
            self._write_topic_journal(topic, floor)
        except OSError as error:
            self._disk_error = error
            self.log.error("TOPIC(%s): failed to write its position - %s", topic.name, error)

    def _tidy(self, topic: Topic) -> None:
        """Let go of what nobody needs any more, in memory and on disk."""
        topic.trim_memory()
        if topic.log is not None:
            try:
                topic.log.drop_unneeded(topic.is_needed)
            except OSError as error:
                self.log.error("TOPIC(%s): failed to remove a file - %s", topic.name, error)

    def want_metadata(self) -> None:
        """Write `nsqd.dat` soon."""
        self._metadata_wanted = True
        if self._metadata_greenlet is None and not self.is_closing:
            self._metadata_greenlet = gevent.spawn(self._write_wanted_metadata)

    def _write_wanted_metadata(self) -> None:
        try:
            while self._metadata_wanted:
                self._metadata_wanted = False
                try:
                    self.persist_metadata()
                except OSError as error:
                    self.log.error("failed to persist metadata - %s", error)
                    self._metadata_alarm.set(self.clock() + _RETRY_METADATA_NS)
        finally:
            self._metadata_greenlet = None

    def persist_metadata(self) -> None:
        """Replace `nsqd.dat` durably. Raises OSError. Blocks this greenlet, not the loop."""
        path = self._directory / METADATA_FILE
        with self._metadata_lock:
            self.log.info("NSQ: persisting topic/channel metadata to %s", path)
            data = encode_metadata(self.topics.values())
            deleted, self._deleted = self._deleted, []
            in_thread(self._threadpool, replace_file, path, data)
            for topic, channel in deleted:
                self._remove_journal(topic, channel)

    def _remove_journal(self, topic: Topic, channel: Channel) -> None:
        """`nsqd.dat` does not name the channel any more: nothing needs to say that it is deleted."""
        if channel.journal is not None:
            channel.journal.close()
            current = self.topics.get(topic.name)
            if current is None or channel.name not in current.channels:  # else there is one of this name again
                channel.journal.remove()

    # ---- the end

    def close(self) -> None:
        """Write down everything and close all files. Raises nothing: what fails is logged."""
        self.is_closing = True
        for topic in list(self.topics.values()):
            topic.commit()
        self.sync.join()
        if self._metadata_greenlet is not None:
            self._metadata_greenlet.join()
        try:
            self.persist_metadata()
        except OSError as error:
            self.log.error("failed to persist metadata - %s", error)
        self.log.info("NSQ: closing topics")
        for topic in list(self.topics.values()):
            self._close_topic(topic)
        self._journal_alarm.set(None)
        self._metadata_alarm.set(None)
        self._background.join()

    def _close_topic(self, topic: Topic) -> None:
        self.log.info("TOPIC(%s): closing", topic.name)
        try:
            topic.close()
            for channel in topic.channels.values():
                self._close_channel(channel)
            if topic.log is not None:
                self.save_held(topic)
                topic.log.close()
        except OSError as error:
            self.log.error("TOPIC(%s): failed to close - %s", topic.name, error)

    def _close_channel(self, channel: Channel) -> None:
        self.log.info("CHANNEL(%s): closing", channel.name)
        try:
            channel.save_at_the_end()
        except OSError as error:
            self.log.error("CHANNEL(%s): failed to write its position - %s", channel.name, error)
        if channel.journal is not None:
            channel.journal.close()
