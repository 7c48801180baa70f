"""An nsqd and an nsqlookupd that somebody wrote to harm those who look at them: every text of theirs is an attack."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.web_server import HOST, Asked, Reply, WebServer

IMAGE = "<img src=x onerror=alert(1)>"
SCRIPT = "\"><script>alert(2)</script>'--"
LINK = "javascript:alert(3)"
BACKWARDS = "safe\u202etxt.exe\u2066 and on"
NULS = "before\0after\x1b[31m\r\n\ttabs"
MARKS = "{{7*7}} ${7*7} <%= 7*7 %> &lt;b&gt; %3Cb%3E"
LONG = "W" * 10_000
# What an object of JavaScript has already.
INHERITED = ("__proto__", "constructor", "toString")
TEXTS = (IMAGE, SCRIPT, LINK, BACKWARDS, NULS, MARKS, LONG)

Query = dict[str, str]
Answer = Callable[[str, Query], Any]


def serve(answer: Answer) -> WebServer:
    """Return a server that answers a GET with the JSON of `answer(path, query)`, and a POST with an error."""

    def reply(asked: Asked) -> Reply:
        url = urlsplit(asked.target)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        found = answer(url.path, query) if asked.method == "GET" else None
        status = 500 if asked.method == "POST" else 404 if found is None else 200
        document = found or {"message": IMAGE + SCRIPT + BACKWARDS}
        # As nsqd and nsqlookupd write it.
        return Reply(status, body=json.dumps(document, separators=(",", ":")).encode())

    return WebServer(reply)


# ---- what the nsqd says

_NO_LATENCY = {"count": 0, "percentiles": None}


def _client(text: str) -> dict[str, Any]:
    texts = (
        "client_id",
        "hostname",
        "version",
        "remote_address",
        "user_agent",
        "auth_identity",
        "auth_identity_url",
        "tls_cipher_suite",
        "tls_version",
        "topology_zone",
        "topology_region",
    )
    numbers = (
        "in_flight_count",
        "ready_count",
        "finish_count",
        "requeue_count",
        "message_count",
        "connect_ts",
    )
    return dict.fromkeys(texts, text) | dict.fromkeys(numbers, 1) | {"tls": True, "authed": True, "state": 3}


def _channel(name: str, query: Query) -> dict[str, Any]:
    clients = [] if query.get("include_clients") == "false" else list(map(_client, TEXTS))
    counts = ("depth", "in_flight_count", "deferred_count", "message_count", "requeue_count", "timeout_count")
    return {
        "channel_name": name,
        **dict.fromkeys(counts, 3),
        "backend_depth": 0,
        "client_count": len(TEXTS),
        "clients": clients,
        "paused": False,
        "e2e_processing_latency": _NO_LATENCY,
    }


def _topic(name: str, query: Query) -> dict[str, Any]:
    channel = query.get("channel", "")
    channels = [_channel(found, query) for found in (name, *INHERITED) if channel in ("", found)]
    letters = [
        {"id": text, "attempts": 1, "topic": text, "channel": text, "timestamp": 1, "died": 2}
        for text in TEXTS
    ]
    return {
        "topic_name": name,
        "depth": 3,
        "backend_depth": 0,
        "message_count": 3,
        "message_bytes": 3,
        "paused": False,
        "channels": channels,
        "e2e_processing_latency": _NO_LATENCY,
        "dead_letters": letters,
    }


def _stats(query: Query) -> Any:
    names = [name for name in (*TEXTS, *INHERITED) if query.get("topic") in (None, name)]
    topics = [_topic(name, query) for name in names]
    return {"version": IMAGE, "health": SCRIPT, "start_time": 1, "topics": topics}


def _peek(query: Query) -> Any:
    messages = [{"id": text, "timestamp": 1, "attempts": 1, "body": text} for text in TEXTS]
    messages.append(
        {"id": "json", "timestamp": 2, "attempts": 2, "body": json.dumps({text: text for text in TEXTS})}
    )
    return {
        "topic": IMAGE,
        "channel": IMAGE,
        "depth": 3,
        "in_flight_count": 0,
        "deferred_count": 0,
        "messages": messages,
    }


def _log(query: Query) -> Any:
    file = {
        "name": IMAGE,
        "first_seq": 0,
        "end_seq": 3,
        "first_timestamp": 1,
        "last_timestamp": 2,
        "bytes": 100,
        "message_count": 3,
        "live_count": 2,
        "sparse": False,
    }
    return {
        "topic": SCRIPT,
        "earliest_seq": 0,
        "first_seq": 0,
        "next_seq": 3,
        "released_seq": 1,
        "bytes": 100,
        "files": [file, file | {"name": LONG}],
    }


_OF_NSQD: dict[str, Callable[[Query], Any]] = {"/stats": _stats, "/channel/peek": _peek, "/topic/log": _log}


def nsqd() -> WebServer:
    return serve(lambda path, query: _OF_NSQD[path](query) if path in _OF_NSQD else None)


def nsqlookupd(nsqd: WebServer) -> WebServer:
    """It names that nsqd, one that is not there, and topics that no nsqd has."""
    idle = [f"{text} idle" for text in TEXTS]
    producer = {
        "remote_address": IMAGE,
        "hostname": IMAGE,
        "broadcast_address": HOST,
        "tcp_port": nsqd.port,
        "http_port": nsqd.port,
        "version": SCRIPT,
        "topology_zone": IMAGE,
        "topology_region": SCRIPT,
        "topics": list(TEXTS),
        "tombstones": [True] * len(TEXTS),
    }
    absent = producer | {"broadcast_address": IMAGE, "hostname": LONG, "http_port": 1, "tcp_port": 1}

    def answer(path: str, query: Query) -> Any:
        answers: dict[str, Any] = {
            "/nodes": {"producers": [producer, absent]},
            "/topics": {"topics": [*TEXTS, *idle]},
            "/channels": {"channels": list(TEXTS)},
            "/lookup": {
                "channels": list(TEXTS),
                "producers": [] if query.get("topic") in idle else [producer],
            },
        }
        return answers.get(path)

    return serve(answer)
