"""The two bodies of /mpub, in the form that batches have: `[4-byte big-endian size][message]` per message."""

from __future__ import annotations

from struct import Struct

from nsqd_py.batch import SIZE_BYTES, uniform_stride
from nsqd_py.errors import BadBody, BadMessage, HttpError
from nsqd_py.protocol.parser import check_message_count, check_message_size

_pack_size = Struct(">I").pack
_read_int32 = Struct(">i").unpack_from

# (body, count, stride) of `nsqd_py.batch.Batch`
Messages = tuple[bytes, int, int]


def from_lines(text: bytes, max_msg_size: int) -> Messages:
    """One message a line, empty lines left out; the count may be 0. Raises HttpError 413."""
    lines = [line for line in text.split(b"\n") if line]
    sizes = set(map(len, lines))
    if not sizes:
        return b"", 0, 0
    if max(sizes) > max_msg_size:
        raise HttpError(413, "MSG_TOO_BIG")
    if len(sizes) == 1:
        size = sizes.pop()
        prefix = _pack_size(size)
        return prefix + prefix.join(lines), len(lines), SIZE_BYTES + size
    parts = []
    for line in lines:
        parts.append(_pack_size(len(line)))
        parts.append(line)
    return b"".join(parts), len(lines), 0


def from_binary(data: bytes, max_msg_size: int, max_body_size: int) -> Messages:
    """`[4-byte count]([4-byte size][message])...`; what follows the last message is ignored.

    Raises BadBody and BadMessage, as MPUB does.
    """
    if len(data) < SIZE_BYTES:
        raise BadBody("MPUB failed to read message count")
    count = check_message_count(_read_int32(data, 0)[0], max_body_size)
    body = data[SIZE_BYTES:]
    if len(body) >= count * (SIZE_BYTES + 1):
        stride = uniform_stride(body, count)
        if 0 < stride <= SIZE_BYTES + max_msg_size:
            return body, count, stride
    end = _walk(body, count, max_msg_size)
    return body[:end], count, 0


def _walk(body: bytes, count: int, max_msg_size: int) -> int:
    """Where the last message ends."""
    position = 0
    length = len(body)
    for index in range(count):
        if position + SIZE_BYTES > length:
            raise BadMessage(f"MPUB failed to read message({index}) body size")
        size = _read_int32(body, position)[0]
        check_message_size(size, index, max_msg_size)
        position += SIZE_BYTES + size
        if position > length:
            raise BadMessage("MPUB failed to read message body")
    return position
