"""RabbitMQ: a topic is a durable queue, messages are persistent, and the broker confirms each.

The protocol is AMQP 0-9-1, https://www.rabbitmq.com/resources/specs/amqp0-9-1.pdf: frames in section 4.2.3, methods in
chapter 1 of its XML. Confirms are RabbitMQ's extension. A batch is that many publishes in one write.
"""

import re
import shlex
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

from bench.peers.programs import Program
from bench.peers.protocol import AnswerCounter
from bench.run import LoadError
from bench.server import free_ports

_METHOD, _HEADER, _BODY = 1, 2, 3
_END = b"\xce"
_CHANNEL = 1
_FRAME_BYTES = 131072
_FRAME = struct.Struct(">BHI")
_ACK, _NACK = (60, 80), (60, 120)
_PERSISTENT = struct.pack(">HB", 0x1000, 2)  # the flag of `delivery-mode`, and its value
_DURABLE = b"\x02"
_VERSION = re.compile(rb"\x07versionS....([\d.]+)", re.DOTALL)


class RabbitMQ(Program):
    def _configure(self, directory: Path) -> None:
        """Its Erlang needs a name service, epmd: one that ends with it, on a port of its own."""
        self._tcp_port, distribution_port, epmd_port = free_ports(3)
        self._environment = {
            "HOME": str(directory),
            "ERL_EPMD_PORT": str(epmd_port),
            "RABBITMQ_NODENAME": f"bench{self._tcp_port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self._tcp_port),
            "RABBITMQ_DIST_PORT": str(distribution_port),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "logs"),
            "RABBITMQ_PID_FILE": str(directory / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(directory / "none"),
        }
        self._command = ["sh", "-c", f"epmd -port {epmd_port} & exec {shlex.join(self._command)}"]

    def _find_version(self) -> str:
        with socket.create_connection(("127.0.0.1", self._tcp_port)) as sock:
            sock.sendall(_PROTOCOL_HEADER)
            found = _VERSION.search(_read_frame(sock)[1])
        return found[1].decode() if found else "unknown"

    @classmethod
    def greet(cls, sock: socket.socket) -> None:
        sock.sendall(_PROTOCOL_HEADER)
        _read_frame(sock)  # start
        start_ok = struct.pack(">I", 0) + _short("PLAIN") + _long("\0guest\0guest") + _short("en_US")
        sock.sendall(_method(0, 10, 11, start_ok))
        _read_frame(sock)  # tune
        sock.sendall(_method(0, 10, 31, struct.pack(">HIH", _CHANNEL, _FRAME_BYTES, 0)))
        for channel, class_id, method_id, arguments in (
            (0, 10, 40, _short("/") + _short("") + b"\0"),  # open the connection
            (_CHANNEL, 20, 10, _short("")),  # open the channel
            (_CHANNEL, 85, 10, b"\0"),  # confirm publishes
        ):
            _call(sock, channel, class_id, method_id, arguments)

    @classmethod
    def declare(cls, sock: socket.socket, topics: Sequence[str]) -> None:
        for topic in topics:
            arguments = struct.pack(">H", 0) + _short(topic) + _DURABLE + struct.pack(">I", 0)
            _call(sock, _CHANNEL, 50, 10, arguments)

    @classmethod
    def request(cls, sock: socket.socket, topic: str, body: bytes, batch: int) -> bytes:
        publish = _method(_CHANNEL, 60, 40, struct.pack(">H", 0) + _short("") + _short(topic) + b"\0")
        header = _frame(_HEADER, _CHANNEL, struct.pack(">HHQ", 60, 0, len(body)) + _PERSISTENT)
        most_bytes = _FRAME_BYTES - _FRAME.size - len(_END)
        pieces = (body[at : at + most_bytes] for at in range(0, len(body), most_bytes))
        return (publish + header + b"".join(_frame(_BODY, _CHANNEL, piece) for piece in pieces)) * batch

    @classmethod
    def counter(cls) -> AnswerCounter:
        return ConfirmCounter()


class ConfirmCounter:
    """Count confirmed publishes. One confirm may cover several, and confirms may come out of order."""

    __slots__ = ("_later", "_rest", "_through")

    def __init__(self) -> None:
        self._rest = b""
        self._through = 0  # All publishes up to this one are confirmed,
        self._later: set[int] = set()  # and these.

    def feed(self, data: bytes) -> int:
        data = self._rest + data
        confirmed = at = 0
        while len(data) - at >= _FRAME.size:
            _, _, size = _FRAME.unpack_from(data, at)
            end = at + _FRAME.size + size + len(_END)
            if end > len(data):
                break
            confirmed += self._confirm(data[at + _FRAME.size : end - len(_END)])
            at = end
        self._rest = data[at:]
        return confirmed

    def _confirm(self, method: bytes) -> int:
        if struct.unpack_from(">HH", method) != _ACK:
            raise LoadError(f"RabbitMQ answered {method[:200]!r}")
        tag, multiple = struct.unpack_from(">QB", method, 4)
        if not multiple:
            self._later.add(tag)
            return 1
        covered = {later for later in self._later if later <= tag}
        self._later -= covered
        confirmed = tag - self._through - len(covered)
        self._through = tag
        return int(confirmed)


_PROTOCOL_HEADER = b"AMQP\0\0\x09\x01"


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _FRAME.pack(kind, channel, len(payload)) + payload + _END


def _method(channel: int, class_id: int, method_id: int, arguments: bytes) -> bytes:
    return _frame(_METHOD, channel, struct.pack(">HH", class_id, method_id) + arguments)


def _short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _long(text: str) -> bytes:
    return struct.pack(">I", len(text)) + text.encode()


def _call(sock: socket.socket, channel: int, class_id: int, method_id: int, arguments: bytes) -> None:
    """Send a method, and read its answer: the method with the next number."""
    sock.sendall(_method(channel, class_id, method_id, arguments))
    _, payload = _read_frame(sock)
    if struct.unpack_from(">HH", payload) != (class_id, method_id + 1):
        raise LoadError(f"RabbitMQ answered {payload[:200]!r}")


def _read_frame(sock: socket.socket) -> tuple[int, bytes]:
    """Return the kind and the payload of the next frame."""
    kind, _, size = _FRAME.unpack(_read(sock, _FRAME.size))
    return kind, _read(sock, size + len(_END))[: -len(_END)]


def _read(sock: socket.socket, size: int) -> bytes:
    data = sock.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise LoadError("RabbitMQ closed the connection")
    return data
