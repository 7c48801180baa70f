"""A topic that ends on nsqd's disk goes on in its store: channels, readers, restarts, a restored nsqd, a store that is away."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nsqd_py.diskqueue.records import batches_in
from tests.support.harm import flip
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.tool_process import run_tool
from tests.support.wire import bodies

pytestmark = pytest.mark.ours

TOPIC = "kept"
FILE_BYTES = 20_000
COUNT = 1000
BODIES = [b"%05d" % number * 20 for number in range(COUNT)]


class Kept:
    """An nsqd with a store. A channel has finished BODIES, of which only the last file is still on the disk."""

    def __init__(self, make_nsqd: Callable[..., NsqdProcess], store: Path) -> None:
        self.store = store
        self.flags = [
            f"--store=file://{store}",
            "--store-interval=50ms",
            "--store-scrub-requests=0",
            "--store-retention-time=kept*=1h",
            f"--max-bytes-per-file={FILE_BYTES}",
            "--mem-queue-size=10",
        ]
        self.nsqd = make_nsqd(*self.flags)
        self.nsqd.create(TOPIC, "done")
        self.nsqd.publish(TOPIC, BODIES)
        assert bodies(self.nsqd.consume(TOPIC, "done", COUNT)) == BODIES
        wait_until(lambda: len(self.files) == 1, what="the files to leave the disk")

    @property
    def files(self) -> list[Path]:
        return sorted(self.nsqd.data_path.glob(f"{TOPIC}.*.log"))

    @property
    def first_on_disk(self) -> int:
        return int(self.files[0].name.split(".")[1])

    @property
    def log(self) -> dict[str, Any]:
        return self.nsqd.http("GET", f"/topic/log?topic={TOPIC}").json()

    def seek(self, channel: str, target: str = "earliest") -> None:
        self.nsqd.post(f"/channel/create?topic={TOPIC}&channel={channel}&from={target}")

    def take_away(self, is_away: bool) -> None:
        """Take the stored files away, or bring them back."""
        here = self.store / "files" / TOPIC
        there = self.store / "files" / "away"
        if is_away:
            here.rename(there)
        else:
            there.rename(here)


@pytest.fixture
def kept(make_nsqd: Callable[..., NsqdProcess], tmp_path: Path) -> Kept:
    return Kept(make_nsqd, tmp_path / "store")


def read_all(nsqd: NsqdProcess, query: str, most_bytes: int = 10_000) -> Iterator[bytes]:
    while True:
        answer = nsqd.http("GET", f"/topic/read?topic={TOPIC}&{query}&max_bytes={most_bytes}")
        assert (answer.status, answer.headers["X-Nsq-Damaged-Bytes"]) == (200, "0"), answer.body
        first, following = (int(answer.headers[f"X-Nsq-{name}-Seq"]) for name in ("First", "Next"))
        if first == following:
            return
        for batch in batches_in(answer.body, 0):
            for index in range(max(0, first - batch.first_seq), batch.count):
                yield batch.message(index)
        query = f"seq={following}"


def test_all_that_was_published_is_read_from_the_beginning(kept: Kept) -> None:
    log = kept.log
    assert (log["earliest_seq"], log["first_seq"] > COUNT // 2) == (0, True)
    assert log["stored"]["files"] >= 5
    kept.seek("c")
    assert bodies(kept.nsqd.consume(TOPIC, "c", COUNT)) == BODIES
    assert list(read_all(kept.nsqd, "seq=earliest")) == BODIES
    tail = run_tool(
        "nsq_apps",
        "nsq_tail",
        f"--nsqd-http-address=127.0.0.1:{kept.nsqd.http_port}",
        f"--topic={TOPIC}",
        "--since=1h",
        f"-n={COUNT}",
        text=False,
    )
    assert tail.stdout.splitlines() == BODIES, tail.stderr
    shown = kept.nsqd.http("GET", f"/channel/peek?topic={TOPIC}&channel=c&seq=3").json()
    assert [row["body"].encode() for row in shown["messages"]] == BODIES[3:4]


def test_places_in_the_store_outlive_nsqd(kept: Kept) -> None:
    kept.seek("c")
    first = bodies(kept.nsqd.consume(TOPIC, "c", 100))
    assert first == BODIES[:100]
    wait_until(lambda: kept.nsqd.channel_stats(TOPIC, "c")["finish_count"] == 100)
    kept.nsqd.restart(clean=True)
    kept.nsqd.wait_for_channel(TOPIC, "c", depth=COUNT - 100)
    second = bodies(kept.nsqd.consume(TOPIC, "c", 100))
    assert set(second).isdisjoint(first)
    kept.nsqd.restart(clean=False)
    later = bodies(kept.nsqd.consume_all(TOPIC, "c"))
    assert {*first, *second, *later} == set(BODIES)
    assert set(later).isdisjoint(first)
    assert kept.nsqd.channel_stats(TOPIC, "c").get("lost_count", 0) == 0
    assert "is gone" not in kept.nsqd.log_text()


def test_a_restored_nsqd_has_the_history_too(kept: Kept, make_nsqd: Callable[..., NsqdProcess]) -> None:
    assert kept.nsqd.stop() == 0
    other = make_nsqd(*kept.flags, f"--restore-from=file://{kept.store}")
    other.create(TOPIC)
    assert len(list(other.data_path.glob(f"{TOPIC}.*.log"))) <= 2
    other.publish(TOPIC, [b"new"])
    other.post(f"/channel/create?topic={TOPIC}&channel=c&from=earliest")
    assert bodies(other.consume(TOPIC, "c", COUNT + 1)) == [*BODIES, b"new"]


def test_a_channel_waits_for_files_that_are_away_and_others_go_on(kept: Kept) -> None:
    first_on_disk = kept.first_on_disk
    kept.nsqd.restart()  # it has read nothing yet
    kept.take_away(True)
    kept.seek("c")
    with kept.nsqd.consumer(TOPIC, "c", 2500) as waiting:
        wait_until(lambda: kept.log["stored"]["problem"], what="the problem")
        kept.nsqd.publish(TOPIC, [b"new"])
        assert bodies(kept.nsqd.consume(TOPIC, "done", 1)) == [b"new"]
        stats = kept.nsqd.channel_stats(TOPIC, "c")
        assert (stats["depth"], stats["in_flight_count"], stats["deferred_count"]) == (COUNT + 1, 0, 0)
        assert "the store has lost a file" in kept.log["stored"]["problem"]
        answer = kept.nsqd.http("GET", f"/topic/read?topic={TOPIC}&seq=0")
        assert (answer.status, "the store has lost a file" in answer.text) == (500, True)
        assert list(read_all(kept.nsqd, f"seq={first_on_disk}")) == [*BODIES[first_on_disk:], b"new"]
        kept.take_away(False)
        assert bodies(waiting.consume(COUNT + 1)) == [*BODIES, b"new"]
    assert kept.log["stored"]["problem"] == ""


def flip_middle(path: Path) -> None:
    flip(path, path.stat().st_size // 2)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


@pytest.mark.parametrize("harm", [flip_middle, truncate, empty])
def test_what_a_channel_passes_over_in_a_damaged_file_is_counted(
    kept: Kept, harm: Callable[[Path], None]
) -> None:
    """Also without a scrub."""
    kept.nsqd.stop()
    stored = sorted((kept.store / "files" / TOPIC).glob("*.log"))
    harm(stored[1])
    kept.nsqd.start()
    assert kept.nsqd.stats()["store"]["damaged_objects"] == 0
    kept.seek("c")
    last = BODIES[-1]
    found: list[bytes] = []
    with kept.nsqd.consumer(TOPIC, "c", 1) as client:
        while last not in found:
            found += bodies(client.consume(1))
    assert set(found) < set(BODIES)
    assert found[:50] == BODIES[:50]
    shown = kept.nsqd.stats()["store"]
    assert shown["damaged_objects"] == 1
    assert stored[1].name in shown["damage"]
