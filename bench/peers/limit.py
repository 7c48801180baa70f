"""The limit: what a server costs that makes the same system calls and has no queue (`bare_server.py`)."""

import socket
import struct
from pathlib import Path

from bench import wire
from bench.peers.programs import Program
from bench.peers.protocol import AnswerCounter


class Limit(Program):
    """A request begins with its size in bytes. A batch is one request, with one answer."""

    def _flags(self, port: int, data: Path) -> list[str]:
        return [f"--port={port}", f"--file={data / 'log'}"]

    def _find_version(self) -> str:
        return ""

    @classmethod
    def request(cls, sock: socket.socket, topic: str, body: bytes, batch: int) -> bytes:
        content = wire.pub(body, topic) if batch == 1 else wire.mpub(batch, body, topic)
        return struct.pack(">I", 4 + len(content)) + content

    @classmethod
    def answers(cls, batch: int) -> int:
        return 1

    @classmethod
    def counter(cls) -> AnswerCounter:
        return wire.OkCounter()
