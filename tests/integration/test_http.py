"""The HTTP API: its answers and its errors. Publishing, and odd requests on the socket, are in tests/wire/test_http_wire.py."""

from __future__ import annotations

import itertools
import json
import os
import re
import time

import pytest

from nsqd_py.version import NSQ_VERSION, PROJECT_VERSION
from tests.support.module_servers import module_nsqd
from tests.support.nsqd_process import NsqdProcess

# Each test uses topics of its own, and none may harm it.
nsqd = module_nsqd()


@pytest.fixture
def topic(nsqd, topic) -> str:
    """A topic that only this test uses, with one channel `c`."""
    nsqd.create(topic, "c")
    return topic


# --- information


def test_info(nsqd):
    answer = nsqd.http("GET", "/info")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert answer.headers["X-NSQ-Content-Type"] == "nsq; version=1.0"
    info = answer.json()
    assert {key: type(value) for key, value in info.items()} == {
        "version": str,
        "project_version": str,
        "broadcast_address": str,
        "hostname": str,
        "http_port": int,
        "tcp_port": int,
        "start_time": int,
        "max_heartbeat_interval": int,
        "max_output_buffer_size": int,
        "max_output_buffer_timeout": int,
        "max_deflate_level": int,
        **{key: str for key in ("topology_zone", "topology_region") if key in info},
    }
    assert (info["tcp_port"], info["http_port"]) == (nsqd.tcp_port, nsqd.http_port)
    assert info["broadcast_address"] == "127.0.0.1"
    assert (info["version"], info["project_version"]) == (NSQ_VERSION, PROJECT_VERSION)
    # Durations are in ns.
    assert info["max_heartbeat_interval"] == 60_000_000_000
    assert info["max_output_buffer_timeout"] == 30_000_000_000
    assert abs(info["start_time"] - time.time()) < 600


# What Go's nsqd does not say of a channel.
OURS = ("global_msg_count", "finish_count", "oldest_timestamp")


def test_stats_as_json(nsqd, topic):
    with nsqd.consumer(topic, "c", 1, client_id="id", hostname="host", user_agent="test/1") as client:
        client.pub(topic, b"12345", b"678")
        client.message()
        nsqd.wait_for_channel(topic, "c", depth=1, in_flight_count=1)
        stats = nsqd.stats(f"&topic={topic}")
    kinds = {
        "version": str,
        "health": str,
        "start_time": int,
        "topics": list,
        "memory": dict,
        "producers": list,
    }
    assert {key: type(stats[key]) for key in kinds} == kinds
    assert stats["health"] == "OK"
    assert (stats["version"], stats["project_version"]) == (NSQ_VERSION, PROJECT_VERSION)
    (of_topic,) = stats["topics"]
    latency = {"count": 0, "percentiles": None}
    (of_channel,) = of_topic.pop("channels")
    assert of_topic == {
        "topic_name": topic,
        "depth": 0,
        "backend_depth": of_topic["backend_depth"],
        "message_count": 2,
        "message_bytes": 8,
        "paused": False,
        "e2e_processing_latency": latency,
        "log_bytes": of_topic["log_bytes"],
    }
    assert of_topic["log_bytes"] > 60  # a record has a header of that size
    (consumer,) = of_channel.pop("clients")
    assert of_channel == {
        "channel_name": "c",
        "depth": 1,
        "backend_depth": of_channel["backend_depth"],
        "in_flight_count": 1,
        "deferred_count": 0,
        "message_count": 2,
        "requeue_count": 0,
        "timeout_count": 0,
        "client_count": 1,
        "paused": False,
        "e2e_processing_latency": latency,
        **{key: value for key, value in of_channel.items() if key in OURS},
    }
    expected = {
        "client_id": "id",
        "hostname": "host",
        "version": "V2",
        "state": 3,
        "ready_count": 1,
        "in_flight_count": 1,
        "message_count": 1,
        "finish_count": 0,
        "requeue_count": 0,
        "sample_rate": 0,
        "deflate": False,
        "snappy": False,
        "user_agent": "test/1",
        "pub_counts": [{"topic": topic, "count": 2}],
        "tls": False,
        "tls_cipher_suite": "",
        "tls_version": "",
        "tls_negotiated_protocol": "",
        "tls_negotiated_protocol_is_mutual": False,
    }
    assert {key: consumer[key] for key in expected} == expected
    assert re.fullmatch(r"127\.0\.0\.1:\d+", consumer["remote_address"])
    assert abs(consumer["connect_ts"] - time.time()) < 60
    assert [producer["client_id"] for producer in stats["producers"] if producer["client_id"] == "id"] == [
        "id"
    ]


