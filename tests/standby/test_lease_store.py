"""Two nsqds that share a lease and a store: the next primary takes what only the store has, before it serves.

`python -m tests.standby.lease_failovers --lease=s3 --store-acks=1` has many failovers of such a pair under load.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.bucket_faults import FaultProxy, slow
from tests.support.buckets import Bucket
from tests.support.network import port_pairs
from tests.support.nsqd_process import NsqdProcess, StoreNsqd, wait_until
from tests.support.standby_processes import (
    DEADLINE_S,
    consume_all,
    is_primary,
    promote,
    wait_for_a_primary,
    wait_until_it_follows,
    wait_until_it_has_all,
    wait_until_it_serves,
)

pytestmark = pytest.mark.ours

# Long enough that a busy machine renews in time, and short enough to wait for.
TTL_S = 3
ANSWER_S = 0.25

MakePair = Callable[..., list[NsqdProcess]]


@pytest.fixture
def urls(tmp_path: Path) -> tuple[str, str]:
    """The URLs of a store, and of a lease."""
    return f"file://{tmp_path}/store", f"file://{tmp_path}/leases/orders"


@pytest.fixture
def make_pair(tmp_path: Path, urls: tuple[str, str], processes: list[NsqdProcess]) -> Iterator[MakePair]:
    """`make_pair(*flags)` is two nsqds with a lease and a store; none is started."""
    store, lease = urls

    def make(*flags: str, names: str = "ab", store: str = store, lease: str = lease) -> list[NsqdProcess]:
        made: list[NsqdProcess] = [
            StoreNsqd(
                tmp_path / name,
                f"--lease={lease}",
                f"--lease-ttl={TTL_S}s",
                f"--store={store}",
                "--store-interval=100ms",
                "--max-bytes-per-file=20000",
                *flags,
                ports=pair,
            )
            for name, pair in zip(names, port_pairs(len(names)), strict=True)
        ]
        processes.extend(made)
        return made

    yield make


def start_pair(nsqds: list[NsqdProcess]) -> tuple[NsqdProcess, NsqdProcess]:
    """Start them. Return the primary, and the standby that has everything."""
    first, second = nsqds
    first.start()
    wait_until_it_serves(first)
    second.start()
    wait_until_it_follows(second)
    return first, second


def statistics(nsqd: NsqdProcess) -> dict[str, Any]:
    found: dict[str, Any] = nsqd.stats()["store"]
    return found


def wait_until_stored(nsqd: NsqdProcess) -> None:
    time.sleep(0.2)  # the journals are written every 50 ms
    wait_until(
        lambda: (
            statistics(nsqd)["lag_ms"] == 0 and statistics(nsqd)["state"] == "storing" and nsqd.is_healthy()
        ),
        DEADLINE_S,
        "the store to have everything",
    )


def test_the_next_primary_takes_what_only_the_store_has(make_pair, urls):
    """More of a log, new log files, new topics and channels, and what was finished in the meantime."""
    flags = ("--store-acks=1", f"--restore-from={urls[0]}")
    made = make_pair(*flags)
    StoreNsqd(made[0].data_path, f"--store={urls[0]}", "--accept-standbys").start().stop()
    primary, standby = start_pair(made)
    primary.create("t", "c", "fast")
    primary.publish("t", [b"first %03d" % number + bytes(900) for number in range(10)], batch=1)
    wait_until_it_has_all(primary)
    standby.kill()
    later = [b"later %03d" % number + bytes(900) for number in range(100)]
    primary.publish("t", later, batch=10)
    assert len(consume_all(primary, "t", "fast")) == 110
    primary.create("new", "c")
    primary.create("t", "new")
    primary.pub("new", b"of a new topic")
    primary.pub("t", b"of a new channel")
    wait_until_stored(primary)
    primary.kill()

    standby.start()
    wait_until_it_serves(standby)
    assert len(consume_all(standby, "t", "c")) == 111
    assert consume_all(standby, "new", "c") == [b"of a new topic"]
    assert consume_all(standby, "t", "new") == [b"of a new channel"]
    assert consume_all(standby, "t", "fast") == [b"of a new channel"]
    assert statistics(standby)["epoch"] == 3

    primary.start()  # it follows, and then has the lease again
    wait_until_it_follows(primary)
    standby.pub("t", b"in the last epoch")
    wait_until_it_has_all(standby)
    standby.stop()
    wait_until_it_serves(primary)
    assert consume_all(primary, "t", "c") == [b"in the last epoch"]


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_the_next_primary_takes_topics_that_were_made_in_the_meantime(make_pair, is_clean):
    """One of them had been deleted before, and the data path has its old log."""
    primary, standby = start_pair(make_pair("--store-acks=1"))
    primary.create("again", "c")
    primary.publish("again", [b"old%02d" % number + bytes(900) for number in range(50)], batch=10)
    wait_until_it_has_all(primary)
    wait_until_stored(primary)
    if is_clean:
        assert standby.stop() == 0
    else:
        standby.kill()
    primary.post("/topic/delete?topic=again")
    published = {
        name: [b"%s%d" % (name.encode(), number) for number in range(5)] for name in ("again", "new")
    }
    for name, bodies in published.items():
        primary.create(name, "c")
        primary.publish(name, bodies, batch=1)
    primary.kill()
    shutil.rmtree(primary.data_path)
    standby.start()
    wait_until_it_serves(standby)
    assert " is gone" not in standby.log_text()
    for name, bodies in published.items():
        assert sorted(consume_all(standby, name, "c")) == bodies
        assert standby.topic_stats(name)["message_count"] <= 5


def test_the_next_primary_goes_on_with_what_the_store_lacks(make_pair, urls, tmp_path):
    primary, standby = start_pair(make_pair("--store-acks=0", "--store-interval=1h", "--standby-acks=1"))
    primary.create("t", "c")
    bodies = [b"%03d" % number + bytes(900) for number in range(100)]
    primary.publish("t", bodies, batch=10)
    primary.kill()
    wait_until_it_serves(standby)
    assert standby.stop() == 0
    shutil.rmtree(standby.data_path)
    again = StoreNsqd(tmp_path / "c", f"--store={urls[0]}", f"--restore-from={urls[0]}")
    with again:
        again.start()
        assert sorted(consume_all(again, "t", "c")) == bodies


def test_a_topic_that_was_deleted_does_not_come_back(make_pair):
    """The store has not got the deletion; the standby has."""
    primary, standby = start_pair(make_pair("--store-acks=0", "--standby-acks=1", "--store-interval=2s"))
    primary.create("t", "c")
    primary.pub("t", b"1")
    primary.create("stays", "c")
    wait_until_stored(primary)
    primary.post("/topic/delete?topic=t")
    wait_until_it_has_all(primary)
    primary.kill()
    wait_until_it_serves(standby)
    assert [topic["topic_name"] for topic in standby.stats()["topics"]] == ["stays"]


def test_a_promotion_by_hand_takes_what_only_the_store_has(urls, tmp_path, processes):
    flags = (f"--store={urls[0]}", "--store-acks=1")
    ((port, http_port),) = port_pairs(1)
    primary = StoreNsqd(tmp_path / "a", *flags, "--accept-standbys", ports=(port, http_port))
    standby = StoreNsqd(tmp_path / "b", *flags, f"--standby-of=127.0.0.1:{port}")
    processes += [primary, standby]
    primary.start()
    primary.create("t", "c")
    standby.start()
    wait_until_it_follows(standby)
    standby.kill()
    primary.pub("t", b"1")
    primary.kill()
    standby.start()
    promote(standby)
    assert consume_all(standby, "t", "c") == [b"1"]
    assert statistics(standby)["epoch"] == 2


def test_messages_that_the_store_never_got_do_not_hide_those_of_the_next_primary(make_pair, urls, processes):
    """Both have written under the same numbers, and the one whose publishers had no OK has the later file.

    The lease is a new one: the note of the old one would let this nsqd wait for the other one.
    """
    first, second = start_pair(make_pair("--store-acks=1"))
    alone = NsqdProcess(first.data_path, "--max-bytes-per-file=20000")
    processes.append(alone)
    first.create("t", "c")
    common = [b"common %02d" % number + bytes(900) for number in range(30)]
    first.publish("t", common, batch=10)
    wait_until_it_has_all(first)
    wait_until_stored(first)
    first.kill()
    alone.start()  # as if the store had refused all that comes now
    alone.publish("t", [b"lost %02d" % number + bytes(900) for number in range(60)], batch=10)
    alone.kill()
    wait_until_it_serves(second)
    acknowledged = [b"acknowledged %02d" % number + bytes(900) for number in range(30)]
    second.publish("t", acknowledged, batch=10)
    wait_until_stored(second)
    second.kill()

    (again,) = make_pair("--store-acks=1", names="a", lease=f"{urls[1]}-new")
    again.start()
    wait_until_it_serves(again)
    consumed = consume_all(again, "t", "c")
    assert set(common + acknowledged) <= set(consumed)
    assert list(again.data_path.glob("store-alone-*/t.*.log"))


@pytest.mark.parametrize("names", ["cd", "c"])
def test_a_store_with_other_messages_is_not_taken_over(make_pair, tmp_path, names):
    """By another pair, which has messages, or by one nsqd that has none."""
    primary, _ = start_pair(make_pair("--store-acks=1"))
    primary.create("t", "c")
    primary.pub("t", b"1")
    lease = f"file://{tmp_path}/leases/others"
    other = make_pair(names=names, lease=lease)[0]
    if names == "cd":
        alone = StoreNsqd(other.data_path, "--accept-standbys").start()
        alone.create("others", "c")
        alone.pub("others", b"2")
        alone.stop()
    error = other.fails_to_start()
    assert "has the messages of 127.0.0.1:" in error
    assert primary.is_healthy()
    primary.pub("t", b"2")
    assert statistics(primary)["epoch"] == 1


def test_the_lease_is_renewed_while_a_slow_store_is_claimed(
    make_pair, s3_bucket: Bucket, s3_faults: FaultProxy, monkeypatch
):
    pytest.importorskip("obstore")
    for name, value in s3_bucket.environment(s3_faults.endpoint).items():
        monkeypatch.setenv(name, value)
    primary, standby = start_pair(make_pair("--store-acks=1", store=s3_bucket.url("store")))
    primary.create("t", "c")
    for number in range(60):
        primary.pub("t", b"%d" % number)
    wait_until_stored(primary)
    primary.kill()
    s3_faults.add(slow(ANSWER_S), times=1000)
    wait_until_it_serves(standby)
    s3_faults.stop_faults()
    assert standby.stats()["lease"]["losses"] == 0
    assert is_primary(standby)
    assert len(consume_all(standby, "t", "c")) == 60
    assert wait_for_a_primary([standby]) is standby
