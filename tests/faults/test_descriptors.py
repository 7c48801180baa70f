"""nsqd has few file descriptors, and many topics, channels and segments: it goes on, and can be cleaned up."""

from __future__ import annotations

from contextlib import suppress
from http.client import HTTPException

import psutil
import pytest

from tests.support.faulty_nsqd import FaultyNsqd
from tests.support.network import Host
from tests.support.nsqd_process import MakeNsqd, NsqdProcess, wait_until
from tests.support.wire import OK, Client, Closed, bodies, pub

pytestmark = pytest.mark.ours

KIB = 1 << 10


@pytest.fixture
def limited(make_nsqd) -> MakeNsqd:
    """`limited(count, *flags)` starts an nsqd that may have `count` descriptors."""
    return lambda count, *flags: make_nsqd(*flags, host=limited_host(count))


def limited_host(descriptors: int) -> Host:
    return Host("127.0.0.1", ("sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh"))


def open_files(nsqd: NsqdProcess) -> int:
    """How many files of its data directory the process has open."""
    return sum(file.path.startswith(f"{nsqd.data_path}/") for file in psutil.Process(nsqd.pid).open_files())


def connected(nsqd: NsqdProcess) -> Client | None:
    """A connection; None where it is refused: the files that were written to last have to be synced first."""
    client = nsqd.connect()
    try:
        client.identify(heartbeat_interval=-1)
    except (AssertionError, OSError, Closed):
        client.close()
        return None
    return client


@pytest.mark.parametrize(
    ("descriptors", "count"), [(256, 300), pytest.param(512, 600, marks=pytest.mark.slow)]
)
def test_more_channels_than_descriptors(limited, descriptors, count):
    nsqd = limited(descriptors)
    nsqd.create("t", *(f"c{place}" for place in range(count)))
    nsqd.restart()
    nsqd.pub("t", b"one", b"two")
    assert bodies(nsqd.consume("t", f"c{count - 1}", 2)) == [b"one", b"two"]
    nsqd.wait_for_channel("t", f"c{count - 1}", depth=0, in_flight_count=0)
    for place in range(0, count, 2):
        nsqd.post(f"/channel/delete?topic=t&channel=c{place}")
    nsqd.restart(clean=False)
    assert {channel["channel_name"]: channel["depth"] for channel in nsqd.topic_stats("t")["channels"]} == {
        f"c{place}": 0 if place == count - 1 else 2 for place in range(1, count, 2)
    }
    assert open_files(nsqd) < 20
    nsqd.post("/topic/delete?topic=t")
    assert nsqd.is_healthy()
    nsqd.restart()
    assert not nsqd.stats()["topics"]


@pytest.mark.parametrize(
    ("descriptors", "count"), [(256, 300), pytest.param(512, 5000, marks=pytest.mark.slow)]
)
def test_more_topics_than_descriptors(limited, descriptors, count):
    nsqd = limited(descriptors)
    names = [f"t{place}" for place in range(count)]
    with nsqd.connect() as publisher:
        for round_ in range(3):
            for name in names:
                publisher.pub(name, b"%d" % round_)
    for clean in (False, True):
        nsqd.restart(clean=clean)
        assert {topic["topic_name"]: topic["depth"] for topic in nsqd.stats()["topics"]} == dict.fromkeys(
            names, 3
        )
        assert nsqd.is_healthy()
    for name in names[:: count // 10]:
        assert bodies(nsqd.consume(name, "c", 3)) == [b"0", b"1", b"2"]
    assert open_files(nsqd) < descriptors * 3 // 4
    nsqd.pub(names[0], b"later")
    for name in names:
        nsqd.post(f"/topic/delete?topic={name}")
    assert nsqd.is_healthy()
    wait_until(lambda: not list(nsqd.data_path.glob("*.log")), what="the logs to go")


def test_each_publish_waits_for_its_sync_with_more_topics_than_descriptors(limited):
    nsqd = limited(256, "--sync-every=1")
    names = [f"t{place}" for place in range(400)]
    with nsqd.connect() as publisher:
        publisher.send(*(pub(name, b"x") for name in names))
        assert [publisher.next_frame() for _ in names] == [OK] * len(names)
    assert nsqd.is_healthy()
    nsqd.restart(clean=False)
    assert {topic["topic_name"]: topic["depth"] for topic in nsqd.stats()["topics"]} == dict.fromkeys(
        names, 1
    )


def test_more_segments_than_descriptors(limited):
    nsqd = limited(256, "--max-bytes-per-file=8192")
    sent = [b"%06d" % place + b"x" * 4 * KIB for place in range(600)]
    nsqd.pub("t", *sent)
    nsqd.restart()
    assert len(list(nsqd.data_path.glob("t.*.log"))) > 300
    assert nsqd.is_healthy()
    assert sorted(bodies(nsqd.consume("t", "c", len(sent)))) == sent
    wait_until(lambda: len(list(nsqd.data_path.glob("t.*.log"))) < 3, what="the segments to go")


def test_files_leave_room_for_connections(limited):
    """While files wait for a sync, all that are left are kept for files: a connection is refused until then."""
    nsqd = limited(256)
    names = [f"t{place}" for place in range(400)]
    with nsqd.connect() as publisher:
        for name in names:
            publisher.pub(name, b"x")
    *idle, publisher = [wait_until(lambda: connected(nsqd), what="a connection") for _ in range(151)]
    with publisher:
        for name in names:
            publisher.pub(name, b"y")
    wait_until(lambda: is_healthy(nsqd), what="health")
    for client in idle:
        client.pub("t0", b"z")
        client.close()


def is_healthy(nsqd: NsqdProcess) -> bool:
    """False also where the connection is refused."""
    with suppress(OSError, HTTPException):
        return nsqd.is_healthy()
    return False


def test_more_segments_than_descriptors_on_a_slow_disk(tmp_path):
    """Threads read: they open files, and only the event loop closes some."""
    with FaultyNsqd(tmp_path / "nsqd", "--max-bytes-per-file=8192", host=limited_host(256)) as nsqd:
        nsqd.start()
        sent = [b"%06d" % place + b"x" * 7 * KIB for place in range(400)]
        nsqd.pub("t", *sent)
        nsqd.restart()
        nsqd.set_rules({"call": "pread", "path": "t.*", "delay_s": 0.15, "share": 0.02})
        found = bodies(nsqd.consume("t", "c", len(sent)))
        assert nsqd.delayed_calls()[1] > 0, "no thread has read"
    assert sorted(found) == sent
    assert "Too many open files" not in nsqd.log_text()
