"""Made-up HTTP at running daemons: each byte sequence gets answers that are HTTP, or a close, and harms nothing."""

from __future__ import annotations

import hashlib
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nsqd_py.api.routes import ROUTES as NSQD_ROUTES
from nsqd_py.net.http.answers import REASONS
from nsqlookupd_py.http import ROUTES as NSQLOOKUPD_ROUTES
from tests.support.examples import examples
from tests.support.nsqd_process import NsqdProcess, ServerProcess
from tests.support.nsqlookupd_process import NsqlookupdProcess

pytestmark = pytest.mark.ours

DEADLINE_S = 40.0
TOKEN = b"d1a9"
NSQD_EXAMPLES = examples(300)
NSQLOOKUPD_EXAMPLES = examples(150)

# /drain ends nsqd; the others take their time by design.
LEFT_OUT = {"/drain", "/debug/pprof/profile"}
# What HTTP itself forbids to answer otherwise. 500 is the answer, as Go's, to a message that does not end.
DOCUMENTED_FAILURES = {501, 505}

HEAD = re.compile(rb"HTTP/1\.[01] (\d{3}) ([A-Za-z -]+)\r\n((?:[A-Za-z-]+: [^\r\n]*\r\n)*)\r\n")
CONTENT_LENGTH = re.compile(rb"Content-Length: (\d+)\r\n")
TROUBLE = ("Traceback", "internal error", "Error:")


# ---- what is sent


class Sent(NamedTuple):
    """The pieces of what goes over one connection. `is_sound`: nothing but whole requests."""

    pieces: list[bytes]
    is_sound: bool