def test_stats_filters(nsqd, topic):
    nsqd.create(topic, "d")
    with nsqd.connect() as client:
        client.sub(topic, "d")

        def channels(query):
            return [[c["channel_name"] for c in t["channels"]] for t in nsqd.stats(query)["topics"] or ()]

        assert channels(f"&topic={topic}") == [["c", "d"]]
        assert channels(f"&topic={topic}&channel=d") == [["d"]]
        assert channels(f"&topic={topic}&channel=none") == []
        assert channels("&topic=none") == []
        assert "memory" not in nsqd.stats("&include_mem=false")
        (of_topic,) = nsqd.stats(f"&topic={topic}&channel=d&include_clients=false")["topics"]
        assert of_topic["channels"][0]["client_count"] == 1
        assert not of_topic["channels"][0]["clients"]


def test_stats_as_text(nsqd, topic):
    nsqd.post(f"/pub?topic={topic}", b"1")
    nsqd.post(f"/channel/pause?topic={topic}&channel=c")
    nsqd.wait_for_channel(topic, "c", depth=1, paused=True)
    answer = nsqd.http("GET", f"/stats?topic={topic}")
    assert answer.status == 200
    lines = answer.text.splitlines()
    assert re.fullmatch(r"nsqd v\S+ \(built w/.+\)", lines[0])
    assert re.fullmatch(r"start_time \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)", lines[1])
    assert re.fullmatch(r"uptime (\d+h)?(\d+m)?\d+(\.\d+)?[mµ]?s", lines[2])
    assert lines[3:6] == ["", "Health: OK", ""]
    assert re.search(r"^   heap_objects             \t\d+$", answer.text, re.MULTILINE)
    assert re.search(
        rf"^   \[{topic:15}\] depth: 0     be-depth: 0     msgs: 1        e2e%: $", answer.text, re.MULTILINE
    )
    assert re.search(
        r"^   \*P \[c {24}\] depth: 1     be-depth: 0     inflt: 0    def: 0    re-q: 0     timeout: 0     "
        r"msgs: 1        e2e%: $",
        answer.text,
        re.MULTILINE,
    )
    assert answer.text.endswith("\nProducers: None\n") or "\nProducers:\n" in answer.text


# --- topics and channels


def test_topic_and_channel_live_and_die(nsqd):
    for path in ("/topic/create?topic=life", "/channel/create?topic=life&channel=c"):
        for _ in range(2):
            answer = nsqd.post(path)
            assert (answer.body, answer.headers["Content-Length"]) == (b"", "0")
    assert nsqd.channel_stats("life", "c") is not None
    for path, paused in (("pause", True), ("pause", True), ("unpause", False)):
        nsqd.post(f"/topic/{path}?topic=life")
        nsqd.post(f"/channel/{path}?topic=life&channel=c")
        nsqd.wait_for_channel("life", "c", paused=paused)
        assert nsqd.topic_stats("life")["paused"] is paused
    nsqd.post("/channel/empty?topic=life&channel=c")
    nsqd.post("/topic/empty?topic=life")
    nsqd.post("/channel/delete?topic=life&channel=c")
    assert nsqd.channel_stats("life", "c") is None
    nsqd.post("/topic/delete?topic=life")
    assert nsqd.topic_stats("life") is None


def test_config_of_a_data_path_that_is_not_utf_8(tmp_path):
    data_path = tmp_path / os.fsdecode(b"data-\xff")
    data_path.mkdir()
    nsqd = NsqdProcess(data_path)
    try:
        nsqd.start()
        assert "data-\\udcff" in nsqd.http("GET", "/config").json()["data_path"]
        assert "data-\\udcff" in nsqd.http("GET", "/config/data_path").text
        assert "Traceback" not in nsqd.log_text()
    finally:
        nsqd.destroy()


