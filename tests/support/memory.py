"""What a process has in memory, and messages that wait there."""

from __future__ import annotations

from pathlib import Path

from tests.support import wire
from tests.support.nsqd_process import NsqdProcess, ServerProcess

_IN_ONE_SEND = 500


def resident_bytes(server: ServerProcess) -> int:
    """What it has now."""
    return _status_bytes(server, "VmRSS")


def most_resident_bytes(server: ServerProcess) -> int:
    """The most that it had at any time."""
    return _status_bytes(server, "VmHWM")


def _status_bytes(server: ServerProcess, name: str) -> int:
    status = Path(f"/proc/{server.pid}/status").read_text("ascii")
    (line,) = (line for line in status.splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def due_in_ms(number: int) -> int:
    """A different time for each message, in no order, within the hour that a client may ask for."""
    return 2_000_000 + number * 7919 % 1_000_003


def publish_deferred(nsqd: NsqdProcess, topic: str, count: int) -> None:
    """Publish messages of 100 bytes, each with a time of its own."""
    with nsqd.connect() as client:
        for first in range(0, count, _IN_ONE_SEND):
            numbers = range(first, min(first + _IN_ONE_SEND, count))
            client.send(*(wire.dpub(topic, due_in_ms(number), b"x" * 100) for number in numbers))
            assert {client.next_frame() for _ in numbers} == {wire.OK}
