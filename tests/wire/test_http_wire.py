"""HTTP as bytes: every case whole, byte by byte and pipelined, on a connection in this process.

The broker is a real one on a temporary directory; only its socket is one end of a pair.
"""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gevent
import gevent.event
import gevent.socket
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nsqd_py.alarms import Alarms
from nsqd_py.api import publishing
from nsqd_py.api.publishing import PublishingConnection
from nsqd_py.broker.broker import Broker
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.net.loop_iteration import LoopIteration
from nsqd_py.options import read_options
from nsqd_py.runtime.logs import FATAL, Log
from tests.support.examples import examples
from tests.unit.fakes import disk_threads, messages_of

DEADLINE_S = 40.0
PING = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"
BAD_REQUEST = b"400 Bad Request"
TOO_LARGE = b"431 Request Header Fields Too Large"
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


class Server:
    """A broker, and connections to it."""

    def __init__(self, directory: Path, *flags: str) -> None:
        directory.mkdir(exist_ok=True)
        hub = gevent.get_hub()
        self.log = SilentLog()
        self.iteration = LoopIteration(hub, self.log)
        self._loop = hub.loop
        options = read_options([f"--data-path={directory}", *flags])
        self.broker = Broker(options, self.log, self.iteration, Alarms(), disk_threads())

    def connect(self) -> Any:
        """The client's end of a new connection."""
        ours, theirs = socket.socketpair()
        self.latest = PublishingConnection(theirs, "127.0.0.1:5", self._loop, self.iteration, self.log, self.broker)
        self.latest.start()
        client = gevent.socket.socket(fileno=ours.detach())
        client.settimeout(DEADLINE_S)
        return client

    def ask(self, *chunks: bytes, ends: bool = True) -> bytes:
        """All that is answered to the chunks, until the connection is closed; `ends` says that no more will come."""
        with self.connect() as client:
            for chunk in chunks:
                try:
                    client.sendall(chunk)
                except BrokenPipeError:
                    break
                gevent.sleep(0)
            if ends:
                client.shutdown(socket.SHUT_WR)
            return read_all(client)

    def messages(self, topic: str) -> list[bytes]:
        """What a topic holds."""
        found = self.broker.topics.get(topic)
        if found is None:
            return []
        batches = []
        seq = 0
        while (batch := found.messages.batch_at(seq)) is not None and batch.end_seq > seq:
            batches.append(batch)
            seq = batch.end_seq
        return [body for _, body in messages_of(batches)]


def read_all(client: Any) -> bytes:
    parts = []
    while part := client.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def read_until(client: Any, end: bytes) -> bytes:
    got = b""
    while not got.endswith(end):
        part = client.recv(1 << 16)
        assert part, got
        got += part
    return got


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


