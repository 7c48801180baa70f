"""Many messages that come back in another order than they were published: nsqd stays quick, and so do others."""

from __future__ import annotations

import random
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil
import pytest

from tests.support import wire
from tests.support.nsqd_process import MakeNsqd, NsqdProcess
from tests.support.wire import Client

_AT_ONCE = 1_000
_NUMBER = struct.Struct(">Q")


@dataclass
class Waits:
    """How long `/ping` took, in s."""

    seconds: list[float] = field(default_factory=list)

    @property
    def p99_s(self) -> float:
        return sorted(self.seconds)[int(0.99 * len(self.seconds))]


@contextmanager
def pinged(nsqd: NsqdProcess) -> Iterator[Waits]:
    """Somebody asks for `/ping` all the time, in a thread of this process."""
    waits = Waits()
    is_over = threading.Event()

    def ping() -> None:
        while not is_over.wait(0.005):
            began_s = time.monotonic()
            assert nsqd.http("GET", "/ping").status == 200
            waits.seconds.append(time.monotonic() - began_s)

    thread = threading.Thread(target=ping)
    thread.start()
    try:
        yield waits
    finally:
        is_over.set()
        thread.join()


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
    seen: list[int] = []
    deadline = time.monotonic() + deadline_s
    with nsqd.consumer("t", "c", rdy) as client:
        while len(seen) < count:
            assert time.monotonic() < deadline, f"{len(seen)} of {count} in {deadline_s} s"
            messages = client.arrived()
            client.fin(*messages)
            seen += [_NUMBER.unpack_from(message.body)[0] for message in messages]
    return seen


@pytest.mark.parametrize("is_restarted", [False, True], ids=["running", "restarted"])
def test_due_messages_cost_little_cpu(make_nsqd: MakeNsqd, is_restarted: bool) -> None:
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


def test_many_requeued_messages_far_apart_cost_little_cpu(make_nsqd: MakeNsqd) -> None:
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
def test_300_000_due_messages_leave_nsqd_quick(make_nsqd: MakeNsqd, is_restarted: bool) -> None:
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
    with pinged(nsqd) as waits:
        nsqd.wait_for_channel("t", "c", 120.0, depth=count, deferred_count=0)
    assert waits.p99_s < 0.02
    before_s = cpu_s(nsqd)
    assert sorted(consume(nsqd, count, 120.0, rdy=2_500)) == list(range(count))
    assert cpu_s(nsqd) - before_s < 25e-6 * count
