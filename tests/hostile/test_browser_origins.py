"""What a foreign web page can make a browser send to the daemons: changes from another site, and DNS rebinding."""

from __future__ import annotations

import socket
import ssl

import pytest

from nsqd_py.net.http.browsers import CROSS_SITE, HEADERS, KnownHosts, check_hosts, refusal
from tests.support.certificates import make_certificates
from tests.support.hostile_table import ADMIN_ROUTES, LOOKUPD_ROUTES, NSQD_ROUTES, path_of
from tests.support.nsqd_process import ServerProcess

HOSTS = KnownHosts(["Node-7", "nsqd.internal.example.", ".corp.example", ""])
CHROME = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/150.0.0.0 Safari/537.36"
)
FOREIGN = "HOST_NOT_ALLOWED"

KNOWN = [
    "127.0.0.1:4151",
    "192.0.2.7",
    "[::1]:4151",
    "[::ffff:127.0.0.1]",
    "localhost",
    "LOCALHOST.:4151",
    "node-7:1",
    "nsqd.internal.example",
    "nsqd.internal.example.:80",
    "corp.example",
    "a.b.CORP.example:4151",
]
UNKNOWN = [
    "evil.example:4151",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "node-7.evil.example",
    "evilcorp.example",
    "",
    ":4151",
    "a@127.0.0.1",
    "evil.example@localhost",
    "localhost@evil.example",
    "[::1",
    "::1",
    "[evil.example]",
    "[]",
    "localhost:80:90",
    "localhost:x",
    "localhost/",
    "localhost,evil.example",
    "localhost..",
    "127.0.0.1, evil.example",
    "2130706433",
    "0x7f.1",
    "localhost\x00",
    "xn--lcalhost-54a",
    "ⓛocalhost",
]


@pytest.mark.parametrize(("names", "is_known"), [(KNOWN, True), (UNKNOWN, False)])
def test_names_of_hosts(names, is_known):
    assert [name for name in names if HOSTS.knows(name) is not is_known] == []


@pytest.mark.parametrize(
    "name", ["*.example.com", "http://a", "a:4151", "a,b", "a b", "", ".", "..a", "[::1]"]
)
def test_a_malformed_allowed_host_is_an_error(name):
    assert "must be a host name" in (check_hosts(("a.example", ".example.com", name)) or "")


