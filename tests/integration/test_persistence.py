"""What is kept when nsqd is stopped, killed, or finds its files damaged.

Tests with the marker `ours` hold promises that Go's nsqd does not make.
"""

from __future__ import annotations

import json
import re
import signal
import stat
import time
from typing import Any

import pytest

from tests.support import wire
from tests.support.ledger import compare
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.sweeps import sample, sweep
from tests.support.wire import bodies

CLEAN = pytest.param(True, id="clean")
KILLED = pytest.param(False, id="killed", marks=pytest.mark.ours)
either_way = pytest.mark.parametrize("clean", [CLEAN, KILLED])

# What consumers did is written after 0.1 s at the latest, so it is there when nsqd answers later than that.
JOURNAL_WRITTEN_S = 0.2


def numbered(count: int, prefix: str = "m") -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(count)]


def restart(nsqd: NsqdProcess, clean: bool) -> None:
    if not clean:
        time.sleep(JOURNAL_WRITTEN_S)
        assert all(nsqd.is_healthy() for _ in range(2))
    nsqd.restart(clean=clean)


# --- messages


@either_way
def test_restart_keeps_every_message_with_its_id_and_time(nsqd, clean):
    nsqd.create("t", "kept", "other")
    with nsqd.connect() as client:
        client.pub("t", *numbered(50))
        client.mpub("t", numbered(400, "batch"))
        for body in numbered(20, "http"):
            nsqd.post("/pub?topic=t", body)
        client.sub("t", "other", 500)
        before = client.consume(470)
    restart(nsqd, clean)
    assert sorted(nsqd.consume_all("t", "kept")) == sorted(before)
    assert sorted(bodies(before)) == sorted(numbered(50) + numbered(400, "batch") + numbered(20, "http"))


@either_way
def test_messages_in_flight_come_again(nsqd, clean):
    with nsqd.connect() as client:
        client.mpub("t", numbered(10))
        client.sub("t", "c", 4)
        held = client.messages(4)
        nsqd.wait_for_channel("t", "c", in_flight_count=4, depth=6)
        restart(nsqd, clean)
    again = nsqd.consume_all("t", "c")
    assert sorted(bodies(again)) == sorted(numbered(10))
    attempts = {message.id: message.attempts for message in again}
    assert not clean or {attempts[message.id] for message in held} == {2}


@pytest.mark.ours
@pytest.mark.parametrize(("how", "clean"), sweep(["DPUB", "HTTP", "REQ"], [False, True]))
def test_deferred_message_stays_deferred(nsqd, how, clean):
    defer(nsqd, how, 60_000)
    nsqd.wait_for_channel("t", "c", deferred_count=1, depth=0, in_flight_count=0)
    restart(nsqd, clean)
    nsqd.wait_for_channel("t", "c", deferred_count=1, depth=0, in_flight_count=0)
    with nsqd.consumer("t", "c", 1) as client:
        client.expect_silence()


def defer(nsqd: NsqdProcess, how: str, delay_ms: int) -> None:
    """Puts one deferred message into t/c."""
    nsqd.create("t", "c")
    if how == "DPUB":
        nsqd.dpub("t", delay_ms, b"later")
    elif how == "HTTP":
        nsqd.post(f"/pub?topic=t&defer={delay_ms}", b"later")
    else:
        with nsqd.consumer("t", "c", 1) as client:
            client.pub("t", b"later")
            client.send(wire.req(client.message().id, delay_ms))
            client.round_trip()


@either_way
def test_emptied_and_deleted_stays_so(nsqd, clean):
    nsqd.create("t", "emptied", "deleted", "kept")
    nsqd.create("gone", "c")
    with nsqd.connect() as client:
        client.mpub("t", numbered(10))
        client.mpub("gone", numbered(10))
    nsqd.wait_for_channel("t", "emptied", depth=10)
    nsqd.post("/channel/empty?topic=t&channel=emptied")
    nsqd.post("/channel/delete?topic=t&channel=deleted")
    nsqd.post("/topic/delete?topic=gone")
    if not clean:  # Go writes this only when it stops
        wait_until(lambda: names_in(metadata(nsqd)) == {"t": {"emptied", "kept"}})
    restart(nsqd, clean)
    assert nsqd.topic_stats("gone") is None
    assert nsqd.channel_stats("t", "deleted") is None
    assert nsqd.consume_all("t", "emptied") == []
    assert len(nsqd.consume_all("t", "kept")) == 10
    nsqd.create("gone", "c")
    assert nsqd.consume_all("gone", "c") == []


