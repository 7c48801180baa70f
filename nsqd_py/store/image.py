"""`StoreImage`: the state of a store, by applying its rounds. `StoreReader` reads it, and reads on.

The state is that of the newest base and of the rounds after it. A base replaces the state when it is complete, at its
mark; until then the state before it counts. Where a writer stopped in the middle of a round, what it wrote counts: a
feed has its pieces in an order that is safe wherever it ends.

After a round that is damaged or missing, the state is what is left: rounds count as far as they continue it, and the next
base makes it whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic

from nsqd_py.diskqueue.files.log_file import parse_log_file_name
from nsqd_py.diskqueue.journals.journal import JOURNAL_SUFFIX
from nsqd_py.diskqueue.journals.ranges import Range
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, Damaged, FileHeader
from nsqd_py.feed.codec import BEGIN, COMMIT, PART, WRITE, FileMessage
from nsqd_py.feed.pieces import TopicListing, TopicsListed
from nsqd_py.objects.calls import Missing, ReadableObjects, StoreError
from nsqd_py.store import rounds
from nsqd_py.store.layout import (
    HEAD_NAME,
    ROUNDS,
    BadObject,
    Head,
    StoredFile,
    missing_rounds_text,
    parse_round_name,
    round_name,
    topic_of_file,
    unreadable_round_text,
)
from nsqd_py.store.rounds import FilesChanged, RoundObject
from nsqd_py.store.spill import Chunks, Spill

# Called with the error of a damaged round that is left out.
OnDamage = Callable[[BadObject], None]

# A reader that follows a store looks at the list of rounds so often, which is a request.
_LOOK_AGAIN_S = 60.0
# No store loses that many rounds in a row, and keeps those behind them: an object further on is foreign.
FAR = 100_000
# Rounds that are asked for at once.
_MOST_REQUESTS = 6


@dataclass(slots=True)
class Tail:
    """The end of a local log file, from `start_offset` on, as it is in rounds.

    salt  of the file's header
    """

    salt: int
    start_offset: int
    chunks: Chunks = field(default_factory=Chunks)
    end_offset: int = 0

    def append(self, data: bytes) -> None:
        self.chunks.append(data)
        self.end_offset += len(data)

    def pieces(self) -> Iterator[tuple[int, bytes]]:
        """Yield the bytes with their offsets in the file. Raises OSError."""
        offset = self.start_offset
        for data in self.chunks:
            yield offset, data
            offset += len(data)


@dataclass(frozen=True, slots=True)
class LogSource:
    """Where the bytes of one log file are: first those of `stored`, then those of `tail`; one of them may be missing."""

    name: str
    first_seq: int
    salt: int
    stored: StoredFile | None
    tail: Tail | None

    @property
    def size_bytes(self) -> int:
        if self.tail is not None:
            return self.tail.end_offset
        if self.stored is not None:
            return self.stored.size_bytes
        return 0

    @property
    def is_sealed(self) -> bool:
        """True if the store has the file as one object, in which nsqd can read."""
        return self.tail is None and self.stored is not None and self.stored.is_sealed


@dataclass(slots=True)
class _State:
    """What one base and the rounds after it say; `tail_names` has the names of `tails` by topic.

    files  by topic and name, the one that was added last at the end
    holes  byte ranges of tails that rounds had which are lost, by name; there are zeros in their place
    """

    files: dict[str, dict[str, StoredFile]] = field(default_factory=dict)
    tail_names: dict[str, set[str]] = field(default_factory=dict)
    tails: dict[str, Tail] = field(default_factory=dict)
    small: dict[str, bytearray] = field(default_factory=dict)
    topics: dict[str, TopicListing] = field(default_factory=dict)
    begun: dict[str, bytearray] = field(default_factory=dict)
    holes: dict[str, list[Range]] = field(default_factory=dict)
    spill: Spill | None = None

    def add_file(self, file: StoredFile) -> None:
        files = self.files.setdefault(file.topic, {})
        name = file.name
        files.pop(name, None)
        files[name] = file

    def remove_file(self, name: str) -> None:
        topic = topic_of_file(name)
        files = self.files.get(topic, {})
        files.pop(name, None)
        if not files:
            self.files.pop(topic, None)

    def new_tail(self, name: str, salt: int, offset: int) -> None:
        """Let the end of a log file begin here."""
        self.set_tail(name, Tail(salt, offset, Chunks(self.spill), offset))

    def set_tail(self, name: str, tail: Tail) -> None:
        self.tails[name] = tail
        self.tail_names.setdefault(_topic_of(name), set()).add(name)

    def drop_tail(self, name: str) -> None:
        if self.tails.pop(name, None) is not None:
            self.tail_names[_topic_of(name)].discard(name)


class StoreImage:
    """The state of a store; `apply` takes its rounds in turn.

    next_number  of the round that must come next
    epoch        of the last round
    mark         number of the last round with a mark that counts; 0 before the first one
    spill        takes the ends of logs that are too many for the memory; None keeps them there
    is_broken    True if a round after the base was damaged or is missing: the state is what is left
    """

    def __init__(self, first_number: int = 1, spill: Spill | None = None) -> None:
        self.next_number = first_number
        self.epoch = 0
        self.mark = 0
        self.base = 0
        self._first_number = first_number
        self._writer = ""
        self._spill = spill
        self._state = _State(spill=spill)
        self._new: _State | None = None  # of a base that is not complete
        self._new_base = 0
        self.is_broken = False
        self._is_after_gap = False

    @property
    def files(self) -> dict[str, list[StoredFile]]:
        """The log files that are in the store as objects, by topic, in no order."""
        return {topic: list(files.values()) for topic, files in self._state.files.items()}

    def all_files(self) -> Iterator[StoredFile]:
        """Yield the log files that are in the store as objects."""
        for files in self._state.files.values():
            yield from files.values()

    def drop_file(self, file: StoredFile) -> None:
        """Leave out an object, since nsqd serves other messages than those that it has."""
        self._state.remove_file(file.name)

    def drop_files(self, topic: str) -> None:
        """Leave out the objects of a topic."""
        self._state.files.pop(topic, None)

    @property
    def tails(self) -> dict[str, Tail]:
        """The ends of the local log files, by their names in a data path."""
        return self._state.tails

    @property
    def small(self) -> dict[str, bytearray]:
        """The other files of the data path by name: journals, and those with nsqd's topics, clock and epochs."""
        return self._state.small

    @property
    def holes(self) -> dict[str, list[Range]]:
        """Byte ranges of `tails` that were in rounds which are lost, by name."""
        return self._state.holes

    @property
    def topics(self) -> dict[str, TopicListing]:
        """The topics as they were listed last."""
        return self._state.topics

    def log_files(self, topic: str) -> list[LogSource]:
        """Return the log files of a topic in the order of their messages, history and live ones.

        Where a compaction has replaced a local file, the stored original counts: it has all messages.
        """
        found: dict[int, LogSource] = {}
        for file in self._state.files.get(topic, {}).values():
            known = found.get(file.first_seq)
            if known is None or known.size_bytes <= file.size_bytes:
                found[file.first_seq] = LogSource(file.local_name, file.first_seq, file.salt, file, None)
        for name in self._state.tail_names.get(topic, ()):
            tail = self.tails[name]
            parsed = parse_log_file_name(name)
            assert parsed is not None
            first_seq = parsed[1]
            known = found.get(first_seq)
            if known is not None and (known.salt != tail.salt or known.size_bytes >= tail.end_offset):
                continue
            stored = None
            if known is not None and tail.start_offset:
                stored = known.stored
            found[first_seq] = LogSource(name, first_seq, tail.salt, stored, tail)
        return [found[seq] for seq in sorted(found)]

    def has_messages(self, topic: str) -> bool:
        """True if the store has a message of this topic, or had one."""
        return any(source.size_bytes > FILE_HEADER_BYTES for source in self.log_files(topic))

    # ---- applying rounds

    def apply(self, obj: RoundObject) -> None:
        """Apply the next round. Raises BadObject; after that, rounds count as far as they continue what is there."""
        self._check(obj)
        messages = list(obj.content())
        self._is_after_gap = False
        self.next_number += 1
        self.epoch = obj.epoch
        self._writer = obj.writer
        if obj.is_takeover:
            self._new = None
            self._state.begun.clear()
        if obj.is_base:
            self._new = _State(spill=self._spill)
            self._new_base = obj.number
        if self._new is None:
            state = self._state
        else:
            state = self._new
        try:
            for message in messages:
                self._take(state, obj.name, message)
        except BadObject:
            self._break()
            raise
        if obj.is_mark:
            self._end_round(obj)

    def skip(self, number: int = 0) -> None:
        """Leave out the next round, which is damaged, or all before a number, which are missing."""
        self.next_number = number or self.next_number + 1
        self._is_after_gap = True
        self._break()

    def _break(self) -> None:
        """Go on with what is there; until the next base, messages may be missing."""
        if self._new is not None:
            _merge(self._state, self._new)
            self._new = None
        self._state.begun.clear()
        self.is_broken = True

    def _check(self, obj: RoundObject) -> None:
        if obj.number != self.next_number:
            raise BadObject(f"{obj.name} comes where {round_name(self.next_number)} must come")
        if obj.epoch < self.epoch:
            raise BadObject(
                f"{obj.name} is of the epoch {obj.epoch}, which ended before: a store of another nsqd?"
            )
        is_known = self.epoch and not self._is_after_gap
        is_other = is_known and (obj.epoch != self.epoch or obj.writer != self._writer)
        is_first = not self.epoch and not self.is_broken
        if is_first and self._first_number > 1 and not obj.is_base:
            raise BadObject(f"{obj.name} is not the base that {HEAD_NAME} says it is")
        if is_other and (obj.epoch == self.epoch or not obj.is_takeover):
            raise BadObject(f"{obj.name} is of another writer than the round before, and no takeover")
        if obj.is_takeover and (obj.payload or obj.is_base or obj.is_mark):
            raise BadObject(f"{obj.name} is a takeover, and has pieces")

    def _end_round(self, obj: RoundObject) -> None:
        if self._new is not None:
            self._state = self._new
            self._new = None
            self.base = self._new_base
            self.is_broken = False
        if not self.is_broken:
            self.mark = obj.number

    def _take(self, state: _State, name: str, message: rounds.Message) -> None:
        if isinstance(message, FilesChanged):
            _change_files(state, message)
            return
        if self.is_broken and state is self._state:
            with suppress(_Impossible):
                _salvage(state, message)
            return
        try:
            if isinstance(message, FileMessage):
                _change_file(state, message)
            elif not isinstance(message, TopicsListed):
                _list_topic(state, message)
        except _Impossible as error:
            raise BadObject(f"{name} does not continue the rounds before it: {error}") from error


