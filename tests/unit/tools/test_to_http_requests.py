"""What nsq-to-http asks, as bytes."""

from __future__ import annotations

import pytest

from nsq_tools.to_http.requests import GET, POST, HttpRequest, Server, merge_headers, parse_header

# ---- headers


@pytest.mark.parametrize("text", ["a: b", "a:b", " a :  b ", "a:b\n"])
def test_spaces_around_names_and_values_do_not_count(text: str) -> None:
    assert parse_header(text) == ("a", "b")


def test_a_value_may_have_colons() -> None:
    assert parse_header("Referer: http://x:1/") == ("Referer", "http://x:1/")


@pytest.mark.parametrize("text", ["", "a", "a:", "a: ", ":b", ":", " : b", "a=b"])
def test_a_header_has_a_name_and_a_value(text: str) -> None:
    with pytest.raises(ValueError, match="--header value format should be 'name: value'"):
        parse_header(text)


@pytest.mark.parametrize(
    "text", ["a b: c", "a: b\r\nc: d", "ä: b", "a: \x00b", "Content-Length: 7", "trailer: x"]
)
def test_headers_that_would_break_the_request_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--header"):
        parse_header(text)


def test_given_headers_replace_defaults_in_whatever_case() -> None:
    merged = merge_headers({"User-Agent": "x", "A": "1"}, [("user-agent", "y"), ("B", "2"), ("b", "3")])
    assert merged == {"user-agent": "y", "A": "1", "b": "3"}


# ---- requests


def get(address: str) -> HttpRequest:
    return HttpRequest(GET, address, {}, has_placeholder=True)


def target(request: HttpRequest, message: bytes = b"") -> str:
    return request.encode(message).split()[1].decode()


def headers_of(request: HttpRequest) -> dict[str, str]:
    lines = request.encode(b"").partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return dict(line.split(": ", 1) for line in lines)


@pytest.mark.parametrize(
    ("request_", "sent"),
    [
        (
            HttpRequest(POST, "http://h:81/p?q=%s", {"A": "b"}),
            b"POST /p?q=%s HTTP/1.1\r\nHost: h:81\r\nA: b\r\nContent-Length: 3\r\n\r\nxyz",
        ),
        (get("http://h:81/p?q=%s&r=1"), b"GET /p?q=xyz&r=1 HTTP/1.1\r\nHost: h:81\r\n\r\n"),
    ],
)
def test_where_the_message_is(request_: HttpRequest, sent: bytes) -> None:
    assert request_.encode(b"xyz") == sent
    assert request_.server == Server(False, "h", 81)


def test_a_message_is_escaped_as_go_does() -> None:
    every_byte = bytes(range(256))
    escaped = target(get("http://h/%s"), every_byte).removeprefix("/")
    kept = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~"
    assert escaped == "".join(
        chr(b) if chr(b) in kept else "+" if b == 32 else f"%{b:02X}" for b in every_byte
    )


@pytest.mark.parametrize(
    ("address", "message", "expected"),
    [("http://h/%s", b"%s%%", "/%25s%25%25"), ("http://h/a%%20b?%s", b"c", "/a%20b?c")],
)
def test_percent_signs(address: str, message: bytes, expected: str) -> None:
    assert target(get(address), message) == expected


@pytest.mark.parametrize("address", ["http://%s/", "http://h/#%s", "ftp://h/%s", "h/%s", "http://h:0/%s"])
def test_addresses_that_cannot_be_used(address: str) -> None:
    with pytest.raises(ValueError):
        get(address)


def test_spaces_in_an_address_do_not_break_the_request() -> None:
    assert target(HttpRequest(POST, "http://h/a b?c d=é", {})) == "/a%20b?c%20d=%C3%A9"


@pytest.mark.parametrize(
    ("address", "host"),
    [("http://h:80/", "h"), ("https://h/", "h"), ("https://h:80/", "h:80"), ("http://[::1]:81/", "[::1]:81")],
)
def test_the_host_is_named_without_its_usual_port(address: str, host: str) -> None:
    assert headers_of(HttpRequest(POST, address, {}))["Host"] == host


def test_a_login_in_the_address_is_shown_to_the_server_and_not_in_logs() -> None:
    request = HttpRequest(POST, "http://me:pass@h/p?token=x", {})
    assert headers_of(request)["Authorization"] == "Basic bWU6cGFzcw=="
    assert request.name == "http://h:80/p"


def test_a_host_header_may_be_given() -> None:
    headers = headers_of(HttpRequest(GET, "http://10.0.0.1/", {"host": "example.com"}))
    assert headers == {"host": "example.com"}


# ---- redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_get_follows_redirects_as_it_is(status: int) -> None:
    following = get("http://h/a/%s?x=1").redirected(b"m m", status, "../b?y=%25s")
    assert following
    assert (following.method, target(following, b"m m")) == (GET, "/b?y=%25s")
    assert following.server == Server(False, "h", 80)


@pytest.mark.parametrize(
    ("status", "follows"), [(301, False), (302, False), (303, False), (307, True), (308, True)]
)
def test_a_post_follows_only_where_the_message_goes_along(status: int, follows: bool) -> None:
    following = HttpRequest(POST, "http://h/a", {}).redirected(b"m", status, "https://other:444/b")
    assert (following is not None) is follows
    if following:
        assert (target(following), headers_of(following)["Host"]) == ("/b", "other:444")
        assert following.server == Server(True, "other", 444)


@pytest.mark.parametrize(("status", "location"), [(200, "/b"), (304, "/b"), (300, "/b"), (307, "")])
def test_other_answers_are_no_redirects(status: int, location: str) -> None:
    assert get("http://h/%s").redirected(b"m", status, location) is None


def test_secrets_stay_with_the_host_they_are_for() -> None:
    headers = {
        "Authorization": "secret",
        "cookie": "secret",
        "X-Api-Key": "secret",
        "content-type": "text/plain",
    }
    request = HttpRequest(POST, "https://h/a", headers)
    same = request.redirected(b"", 307, "https://h:81/b")
    assert same
    assert headers_of(same).items() >= headers.items()
    for elsewhere in ("https://g/b", "http://h/b"):
        other = request.redirected(b"", 307, elsewhere)
        assert other
        assert headers.keys() & headers_of(other).keys() == {"content-type"}


def test_a_redirect_to_nowhere_is_an_error() -> None:
    with pytest.raises(ValueError, match="http"):
        get("http://h/%s").redirected(b"m", 302, "mailto:x@y")
