"""The broker: creates, finds and deletes topics and channels, in memory and on disk."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gevent.event import Event

from nsqd_py.broker.additions import Additions, Replication
from nsqd_py.broker.creation_rate import CreationRate
from nsqd_py.broker.data_path import DataPath
from nsqd_py.broker.disk.journal_writer import JournalWriter, SaveResult
from nsqd_py.broker.disk.logs import LogMaker
from nsqd_py.broker.disk.slow_disk import SlowReader, SlowWriter, in_timed_thread
from nsqd_py.broker.disk.stored_reader import StoredReader
from nsqd_py.broker.disk.sync import GroupSync
from nsqd_py.broker.drain import Drain
from nsqd_py.broker.lifetime.losses import Losses
from nsqd_py.broker.metadata import MetadataWriter
from nsqd_py.broker.services import BrokerServices, ChangeListener, Lookups, Ports, Topic
from nsqd_py.broker.upkeep.descriptors import DescriptorRelief
from nsqd_py.broker.upkeep.disk_health import DiskHealth, FreeSpace
from nsqd_py.broker.upkeep.housekeeping import Housekeeper
from nsqd_py.broker.upkeep.removed_files import RemovedFiles
from nsqd_py.broker.upkeep.small_files import SmallFiles
from nsqd_py.clock import SteadyClock, wall_ns
from nsqd_py.diskqueue.history import LogHistory
from nsqd_py.diskqueue.journals.journal import Journal, journal_name
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.memory_budget import MemoryBudget
from nsqd_py.errors import Draining, Refusal, TooManyChannels, TooManyTopics
from nsqd_py.net.http.browsers import KnownHosts
from nsqd_py.net.http.limiter import ResponseLimiter
from nsqd_py.net.limits import Connections
from nsqd_py.net.loop_iteration import LoopIteration
from nsqd_py.pqueues.alarms import Alarms, Clock
from nsqd_py.protocol.message_ids import GuidFactory
from nsqd_py.protocol.names import is_ephemeral
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.dead_letters import DeadLetters, Origin, policy_of
from nsqd_py.queue.disk_limits import DiskSpace
from nsqd_py.queue.expiry import Expiry
from nsqd_py.queue.latency import LatencyMeter
from nsqd_py.queue.position import Position
from nsqd_py.queue.topic import DiskUse
from nsqd_py.runtime.disk_speed import DiskSpeed
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.pacing import LoopLag
from nsqd_py.runtime.threads import in_thread_while
from nsqd_py.server.options import NsqdOptions

if TYPE_CHECKING:
    from nsqd_py.auth.servers import AuthFailures
    from nsqd_py.broker.upkeep.mending import LogFiles
    from nsqd_py.broker.upkeep.scrub import Scrub
    from nsqd_py.diskqueue.files.log_file import LogFile
    from nsqd_py.net.http.guard import Guard
    from nsqd_py.net.tls import CertificateReloader


class Broker:
    """All topics of one nsqd. `options` are those of `nsqd_py.server.options`."""

    def __init__(
        self,
        options: NsqdOptions,
        log: Log,
        iteration: LoopIteration,
        alarms: Alarms,
        threadpool: Any,
        write_threads: Any = None,
        clock: Clock | None = None,
        wall_clock: Clock = wall_ns,
        *,
        ports: Ports | None = None,
        connections: Connections | None = None,
        make_lookups: Callable[[], Lookups] | None = None,
        auth_failures: AuthFailures | None = None,
    ) -> None:
        """Make a broker without topics; `startup.load` reads those of the data path.

        write_threads  write to logs while the disk is slow, since syncs may use all of `threadpool`
        make_lookups   called when the first address of an nsqlookupd is set
        auth_failures  those of --auth-http-address
        """
        self.options = options
        self.log = log
        self.iteration = iteration
        self.alarms = alarms
        self.clock = clock or SteadyClock()
        self.start_time = time.time()
        self.topics: dict[str, Topic] = {}
        self.open_topics = self.topics  # those that take messages: all, or none when it drains
        self.connections = connections
        self.clients: dict[Any, None] = {}
        self.http_clients: dict[Any, None] = {}
        self.ports = ports or Ports()
        self.lookups = Lookups()  # until the first address is set
        self._make_lookups = make_lookups
        self.additions = Additions()
        self.scrub: Scrub | None = None
        self.log_files: LogFiles | None = None  # repairs the logs of a primary
        self.followers: list[ChangeListener] = []  # the feeds of those that copy this nsqd
        self.losses = Losses()
        self.tls: CertificateReloader | None = None
        self.auth_failures = auth_failures
        self.admin_guard: Guard | None = None
        self.response_limiter = ResponseLimiter()
        self.clients_authorize = bool(options.auth_http_address)
        self.known_hosts = KnownHosts.of(options)
        self.guids = GuidFactory(options.node_id or 0)  # without one, `load` reads that of the data path
        self.memory = MemoryBudget(options.mem_queue_bytes)
        self.disk = DiskHealth(log)
        self.disk_speed = DiskSpeed(alarms, self.clock, time.monotonic_ns, log)
        directory = Path(options.data_path or ".")
        services = BrokerServices(
            options,
            directory,
            log,
            alarms,
            threadpool,
            self.clock,
            wall_clock,
            self.disk_speed,
            iteration,
            DataPath(directory, log),
        )
        self.services = services
        services.data_path.on_change = self._on_data_path
        services.data_path.on_emptied = self._write_all_positions
        self.drain = Drain(services, self.topics)
        self.creation_rate = CreationRate(options.max_new_topics_per_second, self.clock)
        # The channels whose journals are being written. By name, like the journals: a topic may be deleted and recreated.
        self._begun: dict[tuple[str, str], Event] = {}
        self.metadata = MetadataWriter(
            services,
            self.topics,
            self._begun,
            self._on_metadata,
            lambda: self.encode_epochs() if self.logs.keeps_epochs else None,
        )
        self.removed_files = RemovedFiles(services, self.topics)
        self.small_files = SmallFiles(
            services,
            self.topics,
            self.metadata.want,
            self.rewrite_position,
            self._write_own_position,
            keeps_epochs=lambda: self.logs.keeps_epochs,
        )
        self.sync = GroupSync(
            services, self._on_sync, self.metadata.when_settled, self.removed_files.check_synced
        )
        self.descriptors = DescriptorRelief(self.sync.flush)
        self.journals = JournalWriter(services, self._on_saved)
        self.housekeeper = Housekeeper(
            services, self.disk, self.write_position, self._save_positions, self._save_in_thread
        )
        self.space = DiskSpace(
            FreeSpace(directory),
            options.max_disk_bytes,
            options.min_free_disk_bytes,
            self.topics.values,
            self.housekeeper.make_room,
            alarms,
            self.clock,
            log,
        )
        self.expiry = Expiry(alarms, self.clock, self._on_expired)
        self.loop_lag = LoopLag(alarms, self.clock)
        self._write_threads = write_threads or threadpool
        self.logs = LogMaker(services, self.space)

    def listen(self, follower: ChangeListener) -> None:
        """Notify this follower, too, of each change in the data path, and of each write to a log."""
        self.followers = [*self.followers, follower]
        self.sync.listen(follower.topic_changed)

    def stop_listening(self, follower: ChangeListener) -> None:
        """Notify this follower no longer, if it was notified."""
        self.followers = [each for each in self.followers if each is not follower]
        self.sync.stop_listening(follower.topic_changed)

    def _on_sync(self, topic: Topic, error: OSError | None) -> None:
        self.disk.synced(topic, error)
        self.descriptors.synced()

    def encode_epochs(self) -> bytes:
        """Return the content of `nsqd.epochs`."""
        return self.logs.encode_epochs(self.topics.values())

    def _save_positions(self, topic: Topic) -> bool:
        """Write the changes of a topic's channels; return False if that must wait. Raises OSError."""
        if self.services.data_path.problem:
            return False
        if self._begun_count(topic):  # their journals say that they need all that is in the log now
            return False
        changed = [channel for channel in topic.channels.values() if channel.is_dirty]
        is_done = self.journals.save_now(topic)
        for channel in changed:
            self.channel_changed(topic, channel)
        return is_done

    def _save_in_thread(self, topic: Topic) -> bool:
        """Do what `_save_positions` does in a thread. Blocks this greenlet."""
        if self.services.data_path.problem:
            return False
        self.journals.save_in_thread(topic)
        return not self._begun_count(topic)

    def channel_changed(self, topic: Topic, channel: Channel) -> None:
        """Notify the standbys of a change in the journal of a channel."""
        for follower in self.followers:
            follower.channel_changed(topic, channel)

    def _on_metadata(self) -> None:
        for follower in self.followers:
            follower.metadata_written()

    def _on_saved(self, saved: list[SaveResult]) -> None:
        self.housekeeper.saved(saved)
        for topic, channel, _ in saved:
            self.channel_changed(topic, channel)

    @property
    def replication(self) -> Replication:
        """The role of this nsqd."""
        return self.additions.role

    @property
    def refusal(self) -> Refusal | None:
        """Why no topic is created or used; None if this nsqd serves."""
        return self.replication.refusal()

    # ---- the start

    def read_credentials(self) -> None:
        """Read the certificate for clients and the accounts for admin paths, if there are some. Raises OSError."""
        options = self.options
        if options.tls_cert:
            from nsqd_py.net.tls import CertificateReloader  # ssl is slow to import; only TLS needs it

            self.tls = CertificateReloader(options, self.log)
        if options.http_auth_file:
            # OpenSSL's hashes and a pool of threads; 20 ms of a start.
            from nsqd_py.net.http.guard import Guard

            self.admin_guard = Guard(options.http_auth_file, self.log)

    def start_scrub(self) -> None:
        """Read the logs again and again, also those of an nsqd that serves no clients."""
        from nsqd_py.broker.upkeep.mending import LogFiles, Repairs
        from nsqd_py.broker.upkeep.scrub import Scrub

        source = self.replication.scrub_source()
        if source is None:
            repairs = Repairs(self.additions.other_copies)
            source = LogFiles(self.services, self.topics, self.removed_files, repairs)
            self.log_files = source
        self.scrub = Scrub(self.services, source)
        self.scrub.start()

    def stop_scrub(self) -> None:
        """End the scrub, and the repair of damaged files. Blocks this greenlet."""
        if self.scrub is not None:
            self.scrub.stop()
        if self.log_files is not None:
            self.log_files.stop()

    # ---- health

    def node_problem(self) -> str | None:
        """Return what is wrong with the disk of this node, or None. Topics at their own limits do not count."""
        problem = self._disk_problem() or self.space.shortage()
        return f"disk: {problem}" if problem else None

    def health(self) -> str | None:
        """Return what is wrong with the disk for any topic, or that nsqd drains; None if all is well."""
        problem = self._disk_problem() or self.space.problem()
        if problem:
            return f"disk: {problem}"
        return "draining" if self.drain.is_active else None

    def _disk_problem(self) -> OSError | str | None:
        path_problem = self.services.data_path.problem
        return path_problem or self.disk.problem or self.metadata.error or self._access_problem()

    # ---- draining

    def begin_drain(self, timeout_ns: int | None = None) -> None:
        """Refuse messages from now on, and end within `timeout_ns`, see `Drain.begin`."""
        if self.drain.begin(timeout_ns):
            for topic in self.topics.values():
                topic.commit()
            self.open_topics = {}
            self.log.of_clients.info("NSQ: draining, %d messages to deliver", self.drain.messages_left)

    # ---- topics

    def get_topic(self, name: str) -> Topic:
        """Return the topic of this name, to publish to; create it if needed. Raises Draining and TooManyTopics."""
        topic = self.open_topics.get(name)
        if topic is None:
            refusal = self.refusal
            if refusal is not None:
                raise refusal
            if self.drain.is_active:
                raise Draining
            most = self.options.max_topics
            if most and len(self.topics) >= most:
                raise TooManyTopics(most)
            topic = self._make_topic(name)
        return topic

    def _make_topic(self, name: str) -> Topic:
        log = None
        if not is_ephemeral(name):
            log = self.logs.make(name)
        topic = self.add_topic(name, log)
        self.log.of_clients.info("TOPIC(%s): created", name)
        if not topic.is_ephemeral:
            self.metadata.want()
        self.lookups.topic_made(topic)
        for follower in self.followers:
            follower.topic_changed(topic)
        return topic

    def set_lookupds(self, addresses: Sequence[str]) -> None:
        """Register with exactly these nsqlookupds from now on, unless this nsqd refuses clients or drains."""
        serves = self.refusal is None and not self.drain.is_active
        if addresses and serves and self._make_lookups is not None:
            self.lookups = self._make_lookups()
            self._make_lookups = None
        self.lookups.set_addresses(addresses)

    def wait_until_started(self, topic: Topic, timeout_s: float | None = None) -> bool:
        """Wait until nsqlookupds have named the channels of a new topic; True if they have. Blocks this greenlet."""
        return topic.is_started or self.lookups.wait_until_started(topic, timeout_s)

    def add_topic(self, name: str, log: TopicLog | None) -> Topic:
        """Return a new topic on this log; nothing is written yet."""
        syncer: GroupSync | None = None
        disk = DiskUse()
        if log is not None:
            syncer = self.sync
            place = self.services.data_path
            disk = DiskUse(self.disk_speed, self.space, self._make_slow_writer, self.disk.written, place)
        topic = Topic(
            name,
            log,
            self.guids,
            self.options.mem_queue_size,
            self.iteration,
            self.services.wall_clock,
            syncer,
            self.log,
            self.clock,
            policy_of(self.options, name),
            self.memory,
            disk,
        )
        if log is not None:
            slow_reader = SlowReader(self._write_threads, self.disk_speed, topic.wake_channels)
            log.chunks.read_file = slow_reader.read
            log.chunks.forget_file = slow_reader.forget
            log.chunks.mend = self._mend
            if log.history is not None:
                self._read_history(topic, log.history)
        self.topics[name] = topic
        self.expiry.add_topic(topic)
        return topic

    def _read_history(self, topic: Topic, history: LogHistory) -> None:
        """Have the stored files of a log read in the threads of the store."""
        store = self.logs.store
        assert store is not None
        reader = StoredReader(topic.name, history, self.services, store.threadpool, topic.wake_channels)
        history.read_piece = reader.read

        def check() -> None:
            store.check_answers()
            # Requests that read the disk do not wait for those that read the store.
            self.response_limiter.make_remote()
            store.check_answers()

        history.in_thread = partial(in_thread_while, store.threadpool, check)

    def _make_slow_writer(self, topic: Topic) -> SlowWriter:
        assert topic.log is not None
        return SlowWriter(topic, topic.log, self._write_threads, self.disk_speed, self.descriptors.room)

    def _mend(self, file: LogFile, start: int, end: int) -> bool:
        """Begin to repair damaged bytes that a consumer met; False if that is not possible."""
        if self.log_files is None:
            return False
        return self.log_files.mend(file, start, end)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, its channels and everything in it. Raises KeyError, and OSError from the disk.

        Blocks this greenlet while the disk is slow, unless the topic is ephemeral.
        """
        topic = self.topics[name]
        log = topic.log
        if log is not None:  # the event loop deletes an ephemeral one when its last consumer leaves
            self._settle(topic)
        if not self._can_change(topic, log is not None):
            return
        own_journal = self.journal(name)
        if log is not None:
            own_journal.replace_by_deleted()  # the next start completes what a crash interrupts from here on
        del self.topics[name]
        self.log.of_clients.info("TOPIC(%s): deleting", name)
        topic.close()
        if log is not None:
            self.logs.remember(name, log)
        self.sync.forget(topic)
        self.removed_files.forget(topic)
        self.small_files.forget(topic)
        self.housekeeper.forget(topic)
        self.space.forget(topic)
        self.disk.forget(topic)
        topic.shrink(0)
        for channel in topic.channels.values():
            self.lookups.notify(name, channel.name, was_deleted=True)
        self.lookups.notify(name, "", was_deleted=True)
        for follower in self.followers:
            follower.topic_deleted(name)
        if log is not None:
            log.remove()
            for channel in topic.channels.values():
                if channel.journal is not None:
                    channel.journal.remove()
            own_journal.remove()
            self.metadata.want()
        topic.free()

    def check_writable(self) -> None:
        """Raise OSError if nothing can be created or deleted in the data path: a request that fails must change nothing."""
        error = self._access_problem()
        if error:
            raise error

    def _can_change(self, changed: Topic | Channel, is_durable: bool) -> bool:
        """Return False if a topic or channel was deleted in the meantime. Raise OSError if its files cannot be deleted.

        A new one may have its name, whose files must not change. Files that stayed would hold messages that no consumer
        can reach.
        """
        if is_durable and not changed.is_closed:
            self.check_writable()
        return not changed.is_closed

    def _access_problem(self) -> OSError | None:
        can_write = os.access(self.services.directory, os.W_OK)
        if not can_write:
            return OSError(errno.EROFS, "the data path cannot be written to")
        try:
            self.services.data_path.check()
        except OSError as error:
            return error
        return None

    def _on_data_path(self) -> None:
        """Refuse publishes while the data path is another directory."""
        data_path = self.services.data_path
        if data_path.problem:
            self.space.refuse_all(data_path.refusal())
            return
        self.space.refuse_all(None)
        self._write_all_positions()

    def _write_all_positions(self) -> None:
        """Write `nsqd.dat`, and all positions as a whole: what the data path has of them may be older, or another file."""
        if self.refusal is not None:  # a standby, whose files are those of its primary
            return
        self.metadata.want()
        for topic in self.topics.values():
            self._write_own_position(topic)
            for channel in topic.channels.values():
                self.rewrite_position(channel)

    def _write_own_position(self, topic: Topic) -> None:
        """Write the position of a topic that needs one; a failure is recorded."""
        if topic.log is None or (topic.has_journals and not topic.is_held):
            return
        try:
            self.write_position(topic, topic.retained_floor)
        except OSError as error:
            self.disk.position_failed(topic, error)

    def rewrite_position(self, channel: Channel) -> None:
        """Write the position of a channel as a whole soon."""
        if channel.journal is not None:
            channel.journal.want_snapshot()
            channel.save_soon()

    def _settle(self, topic: Topic) -> None:
        """Wait until no thread writes to the log of a topic or to a journal. May block this greenlet."""
        topic.settle()
        while (
            self.journals.is_writing
            or self.removed_files.is_restoring(topic)
            or self.housekeeper.is_removing(topic)
        ):
            self.removed_files.settle()  # else a log that is removed would be there again
            self.housekeeper.settle()
            self.journals.settle()
            topic.settle()  # messages published in the meantime would create a file after the others are removed

    def empty_topic(self, topic: Topic) -> None:
        """Drop messages that no channel has yet. Raises OSError. Blocks this greenlet while the disk is slow."""
        self.journals.settle()
        if not self._can_change(topic, topic.log is not None):
            return
        topic.empty()
        self.save_held(topic)
        for channel in topic.channels.values():
            channel.save_snapshot()
            self.channel_changed(topic, channel)
        self.housekeeper.make_room(topic)

    # ---- channels

    def get_channel(self, topic: Topic, name: str, journal: Journal | None = None) -> Channel:
        """Return the channel of this name; create it if there is none, at the first unreleased message.

        `journal` is the journal that was written for it; without one, it is written now. `make_channel` writes it in a
        thread. Raises TooManyChannels, and OSError if the journal cannot be written.
        """
        channel = topic.channels.get(name)
        if channel is None:
            if journal is None:  # otherwise it was counted before the journal was written
                self.check_channel_count(topic)
            if self.writes_journal(topic, name):
                self.services.data_path.check()
            topic.commit()
            channel = self.add_channel(topic, name, Position(topic.released, topic.released), journal)
            try:
                if journal is None:
                    self.disk_speed.timed(channel.save_snapshot)
            except OSError:
                del topic.channels[name]
                raise
            self.log.of_clients.info("TOPIC(%s): new channel(%s)", topic.name, name)
            self.lookups.notify(topic.name, name, was_deleted=False)
            self.channel_changed(topic, channel)
            if not channel.is_ephemeral and not topic.is_ephemeral:
                self.metadata.want()
            topic.release()
        return channel

    def check_channel_count(self, topic: Topic, begun_count: int = 0) -> None:
        """Raise TooManyChannels if a topic, for which `begun_count` channels are being created, takes no more."""
        most = self.options.max_channels_per_topic
        if most and len(topic.channels) + begun_count >= most:
            raise TooManyChannels(topic.name, most)

    def _begun_count(self, topic: Topic) -> int:
        """Return the number of channels of this topic whose journals are being written."""
        return sum(begun == topic.name for begun, _ in self._begun)

    def writes_journal(self, topic: Topic, name: str) -> bool:
        """True if creating the channel writes a journal: it does not exist yet, and is not ephemeral."""
        return name not in topic.channels and topic.log is not None and not is_ephemeral(name)

    def make_channel(self, topic: Topic, name: str) -> Channel:
        """Return the channel of this name, created if there is none; a thread writes its journal.

        Raises OSError if its journal cannot be written, and TooManyChannels. Blocks this greenlet: only the client that
        creates a channel waits for the disk.
        """
        key = topic.name, name
        while key in self._begun:
            self._begun[key].wait()
        if not self.writes_journal(topic, name):
            return self.get_channel(topic, name)
        self.check_channel_count(topic, self._begun_count(topic))
        self.services.data_path.check()
        written = Event()
        self._begun[key] = written
        try:
            return self._make_channel(topic, name)
        finally:
            del self._begun[key]
            written.set()

    def _make_channel(self, topic: Topic, name: str) -> Channel:
        journal = self.journal(topic.name, name)
        floor = topic.released
        write = partial(journal.snapshot, floor, [], [])
        in_timed_thread(self.services.threadpool, self.disk_speed, write)
        if topic.is_closed:
            now = self.topics.get(topic.name)
            if now is None or name not in now.channels:
                journal.remove()
            raise OSError(errno.ENOENT, f"topic {topic.name} was deleted while channel {name} was created")
        if name in topic.channels:  # created in the meantime by code that does not wait for threads
            return topic.channels[name]
        channel = self.get_channel(topic, name, journal)
        if channel.position.finished.floor > floor:  # messages were published in the meantime
            channel.save_soon()
        return channel

    def add_channel(
        self, topic: Topic, name: str, position: Position, journal: Journal | None = None
    ) -> Channel:
        """Return a new channel at this position; nothing is written yet."""
        if topic.log is None or is_ephemeral(name):
            journal = None
        elif journal is None:
            journal = self.journal(topic.name, name)
        channel = Channel(
            name,
            position,
            topic.messages,
            topic.most_unfinished,
            self.options,
            self.iteration,
            self.alarms,
            self.clock,
            journal,
            lambda channel: self.journals.channel_changed(topic, channel),
            keeps_batches=topic.log is None,
        )
        options = self.options
        if options.e2e_processing_latency_percentile:
            channel.latency = LatencyMeter(
                options.e2e_processing_latency_percentile,
                options.e2e_processing_latency_window_time_ns,
                self.clock,
                self.services.wall_clock,
            )
        if topic.policy.max_attempts:
            self._move_dead_letters(topic, channel)
        self.expiry.add_channel(topic, channel)
        topic.channels[name] = channel
        return channel

    def _move_dead_letters(self, topic: Topic, channel: Channel) -> None:
        """Let the channel move dead letters to the topic that the settings name, also while nsqd drains."""
        policy = topic.policy
        name = policy.dead_letter_topic
        origin = Origin(
            topic.name, channel.name, channel.mark_finished, channel.wait, topic.messages.batch_at
        )
        channel.move_dead_letters(
            DeadLetters(
                origin,
                policy.max_attempts,
                name,
                lambda: self.topics.get(name) or self._make_topic(name),
                self.iteration,
                self.clock,
                self.services.wall_clock,
                self.log.of_clients,
            )
        )

    def _on_expired(self, topic: Topic) -> None:
        """Save the topic's position and clean up after messages expired."""
        try:
            self.save_held(topic)
        except OSError as error:
            self.disk.position_failed(topic, error)
        self.housekeeper.clean_up(topic)

    def journal(self, topic_name: str, channel_name: str = "") -> Journal:
        """Return the journal of a channel, or of the topic itself."""
        return Journal(self.services.directory / journal_name(topic_name, channel_name))

    def delete_channel(self, topic: Topic, name: str) -> None:
        """Delete a channel and its undelivered messages. Raises KeyError, and OSError from the disk.

        Blocks this greenlet while the disk is slow, unless the channel is ephemeral.
        """
        channel = topic.channels[name]
        if channel.journal is not None:  # the event loop deletes an ephemeral one
            self.journals.settle()
        if not self._can_change(channel, channel.journal is not None):
            return
        topic.commit()
        del topic.channels[name]
        self.log.of_clients.info("TOPIC(%s): deleting channel %s", topic.name, name)
        self.lookups.notify(topic.name, name, was_deleted=True)
        channel.close()
        if channel.journal is not None:
            channel.journal.mark_deleted()
            self.channel_changed(topic, channel)
            self.metadata.channel_deleted(topic.name, name, channel.journal)
        channel.free()
        if not topic.channels:
            if topic.is_ephemeral:
                if self.topics.get(topic.name) is topic:
                    self.delete_topic(topic.name)
                return
            self.save_held(topic)
        if not channel.is_ephemeral:
            self.metadata.want()
        self.housekeeper.make_room(topic)

    def client_left(self, topic: Topic, channel: Channel, client: Any) -> None:
        """Remove a consumer from its channel; delete an ephemeral channel after its last one."""
        channel.remove_client(client)
        if not channel.is_ephemeral or channel.clients:
            return
        if topic.channels.get(channel.name) is channel:
            self.delete_channel(topic, channel.name)

    def empty_channel(self, topic: Topic, channel: Channel) -> None:
        """Drop all messages of a channel, including those in flight and deferred. Raises OSError.

        Blocks this greenlet while the disk is slow.
        """
        self.journals.settle()
        if not self._can_change(channel, channel.journal is not None):
            return
        topic.commit()
        channel.empty()
        self.channel_changed(topic, channel)
        self.housekeeper.make_room(topic)

    # ---- pausing

    def pause_topic(self, topic: Topic, paused: bool) -> None:
        """Pause or unpause a topic durably. Raises OSError. Blocks this greenlet."""
        self.check_writable()
        if paused:
            topic.pause()
            self.save_held(topic)
        else:
            topic.unpause()
        self.metadata.persist()

    def pause_channel(self, topic: Topic, channel: Channel, paused: bool) -> None:
        """Pause or unpause a channel durably. Raises OSError. Blocks this greenlet."""
        self.check_writable()
        topic.commit()
        if paused:
            channel.pause()
        else:
            channel.unpause()
        self.metadata.persist()

    def save_held(self, topic: Topic) -> None:
        """Write the position of a topic that holds its messages back from its channels. Raises OSError."""
        if topic.log is not None and topic.is_held:
            self.write_position(topic, topic.retained_floor)

    def write_position(self, topic: Topic, floor: int) -> None:
        """Write the number up to which a topic's messages are finished or released. Raises OSError."""
        self.services.data_path.check()
        self.journal(topic.name).snapshot(floor, [], [])
        for follower in self.followers:
            follower.position_written(topic)
