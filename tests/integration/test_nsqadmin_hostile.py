"""An nsqlookupd and an nsqd that lie: whatever their names are, answers, events and the log stay what they are."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from tests.support.fake_nsqd import CHANNEL_COUNTS
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import wait_until

# Without a slash, which no path could have in a name.
EVIL = 'x"\r\ndata: {}\n\nevent: bye\n[nsqadmin] INFO: AUDIT: delete topic="y"\n\x1b[2J\u2028\u202e<script>\x00\x85'
IN_URL = quote(EVIL, safe="")
# Lines of a log that everybody may read in a terminal.
LINE = re.compile(r"\[nsqadmin\] [\d/]{10} [\d:.]{15} (DEBUG|INFO|WARNING|ERROR): [^\x00-\x1f\x7f-\x9f]*")


def answers(port: int) -> dict[str, Any]:
    """By path, of an nsqlookupd and an nsqd at once."""
    counts = dict.fromkeys(CHANNEL_COUNTS, 1)
    texts = (
        "remote_address",
        "client_id",
        "hostname",
        "user_agent",
        "version",
        "auth_identity",
        "tls_version",
    )
    client = dict.fromkeys(texts, EVIL)
    channel = {"channel_name": EVIL, "paused": False, "clients": [client], **counts}
    topic = {
        "topic_name": EVIL,
        "paused": False,
        "channels": [channel],
        "dead_letters": [{"origin": EVIL}],
        **counts,
    }
    found = {
        "remote_address": EVIL,
        "hostname": EVIL,
        "version": EVIL,
        "topics": [EVIL],
        "tombstones": [True],
    }
    there = {"broadcast_address": "127.0.0.1", "tcp_port": 1, "http_port": port, "topology_zone": EVIL}
    nowhere = {"broadcast_address": EVIL, "tcp_port": 1, "http_port": 1}
    producers = {"producers": [found | there, found | nowhere]}
    message = {"id": EVIL, "body": EVIL, "timestamp": 1, "attempts": EVIL}
    return {
        "/nodes": producers,
        "/lookup": producers,
        "/topics": {"topics": [EVIL]},
        "/channels": {"channels": [EVIL]},
        "/stats": {"version": EVIL, "health": EVIL, "start_time": 1, "topics": [topic]},
        "/info": found | there,
        "/channel/peek": {"messages": [message]},
        "/topic/log": {EVIL: EVIL},
    }


@pytest.fixture(scope="module")
def liar() -> Iterator[int]:
    """Its port. It does nothing that it is asked to do."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers(self.server.server_address[1]).get(urlsplit(self.path).path)
            self.say(200, found) if found else self.say(404, {"message": EVIL})

        def do_POST(self) -> None:
            self.say(500, {"message": EVIL})

        def say(self, status: int, document: Any) -> None:
            body = json.dumps(document).encode()
            self.wfile.write(
                b"HTTP/1.0 %d \x1b[2Jno\x07\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body
            )

        def log_message(self, format: str, *arguments: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture(scope="module")
def admin(liar, tmp_path_factory) -> Iterator[NsqadminProcess]:
    flags = ("--poll-interval=250ms", "--history-file=", "--log-level=debug")
    log_path = tmp_path_factory.mktemp("hostile") / "nsqadmin.log"
    with NsqadminProcess(log_path, *flags, f"--lookupd-http-address=127.0.0.1:{liar}") as admin:
        admin.start()
        wait_until(lambda: admin.get("/api/v2/overview")["topics"] == 1, what="the liar's topic")
        yield admin


def check_log(admin: NsqadminProcess) -> list[str]:
    lines = admin.log_path.read_text("utf-8").split("\n")
    assert lines.pop() == ""
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    return [line for line in lines if re.match(r"\[nsqadmin\] \S+ \S+ INFO: AUDIT: ", line)]


def test_answers(admin, liar):
    topic, node = f"/api/v2/topics/{IN_URL}", f"127.0.0.1:{liar}"
    paths = [
        "/api/topics",
        f"/api/topics/{IN_URL}",
        f"/api/topics/{IN_URL}/{IN_URL}",
        "/api/nodes",
        f"/api/nodes/{node}",
        "/api/counter",
        "/api/v2/overview",
        "/api/v2/topics",
        topic,
        f"{topic}/log",
        f"{topic}/dead-letters",
        f"{topic}/channels/{IN_URL}",
        f"{topic}/channels/{IN_URL}/clients",
        f"{topic}/messages",
        f"{topic}/channels/{IN_URL}/peek",
        "/api/v2/nodes",
        f"/api/v2/nodes/{node}",
        f"/api/v2/nodes/[{IN_URL.replace('%5D', '')}]:1",
        f"/api/v2/history?topic={IN_URL}",
    ]
    for path in paths:
        answer = admin.http("GET", path)
        assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json; charset=utf-8"), (
            path
        )
        assert EVIL in strings_of(answer.json()), path
    for path in (f"/topics/{IN_URL}", f"/nodes/{IN_URL}"):
        page = admin.http("GET", path, headers={"X-Forwarded-User": "<script>\x1b"})
        assert page.status == 200
        assert "<script>" not in page.text
    check_log(admin)