def test_config(nsqd):
    assert nsqd.http("GET", "/config/nsqlookupd_tcp_addresses").json() == []
    assert nsqd.http("PUT", "/config/log_level", b"debug").status == 200
    assert nsqd.http("PUT", "/config/log_level", b"info").status == 200
    for method, path, body, refusal in (
        ("GET", "/config/nothing", None, "400 INVALID_OPTION"),
        ("PUT", "/config/nothing", b"1", "400 INVALID_OPTION"),
        ("PUT", "/config/log_level", b"loud", "400 INVALID_VALUE"),
        ("PUT", "/config/log_level", b"", "413 INVALID_VALUE"),
        ("PUT", "/config/nsqlookupd_tcp_addresses", b"not json", "400 INVALID_VALUE"),
    ):
        assert nsqd.http(method, path, body).refusal == refusal, (method, path)
    assert nsqd.http("PUT", "/config/nsqlookupd_tcp_addresses", b"null").status == 200, "a nil list in Go"
    assert not nsqd.http("GET", "/config/nsqlookupd_tcp_addresses").json()


@pytest.mark.ours
def test_config_takes_so_many_nsqlookupds_and_no_more(nsqd):
    addresses = [f"127.0.0.1:{port}" for port in range(1, 102)]
    assert (
        nsqd.http("PUT", "/config/nsqlookupd_tcp_addresses", json.dumps(addresses).encode()).refusal
        == "400 INVALID_VALUE"
    )
    assert nsqd.http("GET", "/config/nsqlookupd_tcp_addresses").json() == []


# --- errors


LONG_NAME = "n" * 65
# A star stands for each of the actions.
ACTIONS = ("create", "delete", "empty", "pause", "unpause")
REFUSALS = {
    "400 INVALID_ARG_CHANNEL": [
        "POST /channel/*?topic=t&channel=!",
        f"POST /channel/*?topic=t&channel={LONG_NAME}",
    ],
    "400 INVALID_ARG_TOPIC": ["POST /channel/*?topic=!"],
    "400 INVALID_REQUEST": [
        "GET /stats?format=%",
        "POST /channel/*?topic=%&channel=c",
        "POST /topic/create?topic=%",
        "POST /topic/pause?topic=%zz",
        "POST /topic/unpause?topic=%zz",
    ],
    "400 INVALID_TOPIC": ["POST /topic/create?topic=!", "POST /topic/empty?topic=!"],
    "400 MISSING_ARG_CHANNEL": ["POST /channel/*?topic=t"],
    "400 MISSING_ARG_TOPIC": ["POST /topic/*", "POST /channel/*", "POST /channel/*?channel=c"],
    "404 CHANNEL_NOT_FOUND": [
        "POST /channel/delete?topic=exists&channel=nobody",
        "POST /channel/empty?topic=exists&channel=nobody",
        "POST /channel/pause?topic=exists&channel=nobody",
        "POST /channel/unpause?topic=exists&channel=nobody",
    ],
    "404 NOT_FOUND": ["GET /", "POST /nothing", "POST /pub/more", "POST /topic"],
    "404 TOPIC_NOT_FOUND": [
        "POST /channel/*?topic=nobody&channel=c",
        "POST /topic/delete?topic=!",
        "POST /topic/delete?topic=nobody",
        "POST /topic/empty?topic=nobody",
        "POST /topic/pause?topic=!",
        "POST /topic/pause?topic=nobody",
        "POST /topic/unpause?topic=!",
        "POST /topic/unpause?topic=nobody",
    ],
    "405 METHOD_NOT_ALLOWED": ["DELETE /stats", "GET /topic/create?topic=t", "POST /ping", "PUT /pub"],
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_refusal(nsqd, refusal):
    nsqd.create("exists")
    for request in {
        asked.replace("*", action) for asked, action in itertools.product(REFUSALS[refusal], ACTIONS)
    }:
        method, path = request.split(" ")
        answer = nsqd.http(method, path, b"")
        assert answer.refusal == refusal, path
        assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
        assert answer.headers["X-NSQ-Content-Type"] == "nsq; version=1.0"