def one_of_these_or(usual: list[bytes], unusual: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Mostly the usual: what is refused at the first look reaches little."""
    return st.sampled_from([st.sampled_from(usual)] * 15 + [unusual]).flatmap(lambda chosen: chosen)


def once_in(times: int) -> st.SearchStrategy[bool]:
    return st.sampled_from([False] * (times - 1) + [True])


def paths_of(*routes: tuple[str, str]) -> list[tuple[bytes, bytes]]:
    """(method, path) of the routes, with an option's name where one may stand."""
    found = []
    for method, path in routes:
        if path not in LEFT_OUT:
            beginning, colon, _ = path.partition(":")
            names = ("log_level", "nsqlookupd_tcp_addresses", "max_msg_size", "nope") if colon else ("",)
            found += [(method.encode(), (beginning + name).encode()) for name in names]
    return found


def fuzzed_path(path: bytes) -> st.SearchStrategy[bytes]:
    return st.sampled_from(
        [*[path] * 15, path.upper(), b"/" + path, path + b"/", path + b"/../x", b"http://h" + path]
    )


QUERY_KEY = one_of_these_or(
    [b"topic", b"channel", b"defer", b"binary", b"format", b"node", b"debug", b"rate", b"include_clients"],
    st.binary(max_size=8).map(lambda key: quote_from_bytes(key).encode()),
)
QUERY_VALUE = one_of_these_or(
    [b"t", b"c", b"t%23ephemeral", b"1", b"true", b"json", b"2"],
    st.one_of(
        st.sampled_from([b"-5", b"9" * 30, b"%zz", b"a;b", b"%00", b"x" * 300]),
        st.binary(max_size=12).map(lambda value: quote_from_bytes(value).encode()),
    ),
)
QUERY = st.one_of(
    st.just(b""),
    st.sampled_from(
        [b"?topic=t", b"?topic=t&channel=c", b"?topic=t%23ephemeral&defer=1", b"?topic=t&binary=true"]
    ),
    st.lists(st.tuples(QUERY_KEY, QUERY_VALUE), min_size=1, max_size=4).map(
        lambda pairs: b"?" + b"&".join(key + b"=" + value for key, value in pairs)
    ),
)
HEADER = one_of_these_or(
    [
        b"X: y",
        b"Connection: keep-alive",
        b"Expect: 100-continue",
        b"Accept-Encoding: gzip",
        b"Authorization: Bearer " + TOKEN,
        b"Cookie: " + b"c" * 3000,
    ],
    st.sampled_from(
        [
            b"Host:",
            b"Host: a b",
            b"host: \xff",
            b"Expect: tea",
            b"Connection: close",
            b"Connection: upgrade\r\nUpgrade: h2c",
            b"Upgrade: websocket",
            b"Authorization: Basic ",
            b"Authorization: Basic YTpi",
            b"Authorization: Bearer wrong",
            b"Authorization: \xfe",
        ]
    ),
)
BROKEN_LINE = st.sampled_from(
    [b"no colon", b" folded", b"Bad name: x", b"\x00: x", b"Content-Length: -1", b"X: \x00"]
)
BODY = one_of_these_or(
    [
        b"",
        b"message",
        b"a\nb\n\nc",
        b"debug",
        b"info",
        b"[]",
        b'["127.0.0.1:1"]',
        b'{"a":1}',
        b"x" * 101,
        b"x\n" * 200,
    ],
    st.binary(max_size=64),
)
VERSION = one_of_these_or(
    [b"HTTP/1.1"] * 5 + [b"HTTP/1.0"], st.sampled_from([b"HTTP/2.0", b"HTTP/0.9", b"HTTP/1.7", b"", b"X"])
)
METHOD = st.sampled_from([b"GET", b"POST", b"PUT", b"HEAD", b"OPTIONS", b"DELETE", b"PATCH", b"NOPE", b"p"])


@st.composite
def requests(draw: st.DrawFn, known: list[tuple[bytes, bytes]]) -> tuple[bytes, bool]:
    """The bytes of a request, and whether its body is as it says."""
    method, path = draw(st.sampled_from(known))
    if draw(once_in(10)):
        method = draw(METHOD)
    target = draw(fuzzed_path(path)) + draw(QUERY)
    version = draw(VERSION)
    headers = draw(st.lists(HEADER, max_size=4))
    if not draw(once_in(20)):
        headers.insert(0, b"Host: h")
    is_sound = not draw(once_in(20))
    if not is_sound:
        headers.append(draw(BROKEN_LINE))
    body = draw(BODY)
    framing, wire_body, is_framed_well = draw(framed(body))
    lines = [method + b" " + target + b" " + version, *headers, *framing]
    return b"\r\n".join(lines) + b"\r\n\r\n" + wire_body, is_sound and is_framed_well


def framed(body: bytes) -> st.SearchStrategy[tuple[list[bytes], bytes, bool]]:
    """The headers that say how long the body is, the body as it is sent, and whether that is right."""
    size = b"Content-Length: %d"
    chunk = b"%x\r\n%s\r\n" % (len(body), body) if body else b""
    chunked = b"Transfer-Encoding: chunked"
    whole: list[tuple[list[bytes], bytes, bool]] = [
        ([size % len(body)], body, True),
        ([chunked], chunk + b"0\r\n\r\n", True),
        ([chunked], chunk + b"0\r\nTrailer: x\r\n\r\n", True),
        ([], b"", True),
    ]
    return st.sampled_from(
        [
            *whole * 10,
            ([size % (len(body) + 5)], body, False),
            ([size % (len(body) // 2)], body, False),
            ([size % len(body), size % (len(body) + 1)], body, False),
            ([size % 10**18], body, False),
            ([chunked], chunk, False),
            ([chunked], b"zz\r\n" + chunk, False),
            ([chunked], b"ffffffffffffffff\r\n" + body, False),
            ([chunked, size % len(body)], chunk + b"0\r\n\r\n", False),
            ([b"Transfer-Encoding: gzip"], body, False),
        ]
    )


@st.composite
def connections(draw: st.DrawFn, known: list[tuple[bytes, bytes]]) -> Sent:
    """Requests in a row, perhaps cut off, in pieces."""
    parts = draw(st.lists(requests(known), min_size=1, max_size=4))
    data = b"".join(part for part, _ in parts)
    is_sound = all(sound for _, sound in parts)
    if draw(once_in(6)):
        data = data[: draw(st.integers(0, len(data)))]
        is_sound = False
    if draw(once_in(10)):
        position = draw(st.integers(0, len(data)))
        data = data[:position] + draw(st.binary(min_size=1, max_size=8)) + data[position:]
        is_sound = False
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=3)))
    pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    return Sent([piece for piece in pieces if piece], is_sound)


# ---- what comes back


def exchange(port: int, pieces: list[bytes]) -> bytes:
    """All that is answered. Fails when the connection is not closed before the deadline."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for piece in pieces:
                client.sendall(piece)
            client.shutdown(socket.SHUT_WR)
            while data := client.recv(1 << 16):
                received += data
        except (BrokenPipeError, ConnectionResetError, OSError) as error:
            assert not isinstance(error, TimeoutError), f"it hangs after {received!r}"
    return received


def statuses_of(received: bytes) -> list[int]:
    """The status of each answer; fails for what is not HTTP."""
    statuses = []
    while received:
        head = HEAD.match(received)
        assert head is not None, received[:200]
        status = int(head[1])
        received = received[head.end() :]
        if status == 100:
            continue
        assert head[2].decode() == REASONS[status]
        length = CONTENT_LENGTH.search(head[3])
        rest = received[int(length[1]) :]
        # The answer to HEAD says how long a body would be, and has none.
        has_body = not received.startswith(b"HTTP/1.") and received != b""
        assert not has_body or len(received) >= int(length[1]), "a torn answer"
        received = rest if has_body else received
        statuses.append(status)
    return statuses


def check(daemon: ServerProcess, sent: Sent) -> None:
    statuses = statuses_of(exchange(daemon.http_port, sent.pieces))
    failures = {status for status in statuses if status >= 500} - DOCUMENTED_FAILURES
    assert failures <= ({500} if not sent.is_sound else set()), statuses
    assert 500 not in statuses[:-1], "a body that does not end is the last one"


# ---- the daemons


@pytest.fixture(scope="module")
def fuzzed_nsqd(tmp_path_factory) -> Iterator[NsqdProcess]:
    directory = tmp_path_factory.mktemp("fuzz")
    nsqd = NsqdProcess(directory / "nsqd", "--max-msg-size=100", "--max-body-size=300", "--log-level=info")
    yield nsqd.start()
    assert nsqd.stop() == 0


@pytest.fixture(scope="module")
def fuzzed_nsqlookupd(tmp_path_factory) -> Iterator[NsqlookupdProcess]:
    """One that asks for a token."""
    directory: Path = tmp_path_factory.mktemp("fuzz")
    auth_file = directory / "auth"
    auth_file.write_bytes(b"token:fuzz:" + hashlib.sha256(TOKEN).hexdigest().encode())
    nsqlookupd = NsqlookupdProcess(directory / "nsqlookupd.log", f"--http-auth-file={auth_file}")
    yield nsqlookupd.start()
    assert nsqlookupd.stop() == 0


def check_is_well(daemon: ServerProcess) -> None:
    assert daemon.is_running
    assert daemon.is_healthy()
    log = daemon.log_text()
    assert not any(word in log for word in TROUBLE), log


fuzz = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
NSQD_PATHS = paths_of(*((route.method, route.path) for route in NSQD_ROUTES))
NSQLOOKUPD_PATHS = paths_of(*((route.method, route.path) for route in NSQLOOKUPD_ROUTES))


def test_nsqd(fuzzed_nsqd):
    @settings(fuzz, max_examples=NSQD_EXAMPLES)
    @given(connections(NSQD_PATHS))
    def attack(sent):
        check(fuzzed_nsqd, sent)

    attack()
    check_is_well(fuzzed_nsqd)
    assert fuzzed_nsqd.http("POST", "/pub?topic=afterwards", b"message").text == "OK"


def test_nsqlookupd(fuzzed_nsqlookupd):
    @settings(fuzz, max_examples=NSQLOOKUPD_EXAMPLES)
    @given(connections(NSQLOOKUPD_PATHS))
    def attack(sent):
        check(fuzzed_nsqlookupd, sent)

    attack()
    check_is_well(fuzzed_nsqlookupd)
    assert fuzzed_nsqlookupd.http("GET", "/nodes").json() == {"producers": []}


UPGRADE = b"GET /ping HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: h2c\r\n"


@pytest.mark.parametrize(
    ("data", "statuses"),
    [
        # A head that asks for another protocol, and is wrong in what the parser checks only without that.
        (UPGRADE + b"Transfer-Encoding: gzip\r\n\r\n", [501]),
        # The same behind a request after which none is answered.
        (b"GET /ping HTTP/1.1\r\nHost: a b\r\n\r\n" + UPGRADE + b"\r\n", [400]),
    ],
)
def test_what_was_found(fuzzed_nsqd, data, statuses):
    assert statuses_of(exchange(fuzzed_nsqd.http_port, [data])) == statuses
    check_is_well(fuzzed_nsqd)


def test_bytes_that_are_no_http(fuzzed_nsqd):

    @settings(fuzz, max_examples=examples(100))
    @given(st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=3))
    def attack(pieces):
        statuses = statuses_of(exchange(fuzzed_nsqd.http_port, pieces))
        assert set(statuses) <= {400, 505}

    attack()
    check_is_well(fuzzed_nsqd)
