"""The paths of Go's nsqadmin, over real nsqds and nsqlookupds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.nsqadmin_cluster import address
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import wait_until
from tests.support.web_server import Reply, WebServer

NOBODY = "127.0.0.1:1"

DONE = 200, {"message": ""}
FORBIDDEN = 403, {"message": "FORBIDDEN"}
# The keys of a notification of Go's nsqadmin about a topic, by a user.
GO_NOTICE = ("action", "topic", "timestamp", "user", "remote_ip", "user_agent", "url", "via")


def send(admin: NsqadminProcess, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = admin.http(method, path, None if body is None else data, named)
    assert answer.headers["X-NSQ-Content-Type"] == "nsq; version=1.0"
    return answer.status, answer.json()


# ---- what there is


def test_topics_channels_nodes_and_counters(cluster):
    cluster.create("orders", "archive")
    cluster.publish("orders", 2, 3)
    cluster.lookupd.create_channel("idle", "gone")
    admin = cluster.admin()
    assert admin.get("/api/topics") == {"topics": ["idle", "orders"], "message": ""}
    assert admin.get("/api/topics?inactive=true") == {"topics": {"idle": ["gone"]}, "message": ""}
    orders = admin.get("/api/topics/orders")
    assert (orders["node"], orders["topic_name"], orders["message_count"]) == ("*", "orders", 5)
    assert orders["paused"] is False
    assert {node["node"]: node["message_count"] for node in orders["nodes"]} == dict(
        zip(map(address, cluster.nsqds), (2, 3), strict=True)
    )
    assert [(part["channel_name"], part["depth"]) for part in orders["channels"]] == [("archive", 5)]
    archive = admin.get("/api/topics/orders/archive")
    assert (archive["node"], archive["depth"], archive["clients"]) == ("*", 5, None)
    assert sorted(part["depth"] for part in archive["nodes"]) == [2, 3]
    nodes = admin.get("/api/nodes")["nodes"]
    assert sorted(node["http_port"] for node in nodes) == sorted(nsqd.http_port for nsqd in cluster.nsqds)
    assert all(node["topics"] == [{"topic": "orders", "tombstoned": False}] for node in nodes)
    node = admin.get(f"/api/nodes/{address(cluster.nsqds[1])}")
    assert (node["total_messages"], node["total_clients"]) == (3, 0)
    key = f"orders:archive:{address(cluster.nsqds[0])}"
    assert admin.get("/api/counter")["stats"][key] == {
        "node": address(cluster.nsqds[0]),
        "topic_name": "orders",
        "channel_name": "archive",
        "message_count": 2,
    }


def test_clients_of_a_channel(cluster):
    cluster.create("orders", "archive")
    with cluster.nsqds[0].connect(client_id="<b>me</b>", hostname="here") as client:
        client.sub("orders", "archive")
        (seen,) = cluster.admin().get("/api/topics/orders/archive")["clients"]
    assert (seen["client_id"], seen["hostname"], seen["node"]) == (
        "<b>me</b>",
        "here",
        address(cluster.nsqds[0]),
    )
    assert seen["tls"] is seen["snappy"] is False
    assert seen["connected"] >= 0


def test_without_nsqlookupd(make_nsqd, make_nsqadmin):
    nsqd = make_nsqd()
    nsqd.create("orders", "archive")
    admin = make_nsqadmin(f"--nsqd-http-address={address(nsqd)}", f"--nsqd-http-address={NOBODY}")
    topics = admin.get("/api/topics")
    assert topics["topics"] == ["orders"]
    assert topics["message"].startswith("WARNING: ")
    assert [node["http_port"] for node in admin.get("/api/nodes")["nodes"]] == [nsqd.http_port]
    assert admin.get("/api/topics/orders")["channels"][0]["channel_name"] == "archive"
    assert send(admin, "POST", "/api/topics/orders", {"action": "pause"})[0] == 200
    assert nsqd.stats()["topics"][0]["paused"]
    status, answer = send(admin, "POST", "/api/topics", {"topic": "made", "channel": "c"})
    assert (status, answer["message"][:9]) == (200, "WARNING: ")
    assert nsqd.channel_stats("made", "c") is not None


NOT_A_TOPIC = (
    'failed to query any nsqlookupd: got response 404 Not Found "{\\"message\\":\\"TOPIC_NOT_FOUND\\"}"'
)
REFUSED = [
    ("GET /api/topics/none", None, f"502 UPSTREAM_ERROR: {NOT_A_TOPIC}"),
    ("GET /api/topics/orders/none", None, "404 CHANNEL_NOT_FOUND"),
    (f"GET /api/nodes/{NOBODY}", None, "404 NODE_NOT_FOUND"),
    ("POST /api/topics", b"", "400 EOF"),
    ("POST /api/topics", b'{"more":[' + b"[]," * 30_000 + b"[]]}", "413 BODY_TOO_BIG"),
    ("POST /api/topics", b'{"topic":"bad topic"}', "400 INVALID_TOPIC"),
    ("POST /api/topics", b'{"topic":"\\ud800"}', "400 invalid JSON: half of a surrogate pair"),
    ("POST /api/topics", b'{"topic":"t","channel":"<b>"}', "400 INVALID_CHANNEL"),
    ("POST /api/topics/orders", b'{"action":"burn"}', "400 INVALID_ACTION"),
    (f"DELETE /api/nodes/{NOBODY}", b"{", "400 INVALID_BODY"),
    (f"DELETE /api/nodes/{NOBODY}", b'{"topic":""}', "400 INVALID_TOPIC"),
    ("GET /api/graphite?metric=x", None, "400 INVALID_ARG_METRIC"),
    ("GET /api/graphite?metric=rate", None, "400 INVALID_ARG_TARGET"),
    ("GET /api/graphite?metric=rate&target=x", None, "404 GRAPHITE_URL_REQUIRED"),
    ("GET /config/none", None, "400 INVALID_OPTION"),
    ("PUT /config/log_level", b"", "413 INVALID_VALUE"),
    ("PUT /config/log_level", b"loud", "400 INVALID_VALUE"),
    ("PUT /config/base_path", b"x", "400 INVALID_OPTION"),
    ("PUT /config/nsqlookupd_http_addresses", b"[1]", "400 INVALID_VALUE"),
    ("PUT /api/topics", b"{}", "405 METHOD_NOT_ALLOWED"),
    ("GET /nowhere", None, "404 NOT_FOUND"),
]


def test_what_is_refused(cluster):
    cluster.create("orders", "archive")
    for request, body, refusal in REFUSED:
        answer = cluster.admin().http(*request.split(" "), body)
        assert answer.headers["X-NSQ-Content-Type"] == "nsq; version=1.0"
        assert answer.refusal == refusal, request


# ---- actions


def test_every_action_has_its_effect(cluster):
    cluster.create("orders", "archive")
    cluster.publish("orders", 2, 2)
    admin = cluster.admin()

    def act(method, path, **body):
        assert send(admin, method, path, body or None) == DONE

    def of_both(name):
        """In the statistics of the channel on each nsqd."""
        return [nsqd.channel_stats("orders", "archive")[name] for nsqd in cluster.nsqds]

    def of_topic(name):
        return [nsqd.topic_stats("orders")[name] for nsqd in cluster.nsqds]

    act("POST", "/api/topics/orders/archive", action="pause")
    assert of_both("paused") == [True, True]
    act("POST", "/api/topics/orders/archive", action="unpause")
    assert of_both("paused") == [False, False]
    act("POST", "/api/topics/orders/archive", action="empty")
    assert of_both("depth") == [0, 0]
    act("POST", "/api/topics/orders", action="pause")
    assert of_topic("paused") == [True, True]
    cluster.publish("orders", 1, 1)
    act("POST", "/api/topics/orders", action="empty")
    assert of_topic("depth") == [0, 0]
    act("POST", "/api/topics", topic="orders", channel="new")
    assert all(nsqd.channel_stats("orders", "new") for nsqd in cluster.nsqds)
    act("DELETE", "/api/topics/orders/new")
    assert not any(nsqd.channel_stats("orders", "new") for nsqd in cluster.nsqds)
    act("DELETE", f"/api/nodes/{address(cluster.nsqds[0])}", topic="orders")
    assert [bool(nsqd.topic_stats("orders")) for nsqd in cluster.nsqds] == [False, True]
    act("DELETE", "/api/topics/orders")
    assert cluster.nsqds[1].topic_stats("orders") is None
    assert cluster.lookupd.topics() == []


@pytest.mark.ours
def test_what_is_not_there_is_not_deleted(cluster, make_nsqadmin):
    """Neither where nsqlookupds name the nsqds, nor where the options do; and the page is told so too."""
    cluster.create("orders", "archive")
    of_nsqds = make_nsqadmin(
        "--history-file=", *(f"--nsqd-http-address={address(nsqd)}" for nsqd in cluster.nsqds)
    )
    no_topic = "TOPIC_NOT_FOUND: no nsqd or nsqlookupd has the topic none"
    no_channel = "CHANNEL_NOT_FOUND: no nsqd or nsqlookupd has the channel none of the topic orders"
    for admin in (cluster.admin(), of_nsqds):
        assert send(admin, "DELETE", "/api/topics/none") == (404, {"message": no_topic})
        assert send(admin, "DELETE", "/api/topics/none/archive") == (404, {"message": no_topic})
        assert send(admin, "DELETE", "/api/topics/orders/none") == (404, {"message": no_channel})
        assert admin.act("delete", "none").refusal == f"404 {no_topic}"
        assert admin.act("delete", "orders", channel="none").refusal == f"404 {no_channel}"
    assert [nsqd.channel_stats("orders", "archive") is not None for nsqd in cluster.nsqds] == [True, True]
    # Other actions of the page, too; those of Go's paths answer as Go's nsqadmin.
    assert cluster.admin().act("pause", "none").json() == {"message": no_topic}
    assert send(cluster.admin(), "POST", "/api/topics/none", {"action": "pause"})[0] == 502


@pytest.mark.ours
def test_what_only_some_servers_have_is_deleted(cluster):
    cluster.create("orders", "archive")
    cluster.nsqds[0].create("orders", "single")
    cluster.lookupd.create_channel("idle", "gone")
    wait_until(lambda: "single" in cluster.lookupd.channels("orders"))
    admin = cluster.admin()
    assert send(admin, "DELETE", "/api/topics/orders/single")[0] == 200
    assert cluster.nsqds[0].channel_stats("orders", "single") is None
    assert send(admin, "DELETE", "/api/topics/idle/gone") == DONE
    assert send(admin, "DELETE", "/api/topics/idle/gone")[0] == 404
    assert send(admin, "DELETE", "/api/topics/idle") == DONE
    assert send(admin, "DELETE", "/api/topics/idle")[0] == 404


def test_a_server_that_does_not_answer_may_have_what_is_to_be_deleted(cluster):
    admin = cluster.admin(f"--lookupd-http-address={NOBODY}")
    status, answer = send(admin, "DELETE", "/api/topics/none")
    assert (status, answer["message"].partition(":")[0]) == (502, "UPSTREAM_ERROR")


def test_who_is_away_is_a_warning(cluster):
    cluster.create("orders", "archive")
    admin = cluster.admin(f"--lookupd-http-address={NOBODY}")
    answer = admin.get("/api/topics")
    assert answer["topics"] == ["orders"]
    assert answer["message"].startswith(f"WARNING: GET http://{NOBODY}/topics: ")


def test_notifications(cluster):
    with WebServer() as server:
        admin = cluster.admin(f"--notification-http-endpoint={server.url}reported")
        admin.http(
            "POST",
            "/api/topics",
            b'{"topic":"t","channel":"c"}',
            {"User-Agent": "me", "Authorization": "Basic Ym9iOng="},
        )
        admin.http("DELETE", path := f"/api/nodes/{address(cluster.nsqds[1])}?x=1", b'{"topic":"t"}')
        server.wait_until_asked(3)
    first, second, third = map(json.loads, server.bodies())
    assert first.keys() == {*GO_NOTICE, "user_is_verified", "target", "details", "result", "is_done"}
    assert [each["action"] for each in (first, second, third)] == [
        "create_topic",
        "create_channel",
        "tombstone_topic_producer",
    ]
    assert (second["topic"], second["channel"], second["user"], second["user_agent"]) == (
        "t",
        "c",
        "bob",
        "me",
    )
    assert third["url"].endswith(path)
    assert server.asked[0].headers["content-type"] == "application/json"


@pytest.mark.ours
def test_notifications_have_user_target_and_result(cluster):
    cluster.create("orders", "archive")
    with WebServer() as server:
        flags = (
            f"--notification-http-endpoint={server.url}",
            "--acl-http-header=X-User",
            "--acl-http-header-from=127.0.0.1/32",
        )
        admin = cluster.admin(*flags)
        admin.wait_for_topic("orders", nodes=2)
        as_ada = {"X-User": "ada"}
        assert admin.http("POST", "/api/topics/orders/archive", b'{"action":"pause"}', as_ada).status == 200
        assert admin.http("DELETE", "/api/topics/none", None, as_ada).status == 404
        body = {"action": "requeue_dead_letters", "topic": "orders", "target": "payments", "limit": 5}
        token = admin.get("/api/v2/session", X_User="ada")["token"]
        admin.http(
            "POST", "/api/v2/actions", json.dumps(body).encode(), {**as_ada, "X-Nsqadmin-Token": token}
        )
        # From this machine, but through a proxy.
        assert admin.http("PUT", "/config/log_level", b"info", as_ada).status == 403
        server.wait_until_asked(3)
    paused, deleted, requeued = map(json.loads, server.bodies())
    assert {notice["user"] for notice in (paused, deleted, requeued)} == {"ada"}
    assert all(notice["user_is_verified"] for notice in (paused, deleted, requeued))
    assert [paused[name] for name in ("action", "target", "result")] == [
        "pause_channel",
        "orders/archive",
        "ok",
    ]
    assert (deleted["action"], deleted["target"]) == ("delete_topic", "none")
    assert (paused["is_done"], deleted["is_done"]) == (True, False)
    assert deleted["result"].startswith("TOPIC_NOT_FOUND: ")
    assert (requeued["topic"], requeued["target"]) == ("orders", "payments")
    assert requeued["details"] == {"target": "payments", "limit": "5"}


def test_metrics_have_the_cluster_and_its_problems(cluster):
    cluster.create("orders", "archive")
    cluster.publish("orders", 1, 2)
    admin = cluster.admin()
    admin.wait_for_topic("orders", depth=3)
    # On a busy machine an nsqd is slow at times.
    wait_until(lambda: 'nsqadmin_nodes{state="ok"} 2.0' in admin.http("GET", "/metrics").text.splitlines())
    answer = admin.http("GET", "/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert {"nsqadmin_depth 3.0", "nsqadmin_topics 1.0"} <= set(lines)
    assert 'nsqadmin_problems{kind="no_consumer",severity="error"} 1.0' in lines
    assert 'nsqadmin_problems{kind="damage",severity="error"} 0.0' in lines
    place = 'channel="archive",kind="no_consumer",node="",severity="error",topic="orders"'
    assert f"nsqadmin_problem{{{place}}} 1.0" in lines
    assert any(line.startswith("process_resident_memory_bytes ") for line in lines)


# ---- settings, paths, users


def test_settings_over_http(cluster):
    admin = cluster.admin()
    assert admin.http("GET", "/config/log_prefix").text == "[nsqadmin] "
    assert admin.get("/config/statsd_interval") == 60_000_000_000
    assert admin.get("/config/admin_users") == []
    assert send(admin, "PUT", "/config/log_level", b"debug") == (200, 1)
    addresses = [cluster.lookupd.http_address]
    assert send(admin, "PUT", "/config/nsqlookupd_http_addresses", addresses) == (200, addresses)
    assert send(admin, "PUT", "/config/nsqlookupd_http_addresses", b"null") == (200, []), "a nil list in Go"


def test_settings_are_for_some_addresses_only(cluster):
    admin = cluster.admin("--allow-config-from-cidr=10.0.0.0/8")
    assert send(admin, "GET", "/config/log_level") == FORBIDDEN


def test_settings_are_not_for_the_clients_of_a_proxy_on_this_machine(cluster):
    admin = cluster.admin("--acl-http-header=X-User")
    open_admins = [cluster.admin(f"--allow-config-from-cidr={everybody}") for everybody in ("", "0.0.0.0/0")]
    for header in ("X-Forwarded-For", "Forwarded", "Via", "X-Real-IP", "X-User"):
        passed_on = {header: "127.0.0.1"}
        for method, body in (("GET", None), ("PUT", b"debug")):
            assert admin.http(method, "/config/log_level", body, passed_on).status == 403, header
        assert admin.http("GET", "/api/topics", headers=passed_on).status == 200
        for open_admin in open_admins:
            assert open_admin.http("GET", "/config/log_level", headers=passed_on).status == 200, header


def test_base_path(cluster):
    admin = cluster.admin("--base-path=/a/b")
    assert admin.get("/a/b/api/topics")["message"] == ""
    assert admin.http("GET", "/a/b/ping").text == "OK"
    assert admin.http("GET", "/api/topics").status == 404
    for path in ("/a/b", "/a/b/topics", "/a/b/topics/t/c", "/a/b/nodes/n", "/a/b/counter", "/a/b/lookup"):
        page = admin.http("GET", path)
        assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert 'content="/a/b"' in page.text
    assert send(admin, "GET", "/a/b/API") == (404, {"message": "NOT_FOUND"})


SLASHES = [
    ("GET", "/api/topics/?inactive=true", 301, "/api/topics?inactive=true"),
    ("GET", "/api/topics/t%23ephemeral/", 301, "/api/topics/t%23ephemeral"),
    ("POST", "/api/topics/", 308, "/api/topics"),
    ("DELETE", "/api/topics/t/", 308, "/api/topics/t"),
    ("GET", "/nowhere/", 404, None),
    ("GET", "/", 200, None),
]


def test_a_slash_at_the_end_is_redirected_as_by_go(cluster):
    for base in ("", "/a/b"):
        admin = cluster.admin(f"--base-path={base}")
        for method, path, status, location in SLASHES:
            answer = admin.http(method, f"{base}{path}")
            assert (answer.status, answer.headers["Location"]) == (status, location and base + location), path
    assert cluster.admin().http("GET", "//topics/").headers["Location"] == "/topics", "not another host"


def test_only_admins_act(cluster):
    admin = cluster.admin("--admin-user=bob", "--admin-user=eve", "--acl-http-header=X-User")
    body = {"topic": "t"}
    assert send(admin, "POST", "/api/topics", body) == FORBIDDEN
    assert send(admin, "POST", "/api/topics", body, X_User="mallory") == FORBIDDEN
    assert send(admin, "DELETE", "/api/topics/t") == FORBIDDEN
    assert send(admin, "DELETE", f"/api/nodes/{NOBODY}", b"{") == FORBIDDEN
    assert send(admin, "POST", "/api/topics/t/c", b"{") == FORBIDDEN
    assert send(admin, "POST", "/api/topics", body, X_User="eve") == DONE


# ---- Graphite


def test_graphite(cluster):
    series = [{"target": "a.b", "datapoints": [[25, 0]]}]
    with WebServer(lambda _: Reply(body=json.dumps(series).encode())) as server:
        url = server.url.rstrip("/").replace("://", "://ada:secret@")
        admin = cluster.admin(f"--graphite-url={url}/below", "--proxy-graphite", "--statsd-interval=10s")
        assert admin.get("/api/graphite?metric=rate&target=a.b") == {"rate": "2.50"}
        answer = admin.http(
            "GET", "/render?target=x&format=json", headers={"Authorization": "Basic Ym9iOng="}
        )
        server.reply = lambda _: Reply(520, body=b"down")
        assert admin.http("GET", "/render").status == 502
        server.asked.pop()
    assert (answer.status, answer.json(), answer.headers["Content-Type"]) == (200, series, "application/json")
    targets = [
        "/below/render?format=json&from=-20sec&target=a.b&until=-10sec",
        "/render?target=x&format=json",
    ]
    assert [asked.target for asked in server.asked] == targets
    assert {asked.headers["authorization"] for asked in server.asked} == {"Basic YWRhOnNlY3JldA=="}


NO_DATA = [
    b"", b"[]", b"{}", b"null", b"[{}]", b'[{"datapoints":[]}]', b'[{"datapoints":[[null,0]]}]', b'[{"datapoints":[["x",0]]}]',
    b'[{"datapoints":[[1%b,0]]}]' % (b"0" * 400), b'[{"datapoints":[[1e999,0]]}]', b'[{"datapoints":[[NaN,0]]}]',
]  # fmt: skip


def test_graphite_answers_something_else(cluster):
    replies = iter(NO_DATA)
    with WebServer(lambda _: Reply(body=next(replies))) as server:
        admin = cluster.admin(f"--graphite-url={server.url}")
        for answer in NO_DATA:
            refused = admin.http("GET", "/api/graphite?metric=rate&target=a.b")
            assert refused.refusal.startswith("502 UPSTREAM_ERROR: "), answer
    assert "Traceback" not in admin.log_text()
