"""What a primary and its standby say to each other, as bytes.

A standby is a client of the primary's TCP port. After the handshake of `membership`, it sends `STANDBY` with a JSON
document that says which part of each log it has (`Offer`), and `ACK <round>` after it has written a round. The primary
sends frames of type 3, whose data are one of these, little-endian:

    WRITE    u8 1, name length u16, offset u64, name, bytes    write them there; the file may be new
    BEGIN    u8 2, name length u16, u64 0, name                begin a new version of the file
    PART     u8 3, as WRITE                                    write to the new version
    COMMIT   u8 4, as BEGIN                                    put the new version in the place of the file
    REMOVE   u8 5, as BEGIN                                    remove the file
    TOPIC    u8 6, JSON                                        what the primary has of a topic, see `TopicFiles`
    LISTED   u8 7                                              the primary has no other topics
    ROUND    u8 8, round u64, lag: messages u64, bytes u64, ms u64   acknowledge when everything before is written
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from struct import Struct
from typing import Any, NamedTuple

import orjson

from nsqd_py.diskqueue.ranges import Epochs, decode_epochs
from nsqd_py.errors import NsqdError

FORMAT = 1
STREAM_FRAME = 3

WRITE, BEGIN, PART, COMMIT, REMOVE, TOPIC, LISTED, ROUND = range(1, 9)

_FILE_HEAD = Struct("<BHQ")
_ROUND = Struct("<BQQQQ")
_FRAME_HEAD = Struct(">ii")


class BadMessage(NsqdError):
    """The bytes are none of these messages."""


class FileMessage(NamedTuple):
    """WRITE, BEGIN, PART, COMMIT or REMOVE; `data` is empty in the last three."""

    kind: int
    name: str
    offset: int
    data: memoryview


class Member(NamedTuple):
    """An nsqd in a group that shares a lease: the id of its data path, and where others can follow it."""

    id: str
    address: str


class Lag(NamedTuple):
    """How much the standby is behind its primary."""

    messages: int
    size_bytes: int
    ms: int

    def figures(self) -> dict[str, int]:
        return {"lag_messages": self.messages, "lag_bytes": self.size_bytes, "lag_ms": self.ms}


class Round(NamedTuple):
    """The end of a round; `lag` is as the primary saw it when it sent this."""

    number: int
    lag: Lag


@dataclass
class TopicFiles:
    """The files that the primary has of a topic.

    epochs    of the log; none if the topic was deleted
    next_seq  the number of the next message of its log
    files     the offset from which the primary sends each log file; 0: all of it
    journals  the names of the journals of its channels
    """

    topic: str
    epochs: Epochs = ()
    next_seq: int = 0
    files: dict[str, int] = field(default_factory=dict)
    journals: list[str] = field(default_factory=list)


class Listed(NamedTuple):
    """LISTED."""


Message = FileMessage | TopicFiles | Listed | Round


def file_frame(kind: int, name: str, offset: int = 0, data: bytes = b"") -> bytes:
    """Return the frame of a WRITE, BEGIN, PART, COMMIT or REMOVE."""
    encoded = name.encode()
    return _frame(_FILE_HEAD.pack(kind, len(encoded), offset), encoded, data)


def topic_frame(files: TopicFiles) -> bytes:
    """Return the frame of a TOPIC."""
    return _frame(bytes([TOPIC]), json.dumps(asdict(files)).encode())


def listed_frame() -> bytes:
    """Return the frame of a LISTED."""
    return _frame(bytes([LISTED]))


def round_frame(number: int, lag: Lag) -> bytes:
    """Return the frame of a ROUND."""
    return _frame(_ROUND.pack(ROUND, number, *lag))


def _frame(*parts: bytes) -> bytes:
    return b"".join((_FRAME_HEAD.pack(sum(map(len, parts)) + 4, STREAM_FRAME), *parts))


def decode(data: bytes) -> Message:
    """Return the message in the data of a frame. Raises BadMessage."""
    kind = data[0] if data else 0
    try:
        if kind in (WRITE, BEGIN, PART, COMMIT, REMOVE):
            _, name_bytes, offset = _FILE_HEAD.unpack_from(data)
            name_end = _FILE_HEAD.size + name_bytes
            name = data[_FILE_HEAD.size : name_end].decode()
            return FileMessage(kind, name, offset, memoryview(data)[name_end:])
        if kind == ROUND:
            _, number, *lag = _ROUND.unpack(data)
            return Round(number, Lag(*lag))
        if kind == TOPIC:
            return _topic_files(orjson.loads(data[1:]))
        if kind == LISTED:
            return Listed()
    except Exception as error:
        raise BadMessage(f"a message of kind {kind} is damaged: {error!r}") from error
    raise BadMessage(f"a message of the unknown kind {kind}")


def _topic_files(fields: dict[str, Any]) -> TopicFiles:
    files = {name: _number(offset) for name, offset in fields["files"].items()}
    journals = [str(name) for name in fields["journals"]]
    epochs = decode_epochs(fields["epochs"])
    return TopicFiles(str(fields["topic"]), epochs, _number(fields["next_seq"]), files, journals)


def _number(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no offset and no number of a message")
    return value


# ---- the offer


class OfferedFile(NamedTuple):
    """A log file of the standby: salt of its header, bytes that it has, and the checksum of the last of these."""

    salt: int
    end_offset: int
    checksum: int


@dataclass
class OfferedLog:
    """What the standby has of a log: its epochs, and its files by name."""

    epochs: Epochs = ()
    files: dict[str, OfferedFile] = field(default_factory=dict)


@dataclass
class Offer:
    """What a standby has. `epoch` is the newest epoch of its logs, `http_address` where others can ask it.

    member     what the group that shares a lease knows of it; None without a lease
    fenced_by  TCP address of the nsqd that sends this, if it does not want to follow, but is a newer primary
    is_backup  True if the sender ends after its first round: it is no standby
    """

    epoch: int = 0
    http_address: str = ""
    logs: dict[str, OfferedLog] = field(default_factory=dict)
    fenced_by: str = ""
    member: Member | None = None
    is_backup: bool = False


# The checksum of an offered file covers so many bytes before its end.
CHECKED_BYTES = 4096


def encode_offer(offer: Offer, most_bytes: int) -> bytes:
    """Return the document of STANDBY. Logs that do not fit into `most_bytes` are left out: they are copied anew."""
    document: dict[str, Any] = {"format": FORMAT, "epoch": offer.epoch, "http_address": offer.http_address}
    if offer.fenced_by:
        document["fenced_by"] = offer.fenced_by
    if offer.is_backup:
        document["is_backup"] = True
    if offer.member is not None:
        document["member"] = offer.member
    logs: dict[str, Any] = {}
    size_bytes = len(json.dumps(document)) + 100
    for topic, log in offer.logs.items():
        fields = {"epochs": log.epochs, "files": log.files}
        size_bytes += len(json.dumps({topic: fields})) + 2
        if size_bytes > most_bytes:
            break
        logs[topic] = fields
    return json.dumps(document | {"logs": logs}).encode()


def decode_offer(body: bytes) -> Offer:
    """Return the offer in the document of STANDBY. Raises BadMessage."""
    try:
        document = orjson.loads(body)  # also quick with nested lists
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']}, not {FORMAT}")
        logs = {
            str(topic): OfferedLog(
                decode_epochs(fields["epochs"]),
                {str(name): OfferedFile(*map(int, file)) for name, file in fields["files"].items()},
            )
            for topic, fields in document["logs"].items()
        }
        fenced_by = str(document.get("fenced_by", ""))[:256]
        member = document.get("member")
        return Offer(
            int(document["epoch"]),
            str(document["http_address"])[:256],
            logs,
            fenced_by,
            Member(*(str(part)[:256] for part in member)) if member is not None else None,
            document.get("is_backup") is True,
        )
    except Exception as error:
        raise BadMessage(f"the document of STANDBY is not valid: {error}") from error
