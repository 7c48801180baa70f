"""The client's parser of nsqd's frames: turns bytes in any chunks into runs of messages, of responses, and errors.

`protocol.frames` has the form of a frame.
"""

from __future__ import annotations

import re
from operator import itemgetter
from struct import Struct
from typing import NamedTuple, TypeAlias

from nsqd_py.errors import NsqdError
from nsqd_py.protocol import frames
from nsqd_py.protocol.batch import SIZE_BYTES
from nsqd_py.protocol.frames import ERROR, ID_LENGTH, MESSAGE, MESSAGE_OVERHEAD, RESPONSE
from nsqd_py.protocol.wrong_port import not_nsqd_tcp

# The largest message without a limit of the client.
MAX_MESSAGE_BYTES = 1 << 30
# The largest response or error: an answer to IDENTIFY or AUTH. Others are shorter than 100 bytes.
MAX_ANSWER_BYTES = 64 * 1024

_HEAD_BYTES = 8  # size, type
_STAMP_START = _HEAD_BYTES
_ID_START = _STAMP_START + 8 + 2
_BODY_START = _ID_START + ID_LENGTH
_SMALLEST = {RESPONSE: 4, ERROR: 4, MESSAGE: MESSAGE_OVERHEAD}  # the lowest value of the size field, by type

_read_head = Struct(">ii").unpack_from
_read_stamp = Struct(">qH").unpack_from
_match_oks = re.compile(b"(?:" + re.escape(frames.OK) + b")+").match


class BadFrame(NsqdError):
    """The bytes are not a frame of nsqd; nothing that follows can be understood."""


class WrongPort(BadFrame):
    """The server speaks another protocol; str(error) names the address to use."""


class IncomingMessages:
    """Consecutive messages as columns: lists with an item for each message.

    A column is computed when it is first used, so that a caller that needs only bodies and ids does not pay for the
    others (0.1 us each a message, in addition to 0.15 us to find where it begins).
    """

    __slots__ = ("_bodies", "_data", "_end", "_ids", "_stamps", "_starts")

    def __init__(self, data: bytes, starts: list[int], end: int) -> None:
        """`starts` are the positions of their frames in `data`; `end` is the end of the last frame."""
        self._data = data
        self._starts = starts
        self._end = end
        self._bodies: list[bytes] | None = None
        self._ids: list[bytes] | None = None
        self._stamps: list[tuple[int, int]] | None = None

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def bodies(self) -> list[bytes]:
        if self._bodies is None:
            data = self._data
            starts = self._starts
            ends = [*starts[1:], self._end]
            self._bodies = [data[start + _BODY_START : end] for start, end in zip(starts, ends, strict=True)]
        return self._bodies

    @property
    def ids(self) -> list[bytes]:
        """Return the ids, 16 hex characters each."""
        if self._ids is None:
            data = self._data
            self._ids = [data[start + _ID_START : start + _BODY_START] for start in self._starts]
        return self._ids

    @property
    def timestamps_ns(self) -> list[int]:
        """Return the times of publishing, in ns since the epoch."""
        return list(map(itemgetter(0), self._all_stamps()))

    @property
    def attempts(self) -> list[int]:
        """Return how often each message was delivered, including this time."""
        return list(map(itemgetter(1), self._all_stamps()))

    def _all_stamps(self) -> list[tuple[int, int]]:
        if self._stamps is None:
            data = self._data
            self._stamps = [_read_stamp(data, start + _STAMP_START) for start in self._starts]
        return self._stamps

    @property
    def size_bytes(self) -> int:
        """Return the size on the wire."""
        return self._end - self._starts[0]


class Responses(NamedTuple):
    """Consecutive equal responses: a client that pipelines PUBs receives mostly OK."""

    data: bytes
    times: int


class ErrorFrame(NamedTuple):
    """An error of nsqd: `CODE text`."""

    data: bytes


Found: TypeAlias = "IncomingMessages | Responses | ErrorFrame"


