"""Writing and reading in threads, so that the event loop can go on serving.

The positions of channels are written to their journals twenty times a second. A journal that has grown is replaced by a
snapshot; a thread makes and writes a large one. While the disk is slow, a thread does all the writing, also to logs. Code
that touches a journal otherwise must first wait with `settle`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from time import monotonic_ns
from typing import Any

import gevent
from gevent.hub import Waiter

from nsqd_py.broker.services import BrokerServices, Topic
from nsqd_py.diskqueue.files.log_file import LogFile
from nsqd_py.diskqueue.history import HistoryFile, LogHistory, missing_piece, read_stored_piece
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.reading import Piece
from nsqd_py.diskqueue.syncing import Appending, CallTimer
from nsqd_py.errors import InternalError
from nsqd_py.protocol.batch import Batch
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.publish_buffer import Tickets
from nsqd_py.runtime.disk_speed import DiskSpeed
from nsqd_py.runtime.threads import Job, in_thread

# docs/durability.md promises that a FIN is written within 0.1 s. Half of that is for a late event loop: on a loaded
# machine it took 0.051 s in the median and 0.16 s at most; with 100 ms here, it was 0.101 s and 0.36 s.
JOURNAL_DELAY_NS = 50_000_000
# The most pieces of one log that a thread has read, and no channel has taken yet.
_MOST_PIECES = 8
# While a store does not answer, a channel that needs a stored file tries again after so long, and then twice as long.
_FIRST_RETRY_NS = 1_000_000_000
_LONGEST_RETRY_NS = 30_000_000_000
# For how long the store must say that it does not have a file until channels pass over it.
_MISSING_AFTER_NS = 60_000_000_000

SaveResult = tuple[Topic, Channel, OSError | None]


def in_timed_thread(threadpool: Any, disk_speed: DiskSpeed, calls: Iterable[Callable[[], object]]) -> None:
    """Make these calls in a thread, and record the slowest. Raises what they raise. Blocks this greenlet."""
    timer = CallTimer()

    def run() -> None:
        for call in calls:
            with timer:
                call()

    disk_speed.begin(timer)
    try:
        in_thread(threadpool, run)
    finally:
        disk_speed.end(timer, timer.slowest_ns)


def _disk_error(error: Exception) -> OSError:
    """Return the error to report, without its frames; a bug is logged, and becomes an OSError."""
    if isinstance(error, OSError):
        return error.with_traceback(None)
    gevent.get_hub().handle_error("a write or a read of the disk", type(error), error, error.__traceback__)
    return InternalError(error)


# ---- journals


class JournalWriter:
    """Writes the journals of all channels.

    on_saved  called with the results of each round
    """

    def __init__(self, services: BrokerServices, on_saved: Callable[[list[SaveResult]], None]) -> None:
        self._services = services
        self._disk_speed = services.disk_speed
        self._on_saved = on_saved
        self._alarm = services.alarms.alarm(self._write)
        self._changed: list[tuple[Topic, Channel]] = []
        self._greenlet: Any = None
        self._snapshotting: Any = None

    def channel_changed(self, topic: Topic, channel: Channel) -> None:
        """Schedule a write; called at the first change since the last write of the channel's journal."""
        self._changed.append((topic, channel))
        if self._alarm.due_ns is None:
            self._alarm.set(self._services.clock() + JOURNAL_DELAY_NS)

    def save_now(self, topic: Topic) -> bool:
        """Write the changes of a topic's channels; return False while a thread writes. Raises OSError."""
        if self._greenlet is not None:
            return False
        for channel in topic.channels.values():
            if channel.is_dirty:
                channel.save_changes()
        return True

    def save_in_thread(self, topic: Topic) -> None:
        """Write the changes of a topic's channels, in a thread; what fails is retried. Blocks this greenlet."""
        self.settle()
        changed = [(topic, channel) for channel in topic.channels.values() if channel.is_dirty]
        if changed:
            self._greenlet = gevent.spawn(self._write_in_thread, changed)
            self._greenlet.join()

    def _write(self, now_ns: int) -> None:
        if self._greenlet is not None:
            self._alarm.set(now_ns + JOURNAL_DELAY_NS)
            return
        noted, self._changed = self._changed, []
        changed: list[tuple[Topic, Channel]] = []
        # A snapshot takes several system calls, so a thread writes it.
        large: list[tuple[Topic, Channel]] = []
        for topic, channel in noted:
            if channel.is_closed:
                continue
            if channel.wants_snapshot:
                large.append((topic, channel))
            else:
                changed.append((topic, channel))
        saved: list[SaveResult] = []
        while changed and not self._disk_speed.is_slow:
            topic, channel = changed[-1]
            self._disk_speed.timed(partial(self._save, saved, topic, channel, channel.save_changes))
            changed.pop()
        if saved:
            self._on_saved(saved)
            self._snapshot_large(saved)
        if changed or large:
            self._greenlet = gevent.spawn(self._write_in_thread, changed + large)

    def _write_in_thread(self, changed: list[tuple[Topic, Channel]]) -> None:
        taken = [(topic, channel, channel.begin_save()) for topic, channel in changed]
        try:
            in_timed_thread(
                self._services.threadpool, self._disk_speed, [unsaved.write for _, _, unsaved in taken]
            )
        except Exception as error:  # noqa: BLE001 - after a bug, the changes must stay, and not be dropped
            for _, _, unsaved in taken:
                unsaved.error = unsaved.error or _disk_error(error)
        finally:
            self._greenlet = None
        saved: list[SaveResult] = []
        for topic, channel, unsaved in taken:
            self._save(saved, topic, channel, partial(channel.end_save, unsaved))
        self._on_saved(saved)
        self._snapshot_large(saved)

    def _snapshot_large(self, saved: list[SaveResult]) -> None:
        """Begin to replace the first journal that needs a large snapshot, unless one is being written."""
        for topic, channel, _ in saved:
            if self._snapshotting is None and not channel.is_closed and channel.wants_large_snapshot:
                self._snapshotting = gevent.spawn(self._snapshot_in_thread, topic, channel)

    def _snapshot_in_thread(self, topic: Topic, channel: Channel) -> None:
        """Make and write a large snapshot of a channel, while its changes are still appended to the old journal."""
        large_snapshot = None
        try:
            large_snapshot = channel.begin_large_snapshot()
            in_thread(self._services.threadpool, large_snapshot.write)
            # A change that a thread is writing must not get lost between the two files.
            if self._greenlet is not None:
                self._greenlet.join()
            large_snapshot.finish()
        except Exception as error:  # noqa: BLE001 - after a bug, the next one must begin
            if large_snapshot is not None:
                large_snapshot.abandon()
            self._on_saved([(topic, channel, _disk_error(error))])
        finally:
            self._snapshotting = None

    def _save(
        self, saved: list[SaveResult], topic: Topic, channel: Channel, save: Callable[[], None]
    ) -> None:
        """Call `save` and add its result to `saved`; a failure is retried."""
        error: OSError | None = None
        try:
            save()
        except Exception as failure:  # noqa: BLE001 - a bug with one channel must not drop the changes of the others
            error = _disk_error(failure)
            self.channel_changed(topic, channel)
        saved.append((topic, channel, error))

    @property
    def is_writing(self) -> bool:
        """True while a thread writes, or is about to write."""
        return bool(self._busy())

    def _busy(self) -> list[Any]:
        return [
            each for each in (self._greenlet, self._snapshotting) if each is not None and not each.ready()
        ]

    def settle(self) -> None:
        """Wait until no thread writes. May block this greenlet."""
        # A finished write may begin a snapshot or the next write. The caller will move positions or remove files, and
        # no older entry may be written after that.
        while busy := self._busy():
            busy[0].join()

    def stop(self) -> None:
        """Write no more."""
        self._alarm.set(None)


