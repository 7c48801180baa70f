"""Makes the logs of new topics, and has the epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import gevent

from nsqd_py.broker.services import BrokerServices, Store, Topic
from nsqd_py.diskqueue.journals.epochs import (
    EndedLog,
    EndedLogs,
    Epoch,
    EpochNumbers,
    Epochs,
    SavedEpochs,
    encode_epoch_file,
    with_ended,
)
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.queue.disk_limits import DiskSpace
from nsqd_py.runtime.threads import in_thread

# Space is freed one file at a time, so a byte limit of a topic or of all topics is at least this many files.
_FILES_OF_LIMITED = 8
_SMALLEST_FILE_BYTES = 64 * 1024


class LogMaker:
    """Creates logs, runs their slow work in threads, and has the epochs of this nsqd.

    ended         the logs that were deleted, by topic
    node_epoch    the epoch in which this nsqd was promoted; 0 if it never was a standby
    keeps_epochs  True if `nsqd.epochs` is written: someone compares the epochs of the logs after a restart
    store         has the files of the logs beyond those on the disk; None without one
    """

    def __init__(self, services: BrokerServices, space: DiskSpace) -> None:
        self.epoch_numbers = EpochNumbers(services.clock)
        self.ended: EndedLogs = {}
        self.node_epoch = 0
        self.keeps_epochs = False
        self.store: Store | None = None
        self._saved_epochs: dict[str, Epochs] = {}
        self._services = services
        self._space = space
        self._background: list[gevent.Greenlet[..., None]] = []

    # ---- epochs

    def keep_epochs(self) -> None:
        """Write the epochs with the metadata from now on."""
        self.keeps_epochs = True

    def begin_node_epoch(self, number: int) -> None:
        """Be the primary of this epoch. The logs begin it one by one."""
        self.node_epoch = number
        self.keep_epochs()

    def encode_epochs(self, topics: Iterable[Topic]) -> bytes:
        """Return the content of `nsqd.epochs` while nsqd has these topics."""
        logs = {topic.name: topic.log.epochs for topic in topics if topic.log is not None}
        return encode_epoch_file(self.node_epoch, logs, self.ended)

    def restore(self, saved: SavedEpochs) -> None:
        """Go on with the epochs of the nsqd before: logs with these names get theirs, until `forget_saved`."""
        self.begin_node_epoch(saved.node)
        self._saved_epochs = saved.logs
        self.ended = saved.ended
        self.epoch_numbers.skip_past(saved.node)
        for epochs in saved.logs.values():
            if epochs:
                self.epoch_numbers.skip_past(epochs[-1].number)

    def forget_saved(self) -> None:
        """All logs that there were are made: others are new ones."""
        self._saved_epochs = {}

    def remember(self, topic_name: str, log: TopicLog) -> None:
        """Remember how many messages a log had that is deleted now: a reader may not have read all of them."""
        if log.next_seq:
            self.ended = with_ended(self.ended, topic_name, EndedLog(log.epochs[0].number, log.next_seq))

    # ---- logs

    def use_store(self, store: Store) -> None:
        """Let all logs go on in this store where the disk ends. Called before they are made."""
        self.store = store

    def make(self, topic_name: str) -> TopicLog:
        """Return a new log, without files."""
        options = self._services.options
        directory = self._services.directory
        file_bytes = options.max_bytes_per_file
        for max_bytes in filter(None, (options.max_topic_bytes.of(topic_name), options.max_disk_bytes)):
            file_bytes = min(file_bytes, max(max_bytes // _FILES_OF_LIMITED, _SMALLEST_FILE_BYTES))
        report_damage = partial(self._services.log.error, "DISKQUEUE: %s")
        log = TopicLog(directory, topic_name, file_bytes, report_damage, self._run_in_background)
        log.writes_zeros = options.sync_every == 1
        if self.store is not None:
            self.store.attach(topic_name, log)
        log.epochs = self._saved_epochs.get(topic_name) or (Epoch(self.epoch_numbers.next(), 0),)
        log.allocate_ahead(enabled=self._space.allocates_ahead())
        return log

    def _run_in_background(self, work: Callable[[], None]) -> None:
        """Run `work` in a thread, started from a greenlet: a full pool would block the event loop."""
        running = [greenlet for greenlet in self._background if not greenlet.dead]
        self._background = [*running, gevent.spawn(self._try_in_thread, work)]

    def _try_in_thread(self, work: Callable[[], None]) -> None:
        try:
            in_thread(self._services.threadpool, work)
        except OSError as error:  # the file stays until the next start removes it
            self._services.log.error("failed to remove a file - %s", error)

    def join(self) -> None:
        """Wait until all background work is done. Blocks this greenlet."""
        gevent.joinall(self._background)
