"""NATS JetStream: a topic is a subject of one stream on disk. A batch is that many publishes in one write."""

import json
import socket
from collections.abc import Sequence
from pathlib import Path

from bench.peers.programs import Program
from bench.peers.protocol import AnswerCounter, MarkCounter, read_until
from bench.run import LoadError

_STREAM = "BENCH"
_SUBJECTS = "bench."
_LARGEST_MESSAGE_BYTES = 8 * 1024 * 1024


class JetStream(Program):
    def _flags(self, port: int, data: Path) -> list[str]:
        # `max_payload` has no flag.
        configuration = data.with_suffix(".conf")
        configuration.write_text(
            f'listen: "127.0.0.1:{port}"\n'
            f"max_payload: {_LARGEST_MESSAGE_BYTES}\n"
            f'jetstream {{ store_dir: "{data}", max_file_store: 100GB }}\n'
        )
        return ["-c", str(configuration)]

    @classmethod
    def greet(cls, sock: socket.socket) -> None:
        """Subscribe to the connection's inbox, in which the answers to publishes arrive."""
        sock.sendall(b'CONNECT {"verbose":false}\r\nSUB %b 1\r\nPING\r\n' % _inbox(sock))
        read_until(sock, b"PONG\r\n")

    @classmethod
    def declare(cls, sock: socket.socket, topics: Sequence[str]) -> None:
        settings = {
            "name": _STREAM, "subjects": [f"{_SUBJECTS}>"], "storage": "file", "retention": "limits",
            "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "num_replicas": 1, "discard": "old",
        }  # fmt: skip
        payload = json.dumps(settings).encode()
        subject = f"$JS.API.STREAM.CREATE.{_STREAM}".encode()
        sock.sendall(b"PUB %b %b %d\r\n%b\r\n" % (subject, _inbox(sock), len(payload), payload))
        answer = read_until(sock, b"}\r\n")
        if b'"error"' in answer:
            raise LoadError(f"JetStream answered {answer[:300]!r}")

    @classmethod
    def request(cls, sock: socket.socket, topic: str, body: bytes, batch: int) -> bytes:
        subject = f"{_SUBJECTS}{topic}".encode()
        return b"PUB %b %b %d\r\n%b\r\n" % (subject, _inbox(sock), len(body), body) * batch

    @classmethod
    def counter(cls) -> AnswerCounter:
        return MarkCounter(b"}", rb'"error"|-ERR')  # `MSG <inbox> 1 <size>\r\n{"stream":"BENCH", "seq":1}\r\n`


def _inbox(sock: socket.socket) -> bytes:
    return b"_INBOX.%05d" % sock.getsockname()[1]
