"""A connection to another nsqd of the group, from the handshake to its frames."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any

import gevent
from gevent import socket as green_socket
from gevent import ssl
from gevent.hub import Waiter

from nsqd_py.errors import NsqdError
from nsqd_py.net.addresses import check_host, socket_address
from nsqd_py.net.tls import names_in
from nsqd_py.net.tls_options import peer_context
from nsqd_py.protocol import MAGIC_V2, frames, outgoing
from nsqd_py.runtime.documents import load_member_json
from nsqd_py.server.options import NsqdOptions
from nsqd_py.standby import group, messages
from nsqd_py.standby.messages import Caller, Offer

_READ_BYTES = 64 * 1024
_MOST_FRAME_BYTES = 16 * 1024 * 1024
_MOST_OFFER_BYTES = 4 * 1024 * 1024
CONNECT_TIMEOUT_S = 5.0
SILENCE_S = 30.0  # the primary ends a round each second
_HEARTBEAT_MS = 5000

_HEAD = Struct(">ii")


class FollowRefused(NsqdError):
    """The other nsqd does not let this one join the group; the text says why."""


class Link:
    """A connection to the nsqd of --standby-of. Methods raise OSError, FollowRefused and NotMember.

    frames       yields kind and data of each frame; raises FollowRefused for an error
    before_read  called when all that has arrived was yielded
    """

    def __init__(
        self,
        options: NsqdOptions,
        before_read: Callable[[], None] = lambda: None,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        silence_s: float = SILENCE_S,
        heartbeat_ms: int = _HEARTBEAT_MS,
    ) -> None:
        """Connect. `silence_s` is the longest time without a byte from the other side. Raises OSError."""
        self._options = options
        self._before_read = before_read
        self._silence_s = silence_s
        self._heartbeat_ms = heartbeat_ms
        self._host, _, port = options.standby_of.rpartition(":")
        self._host = self._host.strip("[]")
        check_host(self._host)
        self.sock: Any = green_socket.create_connection((self._host, int(port)), connect_timeout_s)
        loop = gevent.get_hub().loop
        self._readable = loop.io(self.sock.fileno(), 1)
        self._silence = loop.timer(silence_s, silence_s)
        self.frames = self._read_frames(self._wait)

    def join(self, purpose: str) -> Caller:
        """Prove to each other that both sides are members; return this side, which signs documents."""
        options = self._options
        secret = group.secrets(options)[0]
        reached = socket_address(self.sock.getpeername())
        group.check_peer(options, reached)
        self.sock.settimeout(self._silence_s)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(MAGIC_V2 + outgoing.identify(_identity(options, self._heartbeat_ms)))
        answer = self._identified()
        if options.standby_tls:
            if not answer.get("tls_v1"):
                raise FollowRefused("it has no TLS, and --standby-tls is set")
            self._begin_tls()
        caller = Caller(secret, purpose, options.standby_of, reached, os.urandom(messages.NONCE_BYTES))
        self._command(b"MEMBER", caller.hello())
        self._command(b"MEMBER", caller.prove(self.response()[1]))
        caller.check(self.response()[1])
        return caller

    def _identified(self) -> dict[str, Any]:
        """Return the answer to IDENTIFY. Raises FollowRefused."""
        try:
            answer = load_member_json(self.response()[1])
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise FollowRefused("its answer to IDENTIFY is not a JSON object: it is no nsqd-py")
        return answer

    def offer(self, purpose: str, offer: Callable[[], Offer]) -> None:
        """Send an offer, after both sides have proven their membership."""
        self.send_document(self.join(purpose), messages.encode_offer(offer(), _MOST_OFFER_BYTES))

    def send_document(self, caller: Caller, document: bytes) -> None:
        """Send a document of STANDBY, signed by `caller`."""
        self._command(b"STANDBY", caller.signed(document))

    def _wait(self) -> None:
        """Wait until something arrives. `recv` would try to read first, and make a timer: 30 of 130 us of a round."""
        waiter: Any = Waiter()
        self._readable.start(waiter.switch, True)
        # `start` would go on with the time that was left when the timer was stopped.
        self._silence.again(waiter.switch, False, update=False)
        try:
            if not waiter.get():
                raise TimeoutError("timed out")
        finally:
            self._readable.stop()
            self._silence.stop()

    def send_line(self, line: bytes) -> None:
        """Send a short line, without the timer that `sendall` starts for each call."""
        sent = self.sock.send(line)
        if sent < len(line):
            self.sock.sendall(line[sent:])

    def _command(self, name: bytes, body: bytes) -> None:
        self.sock.sendall(name + b"\n" + len(body).to_bytes(4, "big") + body)

    def _begin_tls(self) -> None:
        context = peer_context(self._options, "standby", ssl.SSLContext)
        self.sock = context.wrap_socket(self.sock, server_hostname=self._host)
        # Without what came in plain text behind the last answer. TLS may have more than the socket.
        self.frames = self._read_frames(lambda: None)
        group.check_certificate(self._options, names_in(self.sock.getpeercert()))
        self.response()

    def response(self) -> tuple[int, bytes]:
        """Return the next frame that is no heartbeat."""
        for kind, data in self.frames:
            if data != frames.HEARTBEAT[_HEAD.size :]:
                return kind, data
        raise ConnectionError("no answer")

    def _read_frames(self, wait: Callable[[], None]) -> Iterator[tuple[int, bytes]]:
        buffer = b""
        while True:
            offset = 0
            while len(buffer) - offset >= _HEAD.size:
                size, kind = _HEAD.unpack_from(buffer, offset)
                if not 4 <= size <= _MOST_FRAME_BYTES:
                    raise FollowRefused(f"it sent a frame of {size} bytes: it is no nsqd-py")
                end = offset + 4 + size
                if end > len(buffer):
                    break
                data = buffer[offset + _HEAD.size : end]
                if kind == frames.ERROR:
                    raise FollowRefused(data.decode("utf-8", "replace"))
                yield kind, data
                offset = end
            self._before_read()
            wait()
            received = self.sock.recv(_READ_BYTES)
            if not received:
                raise ConnectionError("it has closed the connection")
            if offset < len(buffer):
                buffer = buffer[offset:] + received
            else:
                buffer = received


def _identity(options: NsqdOptions, heartbeat_ms: int) -> bytes:
    host = socket.gethostname()
    fields = {
        "client_id": host,
        "hostname": host,
        "user_agent": "nsqd-py standby",
        "feature_negotiation": True,
        "tls_v1": options.standby_tls,
        "heartbeat_interval": heartbeat_ms,
    }
    return json.dumps(fields).encode()


def ask(options: NsqdOptions, purpose: str, offer: Offer) -> int:
    """Return the kind of the frame with which the nsqd of --standby-of answers an offer. Blocks this greenlet.

    Raises OSError, FollowRefused with its error, and NotMember.
    """
    link = Link(options)
    try:
        link.offer(purpose, lambda: offer)
        return link.response()[0]
    finally:
        link.sock.close()