# ---- logs, while the disk is slow


@dataclass(slots=True, eq=False, repr=False)
class SlowWriter:
    """Writes the publishes of one topic in a thread, in order; the publishers wait for their write.

    room  context manager around opening a file; it may block its greenlet, and raise OSError
    """

    _topic: Topic
    _log: TopicLog
    _threadpool: Any
    _disk_speed: DiskSpeed
    _room: Callable[[], AbstractContextManager[None]] = nullcontext
    _begun: tuple[Appending, Tickets] | None = None
    _batches: list[Batch] = field(default_factory=list)
    _publishers: Tickets = field(default_factory=list)
    _greenlet: Any = None
    is_idle: bool = True

    def add(self, batches: list[Batch], publishers: Tickets) -> None:
        """Write these batches next; their numbers continue from those added before."""
        for publisher, _ in publishers:
            publisher.hold()
        self._batches += batches
        self._publishers += publishers
        self._start()

    def go_on(self, appending: Appending, publishers: Tickets) -> None:
        """Finish a write that the event loop began. Call it only when this writer is idle."""
        for publisher, _ in publishers:
            publisher.hold()
        self._begun = appending, publishers
        self._start()

    def _start(self) -> None:
        if self.is_idle:
            self._greenlet = gevent.spawn(self._run)
            self.is_idle = False

    def _run(self) -> None:
        try:
            while self._begun or self._batches:
                if self._begun is not None:
                    appending, publishers = self._begun
                    self._begun = None
                else:
                    batches, publishers = self._take()
                    appending = self._log.begin_append(batches)
                self._write(appending, publishers)
        finally:
            self.is_idle = True

    def _take(self) -> tuple[list[Batch], Tickets]:
        taken = self._batches, self._publishers
        self._batches = []
        self._publishers = []
        return taken

    def _write(self, appending: Appending, publishers: Tickets) -> None:
        try:
            room = self._room() if appending.opens_file else nullcontext()
            with room:
                self._disk_speed.begin(appending)
                self._write_in_thread(appending)
                self._log.end_append(appending)
        except OSError as error:
            self._refuse(appending, publishers, error)
        except BaseException as error:  # after a bug, publishers must not be answered with OK
            self._refuse(appending, publishers, InternalError(error))
            raise
        else:
            self._topic.accept_written(appending.batches, publishers)
        finally:
            self._disk_speed.end(appending, appending.timer.slowest_ns)
            for publisher, _ in publishers:
                publisher.release()

    def _write_in_thread(self, appending: Appending) -> None:
        """Do the steps of an append in a thread. Raises what they raise; then the log continues in a new file."""
        waiter: Any = Waiter()

        def end(job: Job) -> None:
            self._log.release(appending)
            waiter.switch(job)

        self._threadpool.begin(appending.write, (), end)
        try:
            waiter.get().end()
        except BaseException:  # also if this greenlet is killed, and the thread still writes
            self._log.leave(appending)
            raise

    def _refuse(self, appending: Appending, publishers: Tickets, error: OSError) -> None:
        """Refuse these batches and those that came after them, whose numbers continue from them."""
        if not appending.is_left:
            self._log.end_append(appending)
        self._topic.commit()
        publishers += self._take()[1]
        self._topic.refuse(appending.batches, publishers, error)

    def join(self) -> None:
        """Wait until all batches are written or refused. Blocks this greenlet."""
        if not self.is_idle:
            self._greenlet.join()


