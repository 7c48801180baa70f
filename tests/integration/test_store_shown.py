"""What /stats, /metrics, nsq-stat and nsqadmin show of a store, as processes; and while the store does not answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import pytest

from nsqd_py.objects.calls import PART_BYTES
from nsqd_py.objects.opening import open_objects
from nsqd_py.store.requests import PUT, CountedObjects
from tests.support.bucket_faults import FaultProxy, refused, slow
from tests.support.buckets import Bucket
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import REPOSITORY, MakeNsqd, NsqdProcess, wait_until
from tests.support.standby_processes import consume_all

pytestmark = pytest.mark.ours
DEADLINE_S = 40.0
METRICS = (
    "nsqd_store_lag_messages",
    "nsqd_store_lag_bytes",
    "nsqd_store_lag_seconds",
    "nsqd_store_interval_seconds",
    "nsqd_store_acks",
    "nsqd_store_away_seconds",
    "nsqd_store_rounds_total",
    "nsqd_store_last_round_timestamp_seconds",
    "nsqd_store_bytes",
    "nsqd_store_objects",
    "nsqd_store_errors_total",
    "nsqd_store_damaged_objects_total",
)


@pytest.fixture
def stored(
    make_nsqd: MakeNsqd, s3_bucket: Bucket, s3_faults: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MakeNsqd]:
    """Starts an nsqd whose store is behind the proxy of faults."""
    for name, value in s3_bucket.environment(s3_faults.endpoint).items():
        monkeypatch.setenv(name, value)
    yield partial(make_nsqd, f"--store={s3_bucket.url('one')}", "--store-interval=100ms")
    s3_faults.stop_faults()


@pytest.fixture
def nsqd(stored: MakeNsqd) -> NsqdProcess:
    """An nsqd with three messages that its store has."""
    nsqd = stored()
    nsqd.create("orders", "archive")
    nsqd.post("/mpub?topic=orders", b"one\ntwo\nthree")
    wait_until(lambda: has_all(nsqd), DEADLINE_S, "the messages in the store")
    return nsqd


def has_all(nsqd: NsqdProcess) -> bool:
    store = nsqd.stats()["store"]
    return bool(store["state"] == "storing" and not store["lag_ms"] and store["last_round"])


def samples(nsqd: NsqdProcess) -> dict[str, float]:
    lines = nsqd.http("GET", "/metrics").text.splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line.startswith("nsqd_store_"))
    return {name: float(value) for name, value in pairs}


def nsq_stat(nsqd: NsqdProcess, *flags: str) -> subprocess.CompletedProcess[str]:
    address = f"--nsqd-http-address=127.0.0.1:{nsqd.http_port}"
    command = [sys.executable, "-m", "nsq_apps", "nsq_stat", address, *flags]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)


def test_a_store_is_shown(nsqd, s3_bucket, s3_faults, tmp_path):
    store = nsqd.stats()["store"]
    assert store["url"] == s3_bucket.url("one")
    assert (store["epoch"], store["acks"], store["interval_ms"]) == (1, 0, 100)
    assert (store["errors"], store["away_ms"], store["damaged_objects"], store["error"]) == (0, 0, 0, "")
    assert store["size_bytes"] > 0
    assert sum(store["requests"].values()) == store["requests_today"]
    puts = s3_faults.count("PUT", r"rounds/|head\.json")
    found = samples(nsqd)
    assert found['nsqd_store_requests_total{kind="put"}'] >= puts > 2
    assert found['nsqd_store_requests_total{kind="get"}'] > 0
    assert [name for name in METRICS if name not in found] == []
    assert (found["nsqd_store_lag_messages"], found["nsqd_store_away_seconds"]) == (0, 0)
    assert found["nsqd_store_last_round_timestamp_seconds"] > 1_600_000_000

    result = nsq_stat(nsqd, "--once", "--format=json")
    assert (result.returncode, result.stderr) == (0, ""), result
    (row,) = json.loads(result.stdout)["stores"]
    assert (row["store"], row["state"], row["lag_messages"]) == (s3_bucket.url("one"), "storing", 0)

    flags = ("--history-file=", f"--nsqd-http-address=127.0.0.1:{nsqd.http_port}")
    with NsqadminProcess(tmp_path / "nsqadmin.log", *flags) as admin:
        admin.start()

        def shown() -> bool:
            rows = admin.get("/api/v2/nodes")["rows"]
            return bool(rows and rows[0]["store"] and rows[0]["store"]["state"] == "storing")

        wait_until(shown, DEADLINE_S, "the store in nsqadmin")


def test_a_store_that_does_not_answer(nsqd, s3_faults):
    s3_faults.at_random(seed=1, rate=1.0, faults=[refused(503)])
    nsqd.post("/pub?topic=orders", b"four")
    wait_until(lambda: nsqd.stats()["store"]["state"] == "away", DEADLINE_S, "the outage")
    store = nsqd.stats()["store"]
    assert store["lag_messages"] == 1
    assert "503" in store["error"] or "SlowDown" in store["error"]
    assert (store["errors"] > 0, store["away_ms"] > 0) == (True, True)
    assert samples(nsqd)["nsqd_store_errors_total"] > 0
    assert "store" not in nsq_stat(nsqd, "--check").stderr  # a minute is allowed
    s3_faults.stop_faults()
    wait_until(lambda: has_all(nsqd), DEADLINE_S, "the message in the store")
    store = nsqd.stats()["store"]
    assert (store["away_ms"], store["error"], store["lag_messages"]) == (0, "", 0)


def test_what_a_first_base_has_not_copied_yet_counts_as_lag(stored, s3_faults, tmp_path):
    """With --store-acks=1, publishers wait for it, and the error says what for."""
    bodies = [os.urandom(50_000) for _ in range(60)]
    with NsqdProcess(tmp_path / "nsqd0") as alone:
        alone.start().create("orders", "archive")
        alone.publish("orders", bodies, batch=20)
    s3_faults.at_random(seed=1, rate=1.0, faults=[slow(8.0)], name="files/")
    nsqd = stored("--store-acks=1", "--store-timeout=1s")
    assert nsqd.data_path == alone.data_path  # else it has no messages
    wait_until(lambda: nsqd.stats()["store"]["lag_ms"] >= 1000, DEADLINE_S, "a lag")
    store = nsqd.stats()["store"]
    assert (store["state"], store["lag_messages"]) == ("copying", 0)
    assert sum(map(len, bodies)) < store["lag_bytes"] < 2 * sum(map(len, bodies))
    refusal = nsqd.http("POST", "/pub?topic=orders", b"later")
    assert (refusal.status, nsqd.stats()["store"]["state"]) == (503, "copying")
    assert "still getting what this nsqd had at its start" in refusal.text
    s3_faults.stop_faults()
    wait_until(lambda: has_all(nsqd), DEADLINE_S, "everything in the store")
    assert nsqd.stats()["store"]["lag_bytes"] == 0


def test_objects_that_the_store_does_not_give_are_damaged(stored, s3_faults):
    """A rule of the bucket has moved them to an archive class, or their key is lost."""
    nsqd = stored("--retention-time=1h", "--max-bytes-per-file=4096", "--store-scrub-requests=100000000")
    nsqd.create("orders", "archive")
    nsqd.pub("orders", *[b"%05d" % number * 100 for number in range(40)])
    nsqd.restart()
    wait_until(lambda: s3_faults.count("PUT", "files/") > 3, DEADLINE_S, "log files in the store")
    wait_until(lambda: has_all(nsqd), DEADLINE_S, "everything in the store")
    s3_faults.at_random(seed=1, rate=1.0, faults=[refused(403)], name="files/")
    wait_until(lambda: nsqd.stats()["store"]["damaged_objects"] > 1, DEADLINE_S, "unreadable objects")
    assert "cannot be read: AccessDenied" in nsqd.stats()["store"]["damage"]
    checked = nsq_stat(nsqd, "--check")
    assert (checked.returncode, "damaged store: " in checked.stderr) == (2, True), checked
    assert samples(nsqd)["nsqd_store_damaged_objects_total"] > 1


def test_channels_wait_for_messages_that_only_the_store_has(stored, s3_faults):
    nsqd = stored("--store-retention-time=1h", "--max-bytes-per-file=4096", "--mem-queue-size=0")
    nsqd.create("orders", "archive")
    bodies = [b"%05d" % number * 100 for number in range(40)]
    nsqd.pub("orders", *bodies)
    assert len(consume_all(nsqd, "orders", "archive")) == len(bodies)
    wait_until(lambda: not list(nsqd.data_path.glob("orders.*00000.log")), DEADLINE_S, "a file that went")
    assert nsqd.stats()["store"]["read_error"] == ""
    s3_faults.at_random(seed=1, rate=1.0, faults=[refused(503)])
    nsqd.post("/channel/seek?topic=orders&channel=archive&to=earliest")
    with nsqd.consumer("orders", "archive", rdy_count=10):
        wait_until(lambda: nsqd.stats()["store"]["read_error"], DEADLINE_S, "an error of the store")
        checked = nsq_stat(nsqd, "--check")
        assert (checked.returncode, "store unreadable: channels wait" in checked.stderr) == (2, True), checked
    s3_faults.stop_faults()
    assert sorted(consume_all(nsqd, "orders", "archive")) == bodies
    assert nsqd.stats()["store"]["read_error"] == ""


@pytest.mark.parametrize(
    ("size_bytes", "count"), [(1, 1), (PART_BYTES, 1), (PART_BYTES + 1, 4), (2 * PART_BYTES + 1, 5)]
)
def test_the_requests_that_are_counted_are_those_that_the_bucket_gets(
    s3_bucket, s3_faults, monkeypatch, tmp_path, size_bytes, count
):
    for name, value in s3_bucket.environment(s3_faults.endpoint).items():
        monkeypatch.setenv(name, value)
    objects = CountedObjects(open_objects(s3_bucket.url("one")))
    content = os.urandom(size_bytes)
    (tmp_path / "log").write_bytes(content + b"more")
    objects.put_file("files/t/1.log", tmp_path / "log", size_bytes)
    assert s3_faults.count("PUT") + s3_faults.count("POST") == objects.requests.by_kind()[PUT] == count
    assert objects.get("files/t/1.log")[0] == content


def test_nothing_is_shown_where_there_is_no_store(make_nsqd):
    nsqd = make_nsqd()
    assert "store" not in nsqd.stats()
    assert samples(nsqd) == {}
    assert "stores" not in json.loads(nsq_stat(nsqd, "--once", "--format=json").stdout)
