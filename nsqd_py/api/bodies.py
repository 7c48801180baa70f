"""The two body formats of /mpub, converted to batches: `[4-byte big-endian size][message]` for each message.

Both are converted in slices, with a call of `rest` between two slices. The result is one part for each batch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from struct import Struct

from nsqd_py.batch import SIZE_BYTES, uniform_stride
from nsqd_py.errors import BadBody, BadMessage, HttpError
from nsqd_py.protocol.multi_body import SLICE_MESSAGES, MessageWalk, Part, check_message_count

# Bytes of lines in one slice: 16 KiB of empty lines take 0.3 ms, of lines of one byte 1 ms.
_SLICE_BYTES = 16 * 1024
# Lines are collected to batches of this size, or of SLICE_MESSAGES.
_FULL_BYTES = 256 * 1024

_pack_size = Struct(">I").pack
_read_int32 = Struct(">i").unpack_from


def from_lines(text: bytes, max_msg_size: int, rest: Callable[[], object]) -> list[Part]:
    """Convert lines to messages; empty lines are left out. The result may be empty. Raises HttpError 413."""
    parts: list[Part] = []
    lines: list[bytes] = []
    size_bytes = 0
    position = 0
    while position < len(text):
        after = text.find(b"\n", min(position + _SLICE_BYTES, len(text))) + 1 or len(text)
        found = [line for line in text[position:after].split(b"\n") if line]
        if len(lines) + len(found) > SLICE_MESSAGES or size_bytes > _FULL_BYTES:
            _add_part(parts, lines, max_msg_size)
            lines = []
            size_bytes = 0
        for low in range(SLICE_MESSAGES, len(found), SLICE_MESSAGES):
            _add_part(parts, found[low - SLICE_MESSAGES : low], max_msg_size)
        lines += found[(len(found) - 1) // SLICE_MESSAGES * SLICE_MESSAGES :] if found else []
        size_bytes += after - position
        position = after
        rest()
    _add_part(parts, lines, max_msg_size)
    return parts


def _add_part(parts: list[Part], lines: list[bytes], max_msg_size: int) -> None:
    """Add the lines as one part, unless there are none. Raises HttpError 413."""
    sizes = set(map(len, lines))
    if not sizes:
        return
    if max(sizes) > max_msg_size:
        raise HttpError(413, "MSG_TOO_BIG")
    if len(sizes) == 1:
        size = sizes.pop()
        prefix = _pack_size(size)
        parts.append((prefix + prefix.join(lines), len(lines), SIZE_BYTES + size))
        return
    pieces = []
    for line in lines:
        pieces.append(_pack_size(len(line)))
        pieces.append(line)
    parts.append((b"".join(pieces), len(lines), 0))


def from_binary(data: bytes, max_msg_size: int, max_body_size: int, rest: Callable[[], object]) -> list[Part]:
    """Convert `[4-byte count]([4-byte size][message])...`; bytes after the last message are ignored.

    Raises BadBody and BadMessage, as MPUB does.
    """
    if len(data) < SIZE_BYTES:
        raise BadBody("MPUB failed to read message count")
    count = check_message_count(_read_int32(data, 0)[0], max_body_size)
    if count <= SLICE_MESSAGES and len(data) - SIZE_BYTES >= count * (SIZE_BYTES + 1):
        body = data[SIZE_BYTES:]
        stride = uniform_stride(body, count)
        if 0 < stride <= SIZE_BYTES + max_msg_size:
            return [(body, count, stride)]
    walk = MessageWalk(count, SIZE_BYTES, max_msg_size, sys.maxsize)
    while not walk.is_over:
        if not walk.go_on(data, 0):
            if walk.offset + SIZE_BYTES > len(data):
                raise BadMessage(f"MPUB failed to read message({walk.index}) body size")
            raise BadMessage("MPUB failed to read message body")
        rest()
    return walk.parts(data, 0)
