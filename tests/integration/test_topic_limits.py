"""--max-topics and --max-channels-per-topic: what is one too many is refused, in whatever way it was to be made."""

from __future__ import annotations

import socket

import pytest

from tests.support import wire
from tests.support.nsqd_process import NsqdProcess
from tests.support.wire import ERROR, OK, Frame

pytestmark = pytest.mark.ours


def ask(nsqd: NsqdProcess, command: bytes) -> Frame:
    with nsqd.connect() as client:
        return client.ask(command)


def test_no_more_topics_than_max_topics(make_nsqd):
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
        assert nsqd.http("POST", path, b"x").refusal == "403 TOO_MANY_TOPICS"
    nsqd.pub("a", b"x")
    assert nsqd.is_healthy()
    nsqd.post("/topic/delete?topic=b")
    nsqd.pub("d", b"x")
    assert {topic["topic_name"] for topic in nsqd.stats()["topics"]} == {"a", "c#ephemeral", "d"}


def test_no_more_channels_than_max_channels_per_topic(make_nsqd):
    nsqd = make_nsqd("--max-channels-per-topic=2")
    nsqd.create("t", "a")
    nsqd.create("other", "a", "b")
    with nsqd.consumer("t", "b#ephemeral"):
        for name in ("c", "c#ephemeral"):
            error = b"E_SUB_FAILED SUB failed channels of t exceed limit of 2"
            assert ask(nsqd, wire.sub("t", name)) == Frame(ERROR, error)
        answer = nsqd.http("POST", "/channel/create?topic=t&channel=c")
        assert answer.refusal == "403 TOO_MANY_CHANNELS"
        assert not list(nsqd.data_path.glob("t:c*"))
        with nsqd.connect() as client:
            client.sub("t", "a")
    nsqd.wait_for_channel("t", "a", client_count=0)
    nsqd.create("t", "c")
    assert nsqd.is_healthy()


# --- --max-new-topics-per-second

AT_ONCE = 100  # with one a second


def test_clients_of_one_address_that_create_many_topics_are_refused_and_others_are_not(make_nsqd):
    nsqd = make_nsqd("--max-new-topics-per-second=1")
    with nsqd.connect() as client:
        for number in range(2 * AT_ONCE):
            client.send(wire.pub(f"new{number}", b"x"))
            frame = client.next_frame()
            if frame != OK:
                break
    assert number >= AT_ONCE
    limit = "new topics and channels exceed limit of 1 a second (--max-new-topics-per-second)"
    assert frame == Frame(ERROR, f"E_PUB_FAILED PUB failed {limit}".encode())
    with nsqd.connect() as neighbour:
        neighbour.pub("new0", b"x")  # this creates nothing
    with socket.create_connection(("127.0.0.1", nsqd.tcp_port), 40, ("127.0.0.2", 0)) as stranger:
        stranger.sendall(wire.MAGIC + wire.pub("another", b"x"))
        assert stranger.recv(100).endswith(b"OK")
    refused = [
        lambda number: nsqd.http("POST", f"/topic/create?topic=t{number}"),
        lambda number: nsqd.http("POST", f"/pub?topic=p{number}", b"x"),
        lambda number: nsqd.http("POST", f"/channel/create?topic=new0&channel=c{number}"),
    ]
    for request in refused:  # one a second is accepted
        answer = next(answer for number in range(AT_ONCE) if (answer := request(number)).status != 200)
        assert answer.refusal == "429 TOO_MANY_NEW_TOPICS"
