"""What is gone leaves nothing behind: neither objects that something still refers to, nor reference cycles.

Cycles are garbage only for the collector, which runs once in 200,000 objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.support import wire
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.wire import Client

pytestmark = pytest.mark.ours

COUNT = 50
MOST_LEFT = 30 * COUNT  # memory blocks; a connection has 40
# The imports of /metrics leave about 300 objects. A connection was a cycle of 19 objects, a topic with its channel one of 80.
MOST_IN_CYCLES = 8 * COUNT
MOST_ROUNDS = 4


def come_and_go(nsqd: NsqdProcess, number: int) -> None:
    with nsqd.consumer("t", "c", 1, heartbeat_interval=60_000, msg_timeout=900_000) as client:
        client.send(b"RDY 0\n" + wire.fin(client.message().id))


def negotiate(nsqd: NsqdProcess, number: int) -> None:
    with nsqd.connect(snappy=True) if number % 2 else nsqd.connect(deflate=True):
        pass


def leave_while_served(nsqd: NsqdProcess, number: int) -> None:
    """The topic is deleted, with a consumer, messages in flight and a message that is due in an hour."""
    nsqd.create("gone", "c", "e%23ephemeral")
    with nsqd.consumer("gone", "c", 10) as client:
        with nsqd.connect() as publisher:
            publisher.mpub("gone", [b"x"] * 20)
            publisher.send(wire.dpub("gone", 3_600_000, b"x"))
            assert publisher.frame() == wire.OK
        client.messages(10)
        nsqd.post("/topic/delete?topic=gone")


def delete_channel(nsqd: NsqdProcess, number: int) -> None:
    nsqd.create("t", "gone")
    with nsqd.consumer("t", "gone", 1):
        nsqd.post("/channel/delete?topic=t&channel=gone")


def use_ephemeral(nsqd: NsqdProcess, number: int) -> None:
    with nsqd.consumer("e#ephemeral", "c#ephemeral", 1) as client:
        nsqd.mpub("e#ephemeral", [b"x"] * 20)
        client.messages(1)


def send_rubbish(nsqd: NsqdProcess, number: int) -> None:
    with Client(nsqd.tcp_port, magic=b"") as client:
        client.send(b"GET / HTTP/1.1\r\n\r\n" if number % 2 else b"  V2" + bytes(range(256)))


def ask(nsqd: NsqdProcess, number: int) -> None:
    for path in ("/stats", "/stats?format=json", "/metrics", "/nothing"):
        nsqd.http("GET", path)


def objects(nsqd: NsqdProcess) -> int:
    """Return the number of Python's memory blocks in nsqd."""
    return int(nsqd.http("GET", "/stats?format=json&include_mem=true").json()["memory"]["heap_objects"])


def left_by_steps(
    nsqd: NsqdProcess, step: Callable[[NsqdProcess, int], None], deadline_s: float = 20.0
) -> int:
    """Return how many memory blocks are left of COUNT steps, or fewer than MOST_LEFT as soon as it is so."""
    before = objects(nsqd)
    for number in range(COUNT):
        step(nsqd, number)
    with suppress(AssertionError):
        wait_until(lambda: objects(nsqd) - before < MOST_LEFT, deadline_s)
    return objects(nsqd) - before


@pytest.mark.parametrize(
    "step", [come_and_go, negotiate, leave_while_served, delete_channel, use_ephemeral, send_rubbish, ask]
)
def test_what_is_gone_leaves_nothing_behind(make_nsqd, step):
    nsqd = make_nsqd()
    nsqd.create("t", "c")
    nsqd.mpub("t", [b"x"] * (3 * COUNT))
    left = [left_by_steps(nsqd, step, deadline_s=1.0)]  # what the first use of each path leaves once
    # Once more if it is much: the disk may have been slow for the first time, and threads have started.
    while len(left) == 1 or (left[-1] >= MOST_LEFT and len(left) < MOST_ROUNDS):
        left.append(left_by_steps(nsqd, step))
    assert left[-1] < MOST_LEFT, f"not everything is forgotten: {left}"
    collected = re.match(r"collected (\d+) objects", nsqd.http("POST", "/debug/freememory").text)[1]
    assert int(collected) < MOST_IN_CYCLES