# --- metadata


def metadata(nsqd: NsqdProcess) -> dict[str, Any]:
    """nsqd.dat; empty where it is not there yet."""
    path = nsqd.data_path / "nsqd.dat"
    if not path.exists():
        return {}
    return json.loads(path.read_bytes())


def names_in(content: dict[str, Any]) -> dict[str, set[str]]:
    return {
        topic["name"]: {channel["name"] for channel in topic["channels"] or ()}
        for topic in content.get("topics") or ()
    }


def test_metadata_file_is_as_in_go(nsqd):
    nsqd.create("t1", "a", "b", "c#ephemeral")
    nsqd.create("t2")
    nsqd.create("t3#ephemeral", "a")
    nsqd.post("/topic/pause?topic=t1")
    nsqd.post("/channel/pause?topic=t1&channel=b")
    wait_until(lambda: names_in(metadata(nsqd)) == {"t1": {"a", "b"}, "t2": set()})
    content = metadata(nsqd)
    assert set(content) == {"topics", "version"}
    assert content["version"] == nsqd.http("GET", "/info").json()["version"]
    t1, t2 = sorted(content["topics"], key=lambda topic: str(topic["name"]))
    assert sorted(t1["channels"], key=lambda channel: str(channel["name"])) == [
        {"name": "a", "paused": False},
        {"name": "b", "paused": True},
    ]
    assert (t1["paused"], t2["paused"], set(t1)) == (True, False, {"name", "paused", "channels"})
    assert stat.S_IMODE((nsqd.data_path / "nsqd.dat").stat().st_mode) == 0o600
    wait_until(lambda: not list(nsqd.data_path.glob("*.tmp")), what="the last write to end")


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_pauses_and_channels_are_kept(nsqd, clean):
    nsqd.create("t", "running", "paused")
    nsqd.create("paused", "c")
    nsqd.post("/channel/pause?topic=t&channel=paused")
    nsqd.post("/topic/pause?topic=paused")
    wait_until(lambda: names_in(metadata(nsqd)) == {"t": {"running", "paused"}, "paused": {"c"}})
    restart(nsqd, clean)
    states = {
        topic["topic_name"]: (topic["paused"], {c["channel_name"]: c["paused"] for c in topic["channels"]})
        for topic in nsqd.stats()["topics"]
    }
    assert states == {"t": (False, {"running": False, "paused": True}), "paused": (True, {"c": False})}
    with nsqd.connect() as client:
        client.pub("paused", b"held")
        client.pub("t", b"flows")
        client.sub("paused", "c", 1)
        client.expect_silence()
        nsqd.post("/topic/unpause?topic=paused")
        assert client.message().body == b"held"
    assert bodies(nsqd.consume_all("t", "running")) == [b"flows"]
    with nsqd.consumer("t", "paused", 1) as client:
        client.expect_silence()


@pytest.mark.ours
@pytest.mark.parametrize("content", sample(b"{", b"", b'{"topics": 5}', b"\x00\x00"))
def test_metadata_that_cannot_be_understood_is_set_aside(nsqd, content):
    nsqd.create("t", "c")
    nsqd.stop()
    (nsqd.data_path / "nsqd.dat").write_bytes(content)
    nsqd.start()
    assert "failed to parse metadata" in nsqd.log_text()
    assert (nsqd.data_path / "nsqd.dat.damaged").read_bytes() == content
    nsqd.wait_for_channel("t", "c", depth=0)


def test_metadata_that_cannot_be_read_stops_the_start(nsqd):
    nsqd.stop()
    (nsqd.data_path / "nsqd.dat").unlink(missing_ok=True)
    (nsqd.data_path / "nsqd.dat").mkdir()
    nsqd.launch()
    assert nsqd.wait() == 1
    assert "metadata" in nsqd.log_text()


def test_metadata_that_cannot_be_written_is_a_problem_until_a_write_succeeds(nsqd):
    nsqd.create("t")
    wait_until(lambda: names_in(metadata(nsqd)) == {"t": set()})
    path = nsqd.data_path / "nsqd.dat"
    path.unlink()
    path.mkdir()
    nsqd.create("t", "c")
    wait_until(lambda: nsqd.http("GET", "/ping").status == 500, what="the failed write")
    ping = nsqd.http("GET", "/ping").text
    assert ping.startswith("NOK - disk: ")
    assert "nsqd.dat" in ping
    health = nsqd.http("GET", "/health?format=json")
    assert (health.status, health.json()["status"]) == (503, "failing")

    path.rmdir()
    wait_until(lambda: nsqd.http("GET", "/ping").text == "OK", what="the next write")
    assert names_in(metadata(nsqd)) == {"t": {"c"}}