def request(line: str, body: bytes = b"", *headers: str, host: str | None = "x", length: bool = True) -> bytes:
    lines = [f"{line} HTTP/1.1"] + ([f"Host: {host}"] if host is not None else []) + list(headers)
    if body and length:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chunked(line: str, *chunks: bytes) -> bytes:
    body = b"".join(b"%x;ext=1\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\nTrailer: x\r\n\r\n"
    return request(line, body, "Transfer-Encoding: chunked", length=False)


def message(code: str) -> bytes:
    return b'{"message":"%s"}' % code.encode()


def upgrade(connection: str) -> bytes:
    return request("POST /pub?topic=t", b"x", "Upgrade: h2c", f"Connection: {connection}")


def coded(coding: str, body: bytes = b"") -> bytes:
    return request("POST /pub?topic=t", body, f"Transfer-Encoding: {coding}", length=False)


MakeServer = Callable[..., Server]


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[MakeServer]:
    """`make_server(*flags)`; no test passes on which something raised where nothing may."""
    servers: list[Server] = []
    publishing.KNOWN_HEADS.clear()

    def make(*flags: str) -> Server:
        servers.append(Server(tmp_path / str(len(servers)), *flags))
        return servers[-1]

    yield make
    for server in servers:
        assert server.log.exceptions == []
        server.broker.close()


@pytest.fixture
def server(make_server: MakeServer) -> Server:
    return make_server("--max-msg-size=100", "--max-body-size=1000")


# ---- cases


class Case(NamedTuple):
    id: str
    sent: bytes
    status: int
    body: bytes
    closes: bool = False


CASES = [
    Case("ping", PING, 200, b"OK"),
    Case("ping with a body", request("GET /ping", b"abc"), 200, b"OK"),
    Case("pub", request("POST /pub?topic=t", b"x"), 200, b"OK"),
    Case("pub of bytes", request("POST /pub?topic=t", b"\0\r\n\r\nPOST"), 200, b"OK"),
    Case("pub of the largest", request("POST /pub?topic=t", b"x" * 100), 200, b"OK"),
    Case("pub in chunks", chunked("POST /pub?topic=t", b"ab", b"c"), 200, b"OK"),
    Case("pub to an absolute URL", request("POST http://h/pub?topic=t", b"x"), 200, b"OK"),
    Case("pub deferred", request("POST /pub?topic=t&defer=1000", b"x"), 200, b"OK"),
    Case("pub without a body", request("POST /pub?topic=t"), 400, message("MSG_EMPTY")),
    Case("pub of nothing in chunks", chunked("POST /pub"), 400, message("MSG_EMPTY")),
    Case("pub without a topic", request("POST /pub", b"x"), 400, message("MISSING_ARG_TOPIC")),
    Case("pub to a bad topic", request("POST /pub?topic=a%20b", b"x"), 400, message("INVALID_TOPIC")),
    Case("pub with a bad query", request("POST /pub?topic=%zz", b"x"), 400, message("INVALID_REQUEST")),
    Case("pub with a bad defer", request("POST /pub?topic=t&defer=x", b"x"), 400, message("INVALID_DEFER")),
    Case("pub with a long defer", request("POST /pub?topic=t&defer=3600001", b"x"), 400, message("INVALID_DEFER")),
    Case("pub with a defer below 0", request("POST /pub?topic=t&defer=-1", b"x"), 400, message("INVALID_DEFER")),
    Case("pub too big", request("POST /pub?topic=t", b"x" * 101), 413, message("MSG_TOO_BIG")),
    Case("pub too big in chunks", chunked("POST /pub?topic=t", b"x" * 99, b"yz"), 413, message("MSG_TOO_BIG"), True),
    Case("pub much too big", request("POST /pub?topic=t", b"x" * 300_000), 413, message("MSG_TOO_BIG"), True),
    Case("mpub", request("POST /mpub?topic=t", b"a\nbc\n\n"), 200, b"OK"),
    Case("mpub of empty lines", request("POST /mpub?topic=t", b"\n\n"), 200, b"OK"),
    Case("mpub of nothing", request("POST /mpub?topic=t"), 200, b"OK"),
    Case("mpub with a long line", request("POST /mpub?topic=t", b"a\n" + b"x" * 101), 413, message("MSG_TOO_BIG")),
    Case("mpub too big", request("POST /mpub?topic=t", b"a\n" * 501), 413, message("BODY_TOO_BIG")),
    Case("mpub too big in chunks", chunked("POST /mpub?topic=t", b"a\n" * 501), 413, message("BODY_TOO_BIG"), True),
    Case("mpub without a topic", request("POST /mpub", b"x"), 400, message("MISSING_ARG_TOPIC")),
    Case("mpub to a bad topic in chunks", chunked("POST /mpub?topic=$", b"x"), 400, message("INVALID_TOPIC"), True),
    Case("binary mpub", request("POST /mpub?topic=t&binary=1", b"\0\0\0\1\0\0\0\1a"), 200, b"OK"),
    Case("binary mpub of nothing", request("POST /mpub?topic=t&binary=1"), 413, message("BAD_BODY")),
    Case("binary mpub cut short", request("POST /mpub?topic=t&binary=1", b"\0\0\0\1"), 413, message("BAD_MESSAGE")),
    Case("topic/create", request("POST /topic/create?topic=made"), 200, b""),
    Case("topic/create with a body", request("POST /topic/create?topic=made", b"x" * 5000), 200, b""),
    Case("topic/delete", request("POST /topic/delete?topic=other"), 404, message("TOPIC_NOT_FOUND")),
    Case("not found", request("GET /nope"), 404, message("NOT_FOUND")),
    Case("not found with a body", request("POST /nope", b"x" * 100), 404, message("NOT_FOUND")),
    Case("not found with a large body", request("POST /nope", b"x" * 300_000), 404, message("NOT_FOUND"), True),
    Case("wrong method", request("GET /pub"), 405, message("METHOD_NOT_ALLOWED")),
    Case("redirect", request("POST /pub/?topic=t", b"x"), 308, b""),
    Case("options", request("OPTIONS *"), 200, b""),
    Case("upgrade", upgrade("Upgrade, HTTP2-Settings"), 200, b"OK"),
    Case("asked to close", request("GET /ping", b"", "Connection: close"), 200, b"OK", True),
    Case("asked to close after a pub", request("POST /pub?topic=t", b"x", "connection: close"), 200, b"OK", True),
    Case("upgrade and close", upgrade("upgrade, close"), 200, b"OK", True),
    Case("HTTP/1.0", b"GET /ping HTTP/1.0\r\n\r\n", 200, b"OK", True),
    Case("HTTP/1.0 kept alive", b"GET /ping HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 200, b"OK"),
    Case("HTTP/2.0", b"GET /ping HTTP/2.0\r\nHost: x\r\n\r\n", 505, BAD_VERSION, True),
    Case("no version", b"GET /ping\r\n\r\n", 400, BAD_REQUEST, True),
    Case("no host", request("GET /ping", host=None), 400, BAD_REQUEST + b": missing required Host header", True),
    Case("two hosts", request("GET /ping", b"", "Host: y"), 400, BAD_REQUEST, True),
    Case("bad host", request("GET /ping", host="a b"), 400, BAD_REQUEST + b": malformed Host header", True),
    Case("garbage", b"garbage\r\n\r\n", 400, BAD_REQUEST, True),
    Case("binary garbage", bytes(range(256)), 400, BAD_REQUEST, True),
    Case("bad header", request("GET /ping", b"", "Bad Header: x"), 400, BAD_REQUEST, True),
    Case("bad path", request("GET /p%zz"), 400, BAD_REQUEST, False),
    Case("bad length", request("POST /pub?topic=t", b"", "Content-Length: x"), 400, BAD_REQUEST, True),
    Case("two lengths", request("POST /pub?topic=t", b"x", "Content-Length: 2"), 400, BAD_REQUEST, True),
    Case("odd coding", coded("gzip"), 501, b"Unsupported transfer encoding", True),
    Case("odd expectation", request("POST /pub?topic=t", b"x", "Expect: luck"), 417, b"", True),
    Case("bad chunk", coded("chunked", b"zz\r\n"), 500, message("INTERNAL_ERROR"), True),
    Case("long URL", request("GET /ping?" + "x" * 500_000), 200, b"OK"),
    *(Case(f"much {part}", request("GET /ping?" + part * 150_000), 431, TOO_LARGE) for part in ("%41", "a&", "../")),
    Case("long header", request("GET /ping", b"", "A: " + "x" * 1_100_000), 431, TOO_LARGE, True),
    Case("endless header", b"GET /ping HTTP/1.1\r\nA: " + b"x" * 2_000_000, 431, TOO_LARGE, True),
    Case("endless trailer", chunked("POST /pub?topic=t", b"a")[:-4] + b"x" * 2_000_000, 431, TOO_LARGE, True),
]
SHORT_CASES = [case for case in CASES if len(case.sent) < 10_000]
by_id = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)


@by_id
def test_whole(server: Server, case: Case) -> None:
    found = answers(server.ask(case.sent))
    assert [(answer.status, answer.body) for answer in found] == [(case.status, case.body)]


@pytest.mark.parametrize("case", SHORT_CASES, ids=lambda case: case.id)
def test_byte_by_byte(server: Server, case: Case) -> None:
    found = answers(server.ask(*(bytes((byte,)) for byte in case.sent)))
    assert [(answer.status, answer.body) for answer in found] == [(case.status, case.body)]


@by_id
def test_pipelined(server: Server, case: Case) -> None:
    """The answers come in order; behind a request that closes nothing is answered."""
    found = answers(server.ask(PING + case.sent * 3 + request("GET /nope")))
    once = (case.status, case.body)
    behind = [once] if case.closes else [once, once, once, (404, message("NOT_FOUND"))]
    assert [(answer.status, answer.body) for answer in found] == [(200, b"OK"), *behind]


@pytest.mark.parametrize("case", [case for case in CASES if case.closes], ids=lambda case: case.id)
def test_what_closes_closes_although_the_client_does_not(server: Server, case: Case) -> None:
    found = answers(server.ask(case.sent, ends=False))
    assert [answer.status for answer in found] == [case.status]
    assert found[0].headers.get("connection") == (None if case.sent.endswith(b"HTTP/1.0\r\n\r\n") else "close")


@pytest.mark.parametrize("case", [case for case in CASES if not case.closes], ids=lambda case: case.id)
def test_what_does_not_close_stays(server: Server, case: Case) -> None:
    with server.connect() as client:
        client.sendall(case.sent)
        first = read_until(client, case.body or b"\r\n\r\n")
        assert b"Connection: close" not in first
        client.sendall(PING)
        assert read_until(client, b"OK").endswith(b"\r\n\r\nOK")


# ---- what is published


def test_what_is_published_arrives_byte_for_byte(server: Server) -> None:
    bodies = [b"x", b"\0\r\n\r\n" * 9, bytes(range(100))]
    together = b"".join(request("POST /pub?topic=t", body) for body in bodies)
    server.ask(together)
    server.ask(together)  # with heads that are known by now
    server.ask(*(bytes((byte,)) for byte in together))
    server.ask(chunked("POST /pub?topic=t", b"ab", b"c"), request("POST /mpub?topic=t", b"de\n\nf"))
    server.ask(request("POST /mpub?topic=t&binary=true", b"\0\0\0\2\0\0\0\1g\0\0\0\2hi" + b"behind"))
    assert server.messages("t") == [*bodies, *bodies, *bodies, b"abc", b"de", b"f", b"g", b"hi"]


def test_a_known_head_is_held_to_the_limits_of_its_server(make_server: MakeServer) -> None:
    large, small = make_server("--max-msg-size=50"), make_server("--max-msg-size=49")
    sent = request("POST /pub?topic=t", b"x" * 50)
    for _ in range(2):
        assert answers(large.ask(sent))[0].status == 200
        assert answers(small.ask(sent))[0].status == 413
    assert sent[: -len(b"x" * 50)] in publishing.KNOWN_HEADS


def test_a_failed_write_replaces_the_answers_of_its_publishes(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.ask(request("POST /pub?topic=t", b"x"))

    def append(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    sent = request("POST /pub?topic=t", b"x")
    last = request("POST /pub?topic=t", b"x", "Connection: close")
    with monkeypatch.context() as patched:
        patched.setattr(TopicLog, "append_at_once", append)
        found = answers(server.ask(PING + sent + PING + sent + request("POST /mpub?topic=t", b"a\nb") + last))
    refused = (503, message("PUB_FAILED: No space left on device"))
    expected = [(200, b"OK"), refused, (200, b"OK"), *[refused] * 3]
    assert [(answer.status, answer.body) for answer in found] == expected
    assert [answer.headers.get("connection") for answer in found] == [None] * 5 + ["close"]
    old = answers(server.ask(b"GET /ping HTTP/1.0\r\n\r\n"))[0]
    assert (old.status, old.body) == (500, b"NOK - disk: [Errno 28] No space left on device")
    assert answers(server.ask(sent))[0].status == 200
    assert answers(server.ask(PING))[0].status == 200
    assert server.messages("t") == [b"x", b"x"]


def test_answers_wait_for_the_sync_that_covers_them(make_server: MakeServer) -> None:
    server = make_server("--sync-every=1")
    server.ask(request("POST /topic/create?topic=t"))
    sent = request("POST /pub?topic=t", b"x") * 3 + request("POST /topic/create?topic=u") + PING
    assert [answer.status for answer in answers(server.ask(sent))] == [200] * 5


# ---- requests that may block


def test_a_slow_request_holds_up_its_connection_only(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.ask(request("POST /topic/create?topic=t"))
    persisted = gevent.event.Event()
    monkeypatch.setattr(server.broker.metadata, "persist", persisted.wait)
    pause = request("POST /topic/pause?topic=t")
    with server.connect() as slow:
        slow.sendall(pause + request("POST /pub?topic=t", b"x") + pause + PING + request("GET /nope"))
        assert [answer.status for answer in answers(server.ask(PING * 3))] == [200] * 3
        with pytest.raises(TimeoutError), gevent.Timeout(0.05, TimeoutError):
            slow.recv(1)
        persisted.set()
        slow.shutdown(socket.SHUT_WR)
        found = answers(read_all(slow))
    assert [(answer.status, answer.body) for answer in found] == [
        (200, b""),
        (200, b"OK"),
        (200, b""),
        (200, b"OK"),
        (404, message("NOT_FOUND")),
    ]
    assert server.broker.topics["t"].is_paused


def test_a_request_that_fails_on_the_disk_is_an_internal_error(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def persist() -> None:
        raise OSError(errno.EIO, "Input/output error")

    server.ask(request("POST /topic/create?topic=t"))
    monkeypatch.setattr(server.broker.metadata, "persist", persist)
    failed, alive = answers(server.ask(request("POST /topic/pause?topic=t") + PING))
    assert (failed.status, failed.body, alive.status) == (500, message("INTERNAL_ERROR: Input/output error"), 200)
    monkeypatch.undo()


def test_a_body_is_asked_for_in_its_turn(server: Server) -> None:
    expecting = request("POST /pub?topic=t", b"", "Expect: 100-continue", "Content-Length: 1")
    with server.connect() as client:
        client.sendall(expecting)
        assert read_until(client, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"x")
        assert read_until(client, b"OK").startswith(b"HTTP/1.1 200 ")
        client.sendall(request("POST /topic/create?topic=t") + expecting)
        got = read_until(client, b"100 Continue\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 200 ")
        client.sendall(b"y")
        assert read_until(client, b"OK").startswith(b"HTTP/1.1 200 ")
    assert server.messages("t") == [b"x", b"y"]


@pytest.mark.parametrize("line", ["POST /nope", "POST /mpub", "POST /pub?topic=t"])
def test_a_refused_body_is_not_asked_for(server: Server, line: str) -> None:
    length = "Content-Length: 101"
    found = answers(server.ask(request(line, b"", "Expect: 100-continue", length), ends=False))
    assert [answer.status for answer in found] in ([404], [400], [413])


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
def test_input_that_ends_inside_a_request(server: Server, sent: bytes, status: int) -> None:
    found = answers(server.ask(PING + sent))
    assert [answer.status for answer in found] == [200, status]
    assert found[1].headers["connection"] == "close"
    assert server.messages("t") == []
    assert "cut" not in server.broker.topics


def test_large_answers_reach_a_slow_reader_and_do_not_pile_up(server: Server) -> None:
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


def test_a_client_that_takes_no_answers_is_not_read_from(server: Server) -> None:
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

_FRAGMENTS = [case.sent for case in SHORT_CASES if "/topic/" not in case.sent.decode("latin-1")] + [
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


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("fuzzed"), "--max-msg-size=100", "--max-body-size=1000")
    yield server
    server.broker.close()


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place for place in places if place < len(data)}), len(data)]
    return [part for low, high in zip(edges, edges[1:], strict=False) if (part := data[low:high])]


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(_FRAGMENTS) | st.binary(max_size=40), max_size=8).map(b"".join),
    st.lists(st.integers(0, 600), max_size=6),
)
@example(b"POST /pub?topic=t HTTP/1.1\nHost: x\nContent-Length: 1\n\nx" + PING, [9])
def test_any_bytes_get_the_same_answers_however_they_arrive(fuzzed: Server, data: bytes, places: list[int]) -> None:
    whole = fuzzed.ask(data)
    assert undated(fuzzed.ask(*cut(data, places))) == undated(whole)
    publishing.KNOWN_HEADS.clear()
    assert undated(fuzzed.ask(data)) == undated(whole)
    assert fuzzed.log.exceptions == []


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_no_bytes_cost_more_than_their_connection(fuzzed: Server, data: bytes) -> None:
    fuzzed.ask(data)
    assert fuzzed.log.exceptions == []
    assert answers(fuzzed.ask(PING))[0].status == 200
