"""The part of the NSQ protocol that a load needs: commands as bytes, answers counted or cut into frames."""

import socket
import struct

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


def pub(body: bytes = BODY, topic: str = TOPIC) -> bytes:
    return b"PUB %s\n%s%s" % (topic.encode(), struct.pack(">i", len(body)), body)


def mpub(messages: int, body: bytes = BODY, topic: str = TOPIC) -> bytes:
    """One MPUB of `messages` copies of `body`."""
    entries = (struct.pack(">i", len(body)) + body) * messages
    sizes = struct.pack(">ii", 4 + len(entries), messages)
    return b"MPUB %s\n%s%s" % (topic.encode(), sizes, entries)


def identify(settings: bytes = b"{}") -> bytes:
    return b"IDENTIFY\n" + struct.pack(">i", len(settings)) + settings


def sub(channel: str = CHANNEL, topic: str = TOPIC) -> bytes:
    return f"SUB {topic} {channel}\n".encode()


def rdy(count: int) -> bytes:
    return b"RDY %d\n" % count


def split_frames(data: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """(frame type, body) of each whole frame in `data`, and the bytes after them."""
    frames = []
    offset = 0
    while len(data) - offset >= _HEADER.size:
        size, kind = _HEADER.unpack_from(data, offset)
        if size < 4 or kind not in (RESPONSE, ERROR, MESSAGE):
            raise ProtocolError(f"not an NSQ frame: {data[offset : offset + 16]!r}")
        end = offset + 4 + size
        if end > len(data):
            break
        frames.append((kind, data[offset + _HEADER.size : end]))
        offset = end
    return frames, data[offset:]


def is_heartbeat(kind: int, body: bytes) -> bool:
    return kind == RESPONSE and body == _HEARTBEAT


class OkCounter:
    """Counts OK frames in a stream, by length where it can.

    Heartbeats are passed over: a connection that sends commands needs no NOP to be kept.
    """

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = b""

    def feed(self, data: bytes) -> int:
        """The number of OKs that `data` completes; raises ProtocolError for any other answer."""
        if not self._tail and data == _MANY_OKS[: len(data)] and len(data) % OK_BYTES == 0:
            return len(data) // OK_BYTES
        return self._feed_slowly(self._tail + data)

    def _feed_slowly(self, data: bytes) -> int:
        oks = 0
        frames, self._tail = split_frames(data)
        for kind, body in frames:
            if kind == RESPONSE and body == b"OK":
                oks += 1
            elif not is_heartbeat(kind, body):
                raise ProtocolError(f"expected OK, got {body[:80]!r}")
        return oks


class FrameReader:
    """Blocking reads, a frame at a time: for the parts of a load that are not timed."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._frames: list[tuple[int, bytes]] = []
        self._tail = b""

    def next_frame(self) -> tuple[int, bytes]:
        """The next frame that is no heartbeat; heartbeats are answered."""
        while True:
            while not self._frames:
                self._receive()
            kind, body = self._frames.pop(0)
            if not is_heartbeat(kind, body):
                return kind, body
            self._sock.sendall(NOP)

    def expect_ok(self) -> None:
        kind, body = self.next_frame()
        if kind != RESPONSE or body != b"OK":
            raise ProtocolError(f"expected OK, got {body[:80]!r}")

    def _receive(self) -> None:
        data = self._sock.recv(65536)
        if not data:
            raise ConnectionError("nsqd closed the connection")
        self._frames, self._tail = split_frames(self._tail + data)
