"""Hostile inputs for every HTTP route and TCP command of nsqd, nsqlookupd and nsqadmin.

A new route or command needs a row here: `tests/hostile/test_table.py` fails without it.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.support.wire import auth, dpub, identify, mpub_body, pub, rdy, req, sized, sub, touch
from tests.support.wire import fin as fin_of

_ID = b"0123456789abcdef"
_MB = 1024 * 1024
_NESTED = b'{"client_id":' + b"[" * _MB + b"]" * _MB + b"}"


def _emoji() -> bytes:
    return b"IDENTIFY\n" + sized(
        json.dumps({"client_id": "\U0001f600" + "x" * (5 * _MB)}, ensure_ascii=False).encode()
    )


def _newlines() -> bytes:
    return identify(
        client_id="x\n[nsqd] FATAL: " * 2000, hostname="\r\n" * 20_000, user_agent="\x1b[2J" * 10_000
    )


# The name of an input of a TCP command, and what makes it.
Input = tuple[str, Callable[[], bytes]]

NSQD_COMMANDS: dict[str, list[Input]] = {
    "IDENTIFY": [
        ("nested lists", lambda: b"IDENTIFY\n" + sized(_NESTED)),
        ("one emoji", _emoji),
        ("newlines", _newlines),
        ("a negative size", lambda: b"IDENTIFY\n\xff\xff\xff\xff"),
    ],
    "AUTH": [("a secret of 1 MB", lambda: auth(bytes(_MB))), ("many", lambda: auth(b"x") * 5000)],
    "SUB": [
        ("long names", lambda: b"SUB " + b"t" * _MB + b" c\n"),
        ("subscribed again", lambda: sub("hostile", "c#ephemeral") * 10_000),
    ],
    "RDY": [
        ("many", lambda: sub("hostile", "c#ephemeral") + rdy(1) * 100_000),
        ("too long a number", lambda: sub("hostile", "c#ephemeral") + b"RDY " + b"9" * 100_000 + b"\n"),
    ],
    "FIN": [("unknown ids", lambda: sub("hostile", "c#ephemeral") + fin_of(_ID) * 10_000)],
    "REQ": [("unknown ids", lambda: sub("hostile", "c#ephemeral") + req(_ID, 1) * 10_000)],
    "TOUCH": [("unknown ids", lambda: sub("hostile", "c#ephemeral") + touch(_ID) * 10_000)],
    "CLS": [("many", lambda: sub("hostile", "c#ephemeral") + b"CLS\n" * 100_000)],
    "NOP": [("2 MB", lambda: b"NOP\n" * 500_000)],
    "PUB": [
        ("many small ones", lambda: pub("hostile", b"x") * 20_000),
        ("to other topics in turn", lambda: (pub("hostile", b"x") + pub("hostile2", b"x")) * 5_000),
        ("a huge size", lambda: b"PUB hostile\n\x7f\xff\xff\xff" + bytes(_MB)),
        ("newlines in its topic", lambda: b"PUB \x1b[2J\r" + b"\x00" * 10_000 + b"\n"),
    ],
    "MPUB": [
        ("messages of one byte", lambda: b"MPUB hostile\n" + sized(mpub_body([b"x"] * 100_000))),
        ("a huge count", lambda: b"MPUB hostile\n" + sized(b"\x7f\xff\xff\xff" + bytes(_MB))),
    ],
    "MEMBER": [
        ("nested lists", lambda: b"MEMBER\n" + sized(_NESTED)),
        ("many", lambda: b"MEMBER\n" + sized(b"{}") * 5000),
    ],
    "STANDBY": [
        ("nested lists", lambda: b"STANDBY\n" + sized(_NESTED)),
        ("a negative size", lambda: b"STANDBY\n\xff\xff\xff\xff"),
    ],
    "ACK": [
        ("of no standby", lambda: b"ACK 1\n" * 10_000),
        ("too long a number", lambda: b"ACK " + b"9" * 100_000 + b"\n"),
    ],
    "DPUB": [("many", lambda: dpub("hostile", 3_600_000, b"x") * 5_000)],
    "": [
        ("a line without an end", lambda: b"x" * 5 * _MB),
        ("empty lines", lambda: b"\n" * 5 * _MB),
        ("spaces", lambda: b" " * _MB + b"\n"),
    ],
}

LOOKUPD_COMMANDS: dict[str, list[Input]] = {
    "IDENTIFY": [
        ("nested lists", lambda: b"IDENTIFY\n" + sized(b"[" * (_MB - 1))),
        ("a long text", lambda: identify_nsqd(hostname="\U0001f600" * 80_000)),
        (
            "newlines",
            lambda: identify_nsqd(hostname="x\n[nsqlookupd] FATAL: " * 2000, version="\x1b[2J" * 1000),
        ),
    ],
    "PING": [("many", lambda: identify_nsqd() + b"PING\n" * 100_000)],
    "REGISTER": [
        ("200 topics", lambda: register(200)),
        ("9000 topics", lambda: register(9000)),
        ("more than one nsqd may have", lambda: register(60_000)),
        ("a bad name", lambda: identify_nsqd() + b"REGISTER \x1b[2J\xff\n"),
    ],
    "UNREGISTER": [
        ("what is unknown", lambda: identify_nsqd() + b"UNREGISTER t c\n" * 20_000),
        ("a topic with 20,000 channels", lambda: channels_of_one(20_000) + b"UNREGISTER t\n"),
    ],
    "": [("a line without an end", lambda: b"x" * 5 * _MB), ("empty lines", lambda: b"\n" * _MB)],
}


def register(topics: int) -> bytes:
    return identify_nsqd() + b"".join(b"REGISTER t%d c\n" % number for number in range(topics))


def channels_of_one(channels: int) -> bytes:
    return identify_nsqd() + b"".join(b"REGISTER t c%d\n" % number for number in range(channels))


def identify_nsqd(**changes: str) -> bytes:
    fields = {
        "broadcast_address": "h",
        "hostname": "h",
        "tcp_port": 1,
        "http_port": 1,
        "version": "1",
    } | changes
    return b"IDENTIFY\n" + sized(json.dumps(fields).encode())


# Each route, and the path and query with which a request gets furthest. Topics are `hostile` and `neighbour`.
_TOPIC, _CHANNEL = "?topic=hostile", "?topic=hostile&channel=c%23ephemeral"
_DEBUG: dict[str, str] = {
    "GET /debug/greenlets": "",
    "GET /debug/pprof/goroutine": "",
    "GET /debug/pprof/profile": "?seconds=1",
    "GET /debug/pprof/cmdline": "",
    "POST /debug/freememory": "",
}
NSQD_ROUTES: dict[str, str] = {
    "POST /pub": _TOPIC,
    "GET /ping": "",
    "GET /health": "",
    "GET /info": "",
    "GET /stats": "?format=json",
    "GET /metrics": "",
    "POST /mpub": _TOPIC,
    "POST /topic/create": _TOPIC,
    "POST /topic/delete": "?topic=hostile3",
    "POST /topic/empty": _TOPIC,
    "POST /topic/pause": "?topic=hostile4",
    "POST /topic/unpause": _TOPIC,
    "GET /topic/log": _TOPIC,
    "GET /topic/read": f"{_TOPIC}&seq=0&max_bytes=99999999",
    "POST /channel/create": _CHANNEL,
    "POST /channel/delete": _CHANNEL,
    "POST /channel/empty": _CHANNEL,
    "POST /channel/seek": f"{_CHANNEL}&to=start",
    "POST /channel/pause": _CHANNEL,
    "POST /channel/unpause": _CHANNEL,
    "GET /channel/peek": f"{_CHANNEL}&n=1000",
    "POST /channel/finish": f"{_CHANNEL}&seq=0&id=0123456789abcdef",
    "POST /drain": "",
    "POST /promote": "",
    "GET /config": "",
    "GET /config/:opt": "",
    "PUT /config/:opt": "",
    "GET /debug/pprof/": "",
    **_DEBUG,
}
LOOKUPD_ROUTES: dict[str, str] = {
    "GET /ping": "",
    "GET /info": "",
    "GET /lookup": _TOPIC,
    "GET /topics": "",
    "GET /channels": _TOPIC,
    "GET /nodes": "",
    "GET /debug": "",
    "POST /topic/create": _TOPIC,
    "POST /topic/delete": _TOPIC,
    "POST /topic/tombstone": f"{_TOPIC}&node=h:1",
    "POST /channel/create": _CHANNEL,
    "POST /channel/delete": _CHANNEL,
    "GET /debug/pprof": "",
    **_DEBUG,
}
_TOPICS = "/api/v2/topics/<topic>"
ADMIN_ROUTES: dict[str, str] = {
    **dict.fromkeys(
        (
            f"GET {path}"
            for path in (
                "/",
                "/topics",
                "/topics/<topic>",
                "/topics/<topic>/<channel>",
                "/nodes",
                "/nodes/<node>",
                "/counter",
                "/metrics",
                "/lookup",
                "/channels",
                "/audit",
                "/api/v2/channels",
                "/static/<path:name>",
                "/ping",
                "/api/topics",
                "/api/topics/<topic>",
                "/api/topics/<topic>/<channel>",
                "/api/nodes",
                "/api/nodes/<node>",
                "/api/counter",
                "/config/<opt>",
                "/api/v2/attention",
                "/api/v2/session",
                "/api/v2/overview",
                "/api/v2/topics",
                _TOPICS,
                f"{_TOPICS}/log",
                f"{_TOPICS}/dead-letters",
                f"{_TOPICS}/channels/<channel>",
                f"{_TOPICS}/channels/<channel>/clients",
                f"{_TOPICS}/channels/<channel>/peek",
                f"{_TOPICS}/channels/<channel>/messages/<message>",
                f"{_TOPICS}/messages",
                f"{_TOPICS}/messages/<seq>",
                "/api/v2/nodes",
                "/api/v2/nodes/<node>",
                "/api/v2/nodes/<node>/clients",
                "/api/v2/lookup",
            )
        ),
        "",
    ),
    "GET /api/v2/history": "?topic=hostile&points=1000",
    "GET /api/v2/audit": "?search=hostile&only=failed",
    "GET /api/v2/sparklines": "?view=topics&search=hostile",
    "GET /api/v2/events": "?view=overview",
    "GET /api/graphite": "?metric=rate&target=x",
    "GET /render": "?target=x",
    "POST /api/topics": "",
    "POST /api/topics/<topic>": "",
    "DELETE /api/topics/<topic>": "",
    "POST /api/topics/<topic>/<channel>": "",
    "DELETE /api/topics/<topic>/<channel>": "",
    "DELETE /api/nodes/<node>": "",
    "PUT /config/<opt>": "",
    "POST /api/v2/actions": "",
}


def path_of(route: str) -> tuple[str, str]:
    """The method of a route, and a path that it matches."""
    method, _, path = route.partition(" ")
    for part, word in (
        ("/:opt", "/log_level"),
        ("<topic>", "hostile"),
        ("<channel>", "c"),
        ("<node>", "127.0.0.1:1"),
        ("<opt>", "log_level"),
        ("<path:name>", "x"),
        ("<message>", "1"),
        ("<seq>", "1"),
    ):
        path = path.replace(part, word)
    return method, path


def http_inputs(route: str, query: str) -> list[bytes]:
    """Many requests at once, a query of thousands of parts, bytes that belong in none, and a body of tiny chunks."""
    method, path = path_of(route)
    # From here, everybody else may end the process.
    site = "Sec-Fetch-Site: cross-site\r\n" if path == "/drain" else ""
    head = f"{method} {path}%s HTTP/1.1\r\nHost: x\r\n{site}"
    sep = "&" if query else "?"
    many = query + sep + "&".join(f"a{number}=%ff" for number in range(1200))
    one = (head % query).encode()
    return [
        (one + b"Content-Length: 2\r\n\r\nhi") * 50,
        (head % many).encode() + b"Content-Length: 0\r\n\r\n",
        one.replace(path.encode(), path.encode() + b"\xff\x1b\x85%00%0a", 1) + b"Content-Length: 0\r\n\r\n",
        one + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n[\r\n" * 20_000 + b"0\r\n\r\n",
        one + b"".join(b"X%d: y\r\n" % number for number in range(2000)) + b"Content-Length: 0\r\n\r\n",
    ]