# The method, the headers, and the beginning of the refusal.
REQUESTS: list[tuple[str, dict[str, str], str | None]] = [
    # programs
    ("POST", {}, None),
    ("POST", {"host": "evil.example", "user-agent": "curl/8.5"}, None),
    (
        "GET",
        {"host": "evil.example", "accept-language": "*", "sec-fetch-mode": "cors", "user-agent": "node"},
        None,
    ),
    (
        "POST",
        {"host": "nsqd.corp", "user-agent": "Mozilla/5.0 (Windows NT 10.0; en-US) PowerShell/7.4.1"},
        None,
    ),
    # our own page
    ("POST", {"host": "localhost:1", "origin": "http://localhost:1"}, None),
    ("POST", {"host": "localhost:1", "origin": "http://LOCALHOST:1", "sec-fetch-site": "same-origin"}, None),
    (
        "DELETE",
        {"host": "127.0.0.1:1", "origin": "https://proxy.example", "sec-fetch-site": "same-origin"},
        None,
    ),
    ("GET", {"host": "localhost:1", "sec-fetch-site": "none", "user-agent": CHROME}, None),
    ("POST", {"host": "localhost:1", "sec-fetch-site": "none", "user-agent": CHROME}, None),
    # foreign pages may ask, since they cannot read the answer, but not change
    ("GET", {"host": "localhost:1", "sec-fetch-site": "cross-site", "origin": "https://evil.example"}, None),
    ("OPTIONS", {"host": "localhost:1", "origin": "https://evil.example"}, None),
    ("POST", {"host": "localhost:1", "sec-fetch-site": "cross-site"}, CROSS_SITE),
    ("PUT", {"host": "localhost:1", "sec-fetch-site": "Cross-Site"}, CROSS_SITE),
    ("POST", {"host": "localhost:1", "sec-fetch-site": "same-site"}, CROSS_SITE),
    ("POST", {"host": "localhost:1", "sec-fetch-site": ""}, CROSS_SITE),
    (
        "POST",
        {"host": "localhost:1", "sec-fetch-site": "same-site", "origin": "http://localhost:1"},
        CROSS_SITE,
    ),
    ("POST", {"host": "localhost:1", "sec-fetch-site": "none", "origin": "http://evil.example"}, CROSS_SITE),
    ("POST", {"host": "localhost:1", "origin": "null"}, CROSS_SITE),
    # a Referer counts where a browser sends no Origin
    ("POST", {"host": "localhost:1", "referer": "http://localhost:1/topics/a"}, None),
    ("POST", {"host": "localhost:1", "referer": "http://LOCALHOST:1"}, None),
    ("POST", {"host": "localhost:1", "referer": ""}, None),
    (
        "POST",
        {"host": "localhost:1", "referer": "https://proxy.example/", "sec-fetch-site": "same-origin"},
        None,
    ),
    (
        "POST",
        {"host": "localhost:1", "referer": "https://proxy.example/", "origin": "http://localhost:1"},
        None,
    ),
    ("GET", {"host": "localhost:1", "referer": "http://evil.example/"}, None),
    ("POST", {"host": "localhost:1", "referer": "http://evil.example/"}, CROSS_SITE),
    (
        "POST",
        {"host": "localhost:1", "referer": "http://evil.example/", "sec-fetch-site": "none"},
        CROSS_SITE,
    ),
    ("POST", {"host": "localhost:1", "referer": "http://localhost:1.evil.example/"}, CROSS_SITE),
    ("POST", {"host": "localhost:1", "referer": "http://evil.example?http://localhost:1/"}, CROSS_SITE),
    ("POST", {"host": "localhost:1", "referer": "http://evil.example#@localhost:1/"}, CROSS_SITE),
    ("PUT", {"host": "localhost:1", "referer": "about:client"}, CROSS_SITE),
    ("POST", {"host": "localhost:1", "origin": ""}, CROSS_SITE),
    ("POST", {"host": "localhost:1", "origin": "http://["}, CROSS_SITE),
    ("POST", {"host": "localhost:1", "origin": "http://localhost:2"}, CROSS_SITE),
    ("POST", {"host": "localhost:1", "origin": "http://localhost:1.evil.example"}, CROSS_SITE),
    ("POST", {"host": "localhost:1", "origin": "http://evil.example/http://localhost:1"}, CROSS_SITE),
    ("DELETE", {"host": "127.0.0.1:1", "origin": "file://"}, CROSS_SITE),
    # rebinding: each header by which a browser is recognized
    ("GET", {"host": "evil.example:1", "user-agent": CHROME}, FOREIGN),
    ("GET", {"host": "evil.example:1", "user-agent": "node", "accept-language": "*"}, FOREIGN),
    ("GET", {"host": "evil.example:1", "referer": "http://evil.example:1/"}, FOREIGN),
    ("HEAD", {"host": "evil.example:1", "sec-fetch-site": "same-origin"}, FOREIGN),
    ("OPTIONS", {"host": "evil.example:1", "origin": "http://evil.example:1"}, FOREIGN),
    (
        "POST",
        {"host": "evil.example:1", "origin": "http://evil.example:1", "sec-fetch-site": "same-origin"},
        FOREIGN,
    ),
    ("GET", {"user-agent": CHROME}, FOREIGN),
]


@pytest.mark.parametrize(("method", "headers", "expected"), REQUESTS)
def test_requests(method, headers, expected):
    fields = {name.encode(): value.encode() for name, value in headers.items()}
    assert fields.keys() <= {b"host", *HEADERS}
    message = refusal(method, b"/pub?topic=t", fields, HOSTS)
    assert message == expected or (message or "").startswith(expected or "no refusal")
    if expected is FOREIGN:
        assert "--http-allowed-hosts" in (message or "")


@pytest.mark.parametrize(
    "url", [b"http://evil.example/stats", b"http://evil.example@localhost/", b"x://?localhost"]
)
def test_an_absolute_url_must_name_a_known_host_too(url):
    fields = {b"host": b"localhost", b"user-agent": CHROME.encode()}
    assert (refusal("GET", url, fields, HOSTS) or "").startswith(FOREIGN)
    assert refusal("GET", b"HTTP://127.0.0.1:4151/stats", fields, HOSTS) is None


# ---- the daemons


ALLOWED = "--http-allowed-hosts=.corp.example"
MARKS = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site", "User-Agent": CHROME},
]


