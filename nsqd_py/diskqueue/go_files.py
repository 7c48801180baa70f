"""The files of Go's nsqd v1.3.0: a disk queue for each topic, and one for each channel.

A queue is named `<topic>` or `<topic>:<channel>` (with `;` on Windows) and is a row of files
`<queue>.diskqueue.<number, 6 digits>.dat`, which hold

    size        u32      of the rest
    timestamp   i64      ns since the epoch
    attempts    u16      how often it was delivered
    id          16 bytes hexadecimal characters
    body

over and over, all big-endian (nsqd/message.go, nsqio/go-diskqueue). `<queue>.diskqueue.meta.dat` says where the queue
stood when it was last synced. There are no checksums and no marks: what looks like a message is taken for one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from struct import Struct
from typing import NamedTuple

from nsqd_py.batch import SIZE_BYTES

ID_BYTES = 16
OVERHEAD_BYTES = 8 + 2 + ID_BYTES  # what the size counts beside the body
HEAD_BYTES = SIZE_BYTES + OVERHEAD_BYTES
BLOCK_BYTES = 2 * 1024 * 1024

_HEAD = Struct(">IqH16s")
_read_head = _HEAD.unpack_from
_read_size = Struct(">I").unpack_from
_HEX = b"0123456789abcdef"
_ID_END = 1 << 63  # its first bit is a sign, which is never set
# From when NSQ was new to the year 2128: a search behind damage takes only these for times.
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


class GoFileKind(Enum):
    """What a file of a queue is for. BAD: Go's nsqd could not read on in it, and passed over the rest."""

    MESSAGES = "messages"
    POSITION = "position"
    BAD = "bad"
    TEMPORARY = "temporary"


class GoFileName(NamedTuple):
    """What the name of a file says; `number` is -1 where it has none, `channel` None for the queue of a topic."""

    topic: str
    channel: str | None
    kind: GoFileKind
    number: int


class GoPosition(NamedTuple):
    """Where a queue stood: messages in it, and the files and offsets that are read and written next."""

    depth: int
    read_number: int
    read_offset: int
    write_number: int
    write_offset: int

    @property
    def is_possible(self) -> bool:
        """Nothing is read before it is written."""
        return (self.read_number, self.read_offset) <= (self.write_number, self.write_offset)

    @property
    def has_unread(self) -> bool:
        return (self.read_number, self.read_offset) < (self.write_number, self.write_offset)


# Time in ns, attempts, id, body. Plain, since there are millions: with names it takes half as long again.
GoMessage = tuple[int, int, int, bytes]


def parse_go_name(name: str) -> GoFileName | None:
    """None for a file that is none of Go's queues."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    if match["number"] is None:
        kind = GoFileKind.TEMPORARY if match["temporary"] else GoFileKind.POSITION
        return GoFileName(match["topic"], match["channel"], kind, -1)
    kind = GoFileKind.BAD if match["bad"] else GoFileKind.MESSAGES
    return GoFileName(match["topic"], match["channel"], kind, int(match["number"]))


def go_file_name(topic: str, channel: str | None, number: int) -> str:
    queue = topic if channel is None else f"{topic}:{channel}"
    return f"{queue}.diskqueue.{number:06d}.dat"


def parse_go_position(data: bytes) -> GoPosition | None:
    """What a `.meta.dat` file says; None when it says something else."""
    match = _POSITION.fullmatch(data)
    return GoPosition(*map(int, match.group("depth", "read", "read_at", "write", "write_at"))) if match else None


def go_message_places(data: bytes) -> tuple[list[int], int]:
    """Where the messages begin that are whole in `data`, by their sizes alone, and where the last of them ends."""
    places: list[int] = []
    position, last_head = 0, len(data) - HEAD_BYTES
    while position <= last_head:
        size = _read_size(data, position)[0]
        after = position + SIZE_BYTES + size
        if size < OVERHEAD_BYTES or after > len(data):
            break
        places.append(position)
        position = after
    return places, position


def decode_go_messages(data: bytes) -> tuple[list[GoMessage], int]:
    """The whole messages that `data` begins with, and where the first begins that is cut off or none."""
    messages: list[GoMessage] = []
    add, read_head = messages.append, _read_head
    position, end = 0, len(data)
    last_head = end - HEAD_BYTES
    while position <= last_head:
        size, timestamp_ns, attempts, message_id = read_head(data, position)
        body_at = position + HEAD_BYTES
        after = position + SIZE_BYTES + size
        if after < body_at or after > end or message_id.strip(_HEX):
            break
        number = int(message_id, 16)
        if number >= _ID_END:
            break
        add((timestamp_ns, attempts, number, data[body_at:after]))
        position = after
    return messages, position


def go_bytes_needed(data: bytes) -> int:
    """How many bytes the message takes that `data` begins with, if it is one."""
    return SIZE_BYTES + int(_read_size(data)[0]) if len(data) >= SIZE_BYTES else HEAD_BYTES


ReadAt = Callable[[int, int], bytes]  # (offset, size): fewer bytes only at the end


def find_go_message(read_at: ReadAt, start: int, size: int) -> int | None:
    """Where the next message begins behind damage, from `start` on, in a file of `size` bytes; None: nowhere.

    Its time has to be plausible, and the end of the file, zeros or what looks like a message have to follow it.
    Raises what `read_at` raises.
    """
    block_start = start
    while block_start + HEAD_BYTES <= size:
        data = read_at(block_start, BLOCK_BYTES)
        for match in _LIKELY.finditer(data, SIZE_BYTES):
            place = match.start() - SIZE_BYTES
            after = block_start + place + _plausible_bytes(data, place)
            if block_start + place < after <= size and _may_follow(read_at(after, HEAD_BYTES)):
                return block_start + place
        if len(data) < HEAD_BYTES:
            break
        block_start += len(data) - HEAD_BYTES + 1
    return None


def _plausible_bytes(data: bytes, place: int) -> int:
    """How long the message at `place` is; 0 when it looks like none."""
    size, timestamp_ns, _attempts, message_id = _read_head(data, place)
    if size < OVERHEAD_BYTES or timestamp_ns not in _PLAUSIBLE_NS or message_id.strip(_HEX):
        return 0
    return SIZE_BYTES + int(size)


def _may_follow(head: bytes) -> bool:
    return len(head) < HEAD_BYTES or not any(head) or _plausible_bytes(head, 0) > 0