@pytest.mark.parametrize("byte", [b"\xff", b"\xc3\xa9", b"\xed\xb0\x81"])
def test_bytes_of_a_query_that_are_not_escaped(admin, byte):
    paths = {
        f"/api/v2/topics/{IN_URL}/channels/{IN_URL}/clients?node=%s": 404,
        f"/api/v2/topics/{IN_URL}/channels/{IN_URL}/clients?offset=%s": 400,
        f"/api/v2/topics/{IN_URL}/log?%s=1": 200,
        "/api/v2/topics?filter=%s": 200,
        "/api/topics?inactive=%s": 200,
        "/api/graphite?metric=%s&target=%s": 400,
        "/api/v2/events?view=%s": 400,
        "/?%s": 200,
    }
    for path, status in paths.items():
        with socket.create_connection(("127.0.0.1", admin.http_port), timeout=40) as sock:
            sock.sendall(b"GET %b HTTP/1.0\r\n\r\n" % path.encode().replace(b"%s", byte))
            assert sock.makefile("rb").readline().split()[1] == b"%d" % status, path
    check_log(admin)


def strings_of(document: Any) -> str:
    """All texts and keys of some JSON."""
    if isinstance(document, dict):
        return "".join(strings_of(item) for pair in document.items() for item in pair)
    if isinstance(document, list):
        return "".join(map(strings_of, document))
    return str(document)


@pytest.mark.parametrize(
    "query",
    ["overview", "topics", "nodes", f"topic&topic={IN_URL}", f"channel&topic={IN_URL}&channel={IN_URL}"],
)
def test_events(admin, query):
    with socket.create_connection(("127.0.0.1", admin.http_port), timeout=40) as sock:
        sock.sendall(f"GET /api/v2/events?view={query} HTTP/1.0\r\n\r\n".encode())
        stream = sock.makefile("rb")
        head = iter(stream.readline, b"\r\n")
        assert next(head).split()[1] == b"200"
        assert all(b": " in line for line in head)
        lines = [stream.readline()]
        while not lines[-1].startswith(b"data: "):
            lines.append(stream.readline())
        lines.append(stream.readline())
    assert [line.partition(b":")[0] for line in lines] == [b"retry", b"\n", b"event", b"data", b"\n"]
    assert b"\r" not in b"".join(lines)
    assert EVIL in strings_of(json.loads(lines[3].removeprefix(b"data: ")))


# With these texts next to the topic, all of which are evil.
ACTIONS = [
    "create",
    "create channel",
    "delete",
    "delete channel",
    "pause",
    "unpause channel",
    "empty",
    "tombstone node",
    "seek channel to",
    "publish body",
    "publish body node",
    "requeue_dead_letters target",
]


def test_actions_and_their_lines(admin):
    for line in ACTIONS:
        action, *names = line.split(" ")
        answer = admin.act(action, EVIL, **dict.fromkeys(names, EVIL))
        assert answer.json().keys() >= {"errors"} or answer.json().keys() == {"message"}
    admin.act("requeue_dead_letters", EVIL, target="t")
    user = {"X-Forwarded-User": 'bob" \x1b[2J\x85\ttab'}
    for method, path in (("DELETE", f"/api/topics/{IN_URL}"), ("DELETE", f"/api/topics/{IN_URL}/{IN_URL}")):
        assert admin.http(method, path, headers=user).status == 200
    assert admin.http("POST", f"/api/topics/{IN_URL}", b'{"action":"pause"}', user).status == 200
    assert admin.http("DELETE", f"/api/nodes/{IN_URL}", b'{"topic":"t"}', user).status == 502
    with socket.create_connection(("127.0.0.1", admin.http_port), timeout=40) as sock:
        sock.sendall(b"GET /api/topics?\x1b[2J\x85 HTTP/1.0\r\nHost: localhost\r\nReferer: \x1b\r\n\r\n")
        assert b" 200 OK" in sock.makefile("rb").readline()
    audits = check_log(admin)
    assert len(audits) == len(ACTIONS) + 5
    assert all(r'"x\"\r\ndata:' in line for line in audits)
    assert sum(r'by="bob\" \x1b[2J\u0085\ttab" from=127.0.0.1:' in line for line in audits) == 4
