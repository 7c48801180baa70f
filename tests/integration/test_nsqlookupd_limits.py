"""nsqlookupd takes a bounded number of registrations, and an nsqd that has more goes on with those that fit."""

from __future__ import annotations

import http.client
import json
import socket

import pytest

from tests.support.lookup_wire import LookupClient
from tests.support.nsqd_process import wait_until
from tests.support.nsqlookupd_process import NsqlookupdProcess

pytestmark = pytest.mark.ours

FAILED = b"E_REGISTER_FAILED REGISTER failed "
OF_NSQD = FAILED + b"registrations of this nsqd exceed limit of 3 (--max-registrations-per-nsqd)"
IN_ALL = FAILED + b"registrations exceed limit of 5 (--max-registrations)"
NAMES = FAILED + b"topics and channels exceed limit of 4 (--max-topics-and-channels)"


def known(lookupd: NsqlookupdProcess) -> LookupClient:
    client = LookupClient(lookupd.tcp_port)
    client.introduce()
    return client


def test_one_nsqd_registers_no_more_than_its_share(make_nsqlookupd):
    lookupd = make_nsqlookupd("--max-registrations-per-nsqd=3", "--max-registrations=5")
    with known(lookupd) as first, known(lookupd) as second:
        first.register("a x")
        assert first.ask("REGISTER b y") == OF_NSQD
        first.register("b", "a x")  # it has that
        second.register("a x")
        assert second.ask("REGISTER a z") == IN_ALL
        assert first.ask("UNREGISTER b") == b"OK"
        second.register("a z")
        assert first.ask("PING") == b"OK"
    assert lookupd.channels("a") == ["x", "z"]
    log = lookupd.log_path.read_text()
    assert OF_NSQD.decode() in log and IN_ALL.decode() in log


def test_names_that_no_nsqd_has_give_way(make_nsqlookupd):
    """The longest unused first; a client of the HTTP API makes nothing give way."""
    lookupd = make_nsqlookupd("--max-topics-and-channels=4")
    lookupd.create_channel("a", "x")
    with known(lookupd) as client:
        client.register("b y")
        assert lookupd.http("POST", "/topic/create?topic=c").refusal == "403 TOO_MANY_TOPICS_AND_CHANNELS"
        lookupd.create_channel("a", "x")  # it is there
        client.register("c")
        assert lookupd.topics() == ["a", "b", "c"]
        assert lookupd.channels("a") == []
        client.register("c z")
        assert lookupd.topics() == ["b", "c"]
        assert client.ask("REGISTER c v") == NAMES
        lookupd.delete_topic("b")
        client.register("c v")


def test_an_nsqd_with_too_many_topics_stays_registered(make_nsqlookupd, make_nsqd):
    """Also Go's, which looks at no answer: a closed connection would make it register everything again and again."""
    lookupd = make_nsqlookupd("--max-registrations-per-nsqd=5")
    nsqd = make_nsqd(f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}")
    for number in range(9):
        nsqd.create(f"t{number}")
    wait_until(lambda: "exceed limit of 5" in lookupd.log_path.read_text(), what="a refusal")
    wait_until(lambda: len(lookupd.topics()) == 5, what="the topics that fit")
    nsqd.post(f"/topic/delete?topic={lookupd.topics()[0]}")
    nsqd.create("new")
    wait_until(lambda: "new" in lookupd.topics(), what="room after a topic is deleted")
    assert [node["http_port"] for node in lookupd.nodes()] == [nsqd.http_port]
    assert lookupd.log_path.read_text().count("TCP: new client") == 1


@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_a_long_answer_comes_in_pieces(make_nsqlookupd, version):
    """Whole, and the connection goes on; an old client sees its end by the end of the connection."""
    lookupd = make_nsqlookupd()
    names = [f"{number:064}" for number in range(20_000)]
    with known(lookupd) as client:
        client.send(b"".join(f"REGISTER big {name}\n".encode() for name in names))
        for _ in names:
            assert client.read() == b"OK"
        with socket.create_connection(("127.0.0.1", lookupd.http_port), timeout=40) as sock:
            for path in ("/channels?topic=big", "/lookup?topic=big", "/ping"):
                sock.sendall(
                    f"GET {path} HTTP/{version}\r\nHost: x\r\nConnection: keep-alive\r\n\r\n".encode()
                )
                answer = http.client.HTTPResponse(sock)
                answer.begin()
                body = answer.read()
                if path == "/ping":
                    assert body == b"OK"
                    return
                assert json.loads(body)["channels"] == names
                assert answer.will_close == (version == "1.0")
                if answer.will_close:
                    return
