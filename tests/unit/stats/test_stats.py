"""The figures of /stats: filters, order, and the two formats."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent
import orjson
import pytest
from gevent.socket import socketpair

from nsqd_py.memory_budget import MemoryBudget
from nsqd_py.queue.in_flight import Delivery
from nsqd_py.queue.latency import LatencyMeter
from nsqd_py.runtime.pacing import Pace
from nsqd_py.stats.collect import Stats, collect, health_text, render_json
from nsqd_py.stats.prometheus import exposition
from nsqd_py.stats.text import render_text
from nsqd_py.version import version_string
from tests.unit.fakes import MS, SECOND, FakeClock, World, make_batch, start_broker

START_S = 1_700_000_000.5


def make_client(hostname: str, **figures: Any) -> Any:
    session = SimpleNamespace(
        client_id="id", hostname=hostname, user_agent="agent/1", state=3, sample_rate=0, topology_zone="z", topology_region="r"
    )
    settings: dict[str, Any] = {
        "session": session,
        "peer": "127.0.0.1:4321",
        "rdy": 7,
        "in_flight": {1: 1},
        "message_count": 5,
        "finish_count": 3,
        "requeue_count": 1,
        "connect_time": START_S,
        "pub_counts": {},
        "uses_deflate": False,
        "uses_snappy": False,
        "authorization": None,
        "tls_info": None,
        **figures,
    }
    return SimpleNamespace(**settings)


def make_channel(name: str, *clients: Any, is_paused: bool = False, **figures: Any) -> Any:
    settings: dict[str, Any] = {
        "counts_by_nearness": [0, 0, 0],
        "latency": None,
        "dead_letter_count": 0,
        "lost_count": 0,
        "finish_count": 0,
        "oldest_ns": 0,
        "distributor": SimpleNamespace(expired_count=0, unreadable_count=0),
        **figures,
    }
    return SimpleNamespace(
        **settings,
        name=name,
        depth=4,
        backend_depth=lambda first_in_memory: first_in_memory,
        in_flight_count=1,
        deferred_count=2,
        message_count=9,
        requeue_count=3,
        timeout_count=6,
        is_paused=is_paused,
        clients=dict.fromkeys(clients_as_keys(clients)),
    )


def clients_as_keys(clients: tuple[Any, ...]) -> list[Any]:
    """SimpleNamespace has no hash; the stats only go through them."""
    return [Hashed(client) for client in clients]


class Hashed:
    def __init__(self, target: Any) -> None:
        self.__dict__.update(vars(target))


def make_topic(name: str, *channels: Any, is_paused: bool = False, **figures: Any) -> Any:
    return SimpleNamespace(
        **{"expired_count": 0, "dead_letters": [], "oldest_ns": 0, **figures},
        name=name,
        depth=1,
        backend_depth=2,
        message_count=10,
        message_bytes=100,
        is_paused=is_paused,
        first_in_memory=8,
        log=None,
        channels={channel.name: channel for channel in channels},
    )


def make_broker(*topics: Any, clients: tuple[Any, ...] = (), problem: str | None = None, left_percent: int = 100) -> Any:
    return SimpleNamespace(
        topics={topic.name: topic for topic in topics},
        clients=dict.fromkeys(clients_as_keys(clients)),
        start_time=START_S,
        health=lambda: problem,
        memory=MemoryBudget(1 << 20),
        space=SimpleNamespace(left_percent=lambda: left_percent),
    )


def names(stats: Stats) -> Any:
    """{topic: [channels]}, in order."""
    assert stats.topics is not None
    return {t["topic_name"]: [c["channel_name"] for c in t["channels"]] for t in stats.topics}


def test_json_has_the_keys_in_the_order_that_go_has() -> None:
    client = make_client("h", pub_counts={"t": 1})
    broker = make_broker(make_topic("t", make_channel("c", client)), clients=(client,))
    stats = collect(broker, "", "", include_clients=True)
    document = orjson.loads(orjson.dumps(render_json(broker, stats, include_memory=True)))
    assert list(document) == ["version", "health", "start_time", "topics", "memory", "producers"]
    topic = document["topics"][0]
    assert " ".join(topic) == (
        "topic_name channels depth backend_depth message_count message_bytes paused e2e_processing_latency"
    )
    assert " ".join(topic["channels"][0]) == (
        "channel_name depth backend_depth in_flight_count deferred_count message_count requeue_count timeout_count "
        "client_count clients paused e2e_processing_latency finish_count"
    )
    assert " ".join(document["producers"][0]) == (
        "client_id hostname version remote_address state ready_count in_flight_count message_count finish_count "
        "requeue_count connect_ts sample_rate deflate snappy user_agent topology_zone topology_region pub_counts tls "
        "tls_cipher_suite tls_version tls_negotiated_protocol tls_negotiated_protocol_is_mutual"
    )
    assert topic["channels"][0]["backend_depth"] == 8
    assert topic["e2e_processing_latency"] == {"count": 0, "percentiles": None}
    assert document["topics"][0]["channels"][0]["clients"] == document["producers"]
    assert document["start_time"] == 1_700_000_000
    assert "memory" not in render_json(broker, Stats([], None), include_memory=False)


def test_what_clients_negotiated_shows() -> None:
    tls = SimpleNamespace(
        version="TLS1.3", cipher="TLS_AES_128_GCM_SHA256", negotiated_protocol="", negotiated_protocol_is_mutual=True
    )
    authorization = SimpleNamespace(identity="me", identity_url="http://me")
    plain = make_client("plain", pub_counts={"t": 1})
    rich = make_client(
        "rich", pub_counts={"t": 1}, uses_snappy=True, uses_deflate=True, tls_info=tls, authorization=authorization
    )
    nameless = make_client("x", pub_counts={"t": 1}, authorization=SimpleNamespace(identity="", identity_url=""))
    producers = collect(make_broker(clients=(plain, rich, nameless)), "", "", include_clients=True).producers
    assert producers is not None
    assert " ".join(producers[1]) == (
        "client_id hostname version remote_address state ready_count in_flight_count message_count finish_count "
        "requeue_count connect_ts sample_rate deflate snappy user_agent authed auth_identity auth_identity_url "
        "topology_zone topology_region pub_counts tls tls_cipher_suite tls_version tls_negotiated_protocol "
        "tls_negotiated_protocol_is_mutual"
    )
    changed = {key: value for key, value in producers[1].items() if producers[0].get(key) != value}
    assert changed == {
        "hostname": "rich",
        "deflate": True,
        "snappy": True,
        "authed": True,
        "auth_identity": "me",
        "auth_identity_url": "http://me",
        "tls": True,
        "tls_cipher_suite": "TLS_AES_128_GCM_SHA256",
        "tls_version": "TLS1.3",
        "tls_negotiated_protocol_is_mutual": True,
    }
    assert {key for key in producers[2] if key.startswith("auth")} == {"authed"}


def test_counts_by_topology_show_where_there_are_any() -> None:
    channel = make_channel("c", counts_by_nearness=[4, 0, 3])
    topics = collect(make_broker(make_topic("t", channel)), "", "", include_clients=False).topics
    assert topics is not None
    assert list(topics[0]["channels"][0])[5:9] == ["message_count", "zone_local_msg_count", "global_msg_count", "requeue_count"]
    assert topics[0]["channels"][0]["zone_local_msg_count"] == 3


def test_what_go_does_not_count_shows_where_there_is_any() -> None:
    died = {"id": "f" * 16, "attempts": 3, "topic": "t", "channel": "c", "timestamp": 1, "died": 2}
    distributor = SimpleNamespace(expired_count=2, unreadable_count=3)
    channel = make_channel("c", dead_letter_count=1, distributor=distributor)
    topics = collect(
        make_broker(make_topic("t", channel, make_channel("plain"), expired_count=4), make_topic("t.dead", dead_letters=[died])),
        "",
        "",
        include_clients=False,
    ).topics
    assert topics is not None
    (first, plain), own = topics[0]["channels"], {"dead_letter_count", "expired_count", "unreadable_count"}
    assert {key: first[key] for key in own} == {"dead_letter_count": 1, "expired_count": 2, "unreadable_count": 3}
    assert not own & plain.keys()
    assert topics[0]["expired_count"] == 4
    assert topics[1]["dead_letters"] == [died]
    assert "expired_count" not in topics[1]
    assert "dead_letters" not in topics[0]


def test_latencies_show_of_a_channel_and_of_all_channels_of_a_topic() -> None:
    clock = FakeClock()
    meters = [LatencyMeter((1.0, 0.5), 100 * SECOND, clock, clock) for _ in range(2)]
    batch = make_batch(0, b"1")
    for meter, latency_ns in zip(meters, (1_500, 20 * MS), strict=True):
        clock.now_ns = batch.timestamp_ns + latency_ns
        meter.finished({Delivery(batch, batch.timestamp_ns, 1, 0, 0): 1})
    topic = make_topic("t", *(make_channel(f"c{i}", latency=meter) for i, meter in enumerate(meters)))
    broker = make_broker(topic, make_topic("none", make_channel("c")))
    stats = collect(broker, "t", "c0", include_clients=False)
    assert stats.topics is not None
    of_topic, of_channel = stats.topics[0], stats.topics[0]["channels"][0]
    assert [entry["quantile"] for entry in of_topic["e2e_processing_latency"]["percentiles"]] == [1.0, 0.5]
    assert (of_topic["e2e_processing_latency"]["count"], of_channel["e2e_processing_latency"]["count"]) == (2, 1)
    assert of_channel["e2e_processing_latency"]["percentiles"][0]["value"] == pytest.approx(1_500, rel=0.02)
    text = render_text(broker, collect(broker, "", "", include_clients=False), include_memory=False)
    assert re.findall(r"e2e%: (.*)", text) == ["", "", "20.0ms, 1.5us", "1.5us, 1.5us", "20.0ms, 20.0ms"]


def test_sockets_are_served_while_many_topics_are_gone_through() -> None:
    """Whoever waits for an echo gets one in every other slice of the work, however slow the machine is."""
    broker = make_broker(*(make_topic(f"t{i:04}", *(make_channel(f"c{j}") for j in range(3))) for i in range(1500)))
    here, there = socketpair()
    echoes = 0

    def echo() -> None:
        while data := there.recv(1):
            there.send(data)

    def ask() -> None:
        nonlocal echoes
        while True:
            here.send(b"x")
            here.recv(1)
            echoes += 1

    greenlets = [gevent.spawn(echo), gevent.spawn(ask)]
    stats = collect(broker, "", "", include_clients=True)
    render_json(broker, stats, include_memory=False)
    gevent.killall(greenlets)
    here.close()
    there.close()
    assert stats.topics is not None
    assert len(stats.topics) == 1500
    assert echoes >= 5


def test_metrics_of_many_topics_come_in_pieces_with_pauses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One answer of 16 MB held the loop for 250 ms."""
    broker = start_broker(World(), tmp_path)
    for number in range(2000):
        broker.get_channel(broker.get_topic(f"t{number}#ephemeral"), "c")
    pauses = 0

    def rest(_: Pace) -> None:
        nonlocal pauses
        pauses += 1

    monkeypatch.setattr(Pace, "rest_if_due", rest)
    pieces = list(exposition(broker))
    assert max(map(len, pieces)) < 200_000
    lines = b"".join(pieces).decode().splitlines()
    of_topics = [line for line in lines if not line.startswith("#") and 'topic="' in line]
    assert pauses >= len(of_topics) > 2000 * 20
    assert 'nsqd_channel_depth{channel="c",topic="t1999#ephemeral"} 0.0' in lines


