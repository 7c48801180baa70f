"""Reading a queue of Go's nsqd from its files: all unread messages, also behind damage."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from nsqd_py.go_import import go_files


@dataclass(frozen=True, slots=True)
class GoDamage:
    """Bytes start..end (not included) of a file that hold no readable message."""

    file: str
    start: int
    end: int
    reason: str


OnDamage = Callable[[GoDamage], None]


@dataclass(slots=True)
class GoQueue:
    """The files of one queue.

    channel    None for the topic's own queue
    files      files with messages, by number
    bad_files  files in which Go's nsqd could not read on, by number
    position   the position at the last sync; None if unknown
    names      names of all files, also of those without messages
    """

    topic: str
    channel: str | None
    files: dict[int, Path] = field(default_factory=dict)
    bad_files: dict[int, Path] = field(default_factory=dict)
    position: go_files.GoPosition | None = None
    names: list[str] = field(default_factory=list)

    def blocks(self, on_damage: OnDamage) -> Iterator[list[go_files.GoMessage]]:
        """Yield all unread messages in order, in blocks of about 2 MiB.

        Messages behind the last known write position are included, because Go's nsqd writes its position only every
        `--sync-every` messages. Messages that were read since then are redelivered.
        """
        for number in sorted(self.bad_files):
            yield from _behind_damage(self.bad_files[number], on_damage)
        position = self.position
        if position is None or self._is_past_files(position):
            position = self._first_position(on_damage)
        expected = position.read_number
        for number in sorted(number for number in self.files if number >= position.read_number):
            self._report_missing(expected, number, on_damage)
            offset = position.read_offset if number == position.read_number else 0
            yield from _FileReader(self.files[number], on_damage).blocks(offset)
            expected = number + 1
        if position.write_offset and position.has_unread:
            self._report_missing(expected, position.write_number + 1, on_damage)

    @property
    def name(self) -> str:
        """The beginning of the names of its files: `topic` or `topic:channel`."""
        return go_files.queue_name(self.topic, self.channel)

    @property
    def may_have_messages(self) -> bool:
        return bool(self.files or self.bad_files)

    def _is_past_files(self, position: go_files.GoPosition) -> bool:
        """True if the position points behind the files: it was saved at another time than they. Raises OSError."""
        if not self.files:
            return False
        if position.read_number > max(self.files):
            return True
        path = self.files.get(position.read_number)
        if path is None:
            return False
        return path.is_file() and position.read_offset > path.stat().st_size

    def _first_position(self, on_damage: OnDamage) -> go_files.GoPosition:
        """Return a position before all messages, since without a known position all must be delivered."""
        for name in self.names:
            if name.endswith(go_files.GO_POSITION_SUFFIX):
                on_damage(
                    GoDamage(name, 0, 0, "it does not say where the queue stood; all messages are taken")
                )
        first = min(self.files, default=0)
        return go_files.GoPosition(0, first, 0, first, 0)

    def _report_missing(self, first: int, after: int, on_damage: OnDamage) -> None:
        if after > first:
            if after == first + 1:
                reason = "it is missing"
            else:
                reason = f"it and {after - first - 1} more are missing"
            on_damage(GoDamage(go_files.go_file_name(self.topic, self.channel, first), 0, 0, reason))


def _behind_damage(path: Path, on_damage: OnDamage) -> Iterator[list[go_files.GoMessage]]:
    """Yield the messages of a file behind its first damage, up to which Go's nsqd had read it before it gave up.

    Go's nsqd also gives up undamaged files, when it has read to the end just as the next file begins.
    """
    damages: list[GoDamage] = []

    def note(damage: GoDamage) -> None:
        damages.append(damage)
        on_damage(damage)

    for messages in _FileReader(path, note).blocks(0):
        if damages:
            yield messages


class _FileReader:
    """Reads the messages of one file, and reports the bytes between them that hold none."""

    def __init__(self, path: Path, on_damage: OnDamage) -> None:
        self._path = path
        self._on_damage = on_damage
        self._fd = -1
        self._size = 0

    def blocks(self, offset: int) -> Iterator[list[go_files.GoMessage]]:
        try:
            file = self._path.open("rb", buffering=0)
        except OSError as error:
            self._report(offset, offset, str(error))
            return
        with file:
            self._fd = file.fileno()
            self._size = os.fstat(self._fd).st_size
            yield from self._messages(offset)

    def _messages(self, offset: int) -> Iterator[list[go_files.GoMessage]]:
        while offset < self._size:
            try:
                messages, length = go_files.decode_go_messages(self._block(offset))
                after = offset + length if messages else self._pass_damage(offset)
            except OSError as error:
                self._report(offset, self._size, str(error))
                return
            if messages:
                yield messages
            offset = after

    def _block(self, offset: int) -> bytes:
        """Return a block with at least one complete message, if the file has it."""
        data = self._read_at(offset, go_files.BLOCK_BYTES)
        needed = go_files.go_bytes_needed(data)
        if len(data) < needed <= self._size - offset:
            return self._read_at(offset, needed)
        return data

    def _read_at(self, offset: int, size: int) -> bytes:
        rest = max(0, self._size - offset)
        return os.pread(self._fd, min(size, rest), offset)

    def _pass_damage(self, offset: int) -> int:
        """Report damage; return the offset of the next message behind it."""
        found = go_files.find_go_message(self._read_at, offset + 1, self._size)
        if found is None:
            self._report(offset, self._size, "no message, and none behind it")
            return self._size
        self._report(offset, found, "no message")
        return found

    def _report(self, start: int, end: int, reason: str) -> None:
        self._on_damage(GoDamage(self._path.name, start, end, reason))


def find_go_queues(directory: Path) -> list[GoQueue]:
    """Return all queues with files in the directory, topics before their channels. Raises OSError."""
    queues: dict[tuple[str, str], GoQueue] = {}
    for path in sorted(directory.iterdir()):
        name = go_files.parse_go_name(path.name)
        if name is None:
            continue
        key = (name.topic, name.channel or "")
        queue = queues.setdefault(key, GoQueue(name.topic, name.channel))
        queue.names.append(path.name)
        if name.kind is go_files.GoFileKind.MESSAGES:
            queue.files[name.number] = path
        elif name.kind is go_files.GoFileKind.BAD:
            queue.bad_files[name.number] = path
        elif name.kind is go_files.GoFileKind.POSITION:
            with suppress(OSError):
                queue.position = go_files.parse_go_position(path.read_bytes())
    return [queues[key] for key in sorted(queues)]
