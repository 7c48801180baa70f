"""Redis: a topic is a stream, a publish is XADD. A batch is that many XADDs in one write."""

import socket
from pathlib import Path

from bench.peers.programs import Program
from bench.peers.protocol import AnswerCounter, MarkCounter


class Redis(Program):
    def _flags(self, port: int, data: Path) -> list[str]:
        return [
            "--port", str(port), "--bind", "127.0.0.1", "--dir", str(data), "--save", "", "--appendonly", "yes",
            "--auto-aof-rewrite-percentage", "0",
        ]  # fmt: skip

    @classmethod
    def request(cls, sock: socket.socket, topic: str, body: bytes, batch: int) -> bytes:
        words = (b"XADD", topic.encode(), b"*", b"b", body)
        command = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
        return command * batch

    @classmethod
    def counter(cls) -> AnswerCounter:
        return MarkCounter(b"$", rb"-[A-Z]")  # `$15\r\n1700000000000-0\r\n`, or `-ERR ...`
