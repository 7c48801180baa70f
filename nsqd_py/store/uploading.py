"""Puts what is new in a data path into the store: bases, and the rounds of a feed after each of them.

A round is one object, or several if it is large; the last of them has the mark. Rounds are put one after the other, at
most one each interval, unless publishers wait for them: then the next one begins as soon as the last one is stored.
A base begins the state again, from the log files that are objects of their own. After an outage, or an error, too, it
is the way to go on: nothing is held in memory for a store that is away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, Protocol

import gevent
from gevent.event import Event

from nsqd_py.broker.broker import Broker
from nsqd_py.broker.services import Topic
from nsqd_py.errors import InternalError
from nsqd_py.feed.feed import Feed
from nsqd_py.feed.pieces import Piece, TopicListing
from nsqd_py.runtime.pacing import WorkSlices
from nsqd_py.runtime.threads import in_thread
from nsqd_py.store.files import StoredFiles, Upload
from nsqd_py.store.layout import StoredFile
from nsqd_py.store.objects import Objects, StoreError, StoreRefused
from nsqd_py.store.ownership import Owner, Superseded
from nsqd_py.store.rounds import BASE, MARK, files_frame, piece_frame

# One object is in memory three times while it is put.
_OBJECT_BYTES = 4 * 1024 * 1024
_LISTED_AT_ONCE = 200  # files in a frame: 0.5 ms of processor

# When a base is due: the objects and the bytes after the last one.
_MOST_ROUNDS = 1000
_LEAST_BYTES = 16 * 1024 * 1024
_MOST_BYTES = 64 * 1024 * 1024
_PART_OF_BASE = 2

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_TICK_S = 1.0
# Publishers that were answered together publish again together: the next round waits for the others of them.
_GATHER_S = 0.002
# How often a round waits for a journal that is being written, and for how long.
_MOST_WAITS = 20
_JOURNAL_S = 0.01
_NS_PER_S = 1_000_000_000
_NS_PER_MS = 1_000_000


class Waiting(Protocol):
    """The publishers that wait for the store, as a stream sees them."""

    def last_write(self) -> int:
        """Return the number of the last write to a log."""

    def count(self) -> int:
        """Return how many publishers wait."""

    def stored(self, write: int) -> None:
        """Answer the publishers up to this write."""


class Outage(NamedTuple):
    """The time since when the store does not take what is put, and the reason."""

    since_s: float
    reason: str


class Stored(NamedTuple):
    """What the store has of the changes of one feed."""

    messages: int = 0
    size_bytes: int = 0


@dataclass(eq=False, repr=False)
class StoreStream:
    """Puts everything that changes in a data path, in a greenlet.

    files           the log files of the store
    outage          None while the store takes what is put
    last_round      number of the last object that is stored
    last_round_s    when it was, on the monotonic clock; 0 before the first one
    round_count, round_bytes  the objects since the last base began, with it
    base_bytes      of the base, with the files that went up for it
    _is_retained    True if the store keeps the finished messages of a topic
    _on_superseded  called once, when another nsqd has taken over the store
    """

    _broker: Broker
    _directory: Path
    _threadpool: Any
    _objects: Objects
    _owner: Owner
    files: StoredFiles
    _waiting: Waiting
    _is_retained: Callable[[Topic], bool]
    _on_superseded: Callable[[Superseded], None]
    outage: Outage | None = None
    last_round: int = 0
    last_round_s: float = 0.0
    round_count: int = 0
    round_bytes: int = 0
    base_bytes: int = 0
    _feed: Feed | None = None
    _stored: Stored = Stored()
    _round_since_ns: int = 0  # of the oldest change in the round that is being put
    _answered: int = 0  # publishers, by the last round
    _gather_until_s: float = 0.0
    _is_noted: bool = False
    _is_idle: bool = False
    _is_hurried: bool = False  # nsqd ends
    _wake: Event = field(default_factory=Event)
    _added: list[StoredFile] = field(default_factory=list)  # that no round has named
    _removed: list[StoredFile] = field(default_factory=list)
    _greenlet: Any = None
    _file_greenlet: Any = None

    def __post_init__(self) -> None:
        self._interval_ns = self._broker.options.store_interval_ns

    def start(self) -> None:
        self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """End at once. A request that a thread has begun goes on."""
        self._leave_feed()
        for greenlet in (self._greenlet, self._file_greenlet):
            if greenlet is not None:
                greenlet.kill(block=False)

    # ---- what the part asks

    def hurry(self) -> None:
        """Put what is new at once: nsqd ends."""
        self._is_hurried = True
        self._wake.set()

    def publishers_wait(self) -> None:
        """Begin a round soon, since publishers wait for it."""
        if self._is_idle:
            self._wake.set()

    @property
    def has_all(self) -> bool:
        """True if the store has everything that there is."""
        return self._is_idle and self._feed is not None and not self._feed.since_ns and not self._added

    @property
    def is_copying(self) -> bool:
        """True until the first base is stored."""
        return self._feed is None or not self._feed.is_following

    def lag(self) -> tuple[int, int, int]:
        """Return the messages, the bytes, and the time in ms that the store is behind."""
        feed = self._feed
        if feed is None:
            return 0, 0, 0
        unread = feed.unread()
        times_ns = [ns for ns in (self._round_since_ns, feed.since_ns) if ns]
        behind_ns = self._broker.clock() - min(times_ns) if times_ns else 0
        messages = unread.messages + feed.message_count - self._stored.messages
        size_bytes = unread.size_bytes + feed.size_bytes - self._stored.size_bytes
        return messages, size_bytes, behind_ns // _NS_PER_MS

    # ---- its greenlet

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                # Those who read it must find these epochs after a restart, too.
                gevent.spawn(self._broker.metadata.persist).get()
                self._put_base()
                pause_s = _FIRST_PAUSE_S
                while not self._is_base_due():
                    self._wait_until_due()
                    self._put_round()
                self._send_files_up(is_base=True)
            except Superseded as error:
                self._leave_feed()
                self._on_superseded(error)
                return
            except (OSError, StoreRefused) as error:
                self._broker.log.error("STORE: cannot store what is new - %s; beginning a new base", error)
            except Exception as error:  # noqa: BLE001 - whatever it is, this must go on
                self._broker.log.exception("STORE: %r; beginning a new base", error)
            else:
                continue
            gevent.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _is_base_due(self) -> bool:
        most_bytes = min(max(_LEAST_BYTES, _PART_OF_BASE * self.base_bytes), max(_MOST_BYTES, self.base_bytes))
        feed = self._feed
        assert feed is not None
        is_far_behind = feed.unread().size_bytes > _MOST_BYTES
        return self.round_count >= _MOST_ROUNDS or self.round_bytes > most_bytes or is_far_behind

    # ---- when a round begins

    def _note_change(self) -> None:
        if not self._is_noted:
            self._is_noted = True
            self._wake.set()

    def _wait_until_due(self) -> None:
        """Return when a round must begin. Blocks this greenlet."""
        feed = self._feed
        assert feed is not None
        self._is_idle = True
        try:
            while (wait_s := self._wait_s(feed)) > 0:
                if not self._wake.wait(wait_s):
                    feed.note_gone_files()
                    self._send_sealed_files_up()
                self._wake.clear()
        finally:
            self._is_idle = False

    def _wait_s(self, feed: Feed) -> float:
        """Return the time until a round must begin, or until the next look at the files."""
        count = self._waiting.count()
        if count:
            gathers_s = self._gather_until_s - monotonic()
            return gathers_s if count < self._answered else 0.0
        if self._is_hurried and (feed.since_ns or self._added):
            return 0.0
        since_ns = feed.since_ns
        if not since_ns and not self._added and not feed.is_due:
            return _TICK_S
        if not since_ns:
            return max(0.0, self.last_round_s + self._interval_ns / _NS_PER_S - monotonic())
        return max(0.0, (since_ns + self._interval_ns - self._broker.clock()) / _NS_PER_S)

    # ---- bases and rounds

    def _put_base(self) -> None:
        """Put the whole state, from the log files that are in the store. Raises Superseded and OSError."""
        self._leave_feed()
        self._join_files()
        self._send_files_up(is_base=True)
        # Every log that is deleted from here on is one of the changes that the feed notes.
        self._added.clear()
        removed, self._removed = self._removed, []
        for topic in {file.topic for file in self.files} - set(self._broker.topics):
            removed += self.files.forget_others(topic, None)
        topics = [topic for topic in self._broker.topics.values() if topic.log is not None]
        offered = self.files.offer(topics, lambda *work: in_thread(self._threadpool, *work))
        feed = Feed(self._broker, self._directory, self._threadpool, offered, self._note_change)
        self._broker.listen(feed)
        self._feed = feed
        self._stored = Stored()
        first = self._owner.next_number
        self.base_bytes = 0
        self.round_count = 0
        self.round_bytes = 0
        covers = self._waiting.last_write()
        self._round_since_ns = feed.since_ns
        self._put_frames(self._frames_of_base(feed), BASE)
        self._end_round(feed, covers)
        feed.follow()
        self._call(self._owner.move_base, first)
        self.base_bytes += self.round_bytes
        self._forget(removed)

    def _frames_of_base(self, feed: Feed) -> Iterator[bytes]:
        files = list(self.files)
        for start in range(0, len(files), _LISTED_AT_ONCE):
            yield files_frame(files[start : start + _LISTED_AT_ONCE])
        yield from self._frames(feed.list_files())
        yield from self._frames(self._pieces_of_round(feed))

    def _put_round(self) -> None:
        """Put what has changed. Raises Superseded and OSError."""
        feed = self._feed
        assert feed is not None
        self._is_noted = False
        covers = self._waiting.last_write()
        self._round_since_ns = feed.since_ns
        added, self._added = self._added, []
        removed, self._removed = self._removed, []
        self._put_frames(self._frames_of_round(feed, added, removed), 0)
        self._end_round(feed, covers)
        self._forget(removed)

    def _frames_of_round(
        self, feed: Feed, added: list[StoredFile], removed: list[StoredFile]
    ) -> Iterator[bytes]:
        if added or removed:
            yield files_frame(added, [file.name for file in removed])
        yield from self._frames(self._pieces_of_round(feed))

    def _pieces_of_round(self, feed: Feed) -> Iterator[Piece]:
        """Yield a round, with the journals that it lacks: without these, its logs may lack what a channel has finished."""
        yield from feed.round()
        for _ in range(_MOST_WAITS):
            if not feed.lacks_journals:
                return
            gevent.sleep(_JOURNAL_S)
            yield from feed.round()

    def _frames(self, pieces: Iterable[Piece]) -> Iterator[bytes]:
        for piece in pieces:
            if isinstance(piece, TopicListing):
                yield from self._frames_before(piece.topic)
            yield piece_frame(piece)

    def _frames_before(self, topic_name: str) -> Iterator[bytes]:
        """Yield the frame that removes the stored files of another log of this topic, which was deleted."""
        topic = self._broker.topics.get(topic_name)
        others = self.files.forget_others(topic_name, topic.log if topic is not None else None)
        if others:
            self._removed += others
            yield files_frame((), [file.name for file in others])

    def _end_round(self, feed: Feed, covers: int) -> None:
        """Count the round as stored, and answer the publishers that waited for it."""
        self._stored = Stored(feed.message_count, feed.size_bytes)
        self._round_since_ns = 0
        self._answered = self._waiting.count()
        self._waiting.stored(covers)
        self._answered -= self._waiting.count()
        self._gather_until_s = monotonic() + _GATHER_S

    def _leave_feed(self) -> None:
        if self._feed is not None:
            self._broker.stop_listening(self._feed)
            self._feed.close()

    # ---- objects

    def _put_frames(self, frames: Iterable[bytes], flags: int) -> None:
        """Put frames as objects, the last of which has the mark; nothing if there are none. Raises Superseded."""
        slices = WorkSlices()
        pending: list[bytes] = []
        size_bytes = 0
        for frame in frames:
            if pending and size_bytes + len(frame) > _OBJECT_BYTES:
                self._put(pending, flags)
                pending = []
                size_bytes = 0
            pending.append(frame)
            size_bytes += len(frame)
            slices.sleep_if_due()
        if pending:
            self._put(pending, flags | MARK)

    def _put(self, frames: list[bytes], flags: int) -> None:
        """Put one object, however long that takes. Raises Superseded."""
        self._call(self._append, frames, flags)
        self.last_round = self._owner.next_number - 1
        self.last_round_s = monotonic()
        self.round_count += 1

    def _append(self, frames: list[bytes], flags: int) -> None:
        """Put one object; runs in a thread."""
        payload = b"".join(frames)
        self._owner.append(flags, payload)
        self.round_bytes += len(payload)

    def _call(self, work: Callable[..., object], *arguments: Any) -> None:
        """Do something in the store, in a thread; repeat it until the store answers. Raises Superseded and OSError."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                in_thread(self._threadpool, work, *arguments)
            except (StoreError, StoreRefused) as error:
                self._note_outage(error)
                gevent.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            else:
                self._note_answer()
                return

    def _note_outage(self, error: Exception) -> None:
        if self.outage is None:
            self._broker.log.error("STORE: %r does not take what is new - %s; trying again", self._objects, error)
        since_s = self.outage.since_s if self.outage is not None else monotonic()
        self.outage = Outage(since_s, str(error))

    def _note_answer(self) -> None:
        if self.outage is not None:
            away_s = monotonic() - self.outage.since_s
            self.outage = None
            self._broker.log.info("STORE: %r answers again, after %.1f s", self._objects, away_s)

    # ---- log files

    def _send_sealed_files_up(self) -> None:
        """Let a greenlet put the sealed files of topics whose messages the store keeps."""
        if self._file_greenlet is None or self._file_greenlet.ready():
            self._file_greenlet = gevent.spawn(self._try_to_send_files_up)

    def _try_to_send_files_up(self) -> None:
        try:
            self._send_files_up(is_base=False)
        except OSError as error:
            self._broker.log.error("STORE: cannot store a log file - %s", error)

    def _join_files(self) -> None:
        if self._file_greenlet is not None:
            self._file_greenlet.join()

    def _send_files_up(self, *, is_base: bool) -> None:
        """Put the log files that must be objects. Raises OSError. Blocks this greenlet; rounds go on."""
        for topic in list(self._broker.topics.values()):
            is_retained = self._is_retained(topic)
            if is_base or is_retained:
                for upload in list(self.files.uploads(topic, is_base=is_base, is_retained=is_retained)):
                    self._send_up(upload)

    def _send_up(self, upload: Upload) -> None:
        found: list[StoredFile] = []
        try:
            self._call(self._put_file, upload, found)
        except FileNotFoundError:  # it was dropped in the meantime
            return
        file = found[0]
        if not upload.is_current:  # then its bytes may be those of another file, which has its space
            self._forget([file])
            return
        before = self.files.add(file)
        self.base_bytes += file.size_bytes
        self._added.append(file)
        if before is not None:
            self._removed.append(before)

    def _put_file(self, upload: Upload, found: list[StoredFile]) -> None:
        """Put one file; runs in a thread."""
        file = upload.describe(self._owner.epoch)
        self._objects.put_file(file.name, upload.file.path, file.size_bytes)
        found.append(file)

    def _forget(self, files: list[StoredFile]) -> None:
        """Have objects deleted that the state does not name any more."""
        if files:
            self._owner.delete_later([file.name for file in files])
