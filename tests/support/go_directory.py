"""Data directories as Go's nsqd v1.3.0 leaves them, from the description of its formats, and what became of one."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nsqd_py.diskqueue.journals.journal import SavedPosition, read_journal
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, FileHeader, decode

FIRST_ID = 0x0D06_B48F_1A40_0000
FIRST_NS = 1_700_000_000_000_000_000


class GoMessage(NamedTuple):
    body: bytes
    id: int
    timestamp_ns: int
    attempts: int = 0

    def tried(self, attempts: int) -> GoMessage:
        """Return it as it is after that many attempts."""
        return self._replace(attempts=attempts)

    @property
    def stored(self) -> bytes:
        """Its size, and the message, as in a file of a disk queue."""
        data = struct.pack(">qH", self.timestamp_ns, self.attempts) + b"%016x" % self.id + self.body
        return struct.pack(">i", len(data)) + data


def go_messages(bodies: Sequence[bytes], first: int = 0, attempts: int = 0) -> list[GoMessage]:
    """Ids and times rise from message to message; `first` is how many came before."""
    return [
        GoMessage(body, FIRST_ID + number, FIRST_NS + 1001 * number, attempts)
        for number, body in enumerate(bodies, first)
    ]


def numbered(prefix: str, count: int, first: int = 0) -> list[GoMessage]:
    return go_messages([f"{prefix}{number}".encode() for number in range(first, first + count)], first)


class GoDirectory:
    """Writes what Go's nsqd would."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(exist_ok=True)

    def name_topics(self, topics: dict[str, Sequence[str]], paused: Sequence[str] = ()) -> None:
        """`nsqd.dat`: channels by topic; `paused` are topics, and channels as `topic:channel`."""
        entries: list[dict[str, Any]] = [
            {
                "name": topic,
                "paused": topic in paused,
                "channels": [{"name": name, "paused": f"{topic}:{name}" in paused} for name in channels],
            }
            for topic, channels in topics.items()
        ]
        (self.path / "nsqd.dat").write_text(json.dumps({"topics": entries, "version": "1.3.0"}))

    def queue(self, name: str, *files: Sequence[GoMessage], read: tuple[int, int] = (0, 0)) -> None:
        """A queue (`topic` or `topic:channel`) that was closed tidily: its files and the position."""
        for number, messages in enumerate(files):
            self.write(name, number, b"".join(message.stored for message in messages))
        last = len(files) - 1
        depth = sum(map(len, files))
        write = (last, self.file(name, last).stat().st_size) if files else (0, 0)
        self.position(name, depth, read, write)

    def write(self, name: str, number: int, data: bytes) -> None:
        self.file(name, number).write_bytes(data)

    def position(self, name: str, depth: int, read: tuple[int, int], write: tuple[int, int]) -> None:
        self.meta(name).write_text(f"{depth}\n{read[0]},{read[1]}\n{write[0]},{write[1]}\n")

    def file(self, name: str, number: int) -> Path:
        return self.path / f"{name}.diskqueue.{number:06d}.dat"

    def meta(self, name: str) -> Path:
        return self.path / f"{name}.diskqueue.meta.dat"

    def read(self, name: str) -> list[GoMessage]:
        """All messages of a queue from its read position up to its write position, which must be as many as it says."""
        text = self.meta(name).read_text()
        match = re.fullmatch(r"(\d+)\n0,0\n(\d+),(\d+)\n", text)
        assert match is not None, text
        depth, last, end = map(int, match.groups())
        messages: list[GoMessage] = []
        for number in range(last + 1):
            data = self.file(name, number).read_bytes()
            position = 0
            while position < len(data):
                size, timestamp_ns, attempts, message_id = struct.unpack_from(">iqH16s", data, position)
                body = data[position + 30 : position + 4 + size]
                messages.append(GoMessage(body, int(message_id, 16), timestamp_ns, attempts))
                position += 4 + size
        assert (len(messages), position) == (depth, end) and not self.file(name, last + 1).exists()
        return messages

    @property
    def names(self) -> list[str]:
        """Files of Go's queues that are here."""
        return sorted(path.name for path in self.path.glob("*.diskqueue.*"))


# ---- what became of it


def kept_log(directory: Path, topic: str) -> dict[int, GoMessage]:
    """All messages in the files of the topic's log, by sequence number."""
    found: dict[int, GoMessage] = {}
    for path in sorted(directory.glob(f"{topic}.*.log")):
        data = path.read_bytes()
        header = FileHeader.decode(data)
        assert header.first_seq not in found
        position = FILE_HEADER_BYTES
        while position < len(data):
            batch, position = decode(data, position, header.salt)
            for index in range(batch.count):
                assert batch.first_seq + index not in found
                message = GoMessage(batch.message(index), batch.base_id + index, batch.timestamp_ns)
                found[batch.first_seq + index] = message
    return found


def kept_position(directory: Path, topic: str, channel: str = "") -> SavedPosition:
    """What the journal of a channel says, or that of the topic."""
    name = f"{topic}:{channel}.cursor" if channel else f"{topic}.cursor"
    data = (directory / name).read_bytes()
    content = read_journal(data)
    assert content.end == len(data) > 0
    return content.saved


def kept_queue(directory: Path, topic: str, channel: str) -> list[GoMessage]:
    """What the channel still has to deliver, in order, the topic's own queue included."""
    position = kept_position(directory, topic, channel)
    waiting = position.waiting.by_number()
    return [
        message.tried(waiting.get(seq, (0, 0))[1])
        for seq, message in sorted(kept_log(directory, topic).items())
        if not position.finished.covers(seq, seq + 1)
    ]


def aside_folder(directory: Path) -> Path:
    """Where Go's files are now: one folder, and no others are left."""
    [folder] = directory.glob("go-nsqd-*")
    assert not (directory / "import").exists()
    return folder
