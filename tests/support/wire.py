"""A small NSQ V2 client on a raw socket, for tests.

The functions build the bytes of commands. `Client` sends what it is given, also what is wrong, and reads
frames one at a time. It answers heartbeats, unless it is asked for every frame.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self

MAGIC = b"  V2"
NOP = b"NOP\n"
CLS = b"CLS\n"
RESPONSE, ERROR, MESSAGE = 0, 1, 2
# No clock is at this time: such an id is never in flight.
UNKNOWN_ID = b"0123456789abcdef"
MESSAGE_HEADER = struct.Struct(">qH16s")
DEADLINE_S = 40.0


class Closed(Exception):
    """The other side has closed the connection."""


class Frame(NamedTuple):
    kind: int
    data: bytes


HEARTBEAT = Frame(RESPONSE, b"_heartbeat_")
OK = Frame(RESPONSE, b"OK")
CLOSE_WAIT = Frame(RESPONSE, b"CLOSE_WAIT")
UNKNOWN_TOUCHED = Frame(ERROR, b"E_TOUCH_FAILED TOUCH " + UNKNOWN_ID + b" failed ID not in flight")


class Message(NamedTuple):
    timestamp_ns: int
    attempts: int
    id: bytes
    body: bytes

    def tried(self, attempts: int) -> Message:
        """Return it as it comes at that attempt."""
        return self._replace(attempts=attempts)


def int32(value: int) -> bytes:
    return struct.pack(">i", value)


def sized(body: bytes) -> bytes:
    return int32(len(body)) + body


def mpub_body(messages: Sequence[bytes]) -> bytes:
    """The number of messages, then each with its size."""
    return int32(len(messages)) + b"".join(map(sized, messages))


def pub(topic: str, body: bytes) -> bytes:
    return f"PUB {topic}\n".encode() + sized(body)


def mpub(topic: str, messages: Sequence[bytes], declared_bytes: int | None = None) -> bytes:
    """An MPUB; `declared_bytes` replaces the right size of the body."""
    body = mpub_body(messages)
    size = len(body) if declared_bytes is None else declared_bytes
    return f"MPUB {topic}\n".encode() + int32(size) + body


def dpub(topic: str, defer_ms: int, body: bytes) -> bytes:
    return f"DPUB {topic} {defer_ms}\n".encode() + sized(body)


def sub(topic: str, channel: str) -> bytes:
    return f"SUB {topic} {channel}\n".encode()


def rdy(count: int) -> bytes:
    return f"RDY {count}\n".encode()


def fin(message_id: bytes) -> bytes:
    return b"FIN " + message_id + b"\n"


def req(message_id: bytes, delay_ms: int) -> bytes:
    return b"REQ " + message_id + f" {delay_ms}\n".encode()


def touch(message_id: bytes) -> bytes:
    return b"TOUCH " + message_id + b"\n"


def identify(**fields: Any) -> bytes:
    return b"IDENTIFY\n" + sized(json.dumps(fields).encode())


def auth(secret: bytes) -> bytes:
    return b"AUTH\n" + sized(secret)


class Client:
    """One connection to nsqd."""

    def __init__(
        self,
        port: int,
        *,
        address: str = "127.0.0.1",
        magic: bytes = MAGIC,
        receive_buffer_bytes: int = 0,
        connect_deadline_s: float = DEADLINE_S,
    ) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(connect_deadline_s)
        self.socket.connect((address, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._input = bytearray()
        self._kept: deque[Frame] = deque()
        self.send(magic)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def fileno(self) -> int:
        return self.socket.fileno()

    # --- sending

    def send(self, *parts: bytes) -> None:
        """Sends the parts as one. Raises `Closed` when nsqd has closed the connection."""
        self.socket.settimeout(DEADLINE_S)
        try:
            self.socket.sendall(b"".join(parts))
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error

    def send_byte_by_byte(self, data: bytes) -> None:
        for byte in data:
            self.send(bytes([byte]))

    def end_input(self) -> None:
        """Sends the end of input, and still reads."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def send_until_it_blocks(self, data: bytes, times: int) -> None:
        """Sends `data` up to `times`, ends early when nsqd takes no more of it or closes the connection."""
        self.socket.settimeout(2.0)
        with contextlib.suppress(TimeoutError, BrokenPipeError, ConnectionResetError):
            for _ in range(times):
                self.socket.sendall(data)

    def ask(self, *parts: bytes, deadline_s: float = DEADLINE_S) -> Frame:
        """Sends, and returns the next frame that is no message. Messages that come before it are kept."""
        self.send(*parts)
        deadline = time.monotonic() + deadline_s
        while (frame := self._frame_before(deadline)).kind == MESSAGE:
            self._kept.append(frame)
        return frame

    def pub(self, topic: str, *bodies: bytes) -> None:
        for body in bodies:
            self._ask_for_ok(pub(topic, body))

    def mpub(self, topic: str, messages: Sequence[bytes]) -> None:
        self._ask_for_ok(mpub(topic, messages))

    def dpub(self, topic: str, defer_ms: int, body: bytes) -> None:
        self._ask_for_ok(dpub(topic, defer_ms, body))

    def sub(self, topic: str, channel: str, rdy_count: int | None = None) -> None:
        self._ask_for_ok(sub(topic, channel))
        if rdy_count is not None:
            self.send(rdy(rdy_count))

    def identify(self, **fields: Any) -> dict[str, Any]:
        """The negotiated settings."""
        frame = self.ask(identify(feature_negotiation=True, **fields))
        assert frame.kind == RESPONSE, frame
        return json.loads(frame.data)

    def fin(self, *messages: Message) -> None:
        self.send(*(fin(message.id) for message in messages))

    def round_trip(self) -> None:
        """Returns when nsqd has processed all that was sent before. Frames that come in the meantime are kept.

        A TOUCH of an unknown id changes nothing and is answered in its turn.
        """
        self.send(touch(UNKNOWN_ID))
        deadline = time.monotonic() + DEADLINE_S
        while (frame := self._frame_before(deadline)) != UNKNOWN_TOUCHED:
            self._kept.append(frame)

    def _ask_for_ok(self, command: bytes) -> None:
        frame = self.ask(command)
        assert frame == OK, frame

    # --- reading

    def frame(self, deadline_s: float = DEADLINE_S) -> Frame:
        """The next frame, heartbeats too. Raises `Closed` at the end of input, or TimeoutError."""
        deadline = time.monotonic() + deadline_s
        while (frame := self._take_frame()) is None:
            self._receive(deadline)
        return frame

    def next_frame(self, deadline_s: float = DEADLINE_S) -> Frame:
        """The next frame that is no heartbeat; heartbeats are answered. Raises as `frame` does."""
        if self._kept:
            return self._kept.popleft()
        return self._frame_before(time.monotonic() + deadline_s)

    def message(self, deadline_s: float = DEADLINE_S) -> Message:
        frame = self.next_frame(deadline_s)
        assert frame.kind == MESSAGE, frame
        return parse_message(frame.data)

    def messages(self, count: int, deadline_s: float = DEADLINE_S) -> list[Message]:
        """The next `count` messages, not finished."""
        return [self.message(deadline_s) for _ in range(count)]

    def arrived(self) -> list[Message]:
        """The messages that one read of the socket brings; for a socket that is ready to be read."""
        self._receive(time.monotonic() + DEADLINE_S)
        frames = list(iter(self._take_frame, None))
        return [parse_message(frame.data) for frame in frames if frame.kind == MESSAGE]

    def consume(self, count: int, deadline_s: float = DEADLINE_S) -> list[Message]:
        """The next `count` messages, each finished when it came; returns when nsqd knows."""
        messages = []
        for _ in range(count):
            messages.append(self.message(deadline_s))
            self.fin(messages[-1])
        self.round_trip()
        return messages

    def drain(self, is_empty: Callable[[], bool]) -> list[Message]:
        """Finishes what comes, until the channel is empty: then all that it had is here."""
        messages: list[Message] = []
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                messages.append(self.message(0.02))
            except TimeoutError:
                if is_empty():
                    return messages
                assert time.monotonic() < deadline, f"not empty after {len(messages)} messages"
            else:
                self.fin(messages[-1])

    def expect_silence(self, window_s: float = 0.2) -> None:
        """Nothing but heartbeats comes for `window_s` seconds."""
        try:
            frame = self.next_frame(window_s)
        except TimeoutError:
            return
        raise AssertionError(f"expected silence, got {frame}")

    def rest(self, deadline_s: float = DEADLINE_S) -> list[Frame]:
        """All frames up to the end of input, which has to come before the deadline."""
        frames = list(self._kept)
        deadline = time.monotonic() + deadline_s
        while True:
            try:
                frames.append(self.frame(deadline - time.monotonic()))
            except Closed:
                assert not self._input, f"a torn frame: {bytes(self._input)!r}"
                return frames

    def _frame_before(self, deadline: float) -> Frame:
        while (frame := self.frame(deadline - time.monotonic())) == HEARTBEAT:
            self.send(NOP)
        return frame

    def _take_frame(self) -> Frame | None:
        if len(self._input) < 8:
            return None
        size, kind = struct.unpack_from(">ii", self._input)
        if len(self._input) < size + 4:
            return None
        data = bytes(self._input[8 : size + 4])
        del self._input[: size + 4]
        return Frame(kind, data)

    def _receive(self, deadline: float) -> None:
        self._input += self._received(deadline)

    def _received(self, deadline: float) -> bytes:
        """What one read of the socket brings. Raises `Closed` at the end of input, or TimeoutError."""
        self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            data = self.socket.recv(1 << 18)
        except ConnectionResetError as error:
            raise Closed from error
        if not data:
            raise Closed
        return data


def parse_message(data: bytes) -> Message:
    return Message(*MESSAGE_HEADER.unpack_from(data), data[MESSAGE_HEADER.size :])


def bodies(messages: Iterable[Message]) -> list[bytes]:
    return [message.body for message in messages]
