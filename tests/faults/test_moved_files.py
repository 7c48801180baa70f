"""Files and directories that somebody moves, replaces or covers while nsqd runs: no acknowledged message is lost silently."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nsqd_py.runtime.private_files import lock_directory
from tests.support.harm import mount, put_aside, put_away
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.wire import bodies

pytestmark = pytest.mark.ours

COUNT = 20
BODIES = [b"%d" % number for number in range(COUNT)]
# The longest time for which nsqd writes without a check of its data path.
CHECKED_AFTER_S = 0.01
REPLACED = "is not the directory that this nsqd has loaded"


@pytest.fixture(params=["1", "2500"], ids=["synced", "unsynced"])
def nsqd(tmp_path, request) -> Iterator[NsqdProcess]:
    """With the topic `t`, its channels `ch` and `paused`, and some messages."""
    with NsqdProcess(
        tmp_path / "data", f"--sync-every={request.param}", "--sync-timeout=50ms"
    ).start() as nsqd:
        nsqd.create("t", "ch", "paused")
        nsqd.post("/channel/pause?topic=t&channel=paused")
        nsqd.publish("t", BODIES, 1)
        yield nsqd


def log_files(nsqd: NsqdProcess) -> list[Path]:
    return sorted(nsqd.data_path.glob("t.*.log"))


def publish(nsqd: NsqdProcess, body: bytes) -> int:
    return nsqd.http("POST", "/pub?topic=t", body).status


def accepted(nsqd: NsqdProcess, count: int = COUNT) -> list[bytes]:
    """Publish; return the bodies that nsqd has acknowledged."""
    sent = [b"later %d" % number for number in range(count)]
    return [body for body in sent if publish(nsqd, body) == 200]


def consumed(nsqd: NsqdProcess, channel: str = "ch") -> list[bytes]:
    """The bodies of all messages that a channel has."""
    depth = nsqd.channel_stats("t", channel)["depth"]
    with nsqd.consumer("t", channel, max(1, depth)) as client:
        return sorted(bodies(client.consume(depth)))


def ping(nsqd: NsqdProcess) -> str:
    return nsqd.http("GET", "/ping").text


def until_refused(nsqd: NsqdProcess) -> list[bytes]:
    """Publish until nsqd refuses, which it does in time; return the bodies that it acknowledged until then."""
    acknowledged = []
    until_s = time.monotonic() + CHECKED_AFTER_S

    def is_refused() -> bool:
        body = b"until refused %d" % len(acknowledged)
        is_late = time.monotonic() > until_s
        if publish(nsqd, body) == 200:
            acknowledged.append(body)
            assert not is_late or "the disk is slow" in nsqd.log_text(), "it was not checked before the write"
            return False
        return "publishes are refused" in nsqd.log_text()

    wait_until(is_refused, what="publishes to be refused")
    return acknowledged


# ---- log files


def test_log_files_that_are_moved_to_another_directory_are_written_back(nsqd, tmp_path):
    away = tmp_path / "away"
    away.mkdir()
    for path in log_files(nsqd):
        path.rename(away / path.name)
    acknowledged = accepted(nsqd)
    wait_until(lambda: nsqd.topic_stats("t").get("restored_files") == 1, what="the file to be there again")
    assert nsqd.topic_stats("t")["removed_files"] == 1
    wait_until(lambda: ping(nsqd) == "OK", what="the next sync")
    acknowledged += [body for body in (b"last",) if publish(nsqd, body) == 200]
    assert b"last" in acknowledged
    nsqd.kill()
    nsqd.start()
    assert set(consumed(nsqd)) >= {*BODIES, *acknowledged}


def test_a_data_path_that_is_reached_by_a_link_may_move(tmp_path):
    """Its files have their names, as long as the link leads to them."""
    (tmp_path / "first").mkdir()
    link = tmp_path / "link"
    link.symlink_to("first")
    with NsqdProcess(link, "--sync-every=1").start() as nsqd:
        nsqd.create("t", "ch")
        nsqd.publish("t", BODIES, 1)
        other = tmp_path / "other"
        other.symlink_to("second")
        (tmp_path / "first").rename(tmp_path / "second")
        other.rename(link)
        wait_until(lambda: ping(nsqd) == "OK", what="nsqd to see its directory")
        assert accepted(nsqd) == [b"later %d" % number for number in range(COUNT)]
        assert "removed_files" not in nsqd.topic_stats("t")


# ---- the data path


@pytest.mark.parametrize("harm", [mount, put_aside, put_away])
@pytest.mark.parametrize("is_back_first", [True, False], ids=["back while it runs", "killed"])
def test_publishes_are_refused_while_the_data_path_is_another_directory(nsqd, harm, is_back_first):
    bring_back = harm(nsqd.data_path)
    try:
        acknowledged = until_refused(nsqd)
        assert nsqd.http("GET", "/ping").status == 500
        health = nsqd.http("GET", "/health?format=json").json()
        assert (health["status"], REPLACED in health["reason"]) == ("failing", True)
        assert nsqd.http("POST", "/topic/create?topic=new").status == 500
        assert nsqd.http("POST", "/pub?topic=another", b"x").status == 503
        assert accepted(nsqd) == []
        with nsqd.consumer("t", "ch", 1) as client:
            assert bodies(client.consume(1)) == [b"0"], "consumers go on"
        found = list(nsqd.data_path.iterdir()) if nsqd.data_path.exists() else []
        assert found == [], "nothing is written there"
        assert REPLACED in nsqd.log_text()
        if not is_back_first:
            nsqd.kill()
    finally:
        bring_back()
    if is_back_first:
        wait_until(lambda: ping(nsqd) == "OK", what="nsqd to find its directory")
        acknowledged += accepted(nsqd, 1)
        assert acknowledged
        assert "removed_files" not in nsqd.topic_stats("t")
        wait_until(lambda: nsqd.http("GET", "/health?format=json").json()["status"] == "ok", what="health")
        nsqd.kill()
    nsqd.start()
    assert set(consumed(nsqd)) | {b"0"} >= {*BODIES, *acknowledged}
    assert nsqd.channel_stats("t", "paused")["paused"]


@pytest.mark.parametrize("harm", [mount, put_aside])
def test_a_stop_writes_nothing_to_another_directory(nsqd, harm):
    bring_back = harm(nsqd.data_path)
    try:
        acknowledged = until_refused(nsqd)
        assert nsqd.stop() == 0
        assert list(nsqd.data_path.iterdir()) == []
    finally:
        bring_back()
    nsqd.start()
    assert set(consumed(nsqd)) >= {*BODIES, *acknowledged}


def test_a_data_path_that_is_removed_and_made_again_gets_all_files(nsqd):
    """They are nowhere else."""
    for path in nsqd.data_path.iterdir():
        path.unlink()
    nsqd.data_path.rmdir()
    nsqd.data_path.mkdir()
    wait_until(lambda: "locked again" in nsqd.log_text(), what="nsqd to lock the new one")
    with pytest.raises(BlockingIOError):
        lock_directory(nsqd.data_path)
    wait_until(lambda: nsqd.topic_stats("t").get("restored_files") == 1, what="the file to be there again")
    wait_until(lambda: publish(nsqd, b"last") == 200, what="the next sync")
    wait_until(lambda: len(state_files(nsqd)) >= 4, what="positions and nsqd.dat")
    nsqd.kill()
    nsqd.start()
    assert set(consumed(nsqd)) >= {*BODIES, b"last"}
    assert nsqd.channel_stats("t", "paused")["paused"]


# ---- small files


def state_files(nsqd: NsqdProcess) -> set[str]:
    return {path.name for path in nsqd.data_path.iterdir() if path.suffix != ".log"}


def test_small_files_that_are_removed_while_nsqd_runs_are_written_again(nsqd):
    with nsqd.consumer("t", "ch", 1) as client:
        client.consume(1)
    wait_until(lambda: (nsqd.data_path / "t:ch.cursor").stat().st_size > 40, what="its position")
    before = state_files(nsqd)
    assert before >= {"nsqd.dat", "nsqd.clock", "nsqd.member", "t:ch.cursor", "t:paused.cursor"}
    for name in before:
        (nsqd.data_path / name).unlink()
    wait_until(lambda: state_files(nsqd) >= before, what="the files to be there again")
    assert "t:paused.cursor was removed" in nsqd.log_text()
    nsqd.kill()
    nsqd.start()
    assert nsqd.channel_stats("t", "paused")["paused"]
    assert nsqd.channel_stats("t", "paused")["depth"] == COUNT
    assert consumed(nsqd) == sorted(BODIES[1:])


def test_nsqd_dat_is_written_again(nsqd):
    path = nsqd.data_path / "nsqd.dat"

    def is_reported() -> bool:  # not by a write that has to come anyway
        path.unlink(missing_ok=True)
        return "nsqd.dat was removed" in nsqd.log_text()

    wait_until(is_reported, what="nsqd to miss it")
    wait_until(path.exists, what="the file to be there again")


def test_the_position_of_a_topic_that_is_removed_while_nsqd_runs_is_written_again(make_nsqd):
    nsqd = make_nsqd()
    nsqd.create("t", "ch")
    nsqd.publish("t", BODIES, 1)
    with nsqd.consumer("t", "ch", COUNT) as client:
        client.consume(COUNT)
    nsqd.post("/channel/delete?topic=t&channel=ch")
    position = nsqd.data_path / "t.cursor"
    wait_until(position.exists, what="the position of the topic")
    wait_until(lambda: "t:ch.cursor" not in state_files(nsqd), what="that of the channel to go")
    nsqd.publish("t", [b"new"], 1)
    # nsqd must have seen it: not each topic has such a file.
    wait_until(lambda: time.time() - position.stat().st_mtime > 3, what="nsqd to look at it")
    position.unlink()
    wait_until(position.exists, what="the position to be there again")
    assert "t.cursor was removed" in nsqd.log_text()
    nsqd.kill()
    nsqd.start()
    assert nsqd.topic_stats("t")["depth"] == 1


def test_a_missing_nsqd_dat_is_named_at_the_start(nsqd):
    nsqd.stop()
    (nsqd.data_path / "nsqd.dat").unlink()
    nsqd.start()
    assert "WARNING: NSQ: nsqd.dat is gone" in nsqd.log_text()
    assert "paused" in nsqd.log_text()
    nsqd.restart()
    assert "nsqd.dat is gone" not in nsqd.log_text(), "it was written again"
