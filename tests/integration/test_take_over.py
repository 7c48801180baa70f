"""A start on the data directory of Go's nsqd: consumers get everything, as it was.

With `NSQD_GO=/path/to/nsqd`, one of v1.3.0, also on directories that the real one left.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.go_directory import GoDirectory, GoMessage, aside_folder, go_messages, numbered
from tests.support.nsqd_process import NsqdProcess, ServerProcess
from tests.support.wire import Client, bodies, req

pytestmark = pytest.mark.ours

NSQD_GO = os.environ.get("NSQD_GO", "")
needs_go = pytest.mark.skipif(not NSQD_GO, reason="NSQD_GO=/path/to/nsqd names no nsqd of Go's")


def received(client: Client, topic: str, channel: str, count: int) -> list[GoMessage]:
    """That many messages of a channel, finished; and there are no more."""
    client.sub(topic, channel, 2500)
    messages = client.consume(count)
    client.expect_silence(0.2)
    return [GoMessage(m.body, int(m.id, 16), m.timestamp_ns, m.attempts) for m in messages]


def once_more(messages: list[GoMessage]) -> list[GoMessage]:
    """As they come at the next delivery."""
    return [message.tried(message.attempts + 1) for message in messages]


@pytest.fixture
def go(tmp_path) -> GoDirectory:
    """Where the first nsqd of `make_nsqd` starts."""
    return GoDirectory(tmp_path / "nsqd0")


def test_consumers_get_everything_with_id_time_and_attempts(go, make_nsqd):
    first, second, own = numbered("a", 30), numbered("b", 10, 30), numbered("own", 5, 40)
    tried = go_messages([b"tried"], 50, attempts=3)
    go.name_topics({"t": ["a", "b"], "empty": ["x"]}, paused=["t:b"])
    go.queue("t:a", first[:9], first[9:] + tried)
    go.queue("t:b", second)
    go.queue("t", own)
    nsqd = make_nsqd()
    assert {channel["paused"] for channel in nsqd.stats("&topic=empty")["topics"][0]["channels"]} == {False}
    assert nsqd.wait_for_channel("t", "b", depth=15)["paused"]
    with nsqd.connect() as client:
        client.pub("t", b"new")
        *old, new = received(client, "t", "a", 37)
        assert sorted(old) == sorted(once_more(first + tried + own))
        assert new.body == b"new" and new.id > tried[0].id
    nsqd.restart(clean=False)
    nsqd.post("/channel/unpause?topic=t&channel=b")
    with nsqd.connect() as client:
        assert received(client, "t", "b", 16)[:15] == once_more(second + own)
    assert (aside_folder(go.path) / "nsqd.dat").exists()
    assert "IMPORT" not in nsqd.log_text()


def test_nobody_else_may_read_what_was_imported(go, make_nsqd):
    go.name_topics({"t": ["a"]})
    go.queue("t:a", numbered("a", 3))
    umask = os.umask(0)
    try:
        nsqd = make_nsqd()
    finally:
        os.umask(umask)
    nsqd.stop()
    ours = [path for path in go.path.iterdir() if path.is_file()]
    assert len(ours) > 2
    assert [path.name for path in ours if path.stat().st_mode & 0o077] == []


def test_what_is_in_the_way_ends_the_start_in_one_line(go):
    go.queue("t:a", numbered("a", 5))
    (go.path / "import").write_text("a file in the way of the folder")
    nsqd = NsqdProcess(go.path)
    nsqd.launch()
    assert nsqd.wait() == 1
    assert "failed to import the files of Go's nsqd, which are kept - " in nsqd.log_text().splitlines()[-1]
    assert len(go.names) == 2


# ---- directories of the real one


class GoNsqd(NsqdProcess):
    """An nsqd of Go's, of which only the newest ten messages of a queue are in memory."""

    def __init__(self, data_path: Path) -> None:
        flags = [f"--data-path={data_path}", "--mem-queue-size=10", "--max-bytes-per-file=4096"]
        ServerProcess.__init__(
            self, shlex.split(NSQD_GO), flags, data_path.with_name(f"{data_path.name}-go.log")
        )
        self.data_path = data_path