def test_bad_names_in_the_metadata_are_skipped(nsqd):
    nsqd.stop()
    channels = [{"name": "b/d", "paused": False}, {"name": "c", "paused": True}]
    topics = [
        {"name": "bad!", "paused": False, "channels": []},
        {"name": "good", "paused": False, "channels": channels},
    ]
    (nsqd.data_path / "nsqd.dat").write_text(json.dumps({"topics": topics, "version": "1.3.0"}))
    nsqd.start()
    (topic,) = nsqd.stats()["topics"]
    assert [(c["channel_name"], c["paused"]) for c in topic["channels"]] == [("c", True)]
    assert "bad!" in nsqd.log_text()


# --- files


@pytest.mark.ours
def test_log_files_are_named_by_topic_and_first_sequence_number(make_nsqd):
    nsqd = make_nsqd("--max-bytes-per-file=65536")
    nsqd.create("rolled", "fast", "slow")
    with nsqd.connect() as client:
        for _ in range(20):
            client.mpub("rolled", [b"x" * 1000] * 50)
        names = [path.name for path in nsqd.data_path.glob("rolled.*.log")]
        assert len(names) >= 10
        assert all(re.fullmatch(r"rolled\.\d{20}\.log", name) for name in names)
        client.sub("rolled", "fast", 500)
        client.consume(1000)
    # The slow channel still needs every file.
    assert len(list(nsqd.data_path.glob("rolled.*.log"))) >= len(names)
    assert len(nsqd.consume_all("rolled", "slow")) == 1000
    wait_until(lambda: len(list(nsqd.data_path.glob("rolled.*.log"))) <= 2)
    assert max(path.name for path in nsqd.data_path.glob("rolled.*.log")) >= max(names)


@either_way
def test_sync_every_message(make_nsqd, clean):
    nsqd = make_nsqd("--sync-every=1")
    nsqd.create("t", "c")
    with nsqd.connect() as client:
        client.pub("t", *numbered(20))
        client.mpub("t", numbered(50, "batch"))
        client.send(*(wire.pub("t", body) for body in numbered(50, "pipelined")))
        assert [client.next_frame() for _ in range(50)] == [wire.OK] * 50
    nsqd.restart(clean=clean)
    expected = numbered(20) + numbered(50, "batch") + numbered(50, "pipelined")
    assert sorted(bodies(nsqd.consume_all("t", "c"))) == sorted(expected)


def test_second_nsqd_on_the_same_data_does_not_start(nsqd):
    nsqd.create("t", "c")
    second = NsqdProcess(nsqd.data_path)
    second.log_path = nsqd.log_path.with_suffix(".second.log")
    second.launch()
    assert second.wait() == 1
    complaints = [line for line in second.log_text().splitlines() if "lock" in line]
    assert any(str(nsqd.data_path) in line for line in complaints), second.log_text()
    assert nsqd.is_healthy()
    nsqd.pub("t", b"still here")
    nsqd.wait_for_channel("t", "c", depth=1)


# --- ending


def test_stop_exits_with_0_and_closes_connections(nsqd):
    with nsqd.connect() as publisher, nsqd.consumer("t", "c", 1) as consumer:
        publisher.pub("t", b"1", b"2")
        consumer.message()
        assert nsqd.stop() == 0
        assert publisher.rest() == consumer.rest() == []


def test_second_sigterm_loses_nothing(make_nsqd):
    nsqd = make_nsqd("--mem-queue-size=20000")
    nsqd.create("t", "c")
    with nsqd.connect() as client:
        batches = [numbered(1000, f"batch{batch}-") for batch in range(10)]
        for batch in batches:
            client.mpub("t", batch)
    nsqd.wait_for_channel("t", "c", depth=10_000)
    nsqd.signal(signal.SIGTERM)
    nsqd.signal(signal.SIGTERM)
    nsqd.wait(40)
    nsqd.start()
    sent = [body for batch in batches for body in batch]
    compare(sent, bodies(nsqd.consume_all("t", "c")), at_least_once=True).require_sound()


# --- damage
