"""Ours next to Go's nsqadmin over the same cluster: both answer the same. NSQADMIN_GO is the path of Go's."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.nsqadmin_cluster import AdminCluster, address
from tests.support.nsqadmin_process import NsqadminProcess

GO = os.environ.get("NSQADMIN_GO", "")
pytestmark = pytest.mark.skipif(not GO, reason="NSQADMIN_GO=path of Go's nsqadmin runs this")

# On purpose or by time, and which of Go's answers it is in; see docs/compatibility.md.
NOT_COMPARED = {"connected", "delivery_msg_count"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[AdminCluster]:
    flags = ("--e2e-processing-latency-percentile=0.99,0.5", "--e2e-processing-latency-window-time=60s")
    with AdminCluster(tmp_path_factory.mktemp("cluster"), *flags) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def both(cluster) -> tuple[NsqadminProcess, NsqadminProcess]:
    """Ours and Go's, over one topic on both nsqds, one on a single nsqd, and one on none."""
    cluster.create("everywhere", "archive")
    cluster.publish("everywhere", 2, 3)
    cluster.nsqds[0].create("here", "one", "two#ephemeral")
    cluster.nsqds[0].post("/pub?topic=here", b"hello")
    cluster.nsqds[0].post("/channel/pause?topic=here&channel=one")
    cluster.lookupd.create_channel("nowhere", "c")
    return cluster.admin(), cluster.admin(command=[GO])


def ask(admin: NsqadminProcess, request: str, body: bytes | None) -> tuple[int, Any]:
    answer = admin.http(*request.split(" "), body)
    try:
        return answer.status, comparable(answer.json())
    except ValueError:
        return answer.status, answer.text


def comparable(document: Any) -> Any:
    """Without what is not compared, and in an order that does not depend on who answers first."""
    if isinstance(document, dict):
        return {key: comparable(value) for key, value in document.items() if key not in NOT_COMPARED}
    if isinstance(document, list):
        return sorted(map(comparable, document), key=lambda item: json.dumps(item, sort_keys=True))
    return document


def requests(cluster: AdminCluster) -> list[tuple[str, bytes | None]]:
    first = address(cluster.nsqds[0])
    gets = [
        "GET /api/topics",
        "GET /api/topics?inactive=true",
        "GET /api/topics?inactive=x",
        "GET /api/topics/here",
        "GET /api/topics/none",
        "GET /api/topics/nowhere",
        "GET /api/topics/here/one",
        "GET /api/topics/here/two%23ephemeral",
        "GET /api/topics/everywhere/archive",
        "GET /api/nodes",
        f"GET /api/nodes/{first}",
        "GET /api/nodes/none",
        "GET /api/counter",
        "GET /api/graphite",
        "GET /api/graphite?metric=rate",
        "GET /ping",
        "GET /none",
        "GET /render",
        "GET /static/none",
        "GET /config/none",
        "GET /config/verbose",
        "GET /config/log_level",
        "GET /config/log_prefix",
        "GET /config/statsd_interval",
        "GET /config/graphite_url",
    ]
    others = [
        ("PUT /config/log_level", b""),
        ("PUT /config/log_level", b"x"),
        ("PUT /config/log_level", b"info"),
        ("PUT /config/base_path", b"x"),
        ("PUT /config/nsqlookupd_http_addresses", b"5"),
        ("POST /api/topics", b""),
        ("POST /api/topics", b"{}"),
        ("POST /api/topics", b"null"),
        ("POST /api/topics", b'{"topic":"made","channel":"c c"}'),
        ("POST /api/topics", b'{"topic":"made"}'),
        ("POST /api/topics/here", b'{"action":"x"}'),
        ("POST /api/topics/here", b"{}"),
        ("POST /api/topics/here", b'{"ACTION":"pause"}'),
        ("POST /api/topics/here", b'{"action":"unpause"} x'),
        ("POST /api/topics/none", b'{"action":"pause"}'),
        ("POST /api/topics/none/c", b'{"action":"empty"}'),
        ("POST /api/topics/nowhere", b'{"action":"pause"}'),
        (f"DELETE /api/nodes/{first}", b""),
        (f"DELETE /api/nodes/{first}", b'{"topic":""}'),
        ("PUT /api/topics", b""),
        ("DELETE /api/topics", None),
        ("POST /ping", b""),
        ("HEAD /api/topics", None),
    ]
    return [*((request, None) for request in gets), *others]


def test_both_answer_the_same(cluster, both):
    ours, gos = both
    different = {}
    for request, body in requests(cluster):
        one, other = ask(ours, request, body), ask(gos, request, body)
        if one != other:
            different[request, body] = one, other
    assert different == {}


def test_sums_of_a_topic_are_the_same(both):
    """Go's puts sums into the first nsqd's channels, and leaves that one out of the channel's nsqds."""
    ours, gos = (ask(admin, "GET /api/topics/everywhere", None)[1] for admin in both)
    for document in (ours, gos):
        document["nodes"] = sorted(node["node"] for node in document["nodes"])
        for channel in document["channels"]:
            del channel["nodes"], channel["e2e_processing_latency"]
    assert ours == gos


def test_notices_of_the_same_action_have_the_keys_of_go(cluster):
    from tests.support.web_server import WebServer

    with WebServer() as server:
        flag = f"--notification-http-endpoint={server.url}"
        for admin in (cluster.admin(flag), cluster.admin(flag, command=[GO])):
            admin.http("POST", "/api/topics", b'{"topic":"reported","channel":"c"}', {"User-Agent": "me"})
        server.wait_until_asked(4)
    notices = sorted(
        (json.loads(body) for body in server.bodies()), key=lambda notice: (notice["action"], -len(notice))
    )
    for ours, gos in ((notices[0], notices[1]), (notices[2], notices[3])):
        assert ours.keys() > gos.keys()
        for key in gos.keys() - {"timestamp", "remote_ip", "url"}:
            assert ours[key] == gos[key]
