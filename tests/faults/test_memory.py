"""However large the messages are, nsqd takes no more memory than it may."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.support import wire
from tests.support.nsqd_process import MakeNsqd, NsqdProcess, wait_until

pytestmark = pytest.mark.ours

MB = 1_000_000
BODY = b"x" * MB


def resident_bytes(nsqd: NsqdProcess) -> int:
    status = Path(f"/proc/{nsqd.pid}/status").read_text("ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def publish(nsqd: NsqdProcess, topic: str, count: int) -> None:
    with nsqd.connect() as client:
        for _ in range(count):
            client.pub(topic, BODY)


def test_large_messages_stay_on_the_disk(make_nsqd: MakeNsqd) -> None:
    """Neither the backlog, nor what a consumer has in flight, nor what one does not read is kept in memory."""
    nsqd = make_nsqd("--mem-queue-bytes=32000000")
    nsqd.create("t", "c", "unread")
    before = resident_bytes(nsqd)
    with nsqd.connect() as unread, nsqd.connect() as consumer:
        unread.sub("t", "unread", rdy_count=2500)
        publish(nsqd, "t", 150)
        consumer.sub("t", "c", rdy_count=2500)
        messages = consumer.messages(150)
        assert {message.body for message in messages} == {BODY}
        statistics = nsqd.stats()["memory"]
        assert MB < statistics["message_bytes"] <= 32 * MB
        assert nsqd.topic_stats("t")["channels"][0]["in_flight_count"] == 150
        assert resident_bytes(nsqd) - before < 75 * MB
        wait_until(lambda: nsqd.stats()["memory"]["buffer_bytes"] >= MB, what="a look at what is not read")
        consumer.send(b"".join(wire.fin(message.id) for message in messages))
        nsqd.wait_for_channel("t", "c", in_flight_count=0)


def test_an_ephemeral_topic_loses_the_newest(make_nsqd: MakeNsqd) -> None:
    nsqd = make_nsqd("--mem-queue-bytes=32000000")
    nsqd.create("t%23ephemeral", "c%23ephemeral")
    before = resident_bytes(nsqd)
    publish(nsqd, "t#ephemeral", 150)
    assert nsqd.wait_for_channel("t#ephemeral", "c#ephemeral")["depth"] == 16
    assert resident_bytes(nsqd) - before < 60 * MB


def test_what_is_received_in_part_counts(make_nsqd: MakeNsqd) -> None:
    nsqd = make_nsqd()
    with nsqd.connect() as client:
        client.send(b"PUB t\n" + wire.int32(MB) + BODY[1:])
        wait_until(lambda: nsqd.stats()["memory"]["buffer_bytes"] >= MB, what="a look at what has come")
        client.send(b"x")
        assert client.frame() == wire.OK
        wait_until(lambda: nsqd.stats()["memory"]["buffer_bytes"] < MB, what="another look")


def test_many_consumers_that_do_not_read(make_nsqd: MakeNsqd) -> None:
    nsqd = make_nsqd("--mem-queue-bytes=8000000", "--max-rdy-count=100000")
    nsqd.create("t", *(f"c{number}" for number in range(30)))
    with contextlib.ExitStack() as stack:
        for number in range(30):
            client = stack.enter_context(nsqd.connect())
            client.sub("t", f"c{number}", rdy_count=100_000)
        publisher = stack.enter_context(nsqd.connect())
        for _ in range(100):
            publisher.mpub("t", [b"x" * 1_000] * 80)
        buffered = wait_until(lambda: nsqd.stats()["memory"]["buffer_bytes"], what="output that waits")
        assert 30 * 64 * 1024 <= buffered < 5 * MB, "a MiB for each of them"


@pytest.mark.slow
def test_1500_messages_of_1_mb_with_the_default(make_nsqd: MakeNsqd) -> None:
    nsqd = make_nsqd()
    nsqd.create("t", "c")
    publish(nsqd, "t", 1500)
    assert nsqd.wait_for_channel("t", "c")["depth"] == 1500
    assert resident_bytes(nsqd) < 450 * MB, "1.6 GB without a limit"
