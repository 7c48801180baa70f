"""An nsqd that sends clients more than they asked for: each kind of client closes the connection, and says why."""

from __future__ import annotations

import logging
import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, product, repeat
from struct import pack

import pytest

from nsqd_py.net.snappy import SnappyLayer
from nsqd_py.protocol import frames
from tests.support.consumer_drivers import SHELLS, Driver
from tests.support.fake_nsqd import agree, listening
from tests.support.nsqd_side import identity
from tests.support.sweeps import sampled
from tests.unit.protocol.test_incoming import message

pytestmark = pytest.mark.ours

MB = 1024 * 1024
GB = 1024 * MB
# The sockets of both sides hold up to 10 MB, and the client reads a few MB before it parses them.
MOST_TAKEN_BYTES = 40 * MB

Pieces = Iterator[bytes]


class Flood:
    """A server that completes the handshake with its clients, and sends each of them `pieces`.

    taken_bytes  the most that a client has taken, or the system for it
    """

    def __init__(self, pieces: Callable[[], Pieces], features: dict[str, bool]) -> None:
        self.taken_bytes = 0
        self._pieces = pieces
        self._features = features

    def serve(self, server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                sock, _ = server.accept()
                sock.settimeout(5)  # a closed client may let the system of the server wait for minutes
                with sock, suppress(OSError):
                    self._flood(sock)

    def _flood(self, sock: socket.socket) -> None:
        sock.recv(65536)
        sock.sendall(identity(**self._features))
        taken_bytes = 0
        for piece in self._pieces():
            sock.sendall(piece)
            taken_bytes += len(piece)
            self.taken_bytes = max(taken_bytes, self.taken_bytes)


@contextmanager
def flooding(pieces: Callable[[], Pieces], **features: bool) -> Iterator[tuple[str, Flood]]:
    flood = Flood(pieces, features)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=flood.serve, args=(server,), daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}", flood
        server.shutdown(socket.SHUT_RDWR)


def endless(head: bytes, piece: bytes = bytes(MB), size_bytes: int = 700 * MB) -> Callable[[], Pieces]:
    return lambda: chain([head], repeat(piece, size_bytes // len(piece)))


def head(kind: int, size: int) -> bytes:
    return pack(">ii", size, kind)


def deflated(data: bytes, oks: int = 2) -> Callable[[], Pieces]:
    """Some OKs, then the data 100 times, in one stream."""

    def pieces() -> Pieces:
        compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
        yield compressor.compress(frames.OK * oks) + compressor.flush(zlib.Z_SYNC_FLUSH)
        for _ in range(100):  # the second OK is for SUB
            yield compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH)

    return pieces


def snappied(data: bytes) -> Callable[[], Pieces]:
    def pieces() -> Pieces:
        layer = SnappyLayer()
        return chain([layer.encode(frames.OK * 2)], repeat(layer.encode(data), 100))

    return pieces


MESSAGES = b"".join(message(number, bytes(1000)) for number in range(1000))
FRAME = head(frames.MESSAGE, 700 * MB) + bytes(7 * MB)
TOO_LARGE = f"a message of {700 * MB - 30} bytes, but max_msg_size of this client is {64 * MB}"
LONG_ANSWER = "an answer of 734003200 bytes (limit 65536)"
TOO_MANY = "more messages than RDY"

CASES: dict[str, tuple[Callable[[], Pieces], dict[str, bool], str]] = {
    "message": (endless(frames.OK + head(frames.MESSAGE, 700 * MB)), {}, TOO_LARGE),
    "response": (endless(frames.OK + head(frames.RESPONSE, 700 * MB)), {}, LONG_ANSWER),
    "error": (endless(frames.OK + head(frames.ERROR, 700 * MB)), {}, LONG_ANSWER),
    "response in the handshake": (endless(head(frames.RESPONSE, 700 * MB)), {}, LONG_ANSWER),
    "messages": (endless(frames.OK, MESSAGES), {}, TOO_MANY),
    "deflated message": (deflated(FRAME), {"deflate": True}, TOO_LARGE),
    "deflated messages": (deflated(MESSAGES), {"deflate": True}, TOO_MANY),
    "message in snappy": (snappied(FRAME), {"snappy": True}, TOO_LARGE),
    "messages in snappy": (snappied(MESSAGES), {"snappy": True}, TOO_MANY),
}


@pytest.mark.parametrize(
    ("shell", "is_deflated"), sampled(product(SHELLS, [False, True]), ("gevent", False), ("threads", True))
)
def test_a_handshake_of_heartbeats_without_end_has_its_time(shell, is_deflated, caplog):
    heartbeats = frames.HEARTBEAT * 10_000
    pieces = deflated(heartbeats * 100, oks=1) if is_deflated else endless(b"", heartbeats, 100 * GB)
    with flooding(pieces, deflate=is_deflated, auth_required=True) as (address, _):
        limits = {
            "read_timeout": "1s",
            "heartbeat_interval": "500ms",
            "auth_secret": "hush",
            "deflate": is_deflated,
        }
        log = logging.getLogger(f"hostile.{shell}")
        consumer = Driver(
            shell, "t", "c", lambda message: None, nsqd_tcp_addresses=[address], log=log, **limits
        )
        try:
            consumer.wait(lambda: "no end of the handshake within 1s" in caplog.text)
        finally:
            consumer.close()


NONSENSE = {
    "no frame": b"\xff" * 100,
    "a message of 2 GB": head(frames.MESSAGE, 2**31 - 1),
    "a negative size": head(frames.MESSAGE, -1),
    "a spent message with an id that is no text": message(0, attempts=9).replace(b"%016x" % 0, b"\xff\n" * 8),
    "an end in a message": message(1)[:-1],
    "errors": frames.error(b"E_INVALID \xff\n") * 1000 + frames.error(b""),
    "answers to no question": (frames.OK + frames.CLOSE_WAIT + frames.response(b"?")) * 1000,
}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("nonsense", NONSENSE)
def test_a_consumer_goes_on_after_nonsense(shell, nonsense):
    """The next connection brings a message, twice: once as one is finished, it is not in flight."""

    def say_nonsense(sock):
        agree(sock)
        sock.sendall(message(1) + frames.OK + message(2) + NONSENSE[nonsense])
        sock.shutdown(socket.SHUT_WR)

    def behave(sock):
        agree(sock)
        sock.sendall(frames.OK + frames.HEARTBEAT * 10_000 + message(3) * 2)
        with sock.makefile("rb") as commands:
            assert b"FIN " + b"%016x" % 3 + b"\n" in iter(commands.readline, b"")

    seen: list[bytes] = []
    with listening(say_nonsense, behave) as address:
        consumer = Driver(
            shell, "t", "c", lambda message: seen.append(message.id), nsqd_tcp_addresses=[address]
        )
        try:
            consumer.wait(lambda: seen.count(b"%016x" % 3) == 2)
            consumer.wait(lambda: consumer.stats().in_flight == 0)
        finally:
            consumer.close()
    assert b"%016x" % 1 not in seen


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("case", CASES)
def test_a_consumer_refuses_more_than_it_asked_for(shell, case, caplog):
    pieces, features, reason = CASES[case]
    with flooding(pieces, **features) as (address, flood):
        log = logging.getLogger(f"hostile.{shell}")
        consumer = Driver(
            shell, "t", "c", lambda message: None, nsqd_tcp_addresses=[address], log=log, **features
        )
        try:
            consumer.wait(lambda: reason in caplog.text)
        finally:
            consumer.close()
    assert flood.taken_bytes < MOST_TAKEN_BYTES