class _Impossible(Exception):
    """A message does not fit to the state."""


def _change_files(state: _State, changed: FilesChanged) -> None:
    for name in changed.removed:
        state.remove_file(name)
    for file in changed.added:
        state.add_file(file)


def _list_topic(state: _State, listing: TopicListing) -> None:
    """Handle the list of a topic: what is not in it is gone, and what comes again from its beginning is replaced."""
    topic = listing.topic
    for name in list(state.tail_names.get(topic, ())):
        state.drop_tail(name)
    if topic in state.topics:
        _drop_journals(state, listing)
    if not listing.epochs:  # it was deleted
        state.topics.pop(topic, None)
        return
    state.topics[topic] = listing
    for name, offset in listing.files.items():
        if offset:
            salt = _salt_of_stored(state, topic, name, offset)
            state.new_tail(name, salt, offset)


def _drop_journals(state: _State, listing: TopicListing) -> None:
    """Drop the journals of a topic that are not in its list; a deleted topic has none."""
    journals = set(listing.journals)
    for name in list(state.small):
        if _topic_of(name) != listing.topic:
            continue
        is_old_journal = ":" in name and name not in journals
        if is_old_journal or not listing.epochs:
            del state.small[name]


def _salt_of_stored(state: _State, topic: str, name: str, offset: int) -> int:
    """Return the salt of the stored file that has the first bytes of a local one."""
    for file in reversed(state.files.get(topic, {}).values()):
        if file.size_bytes == offset and file.local_name == name:
            return file.salt
    raise _Impossible(f"no file of the store has the first {offset} bytes of {name}")