@pytest.fixture
def go_nsqd(go) -> Iterator[NsqdProcess]:
    process = GoNsqd(go.path)
    yield process.start()
    process.destroy()


def fill(nsqd: NsqdProcess) -> None:
    nsqd.create("t", "a", "b")
    nsqd.create("held", "x")
    nsqd.create("lonely")
    nsqd.post("/topic/pause?topic=held")
    nsqd.post("/channel/pause?topic=t&channel=b")
    with nsqd.connect() as client:
        for topic in ("t", "held", "lonely"):
            client.pub(topic, *(f"{topic}{number}".encode() for number in range(200)))
    nsqd.wait_for_channel("t", "a", depth=200)


@needs_go
def test_a_go_nsqd_that_was_stopped(go, go_nsqd, make_nsqd):
    """In flight, deferred and in memory: all is in its files then."""
    fill(go_nsqd)
    with go_nsqd.consumer("t", "a", 20) as client:
        messages = client.messages(20)
        client.fin(*messages[:5])
        client.send(req(messages[5].id, 3_600_000))
        client.round_trip()
        go_nsqd.wait_for_channel("t", "a", deferred_count=1)
        go_nsqd.stop()
    nsqd = make_nsqd()
    assert nsqd.wait_for_channel("t", "b", depth=200)["paused"]
    assert [nsqd.stats(f"&topic={name}")["topics"][0]["depth"] for name in ("held", "lonely")] == [200, 200]
    with nsqd.connect() as client:
        found = received(client, "t", "a", 195)
    assert {m.body for m in found} == {b"t%d" % number for number in range(200)} - set(bodies(messages[:5]))
    again = {m.body: m for m in found if m.attempts > 1}
    assert again.keys() >= set(bodies(messages[5:])) and len(again) <= 30
    for message in messages[5:]:
        assert (again[message.body].id, again[message.body].timestamp_ns) == (
            int(message.id, 16),
            message.timestamp_ns,
        )
    aside_folder(go.path)


@needs_go
def test_a_go_nsqd_that_was_killed(go, go_nsqd, make_nsqd):
    """What was in memory is lost; all else comes, and a second start brings nothing again."""
    fill(go_nsqd)
    on_disk = {name: depth for name, depth in disk_depths(go_nsqd).items() if depth}
    go_nsqd.kill()
    nsqd = make_nsqd()
    assert on_disk.keys() == {"t:a", "t:b", "held", "lonely"} and all(
        depth > 150 for depth in on_disk.values()
    )
    depths = {name: nsqd.channel_stats("t", name)["depth"] for name in ("a", "b")}
    nsqd.restart()
    nsqd.wait_for_channel("t", "b", depth=depths["b"], paused=True)
    assert [nsqd.stats(f"&topic={name}")["topics"][0]["depth"] for name in ("held", "lonely")] == [
        on_disk["held"],
        on_disk["lonely"],
    ]
    with nsqd.connect() as client:
        client.sub("t", "a", 1)  # some come twice, because they were on the way from the topic
        assert len({message.body for message in client.consume(depths["a"])}) == on_disk["t:a"]
    aside_folder(go.path)


def disk_depths(nsqd: NsqdProcess) -> dict[str, int]:
    depths = {}
    for topic in nsqd.stats()["topics"]:
        depths[topic["topic_name"]] = topic["backend_depth"]
        for channel in topic["channels"]:
            depths[f"{topic['topic_name']}:{channel['channel_name']}"] = channel["backend_depth"]
    return depths


@needs_go
def test_back_to_go(go, go_nsqd, make_nsqd):
    """The folder of its files is a data path in which Go's nsqd goes on where it was."""
    fill(go_nsqd)
    go_nsqd.stop()
    make_nsqd().stop()
    again = GoNsqd(aside_folder(go.path))
    again.start()
    with again:
        assert again.wait_for_channel("t", "b", depth=200)["paused"]
        with again.connect() as client:
            assert len(received(client, "t", "a", 200)) == 200
