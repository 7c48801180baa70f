"""HTTP as bytes: every case whole, byte by byte and pipelined, on a connection in this process.

The broker is a real one on a temporary directory; only its socket is one end of a pair.
"""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import gevent
import gevent.event
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nsqd_py.api import publishing
from nsqd_py.broker.lifetime.shutdown import close as close_broker
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.runtime.logs.daemon_log import FATAL, Log
from tests.support.examples import examples
from tests.support.served_broker import DEADLINE_S, ServedBroker, connected, read_all, read_until
from tests.unit.fakes import messages_of, refuse

PING = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"
BAD_VERSION = b"505 HTTP Version Not Supported: unsupported protocol version"
_HEAD = re.compile(rb"HTTP/1\.([01]) (\d{3}) [^\r]*\r\n((?:[^\r]+\r\n)*)\r\n")


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class SilentLog(Log):
    """Writes nothing, and keeps what must not happen."""

    def __init__(self) -> None:
        super().__init__(level=FATAL)
        self.exceptions: list[str] = []

    def exception(self, text: str, *arguments: object) -> None:
        self.exceptions.append(text % arguments)


class Server(ServedBroker):
    """A broker, and connections to it."""

    log: SilentLog

    def __init__(self, directory: Path, *flags: str) -> None:
        directory.mkdir(exist_ok=True)
        super().__init__(directory, *flags, log=SilentLog())

    def close(self) -> None:
        assert self.log.exceptions == []
        close_broker(self.broker)

    def connect(self) -> Any:
        """The client's end of a new connection."""
        self.latest, client = connected(self.http)
        return client

    def ask(self, *chunks: bytes, ends: bool = True) -> bytes:
        """All that is answered to the chunks, until the connection is closed; `ends` says that no more will come."""
        with self.connect() as client:
            with suppress(BrokenPipeError):
                for chunk in chunks:
                    client.sendall(chunk)
                    gevent.sleep(0)
            if ends:
                client.shutdown(socket.SHUT_WR)
            return read_all(client)

    def answers(self, *chunks: bytes, ends: bool = True) -> list[tuple[int, bytes]]:
        """The status and the body of each answer."""
        return [(answer.status, answer.body) for answer in answers(self.ask(*chunks, ends=ends))]

    def statuses(self, *chunks: bytes, ends: bool = True) -> list[int]:
        return [status for status, _ in self.answers(*chunks, ends=ends)]

    def messages(self, topic: str) -> list[bytes]:
        """What a topic holds."""
        found = self.broker.topics.get(topic)
        batches = []
        seq = 0
        while found and (batch := found.messages.batch_at(seq)) is not None and batch.end_seq > seq:
            batches.append(batch)
            seq = batch.end_seq
        return [body for _, body in messages_of(batches)]


def answers(data: bytes) -> list[Answer]:
    """The bytes as answers, which they have to be to their end; none is one to HEAD."""
    found = []
    while data:
        match = _HEAD.match(data)
        assert match is not None, data
        lines = match[3].decode().split("\r\n")[:-1]
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        end = match.end() + int(headers.get("content-length", "0"))
        found.append(Answer(int(match[2]), headers, data[match.end() : end]))
        data = data[end:]
    return found


def undated(data: bytes) -> bytes:
    return re.sub(rb"Date: [^\r]*", b"Date: then", data)


