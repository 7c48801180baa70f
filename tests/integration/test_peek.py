"""GET /channel/peek: the messages of a channel, as they lie there. POST /channel/finish: one of them goes."""

from __future__ import annotations

from base64 import b64decode
from time import time_ns
from typing import Any

import pytest

from tests.support.module_servers import module_nsqd
from tests.support.nsqd_process import NsqdProcess
from tests.support.wire import rdy, req

pytestmark = pytest.mark.ours


# Each test uses a topic of its own. Nothing stays in memory, and files are small.
nsqd = module_nsqd("--mem-queue-size=0", "--max-bytes-per-file=4096")


def peek(nsqd: NsqdProcess, topic: str, query: str = "") -> dict[str, Any]:
    answer = nsqd.http("GET", f"/channel/peek?topic={topic}&channel=c{query}")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    return answer.json()


def texts(found: dict[str, Any]) -> list[str]:
    return [message["body"] for message in found["messages"]]


def test_it_shows_what_comes_next_and_changes_nothing(nsqd):
    nsqd.create("plain", "c")
    nsqd.mpub("plain", [b"%03d" % i for i in range(25)])
    before = nsqd.channel_stats("plain", "c")
    found = peek(nsqd, "plain")
    assert {key: value for key, value in found.items() if key != "messages"} == {
        "topic": "plain",
        "channel": "c",
        "depth": 25,
        "in_flight_count": 0,
        "deferred_count": 0,
    }
    assert texts(found) == [f"{i:03}" for i in range(10)]
    assert texts(peek(nsqd, "plain", "&n=1000")) == [f"{i:03}" for i in range(25)]
    assert nsqd.channel_stats("plain", "c") == before
    with nsqd.consumer("plain", "c", 10) as client:
        messages = client.messages(10)
        assert [(m.id.decode(), m.timestamp_ns, m.body.decode()) for m in messages] == [
            (row["id"], row["timestamp"], row["body"]) for row in found["messages"]
        ]
        assert {row["attempts"] for row in found["messages"]} == {0}
        assert texts(peek(nsqd, "plain", "&n=1")) == ["010"]


def test_what_is_queued_again_comes_behind_what_waits(nsqd):
    nsqd.create("again", "c")
    with nsqd.connect() as client:
        for i in range(40):  # a batch each, over several files
            client.pub("again", b"%03d" % i + b"x" * 300)
        client.sub("again", "c", 20)
        messages = client.messages(20)
        client.send(rdy(0), *(req(messages[i].id, 0) for i in (17, 3)))
        client.fin(*messages[5:10])
        nsqd.wait_for_channel("again", "c", depth=22, in_flight_count=13)
        rows = [(row["body"][:3], row["attempts"]) for row in peek(nsqd, "again", "&n=22")["messages"]]
        assert rows == [*((f"{i:03d}", 0) for i in range(20, 40)), ("017", 1), ("003", 1)]
        client.send(rdy(35))
        assert [message.body[:3].decode() for message in client.messages(22)] == [body for body, _ in rows]


def test_bodies_that_are_no_text_are_base64(nsqd):
    nsqd.create("binary", "c")
    bodies = [b"\xff\x00\xfe", 'Grüße\n"\x01'.encode(), b"\xed\xa0\x80"]
    nsqd.mpub("binary", bodies)
    rows = peek(nsqd, "binary")["messages"]
    assert [
        row["body"].encode() if "body" in row else b64decode(row["body_base64"]) for row in rows
    ] == bodies
    assert ["body_base64" in row for row in rows] == [True, False, True]


REFUSED = {
    "channel=c": "400 MISSING_ARG_TOPIC",
    "topic=plain": "400 MISSING_ARG_CHANNEL",
    "topic=nothing&channel=c": "404 TOPIC_NOT_FOUND",
    "topic=errors&channel=nothing": "404 CHANNEL_NOT_FOUND",
    "topic=errors&channel=c&n=0": "400 INVALID_ARG_N",
    "topic=errors&channel=c&n=1001": "400 INVALID_ARG_N",
    "topic=errors&channel=c&n=many": "400 INVALID_ARG_N",
    "topic=errors&channel=c&state=finished": "400 INVALID_ARG_STATE",
}


def test_errors(nsqd):
    nsqd.create("errors", "c")
    assert {query: nsqd.http("GET", f"/channel/peek?{query}").refusal for query in REFUSED} == REFUSED


def test_damage_is_counted_and_the_rest_is_shown(nsqd):
    nsqd.create("damaged", "c")
    with nsqd.connect() as client:
        for i in range(3):
            client.pub("damaged", b"%03d" % i + b"x" * 3_000)  # a file each
    path = sorted(nsqd.data_path.glob("damaged.*.log"))[1]
    with path.open("r+b") as file:
        file.seek(1_000)
        file.write(b"????")
    found = peek(nsqd, "damaged")
    assert [text[:3] for text in texts(found)] == ["000", "002"]
    assert (found["unreadable_count"], found["depth"]) == (1, 3)


# ---- messages that are not queued


def test_messages_in_flight_have_their_client_and_deadline(nsqd):
    nsqd.create("flying", "c")
    with nsqd.consumer("flying", "c", 4, msg_timeout=60_000) as client:
        client.mpub("flying", [b"%03d" % i for i in range(10)])
        messages = client.messages(4)
        rows = peek(nsqd, "flying", "&state=in_flight&n=3")["messages"]
        assert [(row["id"], row["body"], row["seq"], row["attempts"]) for row in rows] == [
            (message.id.decode(), message.body.decode(), seq, 1) for seq, message in enumerate(messages[:3])
        ]
        (reader,) = nsqd.channel_stats("flying", "c")["clients"]
        assert {row["client"] for row in rows} == {reader["remote_address"]}
        assert {row["deadline"] - row["delivered"] for row in rows} == {60_000_000_000}
        assert abs(rows[0]["delivered"] - time_ns()) < 60e9
        assert nsqd.channel_stats("flying", "c")["in_flight_count"] == 4


def test_deferred_messages_come_by_due_time(nsqd):
    nsqd.create("waiting", "c")
    with nsqd.connect() as client:
        for minutes in (30, 10, 20):
            client.dpub("waiting", minutes * 60_000, b"%d" % minutes)
    answer = peek(nsqd, "waiting", "&state=deferred&n=2")
    assert texts(answer) == ["10", "20"]
    due_s = [(row["due"] - row["timestamp"]) / 1e9 for row in answer["messages"]]
    assert due_s == pytest.approx([600, 1200], abs=1)


# ---- finishing one message


def test_one_message_is_finished_and_the_others_stay(nsqd):
    nsqd.create("one", "c")
    with nsqd.consumer("one", "c", 2) as client:
        client.mpub("one", [b"%d" % i for i in range(6)])
        first, second = client.messages(2)
        client.send(rdy(0), req(second.id, 0), req(first.id, 0))
        nsqd.wait_for_channel("one", "c", depth=6)
        rows = {row["body"]: row for row in peek(nsqd, "one")["messages"]}
        for body in ("1", "4"):
            path = "/channel/finish?topic=one&channel=c&seq={seq}&id={id}".format_map(rows[body])
            assert nsqd.post(path).body == b""
            assert nsqd.http("POST", path).refusal == "404 MESSAGE_NOT_QUEUED"
        assert texts(peek(nsqd, "one")) == ["2", "3", "5", "0"]
        client.send(rdy(4))
        assert [message.body for message in client.messages(4)] == [b"2", b"3", b"5", b"0"]
    nsqd.restart()
    nsqd.wait_for_channel("one", "c", depth=4)
