"""Many messages that come back in another order than they were published: nsqd stays quick, and so do others."""

from __future__ import annotations

import random
import struct
import time

import psutil
import pytest

from tests.support import wire
from tests.support.background import Background
from tests.support.nsqd_process import NsqdProcess
from tests.support.sweeps import sample
from tests.support.wire import Client

_AT_ONCE = 1_000
_NUMBER = struct.Struct(">Q")


class Pinging(Background):
    """Asks for `/ping` all the time, and notes how long that takes, or nsqd's event loop if that is less: other programs
    may have the processors.
    """

    def __init__(self, nsqd: NsqdProcess) -> None:
        super().__init__(self._ping)
        self._nsqd = nsqd
        self._waits_s: list[float] = []

    def _ping(self) -> None:
        while not self.is_over.wait(0.005):
            began_s, began_cpu_s = time.monotonic(), self._nsqd.loop_cpu_s
            assert self._nsqd.is_healthy()
            self._waits_s.append(min(time.monotonic() - began_s, self._nsqd.loop_cpu_s - began_cpu_s))

    @property
    def p99_s(self) -> float:
        return sorted(self._waits_s)[int(0.99 * len(self._waits_s))]


def cpu_s(nsqd: NsqdProcess) -> float:
    times = psutil.Process(nsqd.pid).cpu_times()
    return times.user + times.system


def defer(client: Client, count: int, longest_ms: int, size: int) -> None:
    """Publish that many messages with random delays."""
    delays_ms = random.Random(1)
    for low in range(0, count, _AT_ONCE):
        numbers = range(low, min(count, low + _AT_ONCE))
        bodies = [_NUMBER.pack(number).ljust(size) for number in numbers]
        client.send(*[wire.dpub("t", delays_ms.randint(1, longest_ms), body) for body in bodies])
        for _ in numbers:
            assert client.next_frame().data == b"OK"


def consume(nsqd: NsqdProcess, count: int, deadline_s: float, rdy: int) -> list[int]:
    """The numbers of all messages, in the order in which they came."""
    seen = []
    deadline = time.monotonic() + deadline_s
    with nsqd.consumer("t", "c", rdy) as client:
        while len(seen) < count:
            assert time.monotonic() < deadline, f"{len(seen)} of {count} in {deadline_s} s"
            messages = client.arrived()
            client.fin(*messages)
            seen += [_NUMBER.unpack_from(message.body)[0] for message in messages]
    return seen


@pytest.mark.parametrize("is_restarted", sample(True, False))
def test_due_messages_cost_little_cpu(make_nsqd, is_restarted):
    """10,000 of 1 kB, nearly all on disk, take 0.4 s; they took more than 10 s when each read decoded a chunk."""
    count = 10_000
    nsqd = make_nsqd("--mem-queue-size=100")
    nsqd.create("t", "c")
    with nsqd.connect() as client:
        defer(client, count, longest_ms=2_500, size=1_000)
    if is_restarted:
        nsqd.restart(clean=True)
    nsqd.wait_for_channel("t", "c", depth=count, deferred_count=0)
    before_s = cpu_s(nsqd)
    assert sorted(consume(nsqd, count, 60.0, rdy=200)) == list(range(count))
    assert cpu_s(nsqd) - before_s < 5.0
    nsqd.wait_for_channel("t", "c", depth=0, deferred_count=0, in_flight_count=0)


def test_many_requeued_messages_far_apart_cost_little_cpu(make_nsqd):
    count = 10_000
    nsqd = make_nsqd("--mem-queue-size=100")
    nsqd.create("t", "c")
    delays_ms = random.Random(2)
    with nsqd.connect() as client:
        for low in range(0, count, 100):
            client.mpub("t", [_NUMBER.pack(number).ljust(1_000) for number in range(low, low + 100)])
        client.sub("t", "c", 200)
        left = count
        while left:
            messages = client.arrived()
            client.send(*[wire.req(message.id, delays_ms.randint(3_000, 4_500)) for message in messages])
            left -= len([message for message in messages if message.attempts == 1])
    nsqd.wait_for_channel("t", "c", depth=count, deferred_count=0, in_flight_count=0)
    before_s = cpu_s(nsqd)
    assert sorted(consume(nsqd, count, 60.0, rdy=200)) == list(range(count))
    assert cpu_s(nsqd) - before_s < 5.0


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("is_restarted", [False, True], ids=["running", "restarted"])
def test_300_000_due_messages_leave_nsqd_quick(make_nsqd, is_restarted):
    """On a machine of its own: 100,000 a second, and the 99th percentile of `/ping` is below 20 ms.

    Here by CPU, which others on the machine disturb less: 25 us a message, where 8 to 14 were measured.
    """
    count = 300_000
    nsqd = make_nsqd()
    nsqd.create("t", "c")
    with nsqd.connect() as client:
        defer(client, count, longest_ms=10_000, size=8)
    if is_restarted:
        nsqd.restart(clean=True)
    with Pinging(nsqd) as pinging:
        nsqd.wait_for_channel("t", "c", 120.0, depth=count, deferred_count=0)
    assert pinging.p99_s < 0.02
    before_s = cpu_s(nsqd)
    assert sorted(consume(nsqd, count, 120.0, rdy=2_500)) == list(range(count))
    assert cpu_s(nsqd) - before_s < 25e-6 * count
