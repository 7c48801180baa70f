"""beanstalkd: a topic is a tube. A batch is that many `put`s in one write."""

import socket
from pathlib import Path

from bench.peers.programs import Program
from bench.peers.protocol import AnswerCounter, MarkCounter

_LARGEST_JOB_BYTES = 8 * 1024 * 1024
_TIME_TO_RUN_S = 60


class Beanstalkd(Program):
    def _flags(self, port: int, data: Path) -> list[str]:
        return ["-l", "127.0.0.1", "-p", str(port), "-b", str(data), "-z", str(_LARGEST_JOB_BYTES)]

    @classmethod
    def request(cls, sock: socket.socket, topic: str, body: bytes, batch: int) -> bytes:
        put = b"put 0 0 %d %d\r\n%b\r\n" % (_TIME_TO_RUN_S, len(body), body)
        return b"use %b\r\n" % topic.encode() + put * batch

    @classmethod
    def answers(cls, batch: int) -> int:
        return 1 + batch

    @classmethod
    def counter(cls) -> AnswerCounter:
        return MarkCounter(b"\n", rb"_|BURIED|DRAINING|INTERNAL")  # `USING <tube>\r\n`, `INSERTED <id>\r\n`
