"""The part of the NSQ protocol that a load needs: commands as bytes, answers counted or cut into frames."""

import socket
import struct
from collections.abc import Iterator

TOPIC = "bench"
CHANNEL = "bench"
BODY_BYTES = 200
BODY = b"x" * BODY_BYTES

RESPONSE, ERROR, MESSAGE = 0, 1, 2
OK_FRAME = struct.pack(">ii", 6, RESPONSE) + b"OK"
OK_BYTES = len(OK_FRAME)
NOP = b"NOP\n"
_HEADER = struct.Struct(">ii")
_HEARTBEAT = b"_heartbeat_"
_MANY_OKS = OK_FRAME * 8192


class ProtocolError(Exception):
    """The server answered with an error frame, or with something that is no NSQ frame."""


def connect(port: int) -> socket.socket:
    """A blocking V2 connection to nsqd's TCP port."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(b"  V2")
    return sock


def pub(body: bytes = BODY) -> bytes:
    return b"PUB %s\n%s%s" % (TOPIC.encode(), struct.pack(">i", len(body)), body)


def mpub(messages: int) -> bytes:
    """One MPUB of `messages` bodies of `BODY_BYTES`."""
    entries = (struct.pack(">i", BODY_BYTES) + BODY) * messages
    sizes = struct.pack(">ii", 4 + len(entries), messages)
    return b"MPUB %s\n%s%s" % (TOPIC.encode(), sizes, entries)


def identify(settings: bytes = b"{}") -> bytes:
    return b"IDENTIFY\n" + struct.pack(">i", len(settings)) + settings


def sub() -> bytes:
    return f"SUB {TOPIC} {CHANNEL}\n".encode()


def rdy(count: int) -> bytes:
    return b"RDY %d\n" % count


def split_frames(data: bytes) -> Iterator[tuple[int, bytes, int]]:
    """(frame type, body, end offset) of each whole frame in `data`; what follows the last is incomplete."""
    offset = 0
    while len(data) - offset >= 8:
        size, kind = _HEADER.unpack_from(data, offset)
        if size < 4 or kind not in (RESPONSE, ERROR, MESSAGE):
            raise ProtocolError(f"not an NSQ frame: {data[offset : offset + 16]!r}")
        end = offset + 4 + size
        if end > len(data):
            return
        yield kind, data[offset + 8 : end], end
        offset = end


def is_heartbeat(kind: int, body: bytes) -> bool:
    return kind == RESPONSE and body == _HEARTBEAT


class OkCounter:
    """Counts OK frames in a stream, by length where it can."""

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = b""

    def feed(self, data: bytes) -> tuple[int, int]:
        """(OKs, heartbeats) that `data` completes.

        Raises ProtocolError for any other frame.
        """
        if not self._tail and data == _MANY_OKS[: len(data)] and len(data) % OK_BYTES == 0:
            return len(data) // OK_BYTES, 0
        return self._feed_slowly(data)

    def _feed_slowly(self, data: bytes) -> tuple[int, int]:
        data = self._tail + data
        oks = heartbeats = end = 0
        for kind, body, end in split_frames(data):
            if is_heartbeat(kind, body):
                heartbeats += 1
            elif kind == RESPONSE and body == b"OK":
                oks += 1
            else:
                raise ProtocolError(f"expected OK, got {body[:80]!r}")
        self._tail = data[end:]
        return oks, heartbeats


class FrameReader:
    """Blocking reads, a frame at a time: for the parts of a load that are not timed."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._data = b""

    def next_frame(self) -> tuple[int, bytes]:
        """The next frame that is no heartbeat; heartbeats are answered."""
        while True:
            for kind, body, end in split_frames(self._data):
                self._data = self._data[end:]
                if not is_heartbeat(kind, body):
                    return kind, body
                self._sock.sendall(NOP)
                break
            else:
                self._receive()

    def expect_ok(self) -> None:
        kind, body = self.next_frame()
        if kind != RESPONSE or body != b"OK":
            raise ProtocolError(f"expected OK, got {body[:80]!r}")

    def _receive(self) -> None:
        data = self._sock.recv(65536)
        if not data:
            raise ConnectionError("nsqd closed the connection")
        self._data += data
