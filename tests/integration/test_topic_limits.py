"""--max-topics and --max-channels-per-topic: what is one too many is refused, in whatever way it was to be made."""

from __future__ import annotations

import socket

import pytest

from tests.support import wire
from tests.support.nsqd_process import HTTPAnswer, MakeNsqd, NsqdProcess
from tests.support.wire import ERROR, OK, Frame

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


# --- --max-new-topics-per-second

AT_ONCE = 100  # with one a second


def use_up(nsqd: NsqdProcess) -> None:
    """Create topics until a client has to wait."""
    with nsqd.connect() as client:
        client.send(*(wire.pub(f"first{number}", b"x") for number in range(AT_ONCE)))
        assert [client.next_frame() for _ in range(AT_ONCE)] == [OK] * AT_ONCE
        for number in range(AT_ONCE):
            client.pub(f"next{number}", b"x")
            if "it waits for" in nsqd.log_text():
                return
    raise AssertionError("no client waited")


def test_a_client_that_creates_many_topics_waits_and_others_do_not(make_nsqd: MakeNsqd) -> None:
    nsqd = make_nsqd("--max-new-topics-per-second=1")
    use_up(nsqd)
    waiting = [nsqd.connect() for _ in range(5)]
    mpub = wire.mpub("b", [b"x"])
    subs = wire.sub("first0", "new"), wire.sub("d", "new")
    commands = (wire.pub("a", b"x"), mpub[:-1], wire.dpub("c", 1, b"x"), *subs)
    behind = (wire.pub("first0", b"x"), mpub[-1:], wire.pub("first0", b"x"), b"RDY 1\n", b"RDY 1\n")
    for client, command, next_command in zip(waiting, commands, behind, strict=True):
        client.send(command, next_command)
    with nsqd.connect() as neighbour:
        neighbour.pub("first0", b"x")  # at once: this creates nothing
    with socket.create_connection(("127.0.0.1", nsqd.tcp_port), 40, ("127.0.0.2", 0)) as stranger:
        stranger.sendall(wire.MAGIC + wire.pub("another", b"x"))
        assert stranger.recv(100).endswith(b"OK")  # at once: another address
    assert nsqd.topic_stats("d") is None
    assert nsqd.http("POST", "/topic/create?topic=e").status == 200
    assert nsqd.http("POST", "/pub?topic=f", b"x").status == 200
    assert nsqd.http("POST", "/channel/create?topic=f&channel=g").status == 200
    for client in waiting:
        assert client.next_frame() == OK
        client.close()
    topics = {topic["topic_name"] for topic in nsqd.stats()["topics"]}
    assert topics >= {"a", "b", "c", "d", "e", "f", "another"}
    assert nsqd.channel_stats("first0", "new") is not None


def test_a_client_that_would_have_to_wait_for_long_is_refused(make_nsqd: MakeNsqd) -> None:
    nsqd = make_nsqd("--max-new-topics-per-second=1")
    use_up(nsqd)
    clients = []
    for number in range(AT_ONCE):
        clients.append(nsqd.connect())
        clients[-1].send(wire.pub(f"more{number}", b"x"))
        if "E_PUB_FAILED" in nsqd.log_text():
            break
    reason = "new topics and channels exceed limit of 1 a second (--max-new-topics-per-second)"
    assert clients[-1].rest()[-1] == Frame(ERROR, f"E_PUB_FAILED PUB failed {reason}".encode())
    answer = nsqd.http("POST", "/topic/create?topic=refused")
    assert answer.status == 200 or refusal(answer) == (429, "TOO_MANY_NEW_TOPICS")
    for client in clients:
        client.close()
