"""MPUBs of large messages, which are received without being copied, and memory that they do not fill."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.wire import OK, Client, Frame, bodies, int32, mpub, pub

KIB = 1024


def large(number: int, count: int = 10, size_bytes: int = 64 * KIB) -> list[bytes]:
    """Messages of one size, each different."""
    return [(b"%d.%d " % (number, i)).ljust(size_bytes, b"x") for i in range(count)]


def mixed(number: int) -> list[bytes]:
    """Messages of different sizes."""
    return [(b"%d.%d " % (number, i)).ljust(30 * KIB + 7 * i, b"y") for i in range(9)]


def consumed(nsqd: NsqdProcess, count: int) -> list[bytes]:
    with nsqd.connect() as consumer:
        consumer.sub("t", "c", rdy_count=100)
        return bodies(consumer.consume(count))


@pytest.mark.parametrize("pieces", [1, 3, 50])
def test_large_publishes_in_a_row(nsqd: NsqdProcess, pieces: int) -> None:
    nsqd.create("t", "c")
    sent: list[bytes] = []
    with nsqd.connect() as client:
        for number in range(6):
            messages = mixed(number) if number % 3 == 2 else large(number)
            command = mpub("t", messages)
            step = -(-len(command) // pieces)
            for start in range(0, len(command), step):
                client.send(command[start : start + step])
            assert client.frame() == OK
            sent += messages
    assert consumed(nsqd, len(sent)) == sent


def test_large_publishes_in_the_pipe_between_other_commands(nsqd: NsqdProcess) -> None:
    nsqd.create("t", "c")
    sent: list[bytes] = []
    commands: list[bytes] = []
    for number in range(8):
        commands.append(mpub("t", large(number)))
        sent += large(number)
        if number % 2:
            commands += [b"NOP\n", pub("t", b"small %d" % number), mpub("t", [b"few", b"more"])]
            sent += [b"small %d" % number, b"few", b"more"]
    with nsqd.connect() as client:
        client.send(b"".join(commands))
        answers = sum(not command.startswith(b"NOP") for command in commands)
        assert [client.frame() for _ in range(answers)] == [OK] * answers
    assert consumed(nsqd, len(sent)) == sent


def in_a_row(client: Client) -> None:
    """Publish so that the next large body is received by itself."""
    for number in range(3):
        client.mpub("t", large(number))


def test_a_client_that_ends_within_a_large_body(nsqd: NsqdProcess) -> None:
    nsqd.create("t", "c")
    with nsqd.connect() as client:
        in_a_row(client)
        client.send(mpub("t", large(9))[:200_000])
        client.end_input()
        assert client.frame().data.startswith(b"E_BAD_MESSAGE MPUB failed to read message")
    assert consumed(nsqd, 30) == [message for number in range(3) for message in large(number)]


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (int32(0), b"E_BAD_MESSAGE MPUB invalid message(3) body size 0"),
        (int32(2_000_000), b"E_BAD_MESSAGE MPUB message too big 2000000 > 1048576"),
    ],
)
def test_a_bad_message_in_a_large_body(nsqd: NsqdProcess, bad: bytes, error: bytes) -> None:
    with nsqd.connect() as client:
        in_a_row(client)
        command = bytearray(mpub("t", large(9)))
        place = len(b"MPUB t\n") + 8 + 3 * (4 + 64 * KIB)
        command[place : place + 4] = bad
        client.send(bytes(command))
        assert client.frame() == Frame(1, error)


def test_a_body_that_does_not_come_is_no_sign_of_life(nsqd: NsqdProcess) -> None:
    with nsqd.connect() as client:
        client.identify(heartbeat_interval=1000)
        in_a_row(client)
        client.send(mpub("t", large(9))[:100_000])
        frames = client.rest()
        assert [frame.data for frame in frames] == [b"_heartbeat_"] * len(frames)
    wait_until(lambda: "failed to read command - i/o timeout" in nsqd.log_text())


def test_large_messages_that_nobody_consumes_do_not_stay_in_memory(nsqd: NsqdProcess) -> None:
    """The log has them, and so has the system's page cache."""
    with nsqd.connect() as client:
        for number in range(300):  # 190 MB
            client.mpub("t", large(number))
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{nsqd.pid}/status").read_text())
    assert match is not None
    assert int(match[1]) < 150 * KIB
