"""URLs: queries, escapes, numbers, and the route or redirect of a target."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd_py.api import handlers, publishing
from nsqd_py.api.routes import ROUTER
from nsqd_py.errors import ClientError
from nsqd_py.net.http.router import BadQuery, parse_int64, parse_query, unescape
from nsqd_py.protocol import multi_body
from tests.unit.fakes import sized

# ---- queries


@pytest.mark.parametrize(
    ("query", "params"),
    [
        (b"", {}),
        (b"&&", {}),
        (b"topic=a", {"topic": "a"}),
        (b"topic=a&topic=b", {"topic": "a"}),
        (b"topic", {"topic": ""}),
        (b"topic=", {"topic": ""}),
        (b"=a", {"": "a"}),
        (b"a=b=c", {"a": "b=c"}),
        (b"topic=a%23ephemeral&x=1+2%2b3", {"topic": "a#ephemeral", "x": "1 2+3"}),
        (b"t%6Fpic=%c3%A4", {"topic": "ä"}),
        (b"topic=%ff", {"topic": "\udcff"}),
    ],
)
def test_a_query_becomes_its_first_values(query: bytes, params: dict[str, str]) -> None:
    assert parse_query(query) == params


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (b"topic=%zz", 'invalid URL escape "%zz"'),
        (b"topic=a&x=%4", 'invalid URL escape "%4"'),
        (b"%", 'invalid URL escape "%"'),
        (b"topic=a;b=c", "invalid semicolon separator in query"),
    ],
)
def test_a_malformed_query_is_an_error_wherever_it_is(query: bytes, reason: str) -> None:
    with pytest.raises(BadQuery) as raised:
        parse_query(query)
    assert str(raised.value) == reason


@given(st.binary())
def test_unescape_undoes_escaping(raw: bytes) -> None:
    assert unescape(b"".join(b"%%%02x" % byte for byte in raw)) == raw


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("-1", -1), ("+10", 10), ("007", 7), (str(2**63 - 1), 2**63 - 1), (str(-(2**63)), -(2**63))],
)
def test_a_number_is_decimal(text: str, number: int) -> None:
    assert parse_int64(text) == number


@pytest.mark.parametrize(
    "text", ["", "+", "x", " 1", "1 ", "1_0", "1.0", "0x1", "\u0661", str(2**63), "9" * 5000]
)
def test_what_is_no_number_of_64_bits_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_int64(text)


# ---- targets


@pytest.mark.parametrize(
    ("method", "url", "path"),
    [
        ("POST", "/pub?topic=a", "/pub"),
        ("POST", "/p%75b?topic=a", "/pub"),
        ("POST", "http://host:1/topic/create?topic=a", "/topic/create"),
        ("GET", "/stats?" + "x=1&" * 1000, "/stats"),
    ],
)
def test_a_path_has_a_route(method: str, url: str, path: str) -> None:
    route = ROUTER.resolve(method, url).route
    assert (route.method, route.path) == (method, path)


@pytest.mark.parametrize(
    ("method", "url", "status", "header"),
    [
        ("GET", "/ping/", 301, "Location: /ping"),
        ("GET", "/Stats?format=json", 301, "Location: /stats?format=json"),
        ("GET", "http://host/ping/?a=b", 301, "Location: http://host/ping?a=b"),
        ("POST", "/pub/?topic=a", 308, "Location: /pub?topic=a"),
        ("POST", "//PUB?topic=a", 308, "Location: /pub?topic=a"),
        ("POST", "/foo/../pub", 308, "Location: /pub"),
        ("GET", "/pub", 405, "Allow: OPTIONS, POST"),
        ("DELETE", "/ping", 405, "Allow: GET, OPTIONS"),
        ("OPTIONS", "/pub", 200, "Allow: OPTIONS, POST"),
        ("GET", "/config/log_level/", 301, "Location: /config/log_level"),
        ("GET", "/config/a%0D%0Ab/", 404, ""),
        ("GET", "/topic/create/", 404, ""),
        ("HEAD", "/ping/", 404, ""),
        ("GET", "/", 404, ""),
        ("OPTIONS", "/nope", 404, ""),
        ("CONNECT", "host:80", 404, ""),
        ("OPTIONS", "*", 200, ""),
        ("POST", "/p%zzb", 400, ""),
    ],
)
def test_a_path_without_a_route_has_an_answer(method: str, url: str, status: int, header: str) -> None:
    reply = ROUTER.resolve(method, url).reply
    assert reply.status == status
    assert header in reply.headers
    assert ("Allow:" in header, "Location:" in header) == (
        "Allow:" in reply.headers,
        "Location:" in reply.headers,
    )


def test_a_redirect_does_not_put_markup_of_the_client_into_its_page() -> None:
    reply = ROUTER.resolve("GET", '/ping/?"><script>').reply
    assert b"<script>" not in reply.body


def test_a_malformed_query_keeps_its_route() -> None:
    target = ROUTER.resolve("POST", "/pub?topic=%zz")
    assert (target.params, target.query_error) == (None, 'invalid URL escape "%zz"')
    assert target.route is not None


# ---- bodies of /mpub


@pytest.fixture(autouse=True, scope="module")
def small_slices() -> Iterator[None]:
    """Slices of a few messages and bytes, so that small bodies have several."""
    with (
        mock.patch.multiple(handlers, SLICE_MESSAGES=3, _SLICE_BYTES=16),
        mock.patch.object(multi_body, "SLICE_MESSAGES", 3),
    ):
        yield


def nothing() -> None:
    pass


def test_long_bodies_are_read_with_rests() -> None:
    rests = []
    handlers.from_lines(b"a\n" * 100, 20, lambda: rests.append(1))
    assert len(rests) >= 10
    rests.clear()
    handlers.from_binary(b"\0\0\0\x3c" + sized(*[b"a", b"bb"] * 30), 20, 1 << 20, lambda: rests.append(1))
    assert len(rests) == 20


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "E_BAD_BODY"),
        (b"\0\0\0", "E_BAD_BODY"),
        (b"\0\0\0\0", "E_BAD_BODY"),
        (b"\xff\xff\xff\xff", "E_BAD_BODY"),
        (b"\0\0\0\x15" + b"\0\0\0\1a" * 21, "E_BAD_BODY"),
        (b"\0\0\0\1\0\0\0\0", "E_BAD_MESSAGE"),
        (b"\0\0\0\1\xff\xff\xff\xff", "E_BAD_MESSAGE"),
        (b"\0\0\0\2\0\0\0\1a\0\0\0\x0b" + b"x" * 11, "E_BAD_MESSAGE"),
        (b"\0\0\0\2" + (b"\0\0\0\x0b" + b"x" * 11) * 2, "E_BAD_MESSAGE"),
    ],
)
def test_binary_bodies_are_checked_as_mpub_is(data: bytes, code: str) -> None:
    with pytest.raises(ClientError) as raised:
        handlers.from_binary(data, 10, 104, nothing)
    assert raised.value.code == code


# ---- heads


def test_a_head_is_known_with_other_lengths_too() -> None:
    def head(length: bytes) -> bytes:
        return b"POST /pub?topic=known HTTP/1.1\r\nHost: x\r\nContent-Length: " + length + b"\r\nA: b\r\n\r\n"

    publishing.remember_head(head(b"7"), "known")
    assert publishing.recognise_head(head(b"7")) == ("known", 7, b"\0\0\0\7")
    assert publishing.recognise_head(head(b"258")) == ("known", 258, b"\0\0\1\2")
    for other in (b"0", b"01", b"-1", b"1 ", b" 1", b"", b"1" * 10, b"1\r\nContent-Length: 7", b"x"):
        assert publishing.recognise_head(head(other)) is None
    assert publishing.recognise_head(head(b"7").replace(b"A: b", b"A: c")) is None
    assert publishing.recognise_head(head(b"7").replace(b"known", b"other")) is None


def test_heads_do_not_pile_up() -> None:
    for number in range(5000):
        head = b"POST /pub?topic=t HTTP/1.1\r\nContent-Length: 1\r\nN: %d\r\n\r\n" % number
        publishing.remember_head(head, "t")
        publishing.recognise_head(head)
    assert len(publishing.KNOWN_HEADS) <= 1024
