"""The age of the oldest message that waits, and which messages count as finished."""

from __future__ import annotations

import re
import time

import pytest

from tests.support.nsqd_process import NsqdProcess
from tests.support.wire import rdy, req

pytestmark = pytest.mark.ours


@pytest.fixture
def nsqd(make_nsqd) -> NsqdProcess:
    """Of a memory so small that messages are read from disk."""
    process = make_nsqd("--mem-queue-size=1", "--mem-queue-bytes=4096")
    process.create("orders", "archive")
    return process


def oldest_ns(nsqd: NsqdProcess) -> int:
    return nsqd.channel_stats("orders", "archive")["oldest_timestamp"]


def age_s(nsqd: NsqdProcess) -> float:
    """As /metrics say."""
    text = nsqd.http("GET", "/metrics").text
    labels = r'\{channel="archive",topic="orders"\}|\{topic="orders",channel="archive"\}'
    return float(
        re.search(rf"^nsqd_channel_oldest_message_age_seconds(?:{labels}) (\S+)$", text, re.MULTILINE)[1]
    )


def publish(nsqd: NsqdProcess, query: str = "") -> tuple[int, int]:
    """Publish a message, and return the times before and after, in ns."""
    before_ns = time.time_ns()
    nsqd.post(f"/pub?topic=orders{query}", b"x" * 2000)
    return before_ns, time.time_ns()


def test_it_is_that_of_the_oldest_queued_message(nsqd):
    assert "oldest_timestamp" not in nsqd.channel_stats("orders", "archive")
    assert age_s(nsqd) == 0
    first = publish(nsqd)
    assert 0 < age_s(nsqd) <= (time.time_ns() - first[0]) / 1e9
    second = publish(nsqd)
    for _ in range(5):
        publish(nsqd)
    assert first[0] <= oldest_ns(nsqd) <= first[1]
    with nsqd.consumer("orders", "archive", 1) as client:
        oldest = client.message()
        nsqd.wait_for_channel("orders", "archive", in_flight_count=1)
        assert second[0] <= oldest_ns(nsqd) <= second[1]
        client.send(rdy(0), req(oldest.id, 0))
        nsqd.wait_for_channel("orders", "archive", in_flight_count=0)
        assert first[0] <= oldest_ns(nsqd) <= first[1]
    nsqd.restart()
    assert first[0] <= oldest_ns(nsqd) <= first[1]


def test_a_deferred_message_waits_from_its_due_time_on(nsqd):
    published_ns, _ = publish(nsqd, "&defer=50")
    nsqd.wait_for_channel("orders", "archive", depth=1)
    assert oldest_ns(nsqd) >= published_ns + 50_000_000


def test_messages_that_no_channel_has_received_have_an_age_too(nsqd):
    nsqd.post("/topic/pause?topic=orders")
    first = publish(nsqd)
    publish(nsqd)
    topic = nsqd.topic_stats("orders")
    assert topic is not None
    assert first[0] <= topic["oldest_timestamp"] <= first[1]


def test_only_messages_that_consumers_finish_are_finished(nsqd):
    for _ in range(5):
        publish(nsqd)
    with nsqd.consumer("orders", "archive", 1) as client:
        client.fin(client.message())
        nsqd.wait_for_channel("orders", "archive", finish_count=1)
    nsqd.post("/channel/empty?topic=orders&channel=archive")
    after = nsqd.wait_for_channel("orders", "archive", depth=0, in_flight_count=0)
    assert after["finish_count"] == 1
