"""Puts what is new in a data path into the store: bases, and the rounds of a feed after each of them.

A round is one object, or several if it is large; the last of them has the mark. Rounds are put one after the other, at
most one each interval, unless publishers wait for them: then the next one begins as soon as the last one is stored.
A base begins the state again, from the log files that are objects of their own. After an outage, or an error, too, it
is the way to go on: nothing is held in memory for a store that is away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, Protocol

import gevent
from gevent.event import Event

from nsqd_py.broker.broker import Broker
from nsqd_py.diskqueue.files.log_file import LogFile, parse_log_file_name
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.errors import NsqdError
from nsqd_py.feed.feed import Feed
from nsqd_py.feed.pieces import Begin, Commit, Piece, Remove, TopicListing, Write
from nsqd_py.objects.calls import Objects, StoreError, StoreRefused
from nsqd_py.runtime.pacing import WorkSlices
from nsqd_py.runtime.threads import in_thread
from nsqd_py.standby.copies.data_path import topic_of
from nsqd_py.store.files import Replacing, Retention, StoredFiles, Upload
from nsqd_py.store.layout import BadObject, StoredFile
from nsqd_py.store.ownership import Owner, Superseded
from nsqd_py.store.rounds import files_frame, piece_frame

# One object is in memory three times while it is put.
_OBJECT_BYTES = 2 * 1024 * 1024
_LISTED_AT_ONCE = 200  # files in a frame: 0.5 ms of processor

# When a base is due: the objects and the bytes after the last one.
_MOST_ROUNDS = 1000
_LEAST_BYTES = 16 * 1024 * 1024
_MOST_BYTES = 64 * 1024 * 1024
_PART_OF_BASE = 2

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_TICK_S = 1.0
_COLLECTION_S = 60.0
# How long a store that is not written may be another nsqd's before this one finds it: 86,400 requests a month.
_LOOK_S = 30.0
# Publishers that were answered together publish again together: the next round waits for the others of them.
_GATHER_S = 0.002
# A request with little to send hangs when it takes longer.
_HANGS_S = 5.0
# How often a round waits for a journal that is being written, and for how long.
_MOST_WAITS = 20
_JOURNAL_S = 0.01
_NS_PER_S = 1_000_000_000
_NS_PER_MS = 1_000_000


class _NotCovered(Exception):
    """A sparse file has got messages that no stored file has, although its first ones were not sent: begin a base."""


class Lag(NamedTuple):
    """How far the store is behind."""

    messages: int
    size_bytes: int
    ms: int


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

    files           the log files of the store, as its rounds say
    last_round      number of the last object that is stored
    last_round_s    when it was, on the monotonic clock; 0 before the first one
    round_count, round_bytes  the objects since the last base, with it
    mended_count    damaged heads that were written again
    _on_superseded  called once, when another nsqd has taken over the store
    """

    _broker: Broker
    _directory: Path
    _threadpool: Any
    _objects: Objects
    _owner: Owner
    files: StoredFiles
    _waiting: Waiting
    _on_superseded: Callable[[NsqdError], None]
    last_round: int = 0
    last_round_s: float = 0.0
    round_count: int = 0
    round_bytes: int = 0
    mended_count: int = 0
    _outage: Outage | None = None
    _asked_s: float = 0.0  # when the request began that a round waits for
    _base_bytes: int = 0  # with the files that went up for it
    _feed: Feed | None = None
    _stored: Stored = Stored()
    _round_since_ns: int = 0  # of the oldest change in the round that is being put
    _answered: int = 0  # publishers, by the last round
    _gather_until_s: float = 0.0
    _next_look_s: float = 0.0
    _looked_s: float = 0.0  # at the head
    _next_collection_s: float = 0.0
    _is_noted: bool = False
    _is_idle: bool = False
    _is_hurried: bool = False  # nsqd ends
    _is_base_wanted: bool = False
    _is_look_wanted: bool = False
    _wake: Event = field(default_factory=Event)
    _added: list[StoredFile] = field(default_factory=list)  # that the next round names
    _removed: list[StoredFile] = field(default_factory=list)
    _dropped: list[StoredFile] = field(default_factory=list)  # that no round names, and that can be deleted
    _prepared: list[tuple[Upload, StoredFile]] = field(default_factory=list)  # that the next base names
    _covered: set[str] = field(
        default_factory=set
    )  # names of sparse files that are not sent: the store has the originals
    _greenlet: Any = None
    _file_greenlet: Any = None
    _is_preparing: bool = False

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
    def outage(self) -> Outage | None:
        """None while the store takes what is put. An outage begins with the first request that it does not answer."""
        hanging_s = monotonic() - self._asked_s if self._asked_s else 0.0
        if self._outage is None and hanging_s >= _HANGS_S:
            return Outage(self._asked_s, f"it has not answered a request for {hanging_s:.0f} s")
        return self._outage

    @property
    def has_all(self) -> bool:
        """True if the store has everything that there is."""
        feed = self._feed
        return self._is_idle and feed is not None and not feed.since_ns and not self._added

    @property
    def is_copying(self) -> bool:
        """True until the first base is stored."""
        return self._feed is None or not self._feed.is_following

    def lag(self) -> Lag:
        feed = self._feed
        if feed is None:
            return Lag(0, 0, 0)
        unread = feed.unread()
        times_ns = [ns for ns in (self._round_since_ns, feed.since_ns) if ns]
        behind_ns = self._broker.clock() - min(times_ns) if times_ns else 0
        messages = unread.messages + feed.message_count - self._stored.messages
        size_bytes = unread.size_bytes + feed.size_bytes - self._stored.size_bytes
        return Lag(messages, size_bytes, behind_ns // _NS_PER_MS)

    # ---- what the scrub asks

    def files_now(self) -> list[StoredFile]:
        return list(self.files)

    def local_file(self, file: StoredFile) -> tuple[TopicLog, LogFile] | None:
        """Return nsqd's own file that has the bytes of a stored one, and the log that it is in."""
        topic = self._broker.topics.get(file.topic)
        if topic is None or topic.log is None:
            return None
        for each in topic.log.files:
            is_same = (each.first_seq, each.salt) == (file.first_seq, file.salt)
            if is_same and each.end_offset >= file.size_bytes:
                return topic.log, each
        return None

    def replace_file(self, before: StoredFile, file: StoredFile) -> None:
        """Let the next round name a file that was put again."""
        if before.name == file.name:
            return
        self._use(file)
        self._added.append(file)
        self._wake.set()

    def begin_base(self) -> None:
        """Put a new base soon."""
        self._is_base_wanted = True
        self._wake.set()

    def look_soon(self) -> None:
        """Look at the head soon, and write it again if it is damaged."""
        self._is_look_wanted = True
        self._wake.set()

    # ---- its greenlet

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                self._put_base()
                pause_s = _FIRST_PAUSE_S
                while not self._is_base_ready():
                    self._wait_until_due()
                    self._put_round()
            except _NotCovered:
                continue
            except (Superseded, BadObject) as error:
                self._leave_feed()
                self._on_superseded(error)
                return
            except OSError as error:
                self._broker.log.error("STORE: cannot read what is new - %s; beginning a new base", error)
            except Exception as error:
                self._broker.log.exception("STORE: %r; beginning a new base", error)
            else:
                continue
            gevent.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

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
            while True:
                self._look_at_files(feed)
                if self._is_look_wanted:
                    self._look()
                wait_s = self._wait_s(feed)
                if wait_s <= 0:
                    return
                if self._is_look_due():
                    self._look()
                    continue
                self._wake.clear()
                self._wake.wait(min(wait_s, _TICK_S))
        finally:
            self._is_idle = False

    def _look(self) -> None:
        """Look at the head. Raises Superseded."""
        self._is_look_wanted = False
        self._ask(self._owner.look)
        self._looked_s = monotonic()

    def _wait_s(self, feed: Feed) -> float:
        """Return the time until a round must begin, or until the next look at the files."""
        count = self._waiting.count()
        if count:
            return self._gather_until_s - monotonic() if count < self._answered else 0.0
        if self._is_base_wanted and self._is_ready(self._file_greenlet):
            return 0.0
        is_new = bool(feed.since_ns or self._added or self._removed)
        if self._is_hurried and is_new:
            return 0.0
        if feed.since_ns:
            return (feed.since_ns + self._interval_ns - self._broker.clock()) / _NS_PER_S
        if is_new or feed.is_due:
            return self.last_round_s + self._interval_ns / _NS_PER_S - monotonic()
        return _TICK_S

    def _is_look_due(self) -> bool:
        """True if nothing was written for so long that another nsqd may have taken over unnoticed."""
        return monotonic() - max(self.last_round_s, self._looked_s) >= _LOOK_S

    def _look_at_files(self, feed: Feed) -> None:
        """Each second, note which files are gone, put those that are sealed, and let go of those that no one needs."""
        now_s = monotonic()
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + _TICK_S
        feed.note_gone_files()
        if self._is_ready(self._file_greenlet):
            self._file_greenlet = gevent.spawn(self._try_to_send_files_up, is_base=False)

    # ---- bases and rounds

    def _is_base_ready(self) -> bool:
        """True if a base is due, and a greenlet has put the log files for it. Rounds go on in the meantime."""
        feed = self._feed
        assert feed is not None
        is_far_behind = feed.unread().size_bytes > _MOST_BYTES
        most_bytes = max(_LEAST_BYTES, min(_PART_OF_BASE * self._base_bytes, _MOST_BYTES))
        is_due = self.round_count >= _MOST_ROUNDS or self.round_bytes > most_bytes
        if not (is_due or is_far_behind or self._is_base_wanted):
            return False
        if not self._is_preparing:
            self._join_files()
            self._is_preparing = True
            self._file_greenlet = gevent.spawn(self._try_to_send_files_up, is_base=True)
        if is_far_behind:
            self._join_files()
        return self._is_ready(self._file_greenlet)

    def _put_base(self) -> None:
        """Put the whole state, from the log files that are in the store. Raises Superseded and OSError."""
        self._leave_feed()
        self._join_files()
        self._is_base_wanted = False
        self._forget_other_logs()
        file_bytes = self._use_prepared()
        self._send_files_up(is_base=True)  # what has come since
        file_bytes += self._use_prepared()
        self._added.clear()
        self._release_files()
        self._forget_other_logs()
        topics = [topic for topic in self._broker.topics.values() if topic.log is not None]
        for topic in topics:
            self._removed += self.files.forget_replaced(topic)
        removed = self._removed
        self._removed = []
        offered = self.files.offer(topics, lambda *work: in_thread(self._threadpool, *work))
        feed = Feed(self._broker, self._directory, self._threadpool, offered, self._note_change)
        self._broker.listen(feed)
        self._feed = feed
        self._stored = Stored()
        self._covered.clear()
        self._is_preparing = False
        self.round_count = 0
        self.round_bytes = 0
        covers = self._waiting.last_write()
        self._put_frames(self._frames_of_base(feed), is_base=True)
        self._end_round(feed, covers)
        self._note_named(self.files)
        feed.follow()
        self._ask(self._owner.move_head)
        self._base_bytes = self.round_bytes + file_bytes
        self._drop(removed)

    def _forget_other_logs(self) -> None:
        """Forget the stored files of topics that were deleted."""
        topics = self._broker.topics
        for name in {*topics, *(file.topic for file in self.files)}:
            topic = topics.get(name)
            self._removed += self.files.forget_others(name, topic.log if topic is not None else None)

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
        added = self._added
        removed = self._removed
        self._added = []
        self._removed = []
        self._put_frames(self._frames_of_round(feed, added, removed))
        self._end_round(feed, covers)
        self._note_named(added)
        self._drop(removed)
        now_s = monotonic()
        if now_s >= self._next_collection_s:
            self._next_collection_s = now_s + _COLLECTION_S
            self._release_files()
            self._call(self._owner.collect)

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

    def _end_round(self, feed: Feed, covers: int) -> None:
        """Count the round as stored, and answer the publishers that waited for it."""
        self._stored = Stored(feed.message_count, feed.size_bytes)
        self._round_since_ns = 0
        before = self._waiting.count()
        self._waiting.stored(covers)
        self._answered = before - self._waiting.count()
        self._gather_until_s = monotonic() + _GATHER_S

    def _leave_feed(self) -> None:
        if self._feed is not None:
            self._broker.stop_listening(self._feed)
            self._feed.close()

    # ---- pieces

    def _frames(self, pieces: Iterator[Piece]) -> Iterator[bytes]:
        """Yield the frames of these pieces, with what must be said of log files that the store has."""
        for piece in pieces:
            if isinstance(piece, TopicListing):
                self._covered = {name for name in self._covered if topic_of(name) != piece.topic}
                yield from self._remove_others(piece.topic)
                yield piece_frame(self._with_stored_ends(piece))
            elif isinstance(piece, Begin) and parse_log_file_name(piece.name) is not None:
                yield from self._replaced(piece, pieces)
            elif isinstance(piece, Write) and piece.name in self._covered:
                if not self._replacing(piece.name).is_covered:
                    raise _NotCovered
            else:
                yield piece_frame(piece)
                if isinstance(piece, Remove):
                    yield from self._remove_merged(piece.name)

    def _remove_merged(self, name: str) -> Iterator[bytes]:
        """Yield the frame that removes a stored file which nsqd has removed, since other files have its messages."""
        parsed = parse_log_file_name(name)
        merged = self.files.forget_removed(*parsed, self._covered) if parsed is not None else []
        self._covered.discard(name)
        if merged:
            yield self._removing(merged)

    def _remove_others(self, topic_name: str) -> Iterator[bytes]:
        """Yield the frame that removes the stored files of another log of this topic, which was deleted."""
        topic = self._broker.topics.get(topic_name)
        others = self.files.forget_others(topic_name, topic.log if topic is not None else None)
        if others:
            yield self._removing(others)

    def _removing(self, files: list[StoredFile]) -> bytes:
        self._removed += files  # the next round names them again, and then they can be deleted
        return files_frame((), [file.name for file in files])

    def _with_stored_ends(self, listing: TopicListing) -> TopicListing:
        """Return the list with offsets that are the ends of stored files; others are covered by their originals."""
        ends = self.files.ends(listing.topic)
        offsets = dict(listing.files)
        for name, offset in listing.files.items():
            if offset and ends.get(name) != offset:
                offsets[name] = 0
                self._covered.add(name)
        return replace(listing, files=offsets)

    def _replaced(self, begin: Begin, pieces: Iterator[Piece]) -> Iterator[bytes]:
        """Yield the new version of a log file; nothing, if stored files have all of its messages."""
        replacing = self._replacing(begin.name)
        self._covered.discard(begin.name)
        if replacing.is_covered:
            self._covered.add(begin.name)
        if replacing.replaced:
            yield self._removing(replacing.replaced)
        if not replacing.is_covered:
            yield piece_frame(begin)
        for piece in pieces:
            if not replacing.is_covered:
                yield piece_frame(piece)
            if isinstance(piece, Commit):
                return

    def _replacing(self, name: str) -> Replacing:
        topic_name, _ = parse_log_file_name(name) or ("", 0)
        return self.files.replacing(topic_name, name)

    # ---- objects

    def _put_frames(self, frames: Iterable[bytes], *, is_base: bool = False) -> None:
        """Put frames as objects, the last of which has the mark; nothing if there are none. Raises Superseded."""
        slices = WorkSlices()
        pending: list[bytes] = []
        size_bytes = 0
        for frame in frames:
            if pending and size_bytes + len(frame) > _OBJECT_BYTES:
                self._put(pending, is_mark=False, is_base=is_base)
                is_base = False
                pending = []
                size_bytes = 0
            pending.append(frame)
            size_bytes += len(frame)
            slices.sleep_if_due()
        if pending:
            self._put(pending, is_mark=True, is_base=is_base)

    def _put(self, frames: list[bytes], *, is_mark: bool, is_base: bool) -> None:
        """Put one object, however long that takes. Raises Superseded."""
        owner = self._owner
        size_bytes = sum(map(len, frames))
        if not owner.is_settled:  # an object that an error has interrupted
            self._ask(owner.settle)

        def append() -> None:
            if not owner.is_settled:  # an earlier attempt of this call
                owner.settle()
                return
            payload = b"".join(frames)
            frames.clear()  # the owner has them now, also if the store does not answer
            owner.append(payload, is_mark=is_mark, is_base=is_base)

        self._ask(append)
        self.last_round = owner.next_number - 1
        self.last_round_s = monotonic()
        self.round_count += 1
        self.round_bytes += size_bytes

    def _ask(self, work: Callable[[], object]) -> None:
        """Do as `_call`, with little to send: if that takes long, the store hangs."""
        self._asked_s = monotonic()
        try:
            self._call(work)
        finally:
            self._asked_s = 0.0

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
                self._log_mended()
                return

    def _log_mended(self) -> None:
        while self._owner.mended:
            self.mended_count += 1
            self._broker.log.error("STORE: %s", self._owner.mended.popleft())

    def _note_outage(self, error: Exception) -> None:
        if self._outage is None:
            self._broker.log.error("STORE: %r takes nothing - %s; trying again", self._objects, error)
            self._outage = Outage(self._asked_s or monotonic(), str(error))
        self._outage = self._outage._replace(reason=str(error))

    def _note_answer(self) -> None:
        if self._outage is not None:
            away_s = monotonic() - self._outage.since_s
            self._outage = None
            self._broker.log.info("STORE: %r answers again, after %.1f s", self._objects, away_s)

    # ---- log files

    @staticmethod
    def _is_ready(greenlet: Any) -> bool:
        return greenlet is None or greenlet.ready()

    def _join_files(self) -> None:
        if self._file_greenlet is not None:
            self._file_greenlet.join()

    def _try_to_send_files_up(self, *, is_base: bool) -> None:
        try:
            self._send_files_up(is_base=is_base)
        except OSError as error:
            self._broker.log.error("STORE: cannot store a log file - %s", error)

    def _send_files_up(self, *, is_base: bool) -> None:
        """Put the log files that must be objects. Raises OSError. Blocks this greenlet."""
        for topic in list(self._broker.topics.values()):
            is_retained = bool(Retention.of(self._broker.options, topic.name))
            if is_base or is_retained:
                for upload in list(self.files.uploads(topic, is_base=is_base, is_retained=is_retained)):
                    self._send_up(upload, is_base=is_base)

    def _send_up(self, upload: Upload, *, is_base: bool) -> None:
        found: list[StoredFile] = []
        try:
            self._call(self._put_file, upload, found)
        except FileNotFoundError:  # it was dropped in the meantime
            return
        file = found[0]
        if is_base:  # until then, its rounds continue the file that the last base names
            self._prepared.append((upload, file))
        elif upload.is_current:
            self._use(file)
            self._added.append(file)
        else:  # its bytes may be those of another file, which has its space
            self._dropped.append(file)

    def _put_file(self, upload: Upload, found: list[StoredFile]) -> None:
        """Put one file; runs in a thread."""
        file = upload.describe(self._owner.epoch)
        self._objects.put_file(file.name, upload.file.path, file.size_bytes)
        found.append(file)

    def _use_prepared(self) -> int:
        """Let the base that begins name the files that were put for it. Return their size."""
        prepared = self._prepared
        self._prepared = []
        for upload, file in prepared:
            if upload.is_current:
                self._use(file)
            else:
                self._dropped.append(file)
        return sum(file.size_bytes for _, file in prepared)

    def _use(self, file: StoredFile) -> None:
        self.files.unnamed.add(file.name)
        before = self.files.add(file)
        if before is not None and before.name != file.name:
            self._removed.append(before)

    def _note_named(self, files: Iterable[StoredFile]) -> None:
        """Let nsqd drop its own files, since a round that counts has named those of the store."""
        unnamed = self.files.unnamed
        for file in [file for file in files if file.name in unnamed]:
            unnamed.discard(file.name)
            topic = self._broker.topics.get(file.topic)
            if topic is not None:
                self._broker.housekeeper.check_soon(topic)

    def _release_files(self) -> None:
        """Let go of the stored files that neither a channel nor retention needs."""
        now_ns = self._broker.services.wall_clock()
        steady_ns = self._broker.clock()
        for topic in list(self._broker.topics.values()):
            retention = Retention.of(self._broker.options, topic.name)
            for file in self.files.unneeded(topic, retention, now_ns, steady_ns):
                self.files.remove(file)
                self._removed.append(file)

    def _drop(self, files: list[StoredFile]) -> None:
        """Have objects deleted that no round names any more."""
        dropped = [*files, *self._dropped]
        self._dropped = []
        if dropped:
            self._owner.drop_files([file.name for file in dropped])
