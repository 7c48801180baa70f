"""--max-attempts and --message-ttl on a real nsqd: what consumers, /stats and /metrics see."""

from __future__ import annotations

import re

import pytest

from tests.support.module_servers import module_nsqd
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.wire import bodies, req

pytestmark = pytest.mark.ours

FLAGS = (
    "--max-attempts=orders=3",
    "--max-attempts=slow=1",
    "--dead-letter-topic=slow=graves",
    "--message-ttl=short=300ms",
    "--message-ttl=graves=1h",
    "--msg-timeout=200ms",
    "--sync-every=1",
    "--e2e-processing-latency-percentile=0.5",
)


nsqd = module_nsqd(*FLAGS)


def metrics(nsqd: NsqdProcess) -> dict[str, float]:
    found = re.findall(
        r"^(nsqd_(?:topic|channel)_\S+) (\S+)$", nsqd.http("GET", "/metrics").text, re.MULTILINE
    )
    return {name: float(value) for name, value in found}


def test_a_message_that_is_requeued_too_often_moves(nsqd):
    nsqd.create("orders", "c")
    assert "dead_letter_count" not in nsqd.wait_for_channel("orders", "c")
    with nsqd.connect(msg_timeout=60_000) as client, nsqd.connect(msg_timeout=60_000) as reader:
        client.mpub("orders", [b"poison", b"fine"])
        client.sub("orders", "c", 1)
        seen = []
        for _ in range(4):
            message = client.message()
            seen.append((message.body, message.attempts))
            if message.body == b"poison":
                poison = message
                client.send(req(message.id, 0))
            else:
                client.fin(message)
        assert sorted(seen) == [(b"fine", 1), (b"poison", 1), (b"poison", 2), (b"poison", 3)]
        channel = nsqd.wait_for_channel("orders", "c", depth=0, in_flight_count=0, dead_letter_count=1)
        assert channel["requeue_count"] == 3
        reader.sub("orders.dead", "c", 1)
        (dead,) = reader.consume(1)
        assert (dead.id, dead.timestamp_ns, dead.attempts, dead.body) == (
            poison.id,
            poison.timestamp_ns,
            1,
            b"poison",
        )
    (row,) = nsqd.topic_stats("orders.dead")["dead_letters"]
    died = row.pop("died")
    assert died > poison.timestamp_ns
    assert row == {
        "id": poison.id.decode(),
        "attempts": 3,
        "topic": "orders",
        "channel": "c",
        "timestamp": poison.timestamp_ns,
    }
    assert metrics(nsqd)['nsqd_channel_dead_letters_total{channel="c",topic="orders"}'] == 1
    assert "dead_letters" not in nsqd.topic_stats("orders")


def test_a_message_that_times_out_goes_where_the_settings_say(nsqd):
    nsqd.create("slow", "c")
    with nsqd.consumer("slow", "c", 1) as client:
        client.pub("slow", b"slow")
        assert bodies(client.messages(1)) == [b"slow"]
        nsqd.wait_for_channel("slow", "c", timeout_count=1, dead_letter_count=1, in_flight_count=0)
    assert bodies(nsqd.consume("graves", "c", 1)) == [b"slow"]


def test_what_nobody_takes_in_time_is_dropped_and_counted(nsqd):
    nsqd.create("short", "c")
    with nsqd.connect() as client:
        client.mpub("short", [b"%d" % i for i in range(100)])
        nsqd.wait_for_channel("short", "c", depth=0, expired_count=100)
        nsqd.http("POST", "/topic/pause?topic=short")
        client.pub("short", b"held")
    wait_until(lambda: nsqd.topic_stats("short").get("expired_count") == 1)
    assert nsqd.topic_stats("short")["depth"] == 0
    found = metrics(nsqd)
    assert found['nsqd_channel_expired_total{channel="c",topic="short"}'] == 100
    assert found['nsqd_topic_expired_total{topic="short"}'] == 1