def request(
    line: str, body: bytes = b"", *headers: str, host: str | None = "x", length: bool = True
) -> bytes:
    lines = [f"{line} HTTP/1.1"] + ([f"Host: {host}"] if host is not None else []) + list(headers)
    if body and length:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chunked(line: str, *chunks: bytes) -> bytes:
    body = (
        b"".join(b"%x;ext=1\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\nTrailer: x\r\n\r\n"
    )
    return request(line, body, "Transfer-Encoding: chunked", length=False)


def upgrade(connection: str) -> bytes:
    return request("POST /pub?topic=t", b"x", "Upgrade: h2c", f"Connection: {connection}")


def coded(coding: str, body: bytes = b"") -> bytes:
    return request("POST /pub?topic=t", body, f"Transfer-Encoding: {coding}", length=False)


MakeServer = Callable[..., Server]


@pytest.fixture
def make_server(tmp_path) -> Iterator[MakeServer]:
    """`make_server(*flags)`; no test passes on which something raised where nothing may."""
    servers: list[Server] = []
    publishing.KNOWN_HEADS.clear()

    def make(*flags: str) -> Server:
        servers.append(Server(tmp_path / str(len(servers)), *flags))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


LIMITS = ("--max-msg-size=100", "--max-body-size=1000")


@pytest.fixture
def server(make_server) -> Server:
    return make_server(*LIMITS)


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Iterator[Server]:
    """For tests that do not mind what others have published."""
    server = Server(tmp_path_factory.mktemp("shared"), *LIMITS)
    yield server
    server.close()


# ---- cases


Answered = tuple[int, bytes]
Cases = dict[str, tuple[bytes, Answered]]
OK, DONE = (200, b"OK"), (200, b"")
BAD_REQUEST = (400, b"400 Bad Request")
TOO_LARGE = (431, b"431 Request Header Fields Too Large")


def refused(status: int, code: str) -> Answered:
    return status, b'{"message":"%s"}' % code.encode()


# What is sent, and the answer, after which the connection stays.
STAYS: Cases = {
    "ping": (PING, OK),
    "ping with a body": (request("GET /ping", b"abc"), OK),
    "pub": (request("POST /pub?topic=t", b"x"), OK),
    "pub of bytes": (request("POST /pub?topic=t", b"\0\r\n\r\nPOST"), OK),
    "pub of the largest": (request("POST /pub?topic=t", b"x" * 100), OK),
    "pub in chunks": (chunked("POST /pub?topic=t", b"ab", b"c"), OK),
    "pub to an absolute URL": (request("POST http://h/pub?topic=t", b"x"), OK),
    "pub deferred": (request("POST /pub?topic=t&defer=1000", b"x"), OK),
    "pub without a body": (request("POST /pub?topic=t"), refused(400, "MSG_EMPTY")),
    "pub of nothing in chunks": (chunked("POST /pub"), refused(400, "MSG_EMPTY")),
    "pub without a topic": (request("POST /pub", b"x"), refused(400, "MISSING_ARG_TOPIC")),
    "pub to a bad topic": (request("POST /pub?topic=a%20b", b"x"), refused(400, "INVALID_TOPIC")),
    "pub with a bad query": (request("POST /pub?topic=%zz", b"x"), refused(400, "INVALID_REQUEST")),
    "pub with a bad defer": (request("POST /pub?topic=t&defer=x", b"x"), refused(400, "INVALID_DEFER")),
    "pub with a long defer": (
        request("POST /pub?topic=t&defer=3600001", b"x"),
        refused(400, "INVALID_DEFER"),
    ),
    "pub with a defer below 0": (request("POST /pub?topic=t&defer=-1", b"x"), refused(400, "INVALID_DEFER")),
    "pub too big": (request("POST /pub?topic=t", b"x" * 101), refused(413, "MSG_TOO_BIG")),
    "mpub": (request("POST /mpub?topic=t", b"a\nbc\n\n"), OK),
    "mpub of empty lines": (request("POST /mpub?topic=t", b"\n\n"), OK),
    "mpub of nothing": (request("POST /mpub?topic=t"), OK),
    "mpub with a long line": (
        request("POST /mpub?topic=t", b"a\n" + b"x" * 101),
        refused(413, "MSG_TOO_BIG"),
    ),
    "mpub too big": (request("POST /mpub?topic=t", b"a\n" * 501), refused(413, "BODY_TOO_BIG")),
    "mpub without a topic": (request("POST /mpub", b"x"), refused(400, "MISSING_ARG_TOPIC")),
    "binary mpub": (request("POST /mpub?topic=t&binary=1", b"\0\0\0\1\0\0\0\1a"), OK),
    "binary mpub of nothing": (request("POST /mpub?topic=t&binary=1"), refused(413, "BAD_BODY")),
    "binary mpub cut short": (
        request("POST /mpub?topic=t&binary=1", b"\0\0\0\1"),
        refused(413, "BAD_MESSAGE"),
    ),
    "topic/create": (request("POST /topic/create?topic=made"), DONE),
    "topic/create with a body": (request("POST /topic/create?topic=made", b"x" * 5000), DONE),
    "topic/delete": (request("POST /topic/delete?topic=other"), refused(404, "TOPIC_NOT_FOUND")),
    "not found": (request("GET /nope"), refused(404, "NOT_FOUND")),
    "not found with a body": (request("POST /nope", b"x" * 100), refused(404, "NOT_FOUND")),
    "wrong method": (request("GET /pub"), refused(405, "METHOD_NOT_ALLOWED")),
    "redirect": (request("POST /pub/?topic=t", b"x"), (308, b"")),
    "options": (request("OPTIONS *"), DONE),
    "upgrade": (upgrade("Upgrade, HTTP2-Settings"), OK),
    "HTTP/1.0 kept alive": (b"GET /ping HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", OK),
    "bad path": (request("GET /p%zz"), BAD_REQUEST),
    "long URL": (request("GET /ping?" + "x" * 500_000), OK),
    **{f"much {part}": (request("GET /ping?" + part * 150_000), TOO_LARGE) for part in ("%41", "a&", "../")},
}
# The same, but the connection is closed.
CLOSES: Cases = {
    "pub too big in chunks": (chunked("POST /pub?topic=t", b"x" * 99, b"yz"), refused(413, "MSG_TOO_BIG")),
    "pub much too big": (request("POST /pub?topic=t", b"x" * 300_000), refused(413, "MSG_TOO_BIG")),
    "mpub too big in chunks": (chunked("POST /mpub?topic=t", b"a\n" * 501), refused(413, "BODY_TOO_BIG")),
    "mpub to a bad topic in chunks": (chunked("POST /mpub?topic=$", b"x"), refused(400, "INVALID_TOPIC")),
    "not found with a large body": (request("POST /nope", b"x" * 300_000), refused(404, "NOT_FOUND")),
    "asked to close": (request("GET /ping", b"", "Connection: close"), OK),
    "asked to close after a pub": (request("POST /pub?topic=t", b"x", "connection: close"), OK),
    "upgrade and close": (upgrade("upgrade, close"), OK),
    "HTTP/1.0": (b"GET /ping HTTP/1.0\r\n\r\n", OK),
    "HTTP/2.0": (b"GET /ping HTTP/2.0\r\nHost: x\r\n\r\n", (505, BAD_VERSION)),
    "no version": (b"GET /ping\r\n\r\n", BAD_REQUEST),
    "no host": (request("GET /ping", host=None), (400, b"400 Bad Request: missing required Host header")),
    "two hosts": (request("GET /ping", b"", "Host: y"), BAD_REQUEST),
    "bad host": (request("GET /ping", host="a b"), (400, b"400 Bad Request: malformed Host header")),
    "garbage": (b"garbage\r\n\r\n", BAD_REQUEST),
    "binary garbage": (bytes(range(256)), BAD_REQUEST),
    "bad header": (request("GET /ping", b"", "Bad Header: x"), BAD_REQUEST),
    "bad length": (request("POST /pub?topic=t", b"", "Content-Length: x"), BAD_REQUEST),
    "two lengths": (request("POST /pub?topic=t", b"x", "Content-Length: 2"), BAD_REQUEST),
    "odd coding": (coded("gzip"), (501, b"Unsupported transfer encoding")),
    "odd expectation": (request("POST /pub?topic=t", b"x", "Expect: luck"), (417, b"")),
    "bad chunk": (coded("chunked", b"zz\r\n"), refused(500, "INTERNAL_ERROR")),
    "long header": (request("GET /ping", b"", "A: " + "x" * 1_100_000), TOO_LARGE),
    "endless header": (b"GET /ping HTTP/1.1\r\nA: " + b"x" * 2_000_000, TOO_LARGE),
    "endless trailer": (chunked("POST /pub?topic=t", b"a")[:-4] + b"x" * 2_000_000, TOO_LARGE),
}
CASES = STAYS | CLOSES
SHORT_CASES = {name: case for name, case in CASES.items() if len(case[0]) < 10_000}


@pytest.mark.parametrize("name", CASES)
def test_whole(shared, name):
    sent, answer = CASES[name]
    assert shared.answers(sent) == [answer]


@pytest.mark.parametrize("name", SHORT_CASES)
def test_byte_by_byte(shared, name):
    sent, answer = CASES[name]
    assert shared.answers(*(bytes((byte,)) for byte in sent)) == [answer]


@pytest.mark.parametrize("name", CASES)
def test_pipelined(shared, name):
    """The answers come in order; behind a request that closes nothing is answered."""
    sent, answer = CASES[name]
    behind = [answer] if name in CLOSES else [answer, answer, answer, refused(404, "NOT_FOUND")]
    assert shared.answers(PING + sent * 3 + request("GET /nope")) == [OK, *behind]


@pytest.mark.parametrize("name", CLOSES)
def test_what_closes_closes_although_the_client_does_not(shared, name):
    sent, answer = CLOSES[name]
    (found,) = answers(shared.ask(sent, ends=False))
    assert found.status == answer[0]
    assert found.headers.get("connection") == (None if sent.endswith(b"HTTP/1.0\r\n\r\n") else "close")


@pytest.mark.parametrize("name", STAYS)
def test_what_does_not_close_stays(shared, name):
    sent, (_, body) = STAYS[name]
    with shared.connect() as client:
        client.sendall(sent)
        first = read_until(client, b"\r\n\r\n" + body)
        assert b"Connection: close" not in first
        client.sendall(PING)
        read_until(client, b"\r\n\r\nOK")


# ---- what is published


def test_what_is_published_arrives_byte_for_byte(server):
    bodies = [b"x", b"\0\r\n\r\n" * 9, bytes(range(100))]
    together = b"".join(request("POST /pub?topic=t", body) for body in bodies)
    server.ask(together)
    server.ask(together)  # with heads that are known by now
    server.ask(*(bytes((byte,)) for byte in together))
    server.ask(chunked("POST /pub?topic=t", b"ab", b"c"), request("POST /mpub?topic=t", b"de\n\nf"))
    server.ask(request("POST /mpub?topic=t&binary=true", b"\0\0\0\2\0\0\0\1g\0\0\0\2hi" + b"behind"))
    assert server.messages("t") == [*bodies, *bodies, *bodies, b"abc", b"de", b"f", b"g", b"hi"]


def test_a_known_head_is_held_to_the_limits_of_its_server(make_server):
    large, small = make_server("--max-msg-size=50"), make_server("--max-msg-size=49")
    sent = request("POST /pub?topic=t", b"x" * 50)
    for _ in range(2):
        assert large.statuses(sent) == [200]
        assert small.statuses(sent) == [413]
    assert sent[: -len(b"x" * 50)] in publishing.KNOWN_HEADS


def test_a_failed_write_replaces_the_answers_of_its_publishes(server, monkeypatch):
    server.ask(request("POST /pub?topic=t", b"x"))

    sent = request("POST /pub?topic=t", b"x")
    last = request("POST /pub?topic=t", b"x", "Connection: close")
    with monkeypatch.context() as patched:
        patched.setattr(TopicLog, "append_at_once", refuse)
        found = answers(server.ask(PING + sent + PING + sent + request("POST /mpub?topic=t", b"a\nb") + last))
    failed = refused(503, "PUB_FAILED: No space left on device")
    assert [(answer.status, answer.body) for answer in found] == [OK, failed, OK, *[failed] * 3]
    assert [answer.headers.get("connection") for answer in found] == [None] * 5 + ["close"]
    assert server.answers(b"GET /ping HTTP/1.0\r\n\r\n") == [
        (500, b"NOK - disk: [Errno 28] No space left on device")
    ]
    assert server.answers(sent) == [OK]
    assert server.answers(PING) == [OK]  # on its own: it would be answered before the write
    assert server.messages("t") == [b"x", b"x"]


def test_answers_wait_for_the_sync_that_covers_them(make_server):
    server = make_server("--sync-every=1")
    server.ask(request("POST /topic/create?topic=t"))
    sent = request("POST /pub?topic=t", b"x") * 3 + request("POST /topic/create?topic=u") + PING
    assert server.statuses(sent) == [200] * 5


# ---- requests that may block


def test_a_slow_request_holds_up_its_connection_only(server, monkeypatch):
    server.ask(request("POST /topic/create?topic=t"))
    persisted = gevent.event.Event()
    monkeypatch.setattr(server.broker.metadata, "persist", persisted.wait)
    pause = request("POST /topic/pause?topic=t")
    with server.connect() as slow:
        slow.sendall(pause + request("POST /pub?topic=t", b"x") + pause + PING + request("GET /nope"))
        assert server.answers(PING * 3) == [OK] * 3
        with pytest.raises(TimeoutError), gevent.Timeout(0.05, TimeoutError):
            slow.recv(1)
        persisted.set()
        slow.shutdown(socket.SHUT_WR)
        found = answers(read_all(slow))
    assert [(answer.status, answer.body) for answer in found] == [
        DONE,
        OK,
        DONE,
        OK,
        refused(404, "NOT_FOUND"),
    ]
    assert server.broker.topics["t"].is_paused


def test_a_request_that_fails_on_the_disk_is_an_internal_error(server, monkeypatch):
    def persist():
        raise OSError(errno.EIO, "Input/output error")

    server.ask(request("POST /topic/create?topic=t"))
    monkeypatch.setattr(server.broker.metadata, "persist", persist)
    failed = refused(500, "INTERNAL_ERROR: Input/output error")
    assert server.answers(request("POST /topic/pause?topic=t") + PING) == [failed, OK]
    monkeypatch.undo()


def test_a_body_is_asked_for_in_its_turn(server):
    expecting = request("POST /pub?topic=t", b"", "Expect: 100-continue", "Content-Length: 1")
    with server.connect() as client:
        client.sendall(expecting)
        assert read_until(client, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"x")
        assert read_until(client, b"\r\n\r\nOK").startswith(b"HTTP/1.1 200 ")
        client.sendall(request("POST /topic/create?topic=t") + expecting)
        got = read_until(client, b"100 Continue\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 200 ")
        client.sendall(b"y")
        assert read_until(client, b"\r\n\r\nOK").startswith(b"HTTP/1.1 200 ")
    assert server.messages("t") == [b"x", b"y"]


@pytest.mark.parametrize(
    ("line", "status"), [("POST /nope", 404), ("POST /mpub", 400), ("POST /pub?topic=t", 413)]
)
def test_a_refused_body_is_not_asked_for(server, line, status):
    sent = request(line, b"", "Expect: 100-continue", "Content-Length: 101")
    assert server.statuses(sent, ends=False) == [status]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (PING[:-2], 400),
        (b"P", 400),
        (request("POST /pub?topic=t", b"xyz")[:-1], 500),
        (chunked("POST /mpub?topic=t", b"xyz")[:-1], 500),
        (request("POST /topic/create?topic=cut", b"xyz")[:-1], 400),
    ],
)
def test_input_that_ends_inside_a_request(server, sent, status):
    found = answers(server.ask(PING + sent))
    assert [answer.status for answer in found] == [200, status]
    assert found[1].headers["connection"] == "close"
    assert server.messages("t") == []
    assert "cut" not in server.broker.topics