def check(daemon: ServerProcess, routes: dict[str, str]) -> None:
    """Try each route of a daemon as pages of other sites do."""
    for route, query in routes.items():
        method, path = path_of(route)
        for mark in MARKS:
            if method == "GET" or path == "/drain":
                continue
            refused = daemon.http(method, path + query, b"info", mark)
            assert (refused.status, refused.json()) == (403, {"message": CROSS_SITE}), (route, mark)
        foreign = {
            "Host": f"evil.example:{daemon.http_port}",
            "User-Agent": CHROME,
            "X-Forwarded-Host": "127.0.0.1",
        }
        refused = daemon.http(method, path + query, b"info" if method != "GET" else None, foreign)
        assert refused.status == 403, route
        assert refused.json()["message"].startswith(FOREIGN), route
        assert "--http-allowed-hosts" in refused.json()["message"]
    for path in ("/ping", "/no/such/path", "/PING"):
        preflight = daemon.http("OPTIONS", path, headers=MARKS[0] | {"Access-Control-Request-Method": "PUT"})
        assert not [name for name in preflight.headers if name.lower().startswith("access-control")]
        assert daemon.http("GET", path, headers=foreign).status == 403
    for host in ("evil.example", f"nsq.corp.example:{daemon.http_port}"):
        assert daemon.http("GET", "/ping", headers={"Host": host, "User-Agent": "curl/8.5"}).status == 200
    assert (
        daemon.http("GET", "/ping", headers={"Host": "nsq.corp.example", "User-Agent": CHROME}).status == 200
    )
    for head in (
        f"GET /ping HTTP/1.0\r\nUser-Agent: {CHROME}\r\n",
        f"GET /ping HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nUser-Agent: {CHROME}\r\n",
        f"GET http://evil.example/ping HTTP/1.1\r\nHost: localhost\r\nUser-Agent: {CHROME}\r\n",
        f"GET /ping HTTP/1.1\r\nHost: a@localhost\r\nUser-Agent: {CHROME}\r\n",
        "GET /ping HTTP/1.1\r\nHost: evil.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nOrigin: x\r\n",
    ):
        with socket.create_connection(("127.0.0.1", daemon.http_port), 40) as sock:
            sock.sendall(head.encode() + b"\r\n")
            assert sock.recv(4096).split()[1] in (b"400", b"403", b"404"), head


def test_nsqd(make_nsqd, tmp_path):
    nsqd = make_nsqd(
        f"--http-unix-socket={tmp_path / 'http.sock'}", ALLOWED, *make_certificates(tmp_path).nsqd_flags
    )
    check(nsqd, NSQD_ROUTES)
    nsqd.post("/pub?topic=known", b"x")
    for _ in range(3):  # also when the head of a publish is known
        nsqd.post("/pub?topic=known", b"x")
        assert nsqd.http("POST", "/pub?topic=known", b"x", MARKS[0]).status == 403
    unix = socket.socket(socket.AF_UNIX)
    unix.connect(str(tmp_path / "http.sock"))
    https_port = int(nsqd.log_text().split("HTTPS: listening on 127.0.0.1:")[1].split()[0])
    tls = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
    https = tls.wrap_socket(
        socket.create_connection(("127.0.0.1", https_port), 40), server_hostname="127.0.0.1"
    )
    for sock in (unix, https):
        with sock:
            sock.settimeout(40)
            sock.sendall(
                b"POST /pub?topic=u HTTP/1.1\r\nHost: x\r\nOrigin: null\r\nContent-Length: 1\r\n\r\nx"
            )
            assert sock.recv(4096).startswith(b"HTTP/1.1 403 ")
    assert [(topic["topic_name"], topic["message_count"]) for topic in nsqd.stats()["topics"]] == [
        ("known", 4)
    ]


def test_nsqlookupd(make_nsqlookupd):
    lookupd = make_nsqlookupd(ALLOWED)
    check(lookupd, LOOKUPD_ROUTES)
    assert lookupd.topics() == []


def test_nsqadmin(make_nsqadmin, make_nsqlookupd):
    admin = make_nsqadmin(f"--lookupd-http-address={make_nsqlookupd().http_address}", ALLOWED)
    check(admin, {route: query for route, query in ADMIN_ROUTES.items() if route != "GET /render"})
