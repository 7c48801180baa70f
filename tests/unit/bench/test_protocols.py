"""Answers are counted the same, however the network divides them."""

import struct

import pytest

from bench.peers.beanstalkd import Beanstalkd
from bench.peers.jetstream import JetStream
from bench.peers.protocol import PublisherProtocol
from bench.peers.rabbitmq import RabbitMQ
from bench.peers.redis import Redis
from bench.run import LoadError

SINGLE, MULTIPLE = 0, 1


def confirm(tag: int, multiple: int, method: int = 80) -> bytes:
    payload = struct.pack(">HHQB", 60, method, tag, multiple)
    return struct.pack(">BHI", 1, 1, len(payload)) + payload + b"\xce"


ANSWERS: list[tuple[type[PublisherProtocol], bytes, int]] = [
    (Redis, b"$15\r\n1700000000000-0\r\n" * 3, 3),
    (JetStream, b'PING\r\nMSG _INBOX.7 1 27\r\n{"stream":"BENCH", "seq":1}\r\n' * 3, 3),
    (Beanstalkd, b"USING topic00000\r\nINSERTED 1\r\nINSERTED 2\r\n", 3),
    (RabbitMQ, confirm(1, SINGLE) + confirm(2, SINGLE), 2),
    (RabbitMQ, confirm(2, SINGLE) + confirm(3, MULTIPLE) + confirm(7, MULTIPLE), 7),
]
ERRORS: list[tuple[type[PublisherProtocol], bytes]] = [
    (Redis, b"$15\r\n1700000000000-0\r\n-OOM command not allowed\r\n"),
    (JetStream, b'MSG _INBOX.7 1 60\r\n{"error":{"code":503}}\r\n'),
    (Beanstalkd, b"OUT_OF_MEMORY\r\n"),
    (RabbitMQ, confirm(1, SINGLE, method=120)),
]


@pytest.mark.parametrize(("protocol", "stream", "answers"), ANSWERS)
@pytest.mark.parametrize("piece_bytes", [1, 7, 1000])
def test_answers_are_counted_in_pieces_of_any_size(
    protocol: type[PublisherProtocol], stream: bytes, answers: int, piece_bytes: int
) -> None:
    counter = protocol.counter()
    pieces = (stream[at : at + piece_bytes] for at in range(0, len(stream), piece_bytes))
    assert sum(counter.feed(piece) for piece in pieces) == answers


@pytest.mark.parametrize(("protocol", "stream"), ERRORS)
def test_an_error_is_not_counted_as_an_answer(protocol: type[PublisherProtocol], stream: bytes) -> None:
    with pytest.raises(LoadError):
        protocol.counter().feed(stream)