def _topic_of(name: str) -> str:
    parsed = parse_log_file_name(name)
    if parsed is not None:
        return parsed[0]
    if name.endswith(JOURNAL_SUFFIX):
        return name.removesuffix(JOURNAL_SUFFIX).partition(":")[0]
    return ""


def _change_file(state: _State, message: FileMessage) -> None:
    kind, name, offset, data = message
    if "/" in name or "\0" in name or name.startswith("."):
        raise _Impossible(f"{name!a} is no file of a data path")
    is_log = parse_log_file_name(name) is not None
    if kind == WRITE:
        if is_log:
            _write_log(state, name, offset, bytes(data))
        else:
            _append(state.small, name, offset, data)
    elif kind == BEGIN:
        state.begun[name] = bytearray()
    elif kind == PART:
        if name not in state.begun:
            raise _Impossible(f"a part of a new version of {name} that was not begun")
        _append(state.begun, name, offset, data)
    elif kind == COMMIT:
        if name not in state.begun:
            raise _Impossible(f"the end of a new version of {name} that was not begun")
        content = state.begun.pop(name)
        if is_log:
            _write_log(state, name, 0, bytes(content))
        else:
            state.small[name] = content
    else:
        state.drop_tail(name)
        state.small.pop(name, None)


def _write_log(state: _State, name: str, offset: int, data: bytes) -> None:
    if not offset:
        state.new_tail(name, _salt_in(name, data), 0)
    tail = state.tails.get(name)
    if tail is None or tail.end_offset != offset:
        raise _Impossible(f"a piece of {name} that begins at {offset} does not continue the file")
    tail.append(data)


