"""--max-topics and --max-channels-per-topic: what is one too many is refused, in whatever way it was to be made."""

from __future__ import annotations

import pytest

from tests.support import wire
from tests.support.nsqd_process import HTTPAnswer, MakeNsqd, NsqdProcess
from tests.support.wire import ERROR, Frame

pytestmark = pytest.mark.ours


def ask(nsqd: NsqdProcess, command: bytes) -> Frame:
    with nsqd.connect() as client:
        return client.ask(command)


def refusal(answer: HTTPAnswer) -> tuple[int, str]:
    return answer.status, answer.json()["message"]


def test_no_more_topics_than_max_topics(make_nsqd: MakeNsqd) -> None:
    nsqd = make_nsqd("--max-topics=3")
    nsqd.create("a")
    with nsqd.connect() as client:
        client.pub("b", b"x")
        client.mpub("c#ephemeral", [b"x"])
    reason = b"failed topics exceed limit of 3"
    for verb, command in (
        (b"PUB", wire.pub("d", b"x")),
        (b"MPUB", wire.mpub("d", [b"x"])),
        (b"DPUB", wire.dpub("d", 1, b"x")),
        (b"SUB", wire.sub("d", "c")),
        (b"PUB", wire.pub("d#ephemeral", b"x")),
    ):
        assert ask(nsqd, command) == Frame(ERROR, b"E_%s_FAILED %s %s" % (verb, verb, reason))
    for path in ("/topic/create?topic=d", "/pub?topic=d", "/mpub?topic=d"):
        assert refusal(nsqd.http("POST", path, b"x")) == (403, "TOO_MANY_TOPICS")
    with nsqd.connect() as client:
        client.pub("a", b"x")
    assert nsqd.is_healthy()
    nsqd.post("/topic/delete?topic=b")
    with nsqd.connect() as client:
        client.pub("d", b"x")
    assert {topic["topic_name"] for topic in nsqd.stats()["topics"]} == {"a", "c#ephemeral", "d"}


def test_no_more_channels_than_max_channels_per_topic(make_nsqd: MakeNsqd) -> None:
    nsqd = make_nsqd("--max-channels-per-topic=2")
    nsqd.create("t", "a")
    nsqd.create("other", "a", "b")
    with nsqd.connect() as consumer:
        consumer.sub("t", "b#ephemeral")
        for name in ("c", "c#ephemeral"):
            error = b"E_SUB_FAILED SUB failed channels of t exceed limit of 2"
            assert ask(nsqd, wire.sub("t", name)) == Frame(ERROR, error)
        answer = nsqd.http("POST", "/channel/create?topic=t&channel=c")
        assert refusal(answer) == (403, "TOO_MANY_CHANNELS")
        assert not list(nsqd.data_path.glob("t:c*"))
        with nsqd.connect() as client:
            client.sub("t", "a")
    nsqd.wait_for_channel("t", "a", client_count=0)
    nsqd.create("t", "c")
    assert nsqd.is_healthy()


def test_what_is_on_disk_is_loaded_whatever_the_limits(make_nsqd: MakeNsqd) -> None:
    nsqd = make_nsqd()
    for name in ("a", "b", "c"):
        nsqd.create(name, "one", "two")
    nsqd.stop()
    again = NsqdProcess(nsqd.data_path, "--max-topics=1", "--max-channels-per-topic=1").start()
    try:
        found = {topic["topic_name"]: len(topic["channels"]) for topic in again.stats()["topics"]}
        assert found == {"a": 2, "b": 2, "c": 2}
        again.post("/topic/delete?topic=c")
        assert refusal(again.http("POST", "/topic/create?topic=c")) == (403, "TOO_MANY_TOPICS")
    finally:
        again.destroy()
