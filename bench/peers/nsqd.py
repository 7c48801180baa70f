"""An nsqd, ours or another one. A batch is one MPUB."""

import socket

from bench import wire
from bench.peers.protocol import AnswerCounter, PublisherProtocol
from bench.server import Server


class Nsqd(Server, PublisherProtocol):
    @classmethod
    def greet(cls, sock: socket.socket) -> None:
        sock.sendall(b"  V2")

    @classmethod
    def request(cls, sock: socket.socket, topic: str, body: bytes, batch: int) -> bytes:
        return wire.pub(body, topic) if batch == 1 else wire.mpub(batch, body, topic)

    @classmethod
    def answers(cls, batch: int) -> int:
        return 1

    @classmethod
    def counter(cls) -> AnswerCounter:
        return wire.OkCounter()