def _salt_in(name: str, data: bytes) -> int:
    """Return the salt in the header with which the file begins."""
    try:
        return FileHeader.unchecked(data).salt
    except Damaged as error:
        raise _Impossible(f"{name}: {error}") from error


def _append(files: dict[str, bytearray], name: str, offset: int, data: memoryview) -> None:
    content = files.setdefault(name, bytearray())
    if not offset:
        content.clear()
    if len(content) != offset:
        raise _Impossible(f"a piece of {name} that begins at {offset} does not continue the file")
    content += data


# ---- what is left after damage


def _salvage(state: _State, message: FileMessage | TopicListing | TopicsListed) -> None:
    """Handle a message after a lost round, as far as it continues what is there. Raises _Impossible if it does not.

    Bytes of logs that are missing become a hole. No log file is removed: the lost round may have had its replacement.
    """
    if isinstance(message, TopicListing):
        _list_after_damage(state, message)
        return
    if isinstance(message, TopicsListed):
        return
    kind, name, offset, data = message
    parsed = parse_log_file_name(name)
    if parsed is None:
        if kind == PART and len(state.begun.get(name, b"")) != offset:
            state.begun.pop(name, None)
        if kind != WRITE or not offset:  # the lost round may have had another version of what it continues
            _change_file(state, message)
        return
    state.topics.setdefault(parsed[0], TopicListing(parsed[0]))
    if kind == WRITE:
        _write_with_holes(state, name, offset, bytes(data))
    elif kind in (BEGIN, PART, COMMIT):
        _change_file(state, message)


def _list_after_damage(state: _State, listing: TopicListing) -> None:
    known = state.topics.get(listing.topic)
    is_same = known is not None and listing.epochs and listing.epochs[:1] == known.epochs[:1]
    if not is_same:
        _list_topic(state, listing)
        return
    state.topics[listing.topic] = listing
    for name, offset in listing.files.items():
        tail = state.tails.get(name)
        if offset and (tail is None or tail.end_offset < offset):
            salt = _salt_of_stored(state, listing.topic, name, offset)
            state.new_tail(name, salt, offset)
            state.holes.pop(name, None)


def _write_with_holes(state: _State, name: str, offset: int, data: bytes) -> None:
    tail = state.tails.get(name)
    if not offset and (tail is None or tail.salt != _salt_in(name, data)):
        state.holes.pop(name, None)
        _write_log(state, name, offset, data)
        return
    if tail is None:
        raise _Impossible(f"{name} has no beginning")
    if offset > tail.end_offset:
        state.holes.setdefault(name, []).append((tail.end_offset, offset))
        tail.append(bytes(offset - tail.end_offset))
    new = data[tail.end_offset - offset :]
    if new:
        tail.append(new)


def _merge(state: _State, base: _State) -> None:
    """Add to a state what is there of a base that is not complete."""
    for files in base.files.values():
        for file in files.values():
            state.add_file(file)
    for topic, listing in base.topics.items():
        known = state.topics.get(topic)
        if known is not None and known.epochs[:1] != listing.epochs[:1]:  # it was deleted, and made again
            for name in list(state.tail_names.get(topic, ())):
                state.drop_tail(name)
                state.holes.pop(name, None)
        state.topics[topic] = listing
    for name, tail in base.tails.items():
        before = state.tails.get(name)
        if before is None or before.salt != tail.salt or before.end_offset <= tail.end_offset:
            state.set_tail(name, tail)
            state.holes.pop(name, None)
    state.small.update(base.small)


# ---- reading a store


def read_head(objects: ReadableObjects) -> Head | None:
    """Return the head of a store; None if there is no store. Raises BadObject and the errors of `Objects`."""
    try:
        data, _ = objects.get(HEAD_NAME)
    except Missing:
        return None
    return Head.decode(data)


