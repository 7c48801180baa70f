"""Permissions on topics, on every path of nsqadmin: a user without "view" sees no name, and no sum that reveals one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from nsqadmin_py.daemon import Nsqadmin
from nsqadmin_py.options import NSQADMIN
from nsqd_py.runtime.logs.daemon_log import Log
from tests.support.nsqadmin_cluster import address
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import HTTPAnswer, wait_until

SEEN, HIDDEN = 3, 7919
# What must not be in an answer: names, the depth of the hidden topic, and sums with it.
SECRETS = re.compile(rf"secret|hidden|\b(?:{HIDDEN}|{HIDDEN + SEEN})(?:\.0)?\b")
RULES = ("view orders.* group:shop", "publish orders.eu ada", "administer orders.eu bob", "administer * root")
FLAGS = (
    "--acl-http-header-from=127.0.0.0/8",
    "--admin-user=boss",
    "--proxy-graphite",
    "--graphite-url=http://127.0.0.1:1",
)
QUERIES = {
    "/api/graphite": "metric=rate&target=stats.secret",
    "/render": "target=stats.secret",
    "/api/v2/history": "range=10m",
}
# These have no metrics of topics, or no one but an administrator gets them.
REFUSED = {"/metrics", "/api/graphite", "/render", "/config/log_level"}


@pytest.fixture(scope="module")
def admin(admin_cluster) -> Iterator[NsqadminProcess]:
    """An nsqadmin with permissions, over a visible and a hidden topic on both nsqds."""
    admin_cluster.create("orders.eu", "archive")
    admin_cluster.create("secret", "hidden")
    admin_cluster.create("secret.dead")
    admin_cluster.lookupd.create_channel("secret.idle", "hidden")
    first = admin_cluster.nsqds[0]
    first.post("/mpub?topic=secret", b"\n".join([b"x"] * HIDDEN))
    first.post("/mpub?topic=orders.eu", b"\n".join([b"x"] * SEEN))
    admin = admin_cluster.admin(*FLAGS, *(f"--topic-permission={rule}" for rule in RULES))
    wait_until(
        lambda: get(admin, "/api/v2/overview", BOSS).json()["depth"] == HIDDEN + SEEN,
        what="all messages at nsqadmin",
    )
    yield admin
    admin_cluster.clear()


def as_user(user: str, group: str = "") -> dict[str, str]:
    headers = {"X-Forwarded-User": user}
    return headers | {"X-Forwarded-Groups": group} if group else headers


EVE, ADA, BOB = as_user("eve", "shop"), as_user("ada"), as_user("bob", "x")
ROOT, BOSS = as_user("root"), as_user("boss")


def paths(**names: str) -> list[str]:
    """All paths with GET of an nsqadmin, with these names in them."""
    options = NSQADMIN.defaults(
        lookupd_http_address=("127.0.0.1:1",),
        http_address="127.0.0.1:0",
        history_file="",
        proxy_graphite=True,
        graphite_url="http://127.0.0.1:1",
    )
    found = [
        route.removeprefix("GET ") for route in Nsqadmin(options, Log()).routes if route.startswith("GET ")
    ]
    return [re.sub(r"<(?:path:)?(\w+)>", lambda match: names[match[1]], path) for path in found]


def get(admin: NsqadminProcess, path: str, user: dict[str, str]) -> HTTPAnswer:
    return admin.http("GET", path, headers=user)


def test_no_path_tells_of_a_hidden_topic(admin, admin_cluster):
    names = {
        "channel": "archive",
        "node": address(admin_cluster.nsqds[0]),
        "opt": "log_level",
        "message": "0" * 16,
        "name": "app.js",
        "seq": "0",
    }
    looked = []
    for path in paths(topic="orders.eu", **names):
        if path in ("/api/v2/events", "/static/app.js"):
            continue
        url = f"{path}?{QUERIES[path]}" if path in QUERIES else path
        answer = get(admin, url, EVE)
        if path in REFUSED:
            assert answer.refusal == "403 FORBIDDEN", path
        else:
            assert not SECRETS.search(re.sub(r"127\.0\.0\.1:\d+", "", answer.text)), (path, answer.text)
        looked.append(answer.status)
    assert looked.count(200) > 20
    for path in paths(topic="secret", **(names | {"channel": "hidden"})):
        if path.startswith("/api/") and "/secret" in path:
            answer, missing = get(admin, path, EVE), get(admin, path.replace("secret", "nowhere"), EVE)
            assert (answer.status, answer.body) == (missing.status, missing.body), path
            assert answer.status == 404


def test_sums_are_those_of_visible_topics(admin, admin_cluster):
    node = address(admin_cluster.nsqds[0])
    for user, depth, topics in ((EVE, SEEN, 1), (BOSS, SEEN + HIDDEN, 3), (ROOT, SEEN + HIDDEN, 3)):
        overview = get(admin, "/api/v2/overview", user).json()
        assert (overview["depth"], overview["topics"]) == (depth, topics)
        assert get(admin, f"/api/v2/nodes/{node}", user).json()["depth"] == depth
        assert get(admin, "/api/v2/topics", user).json()["total"] == topics
        assert get(admin, f"/api/nodes/{node}", user).json()["total_messages"] == depth
        assert len(get(admin, "/api/topics", user).json()["topics"]) == topics + (topics > 1)  # one is idle
    assert get(admin, "/api/v2/topics/secret", BOSS).json()["depth"] == HIDDEN
    assert get(admin, "/api/v2/overview", as_user("nobody")).json()["depth"] == 0


def test_histories_of_sums_are_not_known(admin, admin_cluster):
    def known(query, user):
        document = get(admin, f"/api/v2/history?metric=depth&range=10m&{query}", user).json()
        return [value for value in document["data"][1] if value is not None]

    node = f"node={address(admin_cluster.nsqds[0])}"
    wait_until(lambda: known("topic=orders.eu", EVE), what="a history")
    for query in ("", "topic=secret", "topic=secret&channel=hidden", node):
        assert known(query, BOSS)
        assert not known(query, EVE)


def test_small_lines_are_those_of_visible_topics(admin):
    for view in ("topics", "channels"):
        boss, eve = (get(admin, f"/api/v2/sparklines?view={view}", user).text for user in (BOSS, EVE))
        assert SECRETS.search(boss)
        assert not SECRETS.search(eve), (view, eve)
    of_secret = "/api/v2/sparklines?view=topic&topic=secret"
    assert get(admin, of_secret, BOSS).json()["lines"]
    assert not get(admin, of_secret, EVE).json()["lines"]


def test_events_are_those_of_visible_topics(admin):
    for view in ("overview", "attention", "topics", "channels", "nodes", "topic&topic=secret"):
        with admin.events(f"view={view}", headers=EVE) as events:
            first = json.dumps(next(events))
        assert not SECRETS.search(re.sub(r"127\.0\.0\.1:\d+", "", first)), (view, first)
    with admin.events("view=topic&topic=secret", headers=EVE) as events:
        assert next(events)["event"] == "gone"


def act(admin: NsqadminProcess, user: dict[str, str], action: str, topic: str, **more: Any) -> int:
    token = get(admin, "/api/v2/session", user).json()["token"]
    body = json.dumps({"action": action, "topic": topic, **more}).encode()
    return admin.http("POST", "/api/v2/actions", body, {**user, "X-Nsqadmin-Token": token}).status


def test_actions_need_a_permission_on_their_topic(admin, admin_cluster):
    publish, pause = {"body": "x"}, {"channel": "archive"}
    for user, may_publish, may_administer in (
        (EVE, 403, 403),
        (ADA, 200, 403),
        (BOB, 200, 200),
        (ROOT, 200, 200),
    ):
        assert act(admin, user, "publish", "orders.eu", **publish) == may_publish
        assert act(admin, user, "pause", "orders.eu", **pause) == may_administer
        assert act(admin, user, "unpause", "orders.eu", **pause) == may_administer
        go_paths = {
            "/api/topics/orders.eu/archive": b'{"action":"unpause"}',
            "/api/topics": b'{"topic":"orders.eu"}',
        }
        for path, body in go_paths.items():
            assert admin.http("POST", path, body, user).status == may_administer
    node = address(admin_cluster.nsqds[0])
    for user in (EVE, ADA, BOB):
        for action in ("publish", "pause", "delete", "empty", "create", "seek", "tombstone"):
            assert act(admin, user, action, "secret", body="x", node=node) == 403
        assert act(admin, user, "requeue_dead_letters", "orders.eu", target="secret") == 403
        for action in ("dismiss", "promote"):
            for topic in ("", "orders.eu"):  # what concerns all is nobody's because of a topic
                assert act(admin, user, action, topic, node=node) == 403
        assert admin.http("POST", "/api/topics", b'{"topic":"secret"}', user).status == 403
        assert admin.http("DELETE", f"/api/nodes/{node}", b'{"topic":"secret"}', user).status == 403
        for method, path in (("POST", "/api/topics/secret"), ("DELETE", "/api/topics/secret/hidden")):
            assert admin.http(method, path, b'{"action":"pause"}', user).status == 404
    assert get(admin, "/api/v2/topics/secret", BOSS).json()["depth"] == HIDDEN


def test_the_page_is_told_what_its_user_may_do(admin):
    found = {
        user["X-Forwarded-User"]: get(admin, "/api/v2/session", user).json() for user in (EVE, BOB, BOSS)
    }
    assert found["eve"]["permissions"] == [["view", "orders.*"]]
    assert found["bob"]["permissions"] == [["administer", "orders.eu"]]
    assert found["boss"]["permissions"] is None
    assert [session["may_act"] for session in found.values()] == [False, True, True]