class StillReading(BlockingIOError):
    """A thread is reading the requested bytes; ask again when it is done."""


class SlowReader:
    """Reads files of one log: directly while the disk is fast, else in a thread.

    on_read  called when the thread has read something
    """

    __slots__ = ("_asked", "_disk_speed", "_on_read", "_pieces", "_repairs", "_threadpool")

    def __init__(self, threadpool: Any, disk_speed: DiskSpeed, on_read: Callable[[], None]) -> None:
        self._threadpool = threadpool
        self._disk_speed = disk_speed
        self._on_read = on_read
        # Created when needed: an empty one takes 600 bytes per topic.
        self._pieces: OrderedDict[tuple[LogFile, int, int], bytes | OSError] | None = None
        self._asked: frozenset[tuple[LogFile, int, int]] = frozenset()
        self._repairs = 0

    def forget(self) -> None:
        """Read again what threads have read, or are reading: files were repaired or replaced."""
        self._pieces = None
        self._asked = frozenset()
        self._repairs += 1

    def read(self, file: LogFile, offset: int, size: int) -> bytes:
        """Read like `LogFile.read`. Raises StillReading while a thread reads; call again after `on_read`."""
        if not self._disk_speed.is_slow:
            self._pieces = None
            began_ns = monotonic_ns()
            try:
                return file.read(offset, size)
            finally:
                self._disk_speed.note(monotonic_ns() - began_ns)
        key = file, offset, size
        pieces = self._pieces
        piece = pieces.get(key) if pieces is not None else None
        if pieces is None or piece is None:
            if key not in self._asked:
                file.pin()  # it may be closed during the read
                self._asked |= {key}
                gevent.spawn(self._read_in_thread, key)
            raise StillReading
        if isinstance(piece, OSError):
            del pieces[key]
            try:
                raise piece
            finally:
                del piece  # its traceback holds this frame: together they would be a reference cycle
        pieces.move_to_end(key)
        return piece

    def _read_in_thread(self, key: tuple[LogFile, int, int]) -> None:
        file, offset, size = key
        repairs = self._repairs
        result: bytes | OSError = b""

        def read() -> None:
            nonlocal result
            result = file.read(offset, size)

        try:
            in_timed_thread(self._threadpool, self._disk_speed, [read])
        except Exception as error:  # noqa: BLE001 - after a bug, the channel that waits must get an error
            result = _disk_error(error)
        finally:
            file.unpin()
            is_new = repairs == self._repairs
            if is_new:
                self._asked -= {key}
        if is_new:
            self._keep(key, result)
        self._on_read()

    def _keep(self, key: tuple[LogFile, int, int], result: bytes | OSError) -> None:
        if self._pieces is None:
            self._pieces = OrderedDict()
        self._pieces[key] = result
        while len(self._pieces) > _MOST_PIECES:
            self._pieces.popitem(last=False)