def head_of(objects: ReadableObjects) -> Head:
    """Return the head of a store. Raises Missing if there is no store, BadObject and the errors of `Objects`."""
    head = read_head(objects)
    if head is None:
        raise Missing(f"there is no store at {objects!r}: {HEAD_NAME} is missing")
    return head


def read_rounds(objects: ReadableObjects, first_number: int) -> Iterator[tuple[int, bytes]]:
    """Yield the rounds from this number on until one is missing. Raises the errors of `Objects`."""
    with ThreadPoolExecutor(_MOST_REQUESTS) as pool:
        waiting: deque[Future[bytes | None]] = deque()
        number = first_number
        last = first_number
        try:
            while True:
                while len(waiting) < min(_MOST_REQUESTS, 1 + number - first_number):
                    waiting.append(pool.submit(_get_or_none, objects, round_name(last)))
                    last += 1
                data = waiting.popleft().result()
                if data is None:
                    return
                yield number, data
                number += 1
        finally:
            for each in waiting:
                each.cancel()


def _get_or_none(objects: ReadableObjects, name: str) -> bytes | None:
    try:
        return objects.get(name)[0]
    except Missing:
        return None


def round_sizes(objects: ReadableObjects) -> dict[int, int]:
    """Return the sizes of the rounds in the list of objects, by number. Raises StoreError and StoreRefused."""
    return {parse_round_name(listed.name) or 0: listed.size_bytes for listed in objects.list(ROUNDS)}


class StoreReader:
    """Reads a store that another process may write to. Blocks; raises BadObject and the errors of `Objects`.

    head   the head when it was read last
    image  the state; another object after a refresh that had to begin at a newer base

    on_damage  called with the error of a damaged round, which is left out; None raises it
    """

    def __init__(
        self, objects: ReadableObjects, on_damage: OnDamage | None = None, spill: Spill | None = None
    ) -> None:
        self.head: Head | None = None
        self.image = StoreImage(spill=spill)
        self._spill = spill
        self._objects = objects
        self._on_damage = on_damage
        self._next_look_s = 0.0  # at the list of rounds

    def refresh(self) -> bool:
        """Read what is new; return True if there was something. Raises Missing if there is no store."""
        head = self.head = head_of(self._objects)
        first = max(1, head.base)
        if first > self.image.next_number or not self.image.epoch:
            self.image = StoreImage(first, self._spill)
        before = self.image.next_number
        self._read_on()
        if head.base and not self.image.epoch and self._on_damage is None:
            raise BadObject(f"{round_name(head.base)} is missing, which {HEAD_NAME} says is the base")
        now_s = monotonic()
        if self.image.epoch and now_s >= self._next_look_s:
            self._next_look_s = now_s + _LOOK_AGAIN_S
            self._pass_missing()
        return self.image.next_number > before

    def _read_on(self) -> None:
        """Read up to the first number that is free."""
        for number, data in read_rounds(self._objects, self.image.next_number):
            take_round(self.image, number, data, self._on_damage)

    def _pass_missing(self) -> None:
        """Go on behind rounds that are missing; only a list tells them from the end. Raises BadObject without `on_damage`."""
        while True:
            later = self._listed_behind()
            if later is None:
                return
            number = self.image.next_number
            self._read_on()  # they may have been written a moment ago
            if self.image.next_number > number:
                continue
            if head_of(self._objects).base > number:  # its owner has deleted them since
                self._next_look_s = 0.0
                self.refresh()
                return
            if later == number:
                raise StoreError(unreadable_round_text(number))
            error = BadObject(missing_rounds_text(number, later), round_name(number))
            if self._on_damage is None:
                raise error
            self._on_damage(error)
            self.image.skip(later)
            self._read_on()

    def _listed_behind(self) -> int | None:
        """Return the first round in the list that is not read; None if there is none."""
        number = self.image.next_number
        return min(
            (each for each in round_sizes(self._objects) if number <= each <= number + FAR), default=None
        )


def take_round(image: StoreImage, number: int, data: bytes, on_damage: OnDamage | None) -> None:
    """Apply a round that was read. Raises BadObject if it is damaged and no `on_damage` is given."""
    try:
        image.apply(rounds.decode(number, data))
    except BadObject as error:
        if on_damage is None:
            raise
        on_damage(error)
        if image.next_number == number:
            image.skip()