def test_large_answers_reach_a_slow_reader_and_do_not_pile_up(server):
    for number in range(300):
        server.broker.get_topic(f"topic-{number}")
    with server.connect() as client:
        client.sendall(request("GET /stats?format=json&include_mem=0") * 200)
        client.shutdown(socket.SHUT_WR)
        parts = []
        while part := client.recv(50_000):
            parts.append(part)
            assert sum(map(len, server.latest.out)) < 2 << 20
    found = answers(b"".join(parts))
    assert len(found) == 200
    assert len({answer.body for answer in found}) == 1
    assert len(b"".join(parts)) > 4 << 20


def test_a_client_that_takes_no_answers_is_not_read_from(server):
    sent = request("POST /pub?topic=t", b"x") * 1000
    with server.connect() as client:
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            for _ in range(100):
                client.sendall(sent)
        assert sum(map(len, server.latest.out)) + server.latest.unsent_bytes < 2 << 20
        client.settimeout(DEADLINE_S)
        client.shutdown(socket.SHUT_WR)
        assert {answer.status for answer in answers(read_all(client))} <= {200, 400, 500}


# ---- anything at all

_FRAGMENTS = [sent for sent, _ in SHORT_CASES.values() if b"/topic/" not in sent] + [
    b"\r\n",
    b"\r\n\r\n",
    b"POST /pub?topic=t HTTP/1.1\r\n",
    b"Host: x\r\n",
    b"Content-Length: 5\r\n",
    b"0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Expect: 100-continue\r\n",
    b"Connection: close\r\n",
    b"5\r\nabcde\r\n",
    b"\0",
]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place for place in places if place < len(data)}), len(data)]
    return [part for low, high in zip(edges, edges[1:], strict=False) if (part := data[low:high])]


@settings(
    max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.sampled_from(_FRAGMENTS) | st.binary(max_size=40), max_size=8).map(b"".join),
    st.lists(st.integers(0, 600), max_size=6),
)
@example(b"POST /pub?topic=t HTTP/1.1\nHost: x\nContent-Length: 1\n\nx" + PING, [9])
def test_any_bytes_get_the_same_answers_however_they_arrive(shared, data, places):
    whole = shared.ask(data)
    assert undated(shared.ask(*cut(data, places))) == undated(whole)
    publishing.KNOWN_HEADS.clear()
    assert undated(shared.ask(data)) == undated(whole)
    assert shared.log.exceptions == []


@settings(
    max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=300))
def test_no_bytes_cost_more_than_their_connection(shared, data):
    shared.ask(data)
    assert shared.log.exceptions == []
    assert shared.answers(PING) == [OK]