# ---- stored files


class StoredReader:
    """Reads stored files of one log for channels, in threads.

    A channel that needs one waits until it is read, also while the store does not answer: then the log says so, and the next
    attempt follows after 1 s, or later. Nothing is passed over but a file that the store, as it says for a minute, does not have.

    on_read  called when a thread has read something, or could not
    """

    __slots__ = (
        "_asked",
        "_clock",
        "_history",
        "_log",
        "_missed_ns",
        "_name",
        "_on_read",
        "_pieces",
        "_retry_delay_ns",
        "_retry_ns",
        "_threadpool",
    )

    def __init__(
        self,
        topic_name: str,
        history: LogHistory,
        services: BrokerServices,
        threadpool: Any,
        on_read: Callable[[], None],
    ) -> None:
        self._name = topic_name
        self._history = history
        self._log = services.log
        self._clock = services.clock
        self._threadpool = threadpool
        self._on_read = on_read
        self._pieces: OrderedDict[tuple[str, int], Piece] = OrderedDict()
        self._asked: set[tuple[str, int]] = set()
        self._missed_ns: dict[str, int] = {}  # since when the store does not have a file, by name
        self._retry_ns = 0
        self._retry_delay_ns = _FIRST_RETRY_NS

    def read(self, file: HistoryFile, seq: int) -> Piece:
        """Return what `read_stored_piece` returns. Raises StillReading; call again after `on_read`, or later."""
        key = file.name, seq
        piece = self._pieces.pop(key, None)
        if piece is not None:
            return piece
        if key not in self._asked and self._clock() >= self._retry_ns:
            self._asked.add(key)
            gevent.spawn(self._read_in_thread, key, file)
        raise StillReading

    def _read_in_thread(self, key: tuple[str, int], file: HistoryFile) -> None:
        pieces: list[Piece] = []
        try:
            in_thread(self._threadpool, lambda: pieces.append(read_stored_piece(file, key[1])))
        except Exception as error:  # noqa: BLE001 - after a bug, the channel must not wait forever without a word
            if isinstance(error, FileNotFoundError) and self._is_missing(file.name):
                self._keep(key, missing_piece(file))
            else:
                self._failed(key[1], _disk_error(error))
        else:
            self._missed_ns.pop(file.name, None)
            self._history.missing.discard(file.name)
            self._keep(key, pieces[0])
        finally:
            self._asked.discard(key)
        self._on_read()

    def _keep(self, key: tuple[str, int], piece: Piece) -> None:
        self._succeeded()
        self._pieces[key] = piece
        while len(self._pieces) > _MOST_PIECES:
            self._pieces.popitem(last=False)

    def _is_missing(self, name: str) -> bool:
        """True if the store has said for long enough that it does not have a file; report it once."""
        now_ns = self._clock()
        if now_ns - self._missed_ns.setdefault(name, now_ns) < _MISSING_AFTER_NS:
            return False
        if name not in self._history.missing:
            self._history.missing.add(name)
            self._log.of_clients.error(
                "TOPIC(%s): the store has lost %s; it is passed over", self._name, name
            )
        return True

    def _failed(self, seq: int, error: OSError) -> None:
        reason = error.strerror or str(error)
        if reason != self._history.problem:
            self._log.of_clients.error(
                "TOPIC(%s): failed to read message %d from the store; its channels wait for it - %s",
                self._name,
                seq,
                reason,
            )
        self._history.problem = reason
        self._retry_ns = self._clock() + self._retry_delay_ns
        self._retry_delay_ns = min(2 * self._retry_delay_ns, _LONGEST_RETRY_NS)

    def _succeeded(self) -> None:
        if self._history.problem:
            self._log.of_clients.info("TOPIC(%s): the store answers again", self._name)
        self._history.problem = ""
        self._retry_ns = 0
        self._retry_delay_ns = _FIRST_RETRY_NS
