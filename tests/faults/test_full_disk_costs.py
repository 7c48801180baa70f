"""What nsqd uses while its disk is full: few log lines, and no memory for each attempt to write."""

from __future__ import annotations

import re

import pytest

from nsqd_py.runtime.logs.daemon_log import CLIENT_BURST
from tests.support import wire
from tests.support.disk_calls import WRITES
from tests.support.nsqd_process import wait_until

pytestmark = pytest.mark.ours

CHANNELS = 30  # each tries to write its position every 50 ms
ATTEMPTS = 200
MOST_IN_CYCLES = 3 * ATTEMPTS  # an attempt that failed was a cycle of 40 objects, or more


def test_a_full_disk_costs_few_log_lines_and_no_memory(make_faulty):
    nsqd = make_faulty()
    names = [f"c{number}" for number in range(CHANNELS)]
    nsqd.create("t", *names)
    with nsqd.connect() as publisher:
        publisher.pub("t", b"x")
        nsqd.set_rules(*({"call": call, "error": "ENOSPC"} for call in (*WRITES, "posix_fallocate")))
        for name in names:
            with nsqd.consumer("t", name, 1) as client:
                client.fin(client.message())
                nsqd.wait_for_channel("t", name, in_flight_count=0)
        for _ in range(ATTEMPTS):
            publisher.send(wire.pub("t", b"x"))
            assert publisher.frame().data.startswith(b"E_PUB_FAILED")
            publisher = nsqd.connect()
    wait_until(
        lambda: nsqd.log_text().count("failed to write") >= 2 * CLIENT_BURST,
        what="lines of positions and messages",
    )
    assert nsqd.log_text().count("failed to write") < 3 * CLIENT_BURST
    collected = re.match(r"collected (\d+) objects", nsqd.http("POST", "/debug/freememory").text)
    assert int(collected[1]) < MOST_IN_CYCLES