class FrameParser:
    """The reading half of a client's connection.

    failure  why parsing stopped; None unless the input was not a frame
    """

    __slots__ = ("_gathered", "_gathered_bytes", "_largest", "_needed_bytes", "failure")

    def __init__(self, max_msg_size: int = 0) -> None:
        """A message that declares a larger body is a failure, before it is received; 0 means 1 GiB."""
        largest_message = (max_msg_size or MAX_MESSAGE_BYTES) + MESSAGE_OVERHEAD
        # The highest value of the size field, by type.
        self._largest = {RESPONSE: MAX_ANSWER_BYTES, ERROR: MAX_ANSWER_BYTES, MESSAGE: largest_message}
        self._gathered: list[bytes] = []  # chunks of an incomplete frame, joined when it is complete
        self._gathered_bytes = 0
        self._needed_bytes = 0  # the number of bytes that complete it
        self.failure: BadFrame | None = None

    def feed(self, data: bytes) -> list[Found]:
        """Return all complete frames, in order. Check `failure` afterwards."""
        found: list[Found] = []
        joined = self._joined(data)
        position = 0
        while (after := self._take(joined, position, found)) > position:
            position = after
        self._keep(joined, position)
        return found

    def feed_one(self, data: bytes) -> Responses | ErrorFrame | None:
        """Return at most one frame. The bytes behind it stay for the next call, or for `take_rest`.

        This is for a handshake, since the bytes behind an answer may be encoded. A message is a failure.
        """
        joined = self._joined(data)
        size, kind = self._head(joined, 0)
        end = SIZE_BYTES + size
        if kind == MESSAGE:
            self.failure = BadFrame("a message before the handshake was over")
        if not size or end > len(joined) or self.failure is not None:
            self._keep(joined, 0)
            return None
        self._put_aside(joined[end:], 0)
        content = joined[_HEAD_BYTES:end]
        if kind == ERROR:
            return ErrorFrame(content)
        return Responses(content, 1)

    def take_rest(self) -> bytes:
        """Remove and return the bytes that do not belong to a frame yet."""
        rest = b"".join(self._gathered)
        self._gathered.clear()
        return rest

    def _joined(self, data: bytes) -> bytes:
        """Return the bytes to parse now; nothing while a frame is known to be incomplete."""
        if self.failure is not None:
            return b""
        if not self._gathered:
            return data
        self._gathered.append(data)
        self._gathered_bytes += len(data)
        if self._gathered_bytes < self._needed_bytes:
            return b""
        joined = b"".join(self._gathered)
        self._gathered.clear()
        return joined

    def _keep(self, data: bytes, position: int) -> None:
        """Keep the bytes from `position` on, and note how many are needed to go on."""
        if self.failure is not None:
            self._gathered.clear()
        elif position < len(data):
            size, _ = self._head(data, position)
            needed_bytes = SIZE_BYTES + size if size else _HEAD_BYTES
            self._put_aside(data[position:], needed_bytes)

    def _put_aside(self, data: bytes, needed_bytes: int) -> None:
        self._gathered = [data] if data else []
        self._gathered_bytes = len(data)
        self._needed_bytes = needed_bytes

    def _head(self, data: bytes, position: int) -> tuple[int, int]:
        """Return the size and type of the frame there; zeros if they are missing or invalid."""
        if position + _HEAD_BYTES > len(data):
            return 0, 0
        size, kind = _read_head(data, position)
        if kind not in _SMALLEST:
            stranger = not_nsqd_tcp(size, kind)
            self.failure = WrongPort(stranger) if stranger else BadFrame(f"a frame of unknown kind {kind}")
        elif size > self._largest[kind]:
            self.failure = BadFrame(_too_large(kind, size, self._largest[kind]))
        elif size < _SMALLEST[kind]:
            self.failure = BadFrame(f"a frame that says to be {size} bytes long")
        else:
            return size, kind
        return 0, 0

    def _take(self, data: bytes, position: int, found: list[Found]) -> int:
        """Add the run of frames that begins at `position` to `found`, and return its end."""
        size, kind = self._head(data, position)
        end = position + SIZE_BYTES + size
        if not size or end > len(data):
            return position
        if kind == MESSAGE:
            return self._take_messages(data, position, found)
        if kind == ERROR:
            found.append(ErrorFrame(data[position + _HEAD_BYTES : end]))
            return end
        oks = _match_oks(data, position)
        if oks is None:
            found.append(Responses(data[position + _HEAD_BYTES : end], 1))
            return end
        found.append(Responses(b"OK", (oks.end() - position) // len(frames.OK)))
        return oks.end()

    def _take_messages(self, data: bytes, position: int, found: list[Found]) -> int:
        starts: list[int] = []
        add, read_head = starts.append, _read_head  # saves 10 ns each
        available = len(data)
        largest = self._largest[MESSAGE]
        last = available - _HEAD_BYTES
        while position <= last:
            size, kind = read_head(data, position)
            end = position + SIZE_BYTES + size
            if end > available or kind != MESSAGE or not MESSAGE_OVERHEAD <= size <= largest:
                break
            add(position)
            position = end
        found.append(IncomingMessages(data, starts, position))
        return position


def _too_large(kind: int, size: int, largest: int) -> str:
    if kind != MESSAGE:
        return f"an answer of {size} bytes (limit {largest})"
    body = size - MESSAGE_OVERHEAD
    most = largest - MESSAGE_OVERHEAD
    return (
        f"a message of {body} bytes, but max_msg_size of this client is {most}: raise it if nsqd allows more"
    )
