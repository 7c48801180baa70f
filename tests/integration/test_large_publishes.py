"""MPUBs of large messages, which are received without being copied, and memory that they do not fill."""

from __future__ import annotations

import pytest

from tests.support.wire import OK, bodies, mpub

KIB = 1024


def large(number: int, count: int = 10, size_bytes: int = 64 * KIB) -> list[bytes]:
    """Messages of one size, each different."""
    return [(b"%d.%d " % (number, i)).ljust(size_bytes, b"x") for i in range(count)]


def mixed(number: int) -> list[bytes]:
    """Messages of different sizes."""
    return [(b"%d.%d " % (number, i)).ljust(30 * KIB + 7 * i, b"y") for i in range(9)]


@pytest.mark.parametrize("pieces", [1, 3, 50])
def test_large_publishes_in_a_row(nsqd, pieces):
    nsqd.create("t", "c")
    sent = []
    with nsqd.connect() as client:
        for number in range(6):
            messages = mixed(number) if number % 3 == 2 else large(number)
            command = mpub("t", messages)
            step = -(-len(command) // pieces)
            for start in range(0, len(command), step):
                client.send(command[start : start + step])
            assert client.frame() == OK
            sent += messages
    assert bodies(nsqd.consume("t", "c", len(sent))) == sent
