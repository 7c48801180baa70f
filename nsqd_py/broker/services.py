"""The objects that all parts of a broker use, and their interfaces: nsqlookupds, stores, and readers of changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nsqd_py.broker.data_path import DataPath
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.net.loop_iteration import LoopIteration
from nsqd_py.pqueues.alarms import Alarms, Clock
from nsqd_py.queue import topic as queue_topic
from nsqd_py.queue.channel import Channel
from nsqd_py.runtime.disk_speed import DiskSpeed
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.server.options import NsqdOptions

# A topic whose log is on disk.
Topic = queue_topic.Topic[TopicLog]


@dataclass
class BrokerServices:
    """The objects that all parts of a broker use.

    directory   the data path
    data_path   says whether that is still the directory that nsqd has loaded
    threadpool  threads for work on files
    clock       the steady clock, in ns since the epoch
    wall_clock  in ns since the epoch
    """

    options: NsqdOptions
    directory: Path
    log: Log
    alarms: Alarms
    threadpool: Any
    clock: Clock
    wall_clock: Clock
    disk_speed: DiskSpeed
    iteration: LoopIteration
    data_path: DataPath


@dataclass
class Ports:
    """The ports at which nsqd listens. A port is negative before that, and if nsqd does not have it."""

    tcp: int = -1
    http: int = -1
    https: int = -1


class Lookups:
    """The nsqlookupds of a broker; without any, nothing is done. Methods do not block unless their docstring says so."""

    def start(self) -> None:
        """Connect to them."""

    def set_addresses(self, addresses: Sequence[str]) -> None:
        """Register with exactly these nsqlookupds from now on."""

    def topic_made(self, topic: Topic) -> None:
        """Handle a new topic, which is held until its channels are known."""

    def notify(self, topic_name: str, channel_name: str, was_deleted: bool) -> None:
        """Report a new or deleted channel, or topic (with the channel name "")."""

    def wait_until_started(self, topic: Topic, timeout_s: float | None = None) -> bool:
        """Wait until the channels of a new topic are known; True if they are. Blocks this greenlet."""
        return True

    def wait_until_all_started(self, timeout_s: float) -> None:
        """Wait until the channels of all current topics are known. Blocks this greenlet."""

    def close(self) -> None:
        """Unregister this nsqd. Blocks this greenlet."""


class Store(Protocol):
    """The stored files of all logs, beyond those on the disk.

    threadpool  threads that read them, which may take long
    """

    threadpool: Any

    def check_answers(self) -> None:
        """Raise TimeoutError if a request to the store hangs: then nobody begins to wait for it, or goes on to wait."""

    def attach(self, topic_name: str, log: TopicLog) -> None:
        """Give a log, which has no files yet, its `history`; and its `may_drop`, if a file must be stored before it goes."""


class ChangeListener(Protocol):
    """The feed of a reader that copies this nsqd, as the broker sees it. No method blocks."""

    def topic_changed(self, topic: Topic) -> None:
        """Handle a new topic, or new records in the log of one."""

    def topic_deleted(self, name: str) -> None:
        """Handle the end of a topic."""

    def channel_changed(self, topic: Topic, channel: Channel) -> None:
        """Handle a change in the journal of a channel, which was created, moved, emptied, saved or deleted."""

    def position_written(self, topic: Topic) -> None:
        """Handle the new position of a topic that holds its messages back."""

    def metadata_written(self) -> None:
        """Handle a new version of `nsqd.dat`."""
