"""nsqlookupd's HTTP API: answers, errors with their order, what tombstones and time do to them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.support.lookup_wire import LookupClient
from tests.support.module_servers import module_nsqlookupd
from tests.support.nsqd_process import wait_until
from tests.support.nsqlookupd_process import NsqlookupdProcess

NUMBERS = itertools.count()
NEVER = -6795364578871345152


nsqlookupd = module_nsqlookupd()


@pytest.fixture
def topic() -> str:
    return f"topic{next(NUMBERS)}"


@pytest.fixture
def producer(nsqlookupd) -> Iterator[LookupClient]:
    with LookupClient(nsqlookupd.tcp_port) as client:
        client.introduce(broadcast_address="one", tcp_port=4150, http_port=4151)
        yield client


def tombstone(nsqlookupd: NsqlookupdProcess, topic: str, node: str) -> None:
    nsqlookupd.post(f"/topic/tombstone?topic={topic}&node={node}")


REFUSALS = [
    ("GET", "/lookup", 400, "MISSING_ARG_TOPIC"),
    ("GET", "/lookup?topic=nobody-has-it", 404, "TOPIC_NOT_FOUND"),
    ("GET", "/lookup?topic=%zz", 400, "INVALID_REQUEST"),
    ("GET", "/channels", 400, "MISSING_ARG_TOPIC"),
    ("GET", "/channels?topic=%zz", 400, "INVALID_REQUEST"),
    ("POST", "/topic/create", 400, "MISSING_ARG_TOPIC"),
    ("POST", "/topic/create?topic=a$b", 400, "INVALID_ARG_TOPIC"),
    ("POST", "/topic/create?topic=%zz", 400, "INVALID_REQUEST"),
    ("POST", "/topic/delete", 400, "MISSING_ARG_TOPIC"),
    ("POST", "/topic/tombstone", 400, "MISSING_ARG_TOPIC"),
    ("POST", "/topic/tombstone?node=a:1", 400, "MISSING_ARG_TOPIC"),
    ("POST", "/topic/tombstone?topic=t", 400, "MISSING_ARG_NODE"),
    ("POST", "/channel/create?channel=c", 400, "MISSING_ARG_TOPIC"),
    ("POST", "/channel/create?topic=a$b", 400, "INVALID_ARG_TOPIC"),
    ("POST", "/channel/create?topic=t", 400, "MISSING_ARG_CHANNEL"),
    ("POST", "/channel/create?topic=t&channel=a$b", 400, "INVALID_ARG_CHANNEL"),
    ("POST", "/channel/delete?topic=t", 400, "MISSING_ARG_CHANNEL"),
    ("POST", "/channel/delete?topic=t&channel=nobody-has-it", 404, "CHANNEL_NOT_FOUND"),
    ("GET", "/nothing-here", 404, "NOT_FOUND"),
    ("GET", "/", 404, "NOT_FOUND"),
    ("POST", "/lookup?topic=t", 405, "METHOD_NOT_ALLOWED"),
    ("GET", "/topic/create?topic=t", 405, "METHOD_NOT_ALLOWED"),
]


@pytest.mark.parametrize(("method", "path", "status", "message"), REFUSALS)
def test_what_cannot_be_done_is_refused(nsqlookupd, method, path, status, message):
    answer = nsqlookupd.http(method, path)
    assert (answer.status, answer.json()) == (status, {"message": message})
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"


@pytest.mark.parametrize("path", ["/topic/create", "/channel/create", "/topic/tombstone", "/topic/delete"])
def test_an_action_answers_with_nothing(nsqlookupd, topic, path):
    answer = nsqlookupd.http("POST", f"{path}?topic={topic}&channel=c&node=n:1")
    assert (answer.status, answer.body, answer.headers["X-NSQ-Content-Type"]) == (
        200,
        b"",
        "nsq; version=1.0",
    )


def test_ping_and_info(nsqlookupd):
    assert nsqlookupd.http("GET", "/ping").body == b"OK"
    assert set(nsqlookupd.http("GET", "/info").json()) == {"version"}


def test_lookup_names_channels_and_producers(nsqlookupd, producer, topic):
    producer.register(topic, f"{topic} b", f"{topic} a")
    answer = nsqlookupd.http("GET", f"/lookup?topic={topic}").json()
    assert sorted(answer["channels"]) == ["a", "b"]
    (found,) = answer["producers"]
    topology = {"topology_zone": "", "topology_region": ""}  # older ones do not name it
    assert topology | found == topology | {
        "remote_address": producer.address,
        "hostname": "host",
        "broadcast_address": "one",
        "tcp_port": 4150,
        "http_port": 4151,
        "version": "1.3.0",
    }


def test_a_lookup_keeps_up_with_every_change(nsqlookupd, producer, topic):
    """The next answer has it."""

    def look():
        answer = nsqlookupd.http("GET", f"/lookup?topic={topic}").json()
        return sorted(answer["channels"]), len(answer["producers"])

    producer.register(topic)
    assert look() == ([], 1)
    producer.register(f"{topic} a")
    assert look() == (["a"], 1)
    nsqlookupd.create_channel(topic, "b")
    assert look() == (["a", "b"], 1)
    with LookupClient(nsqlookupd.tcp_port) as other:
        other.introduce(broadcast_address="other")
        other.register(f"{topic} c")
        assert look() == (["a", "b", "c"], 2)
        other.ask(f"UNREGISTER {topic}")
        assert look() == (["a", "b", "c"], 1)
    nsqlookupd.post(f"/channel/delete?topic={topic}&channel=c")
    assert look() == (["a", "b"], 1)
    tombstone(nsqlookupd, topic, "one:4151")
    assert look() == (["a", "b"], 0)
    producer.ask(f"UNREGISTER {topic}")
    producer.register(topic)
    assert look() == (["a", "b"], 1)


def test_nodes_tell_topics_and_tombstones(nsqlookupd, producer, topic):
    def node():
        (found,) = [node for node in nsqlookupd.nodes() if node["remote_address"] == producer.address]
        return found

    assert (node()["topics"], node()["tombstones"]) == ([], [])
    producer.register(f"{topic} c", f"{topic}more")
    assert sorted(node()["topics"]) == [topic, f"{topic}more"]
    assert node()["tombstones"] == [False, False]
    tombstone(nsqlookupd, f"{topic}more", "one:4151")
    now = node()
    assert dict(zip(now["topics"], now["tombstones"], strict=True)) == {topic: False, f"{topic}more": True}
    nsqlookupd.delete_topic(f"{topic}more")
    assert (node()["topics"], node()["tombstones"]) == ([topic], [False])


def test_a_tombstone_ends_by_itself(make_nsqlookupd):
    nsqlookupd = make_nsqlookupd("--tombstone-lifetime=500ms")
    with LookupClient(nsqlookupd.tcp_port) as producer:
        producer.introduce(broadcast_address="one", http_port=4151)
        producer.register("hidden")
        tombstone(nsqlookupd, "hidden", "one:4151")
        assert nsqlookupd.lookup("hidden") == []
        wait_until(lambda: len(nsqlookupd.lookup("hidden")) == 1, 40, "the tombstone to end")
        assert nsqlookupd.nodes()[0]["tombstones"] == [False]


def test_a_silent_producer_is_not_named_until_it_speaks(make_nsqlookupd):
    nsqlookupd = make_nsqlookupd("--inactive-producer-timeout=500ms")
    with LookupClient(nsqlookupd.tcp_port) as producer:
        producer.introduce()
        producer.register("quiet c")
        assert len(nsqlookupd.lookup("quiet")) == 1
        wait_until(lambda: nsqlookupd.lookup("quiet") == [], 40, "it to be forgotten")
        assert nsqlookupd.nodes() == []
        assert nsqlookupd.topics() == ["quiet"]
        assert producer.ask("PING") == b"OK"
        assert len(nsqlookupd.lookup("quiet")) == 1
        assert len(nsqlookupd.nodes()) == 1


def test_debug_shows_everything(nsqlookupd, producer, topic):
    producer.register(f"{topic} c", f"{topic}u")
    nsqlookupd.create_channel(topic, "nobody")
    tombstone(nsqlookupd, f"{topic}u", "one:4151")
    shown = nsqlookupd.http("GET", "/debug").json()
    assert {name for name in shown if topic in name} == {
        f"topic:{topic}:",
        f"topic:{topic}u:",
        f"channel:{topic}:c",
    }
    assert "client::" in shown
    (entry,) = shown[f"topic:{topic}:"]
    assert entry["id"] == producer.address
    assert entry["last_update"] > 1_700_000_000 * 10**9
    assert (entry["tombstoned"], entry["tombstoned_at"]) == (False, NEVER)
    (entry,) = shown[f"topic:{topic}u:"]
    assert entry["tombstoned"]
    assert entry["tombstoned_at"] >= entry["last_update"]


@pytest.mark.ours
def test_what_is_ephemeral_goes_with_its_last_producer_also_when_that_dies(nsqlookupd, topic):
    """Go's nsqlookupd keeps it for ever unless the producer unregisters it."""
    with LookupClient(nsqlookupd.tcp_port) as producer:
        producer.introduce()
        producer.register(f"{topic}#ephemeral c", f"{topic} d#ephemeral")
        assert nsqlookupd.channels(topic) == ["d#ephemeral"]
    wait_until(lambda: nsqlookupd.channels(topic) == [], what="the channel to go")
    assert f"{topic}#ephemeral" not in nsqlookupd.topics()
    assert topic in nsqlookupd.topics()
