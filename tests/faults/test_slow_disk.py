"""A disk on which each call takes long: who publishes to it waits, and nobody else for more than one call."""

from __future__ import annotations

import re
from time import time

import pytest

from tests.support.background import Background
from tests.support.disk_calls import BY_DESCRIPTOR, BY_PATH, SYNCS, WRITES
from tests.support.faulty_nsqd import FaultyNsqd
from tests.support.ledger import compare
from tests.support.nsqd_process import wait_until
from tests.support.wire import bodies

pytestmark = pytest.mark.ours

PUBLISHES = 6
# The first slow call shows that the disk is slow, and so may the first after ten seconds without one. A busy machine
# may take a slow call for a wait for the processor.
MOST_ON_THE_LOOP = 3

# What may have to wait for the device; `close` does where it gives back a file's space.
CALLS = tuple(call for call in BY_DESCRIPTOR + BY_PATH if call not in ("dup", "close"))


class Neighbours(Background):
    """Clients that want nothing of the disk: one asks for /ping, one consumes what is in memory.

    The topic is made here, with messages for some 20 s.
    """

    def __init__(self, nsqd: FaultyNsqd, topic: str) -> None:
        super().__init__(self._ping, self._consume)
        self.messages = [b"%d" % number for number in range(2000)]
        self.consumed: list[bytes] = []
        self._nsqd = nsqd
        self._topic = topic
        nsqd.create(topic, "c")
        nsqd.publish(topic, self.messages)

    def _ping(self) -> None:
        while not self.is_over.wait(0.01):
            assert self._nsqd.http("GET", "/ping").status == 200

    def _consume(self) -> None:
        with self._nsqd.consumer(self._topic, "c", 1) as consumer:
            while not self.is_over.wait(0.01):
                message = consumer.message()
                consumer.fin(message)
                self.consumed.append(message.body)

    def __enter__(self) -> Neighbours:
        super().__enter__()
        wait_until(lambda: len(self.consumed) > 10)
        return self

    def check(self) -> None:
        """They waited for a few calls at the most, and everything came in order."""
        on_the_loop, in_threads = self._nsqd.delayed_calls()
        assert on_the_loop <= MOST_ON_THE_LOOP < in_threads
        assert self.consumed == self.messages[: len(self.consumed)]


