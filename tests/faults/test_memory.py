"""However large the messages are, nsqd takes no more memory than it may."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

import pytest

from nsqd_py.diskqueue.journals.journal import journal_name, read_journal
from tests.support import nsqd_process, wire
from tests.support.memory import due_in_ms, most_resident_bytes, publish_deferred, resident_bytes
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.sweeps import sampled

pytestmark = pytest.mark.ours

MB = 1_000_000
BODY = b"x" * MB
IN_ONE_SEND = 500


def publish(nsqd: NsqdProcess, topic: str, count: int) -> None:
    nsqd.pub(topic, *[BODY] * count)


def test_large_messages_stay_on_the_disk(make_nsqd):
    """Neither the backlog, nor what a consumer has in flight, nor what one does not read is kept in memory."""
    nsqd = make_nsqd("--mem-queue-bytes=32000000")
    nsqd.create("t", "c", "unread")
    before = most_resident_bytes(nsqd)
    with nsqd.consumer("t", "unread", 2500), nsqd.connect() as consumer:
        publish(nsqd, "t", 150)
        consumer.sub("t", "c", rdy_count=2500)
        messages = consumer.messages(150)
        assert {message.body for message in messages} == {BODY}
        statistics = nsqd.stats()["memory"]
        assert MB < statistics["message_bytes"] <= 32 * MB
        assert nsqd.topic_stats("t")["channels"][0]["in_flight_count"] == 150
        assert most_resident_bytes(nsqd) - before < 75 * MB
        wait_until(lambda: nsqd.stats()["memory"]["buffer_bytes"] >= MB, what="a look at what is not read")
        consumer.fin(*messages)
        nsqd.wait_for_channel("t", "c", in_flight_count=0)


def test_an_ephemeral_topic_loses_the_newest(make_nsqd):
    nsqd = make_nsqd("--mem-queue-bytes=32000000")
    nsqd.create("t%23ephemeral", "c%23ephemeral")
    before = most_resident_bytes(nsqd)
    publish(nsqd, "t#ephemeral", 150)
    assert nsqd.wait_for_channel("t#ephemeral", "c#ephemeral")["depth"] == 16
    assert most_resident_bytes(nsqd) - before < 60 * MB


def test_what_is_received_in_part_counts(nsqd):
    with nsqd.connect() as client:
        client.send(b"PUB t\n" + wire.int32(MB) + BODY[1:])
        wait_until(lambda: nsqd.stats()["memory"]["buffer_bytes"] >= MB, what="a look at what has come")
        client.send(b"x")
        assert client.frame() == wire.OK
        wait_until(lambda: nsqd.stats()["memory"]["buffer_bytes"] < MB, what="another look")


def test_many_consumers_that_do_not_read(make_nsqd):
    nsqd = make_nsqd("--mem-queue-bytes=8000000", "--max-rdy-count=100000")
    nsqd.create("t", *(f"c{number}" for number in range(30)))
    with contextlib.ExitStack() as stack:
        for number in range(30):
            client = stack.enter_context(nsqd.connect())
            client.sub("t", f"c{number}", rdy_count=100_000)
        nsqd.publish("t", [b"x" * 1_000] * 8_000, batch=80)
        buffered = wait_until(lambda: nsqd.stats()["memory"]["buffer_bytes"], what="output that waits")
        assert 30 * 64 * 1024 <= buffered < 5 * MB, "a MiB for each of them"


@pytest.mark.slow
def test_1500_messages_of_1_mb_with_the_default(nsqd):
    nsqd.create("t", "c")
    publish(nsqd, "t", 1500)
    assert nsqd.wait_for_channel("t", "c")["depth"] == 1500
    assert most_resident_bytes(nsqd) < 450 * MB, "1.6 GB without a limit"


# --- deferred messages


def requeue_deferred(nsqd: NsqdProcess, count: int) -> None:
    """Publish messages, and requeue each of them with a time of its own; return when the journal has them all."""
    nsqd.publish("t", [b"x" * 100] * count, IN_ONE_SEND)
    with nsqd.consumer("t", "c", IN_ONE_SEND) as client:
        for first in range(0, count, IN_ONE_SEND):
            messages = enumerate(client.messages(IN_ONE_SEND), first)
            client.send(*(wire.req(message.id, due_in_ms(number)) for number, message in messages))
        nsqd.wait_for_channel("t", "c", deferred_count=count)
    journal = nsqd.data_path / journal_name("t", "c")
    wait_until(lambda: len(read_journal(journal.read_bytes()).saved.waiting) == count, what="the journal")


DEFER: dict[str, Callable[..., None]] = {
    "published": partial(publish_deferred, topic="t"),
    "requeued": requeue_deferred,
}


@pytest.mark.parametrize("way", sampled(DEFER, "requeued"))
def test_deferred_messages_after_a_start(nsqd, way):
    """They take no more than before it, about 205 bytes each, and not much more while it loads them."""
    count = 30_000
    nsqd.create("t", "c")
    empty = resident_bytes(nsqd)
    DEFER[way](nsqd, count=count)
    for is_clean in (False, True):
        nsqd.restart(clean=is_clean)
        nsqd.wait_for_channel("t", "c", deferred_count=count)
        assert resident_bytes(nsqd) - empty < 400 * count, (
            "620 to 720 when a start kept what it had read of them"
        )
        assert most_resident_bytes(nsqd) - empty < 600 * count, (
            "620 to 780 when it had an object for each of them"
        )


@pytest.mark.slow
@pytest.mark.parametrize("way", DEFER)
def test_a_million_deferred_messages_after_a_start(nsqd, way, monkeypatch):
    """docs/operations.md says what they take."""
    monkeypatch.setattr(nsqd_process, "START_DEADLINE_S", 600)
    count = 1_000_000
    nsqd.is_executed = True
    nsqd.create("t", "c")
    DEFER[way](nsqd, count=count)
    nsqd.wait_for_channel("t", "c", deferred_count=count)
    assert most_resident_bytes(nsqd) < 300 * MB
    for is_clean in (False, True):
        nsqd.restart(clean=is_clean)
        nsqd.wait_for_channel("t", "c", deferred_count=count)
        assert resident_bytes(nsqd) < 300 * MB
        assert most_resident_bytes(nsqd) < 350 * MB
