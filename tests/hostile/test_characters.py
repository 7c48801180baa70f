"""Control characters, characters that change the direction of text, and lone surrogates, from clients and servers."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator

import pytest

from tests.support import browser_hostile as hostile
from tests.support.hostile_table import ADMIN_ROUTES, LOOKUPD_ROUTES, NSQD_ROUTES, identify_nsqd, path_of
from tests.support.nsqd_process import wait_until
from tests.support.sweeps import sampled
from tests.support.tool_process import run_tool
from tests.support.wire import Client

# One worker runs them all: they share their processes.
pytestmark = [pytest.mark.ours, pytest.mark.xdist_group("characters")]

EVIL = "\x1b]0;title\x07\x1b[2J\x00\x7f\x85\x9b31m\u202e\u2066\u2028\r\nlast"
SURROGATE = "a\ud800b"


def harm(text: str) -> list[str]:
    """The characters that are more than text in lines."""
    return sorted(
        {character for character in text if not character.isprintable() and character not in "\n\t"}
    )


# ---- lone surrogates

BODIES = [
    json.dumps(document).encode()
    for document in (
        SURROGATE,
        [SURROGATE],
        {SURROGATE: 1},
        {"topic": SURROGATE},
        {"topic": "t", "channel": SURROGATE},
        {"action": SURROGATE},
        {"action": "pause", SURROGATE: {"x": SURROGATE}},
        *(
            {"action": action, "topic": "t", "channel": "c", word: SURROGATE}
            for action, word in (
                ("create", "topic"),
                ("delete", "channel"),
                ("pause", "channel"),
                ("seek", "to"),
                ("publish", "body"),
                ("tombstone", "node"),
                ("requeue_dead_letters", "target"),
                ("requeue_message", "message"),
                ("discard_message", "message"),
                ("dismiss", "node"),
                ("promote", "node"),
            )
        ),
    )
]
IN_URLS = ["%ed%a0%80", "%ff", "%c3", "%00", "%5cud800", "%f4%90%80%80"]
IN_HEADERS = "\xff\xed\xa0\x80"
SLOW = ("/debug/", "/drain", "/events", "/render", "/graphite")


def test_surrogates_cost_no_500(daemons):
    """In URLs, headers and bodies of all routes."""
    names = (
        "Cookie",
        "User-Agent",
        "X-Forwarded-User",
        "X-Forwarded-Groups",
        "Authorization",
        "If-None-Match",
    )
    headers = dict.fromkeys(names, IN_HEADERS)
    token = {"X-Nsqadmin-Token": daemons[2].token()}
    for daemon, table in zip(daemons, (NSQD_ROUTES, LOOKUPD_ROUTES, ADMIN_ROUTES), strict=True):
        for route, query in table.items():
            method, path = path_of(route)
            if any(part in path for part in SLOW):
                continue
            asked = [(path + query, None, headers)]
            for text in IN_URLS:
                others = query.replace("hostile", text) or f"?topic={text}&node={text}&{text}={text}"
                asked.append((re.sub(r"hostile|log_level|127.0.0.1:1", text, path) + others, None, {}))
            if method != "GET":
                asked += [(path + query, body, token) for body in BODIES]
            for target, body, sent in asked:
                assert daemon.http(method, target, body, sent).status not in (500, 501), (
                    route,
                    target,
                    body,
                    sent,
                )
    for daemon in daemons:
        assert "Traceback" not in daemon.log_text()
        assert harm(daemon.log_text()) == []


# ---- what clients call themselves


@pytest.mark.parametrize("text", [EVIL, SURROGATE])
def test_names_of_clients(daemons, text):
    nsqd, lookupd, admin = daemons
    fields = dict.fromkeys(("client_id", "hostname", "user_agent"), text)
    with nsqd.consumer("t", "c", **fields) as client, Client(lookupd.tcp_port, magic=b"  V1") as peer:
        client.pub("t", b"x")
        peer.send(identify_nsqd(broadcast_address=text, hostname=text, version=text) + b"REGISTER t c\n")
        shown = nsqd.http("GET", "/stats").text
        assert "last" in shown if text is EVIL else "a" in shown
        assert harm(shown) == []
        wait_until(lambda: len(lookupd.http("GET", "/nodes").json()["producers"]) == 2)
        for daemon, path in (
            (nsqd, "/stats?format=json"),
            (nsqd, "/metrics"),
            (lookupd, "/debug"),
            (lookupd, "/lookup?topic=t"),
            (admin, "/api/nodes"),
            (admin, "/api/topics/t"),
            (admin, "/api/v2/nodes"),
            (admin, "/metrics"),
        ):
            answer = daemon.http("GET", path)
            assert answer.status == 200, (path, answer.body)
            assert not set(answer.body) & {0x1B, 0x07, 0x00}, path
    for daemon in daemons:
        assert "Traceback" not in daemon.log_text()
        assert harm(daemon.log_text()) == []


# ---- what servers say to the tools


@pytest.fixture(scope="module")
def hostile_lookupd() -> Iterator[str]:
    with hostile.nsqd() as nsqd, hostile.nsqlookupd(nsqd) as lookupd:
        yield f"127.0.0.1:{lookupd.port}"


FORMS = [("go", ()), *itertools.product(("table", "csv", "json"), ((), ("--per-node",), ("--standbys",)))]


@pytest.mark.parametrize(("form", "flags"), sampled(FORMS, *FORMS[::3]))
def test_nsq_stat(hostile_lookupd, form, flags):
    lookupd = f"--lookupd-http-address={hostile_lookupd}"
    done = run_tool("nsq_apps", "nsq_stat", "--once", f"--format={form}", *flags, lookupd)
    assert harm(done.stdout) == []
    assert harm(done.stderr) == []
    assert flags or "before" in done.stdout
