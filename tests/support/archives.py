"""Archives of every format, written from messages, and what a reader makes of them.

Our own files are written by what writes them in earnest; Go's by what its sources say of the format.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import cramjam

from nsq_spark.archive.chunk import Chunk
from nsq_spark.archive.listing import Hints, list_files
from nsq_spark.archive.read import read
from nsq_spark.archive.splits import Damage, Requested, Split, plan_splits
from nsq_spark.archive.storage import Storage
from nsq_tools.to_file.output import ManifestEntry, add_to_manifest
from nsqd_py.diskqueue.files.log_file import log_file_name
from nsqd_py.diskqueue.messages import Messages, encode_messages
from nsqd_py.diskqueue.records import FileHeader, encode_record
from nsqd_py.protocol.batch import Batch, uniform_stride

SALT = 0x5EED
BASE_NS = 1_700_000_000_000_000_000


class Message(NamedTuple):
    """A message as a reader tells of it; None where a format does not know."""

    body: bytes
    topic: str = "orders"
    channel: str | None = "archive"
    timestamp_ns: int | None = BASE_NS
    attempts: int | None = 1
    id: str | None = "0123456789abcdef"
    nsqd: str | None = "127.0.0.1:4150"

    @property
    def known_id(self) -> bytes:
        return (self.id or "").encode()

    @property
    def known_ns(self) -> int:
        assert self.timestamp_ns is not None
        return self.timestamp_ns

    @property
    def known_attempts(self) -> int:
        assert self.attempts is not None
        return self.attempts


def messages(count: int, size: int = 20, topic: str = "orders") -> list[Message]:
    bodies = [b"%0*d" % (size, number) for number in range(count)]
    return [
        Message(body, topic, timestamp_ns=BASE_NS + number, attempts=1 + number % 3, id=f"{number:016x}")
        for number, body in enumerate(bodies)
    ]


# ---- writing


def finished_file(directory: Path, name: str, data: bytes, **changes: Any) -> Path:
    """Write an uncompressed file as nsq-to-file leaves it: with a line in the manifest, in which `changes` are other fields."""
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    fields: dict[str, Any] = {
        "path": name,
        "topic": "orders",
        "channel": "archive",
        "format": "lines",
        "compress": "none",
        "messages": data.count(b"\n"),
        "first_timestamp": None,
        "last_timestamp": None,
        "offset": 0,
        "bytes": len(data),
        "crc32c": None,
        "repaired": False,
        "cut_bytes": 0,
        "closed": 0,
    }
    add_to_manifest(directory, ManifestEntry(**{**fields, **changes}))
    return path


def as_columns(some: Sequence[Message], due_ns: Sequence[int] | None = None) -> Messages:
    """Messages of one topic, channel and nsqd."""
    return Messages(
        some[0].topic,
        some[0].channel or "",
        some[0].nsqd or "",
        [message.known_ns for message in some],
        [message.known_attempts for message in some],
        [message.known_id for message in some],
        [message.body for message in some],
        due_ns,
    )


def framed(batches: Sequence[Sequence[Message]], zstd_level: int | None = None) -> bytes:
    """A file of one record a batch."""
    parts, seq = [FileHeader(SALT, 0, 0).encode()], 0
    for batch in batches:
        parts.append(encode_messages(as_columns(batch), seq, SALT, zstd_level))
        seq += len(batch)
    return b"".join(parts)


def mpub(bodies: Sequence[bytes]) -> bytes:
    """Bodies behind their sizes."""
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


@dataclass(frozen=True)
class Published:
    """What was published together."""

    bodies: list[bytes]
    timestamp_ns: int = BASE_NS
    due_ns: int = 0


class TopicLogFile:
    """A file of a topic's log, record by record."""

    def __init__(
        self, topic: str = "orders", first_seq: int = 0, salt: int = SALT, *, is_reused: bool = False
    ) -> None:
        self.topic = topic
        self.salt = salt
        self.name = log_file_name(topic, first_seq)
        self.data = bytearray(FileHeader(salt, first_seq, 0, is_reused).encode())
        self.messages: list[Message] = []
        self._seq = first_seq

    def add(self, published: Published) -> int:
        """Where its record begins."""
        start, count = len(self.data), len(published.bodies)
        body = mpub(published.bodies)
        base_id = 0x1000 + self._seq
        self.data += encode_record(
            Batch(
                self._seq,
                base_id,
                published.timestamp_ns,
                published.due_ns,
                count,
                uniform_stride(body, count),
                body,
            ),
            self.salt,
        )
        self.messages += [
            Message(message, self.topic, None, published.timestamp_ns, 0, f"{base_id + index:016x}", None)
            for index, message in enumerate(published.bodies)
        ]
        self._seq += count
        return start

    def write(self, directory: Path, tail: bytes = b"") -> Path:
        path = directory / self.name
        path.write_bytes(self.data + tail)
        return path


def go_message(message: Message) -> bytes:
    """A message as nsqd puts it into a disk queue (nsqd/message.go, WriteTo), behind its size (go-diskqueue)."""
    data = struct.pack(">qH", message.timestamp_ns, message.attempts) + message.known_id + message.body
    return struct.pack(">i", len(data)) + data


def compressed(data: bytes, compression: str, pieces: int = 1) -> bytes:
    """In as many members or frames."""
    step = max(1, -(-len(data) // pieces))
    parts = [data[start : start + step] for start in range(0, len(data), step)] or [b""]
    if compression == "gzip":
        return b"".join(gzip.compress(part, 1) for part in parts)
    if compression == "zstd":
        return b"".join(bytes(cramjam.zstd.compress(part, 3)) for part in parts)
    return data


# ---- reading


def splits_of(
    paths: Path | Sequence[Path], target_bytes: int = 1 << 30, hints: Hints | None = None
) -> list[Split]:
    given = [paths] if isinstance(paths, Path) else paths
    return plan_splits(list_files([str(path) for path in given], Storage(), hints), target_bytes)


def chunks_of(
    splits: Sequence[Split], requested: Requested | None = None, damage: Damage | None = None
) -> Iterator[Chunk]:
    for split in splits:
        yield from read(split, Storage(), requested, damage)


def mpub_body(chunk: Chunk) -> bytes:
    return b"".join(chunk.payload.mpub_pieces(0, chunk.count))


def reported(chunk: Chunk) -> list[Message]:
    """What a chunk's table says; its other forms say the same."""
    rows = chunk.arrow().to_pylist()
    assert mpub_body(chunk) == len(rows).to_bytes(4, "big") + mpub([row["body"] for row in rows])
    assert chunk.count == len(rows) and chunk.payload.bytes_of(0, chunk.count) == sum(
        len(row["body"]) for row in rows
    )
    assert [row["position"] for row in rows] == chunk.positions.tolist()
    return [Message(*(row[name] for name in ("body", *Message._fields[1:]))) for row in rows]


def read_messages(
    splits: Sequence[Split], requested: Requested | None = None, damage: Damage | None = None
) -> list[Message]:
    """All messages, in order; in each split the positions rise."""
    found: list[Message] = []
    for split in splits:
        last = -1
        for chunk in read(split, Storage(), requested, damage):
            positions = chunk.positions.tolist()
            assert positions == sorted(set(positions)) and positions[0] > last
            last = positions[-1]
            found += reported(chunk)
    return found
