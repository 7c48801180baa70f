"""The files of Go's nsqd v1.3.0: a disk queue for each topic, and one for each channel.

A queue is named `<topic>` or `<topic>:<channel>` (with `;` on Windows) and consists of files
`<queue>.diskqueue.<number, 6 digits>.dat`, which hold messages:

    size        u32      of the rest
    timestamp   i64      ns since the epoch
    attempts    u16      number of deliveries
    id          16 bytes hexadecimal characters
    body

All numbers are big-endian (nsqd/message.go, nsqio/go-diskqueue). `<queue>.diskqueue.meta.dat` has the position of the
queue at its last sync. There are no checksums and no marks: bytes that may be a message are taken for one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from struct import Struct
from typing import NamedTuple

from nsqd_py.protocol.batch import SIZE_BYTES

# Time in ns, attempts, id, body. A plain tuple, since there are millions: a named tuple takes 1.5 times as long.
GoMessage = tuple[int, int, int, bytes]
ReadAt = Callable[[int, int], bytes]  # (offset, size): fewer bytes only at the end

ID_BYTES = 16
OVERHEAD_BYTES = 8 + 2 + ID_BYTES  # what the size counts in addition to the body
HEAD_BYTES = SIZE_BYTES + OVERHEAD_BYTES
BLOCK_BYTES = 2 * 1024 * 1024

_HEAD = Struct(">IqH16s")
_read_head = _HEAD.unpack_from
_read_size = Struct(">I").unpack_from
_HEX = b"0123456789abcdef"
_ID_END = 1 << 63  # its first bit is a sign, which is never set
# From 2011 to 2128: a search behind damage accepts only these times.
_PLAUSIBLE_NS = range(1_300_000_000_000_000_000, 5_000_000_000_000_000_000)
_LIKELY = re.compile(rb"(?=[\x12-\x45].{9}[0-7][0-9a-f]{15})", re.DOTALL)

GO_POSITION_SUFFIX = ".diskqueue.meta.dat"
_NAME = re.compile(
    r"(?P<topic>[^:;]+)(?:[:;](?P<channel>.+))?\.diskqueue\."
    r"(?:(?P<number>\d{6,})\.dat(?P<bad>\.bad)?|meta\.dat(?P<temporary>\.\d+\.tmp)?)"
)
_POSITION = re.compile(
    rb"\s*(?P<depth>-?\d+)\s+(?P<read>\d+),(?P<read_at>\d+)\s+(?P<write>\d+),(?P<write_at>\d+)\s*"
)


# ---- names, and the position of a queue


class GoFileKind(Enum):
    """The kind of a file of a queue. BAD: Go's nsqd could not read on in it, and skipped the rest."""

    MESSAGES = "messages"
    POSITION = "position"
    BAD = "bad"
    TEMPORARY = "temporary"


class GoFileName(NamedTuple):
    """The parts of a file name; `number` is -1 if it has none, `channel` is None for the queue of a topic."""

    topic: str
    channel: str | None
    kind: GoFileKind
    number: int


class GoPosition(NamedTuple):
    """The position of a queue: its messages, and the files and offsets of the next read and write."""

    depth: int
    read_number: int
    read_offset: int
    write_number: int
    write_offset: int

    def encode(self) -> bytes:
        """Return the content of a `.meta.dat` file."""
        return b"%d\n%d,%d\n%d,%d\n" % self

    @property
    def has_unread(self) -> bool:
        return (self.read_number, self.read_offset) < (self.write_number, self.write_offset)


def parse_go_name(name: str) -> GoFileName | None:
    """Return the parts of a file name; None if it is not one of Go's queues."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    if match["number"] is None:
        kind = GoFileKind.TEMPORARY if match["temporary"] else GoFileKind.POSITION
        return GoFileName(match["topic"], match["channel"], kind, -1)
    kind = GoFileKind.BAD if match["bad"] else GoFileKind.MESSAGES
    return GoFileName(match["topic"], match["channel"], kind, int(match["number"]))


def go_file_name(topic: str, channel: str | None, number: int) -> str:
    return f"{queue_name(topic, channel)}.diskqueue.{number:06d}.dat"


def go_position_name(topic: str, channel: str | None) -> str:
    return f"{queue_name(topic, channel)}{GO_POSITION_SUFFIX}"


def queue_name(topic: str, channel: str | None) -> str:
    return topic if channel is None else f"{topic}:{channel}"


def parse_go_position(data: bytes) -> GoPosition | None:
    """Return the position in a `.meta.dat` file; None if it is invalid, or the read position behind the write position."""
    match = _POSITION.fullmatch(data)
    if match is None:
        return None
    position = GoPosition(*map(int, match.group("depth", "read", "read_at", "write", "write_at")))
    if position[1:3] <= position[3:]:
        return position
    return None


# ---- messages


def encode_go_message(message: GoMessage) -> bytes:
    """Return a message with its size, as in a file of a queue."""
    timestamp_ns, attempts, message_id, body = message
    return _HEAD.pack(OVERHEAD_BYTES + len(body), timestamp_ns, attempts, b"%016x" % message_id) + body


def decode_go_messages(data: bytes) -> tuple[list[GoMessage], int]:
    """Return the complete messages at the beginning of `data`, and the offset behind them."""
    messages: list[GoMessage] = []
    add = messages.append
    read_head = _read_head
    offset = 0
    end = len(data)
    last_head = end - HEAD_BYTES
    while offset <= last_head:
        size, timestamp_ns, attempts, message_id = read_head(data, offset)
        body_at = offset + HEAD_BYTES
        after = offset + SIZE_BYTES + size
        if after < body_at or after > end or message_id.strip(_HEX):
            break
        number = int(message_id, 16)
        if number >= _ID_END:
            break
        add((timestamp_ns, attempts, number, data[body_at:after]))
        offset = after
    return messages, offset


def go_bytes_needed(data: bytes) -> int:
    """Return the length of the message that `data` begins with, if it is one."""
    if len(data) < SIZE_BYTES:
        return HEAD_BYTES
    return SIZE_BYTES + int(_read_size(data)[0])


def find_go_message(read_at: ReadAt, start: int, size: int) -> int | None:
    """Return the offset of the next message behind damage, from `start` on, in a file of `size` bytes, or None.

    Its time must be plausible, and it must be followed by the end of the file, zeros, or something like a message.
    Raises what `read_at` raises.
    """
    block_start = start
    while block_start + HEAD_BYTES <= size:
        data = read_at(block_start, BLOCK_BYTES)
        for match in _LIKELY.finditer(data, SIZE_BYTES):
            index = match.start() - SIZE_BYTES
            offset = block_start + index
            after = offset + _plausible_bytes(data, index)
            if offset < after <= size and _may_follow(read_at(after, HEAD_BYTES)):
                return offset
        if len(data) < HEAD_BYTES:
            break
        block_start += len(data) - HEAD_BYTES + 1
    return None


def _plausible_bytes(data: bytes, index: int) -> int:
    """Return the length of the message at `index`; 0 if those bytes are not plausible as one."""
    size, timestamp_ns, _attempts, message_id = _read_head(data, index)
    if size < OVERHEAD_BYTES or timestamp_ns not in _PLAUSIBLE_NS or message_id.strip(_HEX):
        return 0
    return SIZE_BYTES + int(size)


def _may_follow(head: bytes) -> bool:
    if len(head) < HEAD_BYTES:
        return True
    return not any(head) or _plausible_bytes(head, 0) > 0
