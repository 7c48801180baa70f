"""A disk that stalls keeps those waiting who publish to it, and nobody else."""

from __future__ import annotations

import time

import pytest

from tests.support import wire
from tests.support.disk_calls import SYNCS, WRITES
from tests.support.ledger import compare
from tests.support.nsqd_process import wait_until
from tests.support.sweeps import sampled
from tests.support.wire import bodies

pytestmark = pytest.mark.ours

NOTICED_S = 1.0  # it is slow after 0.1 s
STALL_S = 600.0  # until the rules are taken away
COUNT = 200


@pytest.mark.parametrize("every", sampled([1, 2500], 1))
def test_others_go_on_while_a_log_stalls(make_faulty, every, tally):
    nsqd = make_faulty(f"--sync-every={every}", "--sync-timeout=20ms")
    nsqd.create("stalled", "c")
    nsqd.create("well", "c")
    with (
        nsqd.connect() as first,
        nsqd.connect(heartbeat_interval=1000) as held,
        nsqd.connect(heartbeat_interval=1000) as idle,
        nsqd.connect() as publisher,
        nsqd.connect() as consumer,
        nsqd.connect() as stalled_consumer,
    ):
        consumer.sub("well", "c", rdy_count=10)
        stalled_consumer.sub("stalled", "c", rdy_count=10)
        nsqd.set_rules(*({"call": call, "path": "stalled*", "delay_s": STALL_S} for call in SYNCS))
        first.send(wire.pub("stalled", b"first"))
        early = stalled_consumer.message()  # it is in the log, and synced only when the stall is over
        time.sleep(NOTICED_S)  # for so long the disk is taken for a quick one
        assert all(nsqd.is_healthy() for _ in range(2))  # the loop has come by since
        nsqd.set_rules(*({"call": call, "path": "stalled*", "delay_s": STALL_S} for call in SYNCS + WRITES))
        held.send(wire.pub("stalled", b"held"))
        stalled_consumer.fin(early)  # its journal stalls, too
        for number in range(COUNT):
            publisher.pub("well", b"%d" % number)
            message = consumer.message()
            consumer.fin(message)
            assert message.body == b"%d" % number
        assert nsqd.http("GET", "/ping").status == 200
        assert idle.frame() == wire.HEARTBEAT
        assert held.frame() == wire.HEARTBEAT, "who waits for the disk hears that nsqd is there"
        nsqd.set_rules()
        assert first.next_frame() == wire.OK
        assert held.next_frame() == wire.OK
        assert stalled_consumer.message().body == b"held"
        wait_until(lambda: nsqd.channel_stats("stalled", "c")["in_flight_count"] == 1)
        held.pub("stalled", b"after")
        assert bodies([stalled_consumer.message()]) == [b"after"]
    nsqd.restart(clean=False)
    came = bodies(nsqd.consume_all("stalled", "c"))
    assert came[-2:] == [b"held", b"after"]
    verdict = compare([b"held", b"after", *came[:-2]], came).require_sound()
    assert set(came[:-2]) <= {b"first"}  # it may have been finished while its journal stalled
    tally(kills=1, faults=1, acknowledged=verdict.acknowledged + COUNT, doubled=len(came) - 2)
