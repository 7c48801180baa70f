"""Creating the log of a new topic, and the journal of a new channel in a thread; how many clients may create.

Only the client that creates a channel waits for the disk. nsqlookupd's peers learn of new and deleted channels.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import gevent
import gevent.pool
from gevent.event import Event

from nsqd_py.diskqueue.journal import Journal
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.ranges import Epoch, EpochNumbers, Epochs, SavedEpochs
from nsqd_py.diskqueue.reading import RecordOffsets
from nsqd_py.errors import Refusal, TooManyNewTopics
from nsqd_py.net.addresses import host_of
from nsqd_py.protocol.names import is_ephemeral
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.disk_limits import DiskSpace
from nsqd_py.queue.topic import Topic, policy_of
from nsqd_py.runtime.disk_pace import CallTimer
from nsqd_py.runtime.logs import Log
from nsqd_py.runtime.threads import in_thread
from nsqd_py.settings.durations import SECOND_NS

if TYPE_CHECKING:
    from nsqd_py.broker.broker import Broker
    from nsqd_py.options import NsqdOptions
    from nsqd_py.tcp.connection import ClientConnection


class Lookups(Protocol):
    """The nsqlookupds of a broker. Methods do not block unless their docstring says so."""

    def set_addresses(self, addresses: Sequence[str]) -> None:
        """Register with exactly these nsqlookupds from now on."""

    def topic_made(self, topic: Topic) -> None:
        """Handle a new topic, which is held until its channels are known."""

    def notify(self, topic_name: str, channel_name: str, was_deleted: bool) -> None:
        """Report a new or deleted channel, or topic (with the channel name "")."""

    def wait_until_started(self, topic: Topic, timeout_s: float | None = None) -> bool:
        """Wait until the channels of a new topic are known; True if they are. Blocks this greenlet."""

    def wait_until_all_started(self, timeout_s: float) -> None:
        """Wait until the channels of all current topics are known. Blocks this greenlet."""

    def close(self) -> None:
        """Unregister this nsqd. Blocks this greenlet."""


# A client may create as many topics and channels at once as in this time.
_BURST_S = 100
_LONGEST_WAIT_S = 10.0
_MOST_ADDRESSES = 4096


class CreationRate:
    """Limits how many topics and channels the clients of each address create per second. It reserves turns for them.

    Each topic costs memory and a file, and `--max-topics` is for all clients: one that uses it up stops the others.
    """

    def __init__(self, most_per_s: int, clock: Callable[[], int]) -> None:
        """`most_per_s` 0 means no limit; `clock` returns ns."""
        self._most_per_s = most_per_s
        self._clock = clock
        self._next_ns: dict[str, int] = {}  # the next turn of each address; in the past, as far as turns are left over

    def wait_s(self, peer: str) -> float:
        """Take the next turn of a client, and return the seconds until then, mostly 0. Raises TooManyNewTopics."""
        if not self._most_per_s:
            return 0.0
        address = host_of(peer)
        now_ns = self._clock()
        oldest_ns = now_ns - _BURST_S * SECOND_NS
        turn_ns = max(self._next_ns.get(address, 0), oldest_ns)
        wait_s = max(0, turn_ns - now_ns) / SECOND_NS
        if wait_s > _LONGEST_WAIT_S:
            raise TooManyNewTopics(self._most_per_s)
        if len(self._next_ns) >= _MOST_ADDRESSES:
            self._next_ns = {name: ns for name, ns in self._next_ns.items() if ns > oldest_ns}
            if len(self._next_ns) >= _MOST_ADDRESSES:
                del self._next_ns[min(self._next_ns, key=self._next_ns.__getitem__)]
        self._next_ns[address] = turn_ns + SECOND_NS // self._most_per_s
        return wait_s


class NoLookups:
    """The interface without any nsqlookupd."""

    def set_addresses(self, addresses: Sequence[str]) -> None:
        pass

    def topic_made(self, topic: Topic) -> None:
        pass

    def notify(self, topic_name: str, channel_name: str, was_deleted: bool) -> None:
        pass

    def wait_until_started(self, topic: Topic, timeout_s: float | None = None) -> bool:
        return topic.is_started

    def wait_until_all_started(self, timeout_s: float) -> None:
        pass

    def close(self) -> None:
        pass


Made = Channel | OSError | Refusal


class ChannelMaker:
    """Creates the channels of one broker."""

    def __init__(self, broker: Broker, threadpool: Any) -> None:
        self._broker = broker
        self._threadpool = threadpool
        # By name, like the journals: a topic may be deleted and created again meanwhile.
        self._begun: dict[tuple[str, str], Event] = {}

    def is_making(self, topic_name: str, name: str) -> bool:
        """True while the journal of this channel is being written and the channel does not exist yet."""
        return (topic_name, name) in self._begun

    def begun_count(self, topic: Topic) -> int:
        """Return the number of channels of this topic whose journals are being written."""
        return sum(begun == topic.name for begun, _ in self._begun)

    def wants_disk(self, topic: Topic, name: str) -> bool:
        """True if creating the channel writes a journal: it does not exist yet, and is not ephemeral."""
        return name not in topic.channels and topic.log is not None and not is_ephemeral(name)

    def make_for(self, client: ClientConnection, topic: Topic, name: str, then: Callable[[Made], None]) -> None:
        """Call `then` with the channel, or the error; the client is paused until then."""
        client.pause()
        gevent.spawn(self._make_for, client, topic, name, then)

    def _make_for(self, client: ClientConnection, topic: Topic, name: str, then: Callable[[Made], None]) -> None:
        found: Made
        try:
            try:
                found = self.make(topic, name)
            except (OSError, Refusal) as error:
                found = error
            if not client.closed:
                client.go_on(lambda: then(found))
        except Exception as error:  # noqa: BLE001  a bug here must not leave the client waiting
            client.log.of_clients.exception("client(%s) - %r", client.peer, error)
            client.close("internal error")

    def make(self, topic: Topic, name: str) -> Channel:
        """Return the channel of this name, created if there is none.

        Raises OSError if its journal cannot be written, and TooManyChannels. Blocks this greenlet.
        """
        place = topic.name, name
        while place in self._begun:
            self._begun[place].wait()
        if not self.wants_disk(topic, name):
            return self._broker.get_channel(topic, name)
        self._broker.check_channel_count(topic, self.begun_count(topic))
        over = self._begun[place] = Event()
        try:
            return self._make(topic, name)
        finally:
            del self._begun[place]
            over.set()

    def _make(self, topic: Topic, name: str) -> Channel:
        broker = self._broker
        new = _NewJournal(broker.channel_journal(topic.name, name), topic.released)
        broker.pace.begin(new)
        try:
            in_thread(self._threadpool, new.write)
        finally:
            broker.pace.end(new, new.timer.slowest_ns)
        if topic.is_closed:
            now = broker.topics.get(topic.name)
            if now is None or name not in now.channels:
                new.journal.remove()
            raise OSError(errno.ENOENT, f"topic {topic.name} was deleted while channel {name} was created")
        if name in topic.channels:  # created meanwhile by code that does not wait for threads
            return topic.channels[name]
        channel = broker.get_channel(topic, name, new.journal)
        if channel.position.finished.floor > new.floor:  # messages were published meanwhile
            channel.save_soon()
        return channel


class _NewJournal:
    """The journal of a channel that begins at `floor`."""

    def __init__(self, journal: Journal, floor: int) -> None:
        self.journal = journal
        self.timer = CallTimer()
        self.floor = floor

    def write(self) -> None:
        """Write the journal; runs in a thread. Raises OSError."""
        with self.timer:
            self.journal.snapshot(self.floor, [], [])


# The largest number of files that a topic with a byte limit needs.
_FILES_OF_LIMITED = 8
_SMALLEST_FILE_BYTES = 64 * 1024


class LogMaker:
    """Creates logs, and runs their slow work in threads. `options` are those of `nsqd_py.options`."""

    def __init__(
        self, directory: Path, options: NsqdOptions, space: DiskSpace, threadpool: Any, log: Log, clock: Callable[[], int]
    ) -> None:
        self.epoch_numbers = EpochNumbers(clock)
        self._kept_epochs: dict[str, Epochs] = {}
        self._directory = directory
        self._options = options
        self._space = space
        self._threadpool = threadpool
        self._log = log
        self._background = gevent.pool.Group()
        self._places = RecordOffsets()

    def keep(self, saved: SavedEpochs) -> None:
        """Give logs that are made with these names their earlier epochs, until `forget_kept`."""
        self._kept_epochs = saved.logs
        self.epoch_numbers.skip_past(saved.node)
        for epochs in saved.logs.values():
            self.epoch_numbers.skip_past(epochs[-1].number if epochs else 0)

    def forget_kept(self) -> None:
        """All logs that there were are made: others are new ones."""
        self._kept_epochs = {}

    def make(self, topic_name: str) -> TopicLog:
        """Return a new log, without files."""
        max_bytes = policy_of(self._options, topic_name).max_bytes
        file_bytes = self._options.max_bytes_per_file
        if max_bytes:  # space is freed one file at a time
            file_bytes = min(file_bytes, max(max_bytes // _FILES_OF_LIMITED, _SMALLEST_FILE_BYTES))
        log = TopicLog(self._directory, topic_name, file_bytes, self._report_damage, self._run_in_background, self._places)
        log.epochs = self._kept_epochs.get(topic_name) or (Epoch(self.epoch_numbers.next(), 0),)
        log.allocate_ahead(wanted=self._space.allocates_ahead())
        return log

    def _run_in_background(self, work: Callable[[], None]) -> None:
        """Run `work` in a thread, started from a greenlet: a full pool would block the event loop."""
        self._background.spawn(self._try_in_thread, work)

    def _try_in_thread(self, work: Callable[[], None]) -> None:
        try:
            in_thread(self._threadpool, work)
        except OSError as error:  # the file stays until the next start removes it
            self._log.error("failed to remove a file - %s", error)

    def _report_damage(self, text: str) -> None:
        self._log.error("DISKQUEUE: %s", text)

    def join(self) -> None:
        """Wait until all background work is done. Blocks this greenlet."""
        self._background.join()