def test_a_topic_that_goes_while_others_are_looked_at_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = make_broker(make_topic("a", make_channel("c")), make_topic("b"), make_topic("d"))

    def rest(_: Pace) -> None:
        broker.topics.pop("b", None)

    monkeypatch.setattr(Pace, "rest_if_due", rest)
    assert names(collect(broker, "", "", include_clients=False)) == {"a": ["c"], "d": []}


def test_a_scarce_disk_shows_before_the_topics() -> None:
    document = render_json(make_broker(left_percent=19), Stats([], None), include_memory=False)
    assert (list(document)[3:5], document["disk_left_percent"]) == (["disk_left_percent", "topics"], 19)
    assert "disk_left_percent" not in render_json(make_broker(left_percent=20), Stats([], None), include_memory=False)


def test_trouble_with_the_disk_shows() -> None:
    broker = make_broker(problem="No space left on device: \udcff")
    assert health_text(broker) == "NOK - No space left on device: \udcff"
    assert orjson.dumps(render_json(broker, Stats([], None), include_memory=True))
    assert health_text(make_broker()) == "OK"


def test_the_text_form(set_time_zone: Callable[[str], None]) -> None:
    set_time_zone("UTC")
    consumer = make_client("host")
    producer = make_client("prod", pub_counts={"t": 2, "u": 3}, peer="[::1]:99")
    broker = make_broker(
        make_topic("t", make_channel("c", consumer)),
        make_topic("u", make_channel("d", is_paused=True), is_paused=True),
        clients=(producer,),
    )
    stats = collect(broker, "", "", include_clients=True)
    text = render_text(broker, stats, include_memory=False, now_s=START_S + 65.25)
    assert text == (
        f"{version_string('nsqd')}\n"
        "start_time 2023-11-14T22:13:20Z\n"
        "uptime 1m5.25s\n"
        "\n"
        "Health: OK\n"
        "\n"
        "Topics:\n"
        "   [t              ] depth: 1     be-depth: 2     msgs: 10       e2e%: \n"
        "      [c                        ] depth: 4     be-depth: 8     inflt: 1    def: 2    re-q: 3     "
        "timeout: 6     msgs: 9        e2e%: \n"
        "        [V2 host:4321 agent/1    ] state: 3 inflt: 1    rdy: 7    fin: 3        re-q: 1        "
        "msgs: 5        connected: 1m5s\n"
        "\n"
        "*P [u              ] depth: 1     be-depth: 2     msgs: 10       e2e%: \n"
        "   *P [d                        ] depth: 4     be-depth: 8     inflt: 1    def: 2    re-q: 3     "
        "timeout: 6     msgs: 9        e2e%: \n"
        "\n"
        "Producers:\n"
        "   [V2 prod:99 agent/1      ] msgs: 5        topics: t=2,u=3 connected: 1m5s\n"
    )


def test_a_damaged_log_shows() -> None:
    topic = make_topic("t")
    topic.log = SimpleNamespace(damage=SimpleNamespace(bytes_found=0, missing_count=0, removed_files=0))
    broker = make_broker(topic)

    def figures() -> Any:
        topics, _ = collect(broker, "", "", include_clients=False)
        assert topics is not None
        return topics[0]

    assert "damaged_bytes" not in figures()
    topic.log.damage.bytes_found = 77
    assert figures()["damaged_bytes"] == 77
    assert not {"missing_count", "removed_files"} & set(figures())
    topic.log.damage = SimpleNamespace(bytes_found=0, missing_count=5, removed_files=1)
    assert (figures()["missing_count"], figures()["removed_files"]) == (5, 1)
