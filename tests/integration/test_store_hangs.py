"""A store that takes requests and does not answer: who reads in it gets an error soon, and all others go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.bucket_faults import Exchange, FaultProxy
from tests.support.buckets import Bucket
from tests.support.nsqd_process import HTTPAnswer, MakeNsqd, NsqdProcess, wait_until
from tests.support.wire import bodies

pytestmark = pytest.mark.ours

STORED = "stored"
LOCAL = "local"
BODIES = [b"%05d" % number * 100 for number in range(40)]
READERS = 6
# nsqd waits 5 s for the store; a reader of the disk waits for no one.
MOST_S = 9.0
MOST_LOCAL_S = 1.0


class HungStore:
    """A store whose requests hang until it goes on: then their connections are cut."""

    def __init__(self, faults: FaultProxy) -> None:
        self._faults = faults
        self._goes_on = threading.Event()

    def hang(self) -> None:
        self._faults.at_random(seed=1, rate=1.1, faults=[self._wait])

    def _wait(self, exchange: Exchange) -> None:
        self._goes_on.wait(60)
        exchange.cut()

    def go_on(self) -> None:
        self._faults.stop_faults()
        self._goes_on.set()

    def count(self) -> int:
        """Return how many requests for stored files it has got."""
        return self._faults.count("GET", f"files/{STORED}")

    def wait_for_requests(self, count: int) -> None:
        before = self._faults.count("GET", f"files/{STORED}", "")
        wait_until(lambda: self.count() - before >= count, what="requests that hang")


@pytest.fixture
def hung_store(s3_faults: FaultProxy) -> Iterator[HungStore]:
    store = HungStore(s3_faults)
    yield store
    store.go_on()


@pytest.fixture
def nsqd(
    make_nsqd: MakeNsqd,
    s3_bucket: Bucket,
    s3_faults: FaultProxy,
    hung_store: HungStore,
    monkeypatch: pytest.MonkeyPatch,
) -> NsqdProcess:
    """An nsqd with a topic whose messages have left the disk, and with one that is on the disk; the store hangs."""
    for name, value in s3_bucket.environment(s3_faults.endpoint).items():
        monkeypatch.setenv(name, value)
    nsqd = make_nsqd(
        f"--store={s3_bucket.url('one')}",
        "--store-interval=100ms",
        "--store-retention-time=1h",
        "--retention-time=local=1h",
        "--max-bytes-per-file=4096",
        "--mem-queue-size=0",
    )
    for topic in (STORED, LOCAL):
        nsqd.create(topic, "all")
        nsqd.publish(topic, BODIES)
        assert bodies(nsqd.consume(topic, "all", len(BODIES))) == BODIES
    wait_until(lambda: not list(nsqd.data_path.glob(f"{STORED}.*00000.log")), what="a file that went")
    hung_store.hang()
    return nsqd


class Reader(threading.Thread):
    """Reads a topic from its beginning."""

    def __init__(self, nsqd: NsqdProcess, topic: str, path: str = "/topic/read?seq=earliest") -> None:
        super().__init__(daemon=True)
        self._ask = lambda: nsqd.http("GET", f"{path}&topic={topic}")
        self.answer: HTTPAnswer | None = None
        self.took_s = 0.0

    def run(self) -> None:
        began_s = time.monotonic()
        self.answer = self._ask()
        self.took_s = time.monotonic() - began_s

    def result(self) -> tuple[int, str]:
        self.join(60)
        assert self.answer is not None
        return self.answer.status, self.answer.body[:80].decode(errors="replace")


def read(nsqd: NsqdProcess, topic: str, path: str = "/topic/read?seq=earliest") -> Reader:
    reader = Reader(nsqd, topic, path)
    reader.start()
    return reader


def test_readers_of_the_disk_do_not_wait_for_a_store_that_hangs(nsqd, hung_store):
    waiting = [read(nsqd, STORED) for _ in range(READERS)]
    waiting += [read(nsqd, STORED, "/channel/peek?channel=all&seq=3") for _ in range(READERS)]
    hung_store.wait_for_requests(2)
    for path in ("/topic/read?seq=earliest", "/stats?format=json", "/channel/peek?channel=all&seq=3"):
        local = read(nsqd, LOCAL, path)
        assert local.result()[0] == 200
        assert local.took_s < MOST_LOCAL_S
    assert all(reader.is_alive() for reader in waiting), "they should still wait for the store"
    for reader in waiting:
        status, answer = reader.result()
        assert status == 503
        assert "the store does not answer" in answer
        assert reader.took_s < MOST_S


def test_a_request_that_hangs_makes_later_readers_fail_at_once(nsqd, hung_store):
    first = [read(nsqd, STORED) for _ in range(2)]
    hung_store.wait_for_requests(2)
    for reader in first:
        assert reader.result()[0] == 503
    seen = hung_store.count()
    later = read(nsqd, STORED)
    assert later.result()[0] == 503
    assert later.took_s < MOST_LOCAL_S
    assert hung_store.count() == seen


def test_consumers_and_seeks_that_wait_for_the_store_hold_up_no_one(nsqd, hung_store):
    began_s = time.monotonic()
    answer = nsqd.http("POST", f"/channel/seek?topic={STORED}&channel=all&to=2026-01-01T00:00:00Z")
    assert (answer.status, "the store does not answer" in answer.text) == (503, True)
    assert time.monotonic() - began_s < MOST_S
    nsqd.post(f"/channel/create?topic={STORED}&channel=again&from=earliest")
    with nsqd.consumer(STORED, "again", 10) as waiting:
        nsqd.post(f"/channel/create?topic={LOCAL}&channel=again&from=earliest")
        began_s = time.monotonic()
        assert bodies(nsqd.consume(LOCAL, "again", len(BODIES))) == BODIES
        assert read(nsqd, LOCAL).result()[0] == 200
        assert time.monotonic() - began_s < MOST_LOCAL_S
        hung_store.go_on()
        assert bodies(waiting.consume(len(BODIES))) == BODIES


def test_a_store_that_answers_again_is_read_again(nsqd, hung_store):
    waiting = [read(nsqd, STORED) for _ in range(2)]
    hung_store.wait_for_requests(2)
    hung_store.go_on()
    for reader in waiting:
        assert reader.result()[0] == 200
    assert read(nsqd, STORED).result()[0] == 200