@pytest.mark.parametrize(
    ("calls", "call_s", "every"),
    [
        pytest.param(WRITES, 0.4, 2500, id="write"),
        pytest.param(WRITES + SYNCS, 1.5, 2500, id="write and sync", marks=pytest.mark.slow),
        pytest.param(WRITES + SYNCS, 0.4, 1, id="sync-every=1", marks=pytest.mark.slow),
    ],
)
def test_only_publishers_wait(make_faulty, calls, call_s, every, tally):
    nsqd = make_faulty(f"--sync-every={every}", "--sync-timeout=100ms")
    for topic in ("first", "second"):
        nsqd.create(topic, "c")
    nsqd.post("/pub?topic=first", b"before")
    sent = {"first": [b"before"], "second": []}
    with Neighbours(nsqd, "calm") as neighbours, nsqd.connect() as first, nsqd.connect() as second:
        nsqd.set_rules(*({"call": call, "delay_s": call_s} for call in calls))
        for _ in range(PUBLISHES // 2):
            for client, topic in ((first, "first"), (second, "second")):
                body = b"%s %d" % (topic.encode(), len(sent[topic]))
                client.pub(topic, body)  # its answer comes when it is written
                sent[topic].append(body)
        nsqd.set_rules()
    neighbours.check()
    nsqd.restart(clean=False)
    for topic, expected in sent.items():
        came = bodies(nsqd.consume_all(topic, "c"))
        tally(acknowledged=compare(expected, came).require_sound().acknowledged)
        assert came == expected
    tally(kills=1, faults=1)


@pytest.mark.slow
@pytest.mark.parametrize("share", [1.0, 0.5, 0.2])
def test_each_call_may_be_slow(make_faulty, share, tally):
    """Also those that make a file or a channel, and those that read."""
    nsqd = make_faulty("--max-bytes-per-file=5000", "--sync-timeout=100ms")
    for topic in ("read", "written"):
        nsqd.create(topic, "c")
    queued = [b"%d" % index + b"x" * 100 for index in range(100)]
    nsqd.publish("read", queued)
    nsqd.restart()  # now they are in files only
    written: list[bytes] = []
    call_s = 0.3
    with Neighbours(nsqd, "calm") as neighbours, nsqd.connect() as publisher, nsqd.connect() as reader:
        nsqd.set_rules(*({"call": call, "delay_s": call_s, "share": share} for call in CALLS))
        reader.sub("read", "c", rdy_count=1000)
        with nsqd.consumer("new", "c", 10) as new:
            for number in range(round(3 / share)):  # enough that several calls are slow
                body = b"%d" % number + b"y" * 3000
                publisher.pub("written", body)
                written.append(body)
            publisher.pub("new", b"for the new one")
            assert new.message().body == b"for the new one"
        read = bodies(reader.messages(len(queued)))
        nsqd.set_rules()
    neighbours.check()
    assert read == queued
    nsqd.restart(clean=False)
    came = bodies(nsqd.consume_all("written", "c"))
    verdict = compare(written, came).require_sound()
    assert came == written
    tally(kills=1, faults=1, **verdict.counts())


def test_the_scrub_goes_on(make_faulty):
    """Slowly: a disk that stays slow is one that is likely to damage something."""
    nsqd = make_faulty("--max-bytes-per-file=5000", "--sync-timeout=100ms", "--scrub-rate=50MB")
    nsqd.create("t", "c")
    nsqd.publish("t", [b"x" * 100] * 100)

    def publish():
        with nsqd.connect() as client:
            while not publishing.is_over.wait(0.2):
                client.pub("t", b"x" * 100)

    def passes():
        return nsqd.stats()["scrub"]["passes"]

    publishing = Background(publish)
    nsqd.set_rules(*({"call": call, "delay_s": 0.15} for call in WRITES + SYNCS))
    with publishing:
        wait_until(lambda: "the disk is slow" in nsqd.log_text(), what="the disk to be slow")
        before = passes()
        wait_until(lambda: passes() > before, 90.0, "a pass of the scrub")
    assert "the disk is fast again" not in nsqd.log_text()


class Traffic(Background):
    """Someone publishes messages of 3 kB, some in a second, and finishes each."""

    def __init__(self, nsqd: FaultyNsqd, topic: str) -> None:
        super().__init__(self._publish_and_consume)
        self.count = 0
        self._nsqd = nsqd
        self._topic = topic
        nsqd.create(topic, "c")

    def _publish_and_consume(self) -> None:
        with self._nsqd.connect() as publisher, self._nsqd.consumer(self._topic, "c", 50) as consumer:
            while not self.is_over.wait(0.05):
                body = b"%06d" % self.count + b"x" * 3000
                publisher.pub(self._topic, body)
                message = consumer.message()
                assert message.body == body
                consumer.fin(message)
                self.count += 1


def logs(nsqd: FaultyNsqd, topic: str) -> list[str]:
    return sorted(path.name for path in nsqd.data_path.glob(f"{topic}.*.log"))


SLOW_LOGS = [{"call": call, "path": "t2*", "delay_s": 0.15} for call in (*WRITES, "rename")]


def test_space_is_freed_on_a_disk_that_stays_slow(make_faulty, tally):
    """Finished messages would fill it otherwise."""
    nsqd = make_faulty("--max-bytes-per-file=8192", "--sync-timeout=100ms")
    nsqd.create("t", "c")
    kept = [b"kept %d" % number for number in range(10)]
    nsqd.publish("t", kept)
    nsqd.set_rules(*SLOW_LOGS)
    with Traffic(nsqd, "t2") as traffic:
        wait_until(lambda: "the disk is slow" in nsqd.log_text(), what="the disk to be slow")
        for _ in range(3):
            wait_until(lambda: len(logs(nsqd, "t2")) > 2, what="some files")
            wait_for_others(nsqd, "t2", logs(nsqd, "t2"))
    assert "the disk is fast again" not in nsqd.log_text()
    assert 0 < time() - nsqd.stats()["disk_slow_since"] < 600
    assert (
        float(
            re.findall(r"^nsqd_disk_slow_seconds (.+)$", nsqd.http("GET", "/metrics").text, re.MULTILINE)[0]
        )
        > 0
    )
    on_the_loop, in_threads = nsqd.delayed_calls()
    assert on_the_loop <= MOST_ON_THE_LOOP < in_threads
    nsqd.set_rules()
    nsqd.restart(clean=False)
    assert "damage" not in nsqd.log_text() and "missing" not in nsqd.log_text()
    assert bodies(nsqd.consume_all("t", "c")) == kept
    # Those that a kill finds finished in memory only.
    assert len(nsqd.consume_all("t2", "c")) <= traffic.count
    tally(kills=1, faults=1, acknowledged=traffic.count)


def slow_traffic(nsqd: FaultyNsqd, *rules: dict[str, object]) -> None:
    """Make the disk slow, and finish the messages of some files of t2."""
    nsqd.set_rules(*SLOW_LOGS)
    with Traffic(nsqd, "t2"):
        wait_until(lambda: "the disk is slow" in nsqd.log_text(), what="the disk to be slow")
        nsqd.set_rules(*rules, *SLOW_LOGS)
        first = logs(nsqd, "t2")
        wait_until(lambda: len(set(logs(nsqd, "t2")) - set(first)) > 1, what="more files")


def test_a_topic_that_is_deleted_while_a_thread_removes_its_file(make_faulty, tally):
    """A new topic has files of the same names: the thread must not remove one of those."""
    nsqd = make_faulty("--max-bytes-per-file=8192", "--sync-timeout=100ms")
    removed = f"t2.{0:020}.log"
    slow_traffic(nsqd, {"call": "rename", "path": removed, "delay_s": 4.0})
    wait_until(
        lambda: f"thread rename {removed}" in nsqd.delays(), what="the thread to be about to remove it"
    )
    nsqd.post("/topic/delete?topic=t2")
    nsqd.create("t2", "c")
    expected = [b"%d" % number + b"y" * 3000 for number in range(4)]
    nsqd.pub("t2", *expected)
    wait_until(lambda: f"end rename {removed}" in nsqd.delays(), what="the thread to go on")
    nsqd.set_rules()
    nsqd.restart(clean=False)
    assert "missing" not in nsqd.log_text()
    assert bodies(nsqd.consume_all("t2", "c")) == expected
    tally(kills=1, faults=1, acknowledged=len(expected))


def test_a_file_that_cannot_be_removed_on_a_slow_disk_stays(make_faulty, tally):
    nsqd = make_faulty("--max-bytes-per-file=8192", "--sync-timeout=100ms")
    nsqd.create("t2", "other")
    slow_traffic(nsqd, {"call": "rename", "path": "t2.*.log", "error": "EIO"})
    assert nsqd.post("/channel/empty?topic=t2&channel=other").status == 200
    names = logs(nsqd, "t2")
    wait_until(lambda: "failed to make room on the disk" in nsqd.log_text(), what="the failure")
    assert set(names) <= set(logs(nsqd, "t2"))
    nsqd.set_rules()
    wait_until(lambda: len(logs(nsqd, "t2")) <= 2, 60.0, what="the files to go")
    nsqd.restart(clean=False)
    assert "missing" not in nsqd.log_text()
    tally(kills=1, faults=1)


def wait_for_others(nsqd: FaultyNsqd, topic: str, names: list[str]) -> None:
    """Wait until a topic has none of these log files any more."""
    wait_until(lambda: not set(names) & set(logs(nsqd, topic)), 60.0, f"{names} to go")
