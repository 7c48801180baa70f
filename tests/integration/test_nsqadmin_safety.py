"""Who may do what at nsqadmin, what a browser may be made to do, and names that other people chose."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
import socket
from contextlib import ExitStack

from nsqadmin_py.web.events import MOST_READERS_OF_ONE
from tests.support.nsqd_process import wait_until


def test_the_page_may_run_nothing_but_its_files(admin):
    for path in ("/", "/topics/%3Cscript%3Ealert(1)%3C/x", "/api/topics", "/static/nope", "/nowhere"):
        answer = admin.http("GET", path)
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'self';")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert b"<script>" not in answer.body
    for path in ("/", "/api/topics", "/api/v2/overview"):
        assert admin.http("GET", path).headers["Cache-Control"] == "no-store"


def test_event_streams_of_one_address_leave_room_for_others(cluster):
    admin = cluster.admin()
    with ExitStack() as stack:

        def opened(source):
            """The status of one more stream from this address, which stays open."""
            sock = stack.enter_context(
                socket.create_connection(("127.0.0.1", admin.http_port), 40, (source, 0))
            )
            sock.sendall(b"GET /api/v2/events?view=overview HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return sock.recv(4096).split()[1]

        assert [opened("127.0.0.1") for _ in range(MOST_READERS_OF_ONE)] == [b"200"] * MOST_READERS_OF_ONE
        assert opened("127.0.0.1") == b"503"
        assert opened("127.0.0.2") == b"200"


def test_read_only(cluster):
    admin = cluster.admin("--read-only")
    assert admin.act("create", "t").refusal == "403 READ_ONLY"
    assert admin.http("POST", "/api/topics", b'{"topic":"t"}').refusal == "403 READ_ONLY"
    assert admin.http("DELETE", "/api/topics/t").refusal == "403 READ_ONLY"
    assert admin.http("PUT", "/config/log_level", b"debug").refusal == "403 READ_ONLY"
    assert admin.get("/api/v2/session")["may_act"] is False
    assert cluster.lookupd.topics() == []


def test_login(cluster, tmp_path):
    import bcrypt

    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    users = tmp_path / "users"
    users.write_text(f"bob:{hashed}\ntoken:ci:{hashlib.sha256(b'T0ken').hexdigest()}\n")
    admin = cluster.admin(f"--http-auth-file={users}")
    for path in ("/", "/api/topics", "/api/v2/events?view=overview", "/static/x", "/config/log_level"):
        answer = admin.http("GET", path)
        assert answer.refusal == "401 UNAUTHORIZED"
        assert answer.headers["WWW-Authenticate"].startswith("Basic realm=")
    assert admin.http("GET", "/ping").text == "OK"
    bob = {"Authorization": "Basic " + base64.b64encode(b"bob:secret").decode()}
    wrong = {"Authorization": "Basic " + base64.b64encode(b"bob:wrong").decode()}
    assert admin.http("GET", "/api/topics", headers=wrong).status == 401
    assert admin.http("GET", "/api/topics", headers={"Authorization": "Bearer T0ken"}).status == 200
    session = admin.http("GET", "/api/v2/session", headers=bob).json()
    assert session["user"] == "bob"
    acting = bob | {"X-Nsqadmin-Token": session["token"]}
    assert admin.http("POST", "/api/v2/actions", b'{"action":"create","topic":"t"}', acting).status == 200
    assert 'AUDIT: create topic="t" by="bob"' in admin.log_text()
    other = {"Authorization": "Bearer T0ken", "X-Nsqadmin-Token": session["token"]}  # a token is of one user
    assert admin.http("POST", "/api/v2/actions", b"{}", other).refusal == "403 INVALID_TOKEN"


def test_files_of_the_page_are_kept_by_browsers(admin, cluster, tmp_path):
    (tmp_path / "app.js").write_text("let x = 1;\n" * 500)
    (tmp_path.parent / "outside.js").write_text("no")
    (tmp_path / "index.html").write_text('<p data-v="{{ static }}/app.js">{{ session }}</p>')
    dev = cluster.admin(f"--dev-static-dir={tmp_path}")
    page = dev.http("GET", "/", headers={"X-Forwarded-User": "<b>"}).text
    assert "&lt;b&gt;" in page
    assert '"/static/dev/app.js"' in page
    (path,) = re.findall(r'src="(/static/[0-9a-f]{16}/app\.js)"', admin.http("GET", "/").text)
    assert admin.http("GET", path).headers["Cache-Control"] == "public, max-age=31536000, immutable"
    answer = dev.http("GET", "/static/app.js", headers={"Accept-Encoding": "gzip"})
    assert gzip.decompress(answer.body) == (tmp_path / "app.js").read_bytes()
    assert answer.headers["Content-Type"] == "text/javascript; charset=utf-8"
    for path in ("/static/../outside.js", "/static/%2e%2e/outside.js", "/static/..%2foutside.js"):
        assert dev.http("GET", path).status in (301, 404)
        assert dev.http("GET", path).body != b"no"


# ---- what listens


POST = b"POST /api/topics HTTP/1.1\r\nHost: x\r\n"
# A proxy in front of nsqadmin may read the last ones in another way, and pass a second request on in the body of the first.
BAD_FIELDS = [b"\r\n".join([b"A: b"] * 101), b"A", b"A\0: b", b"A: b\rC: d", b" A: b", b"Host: a\r\nHost: b"]
BAD_FIELDS += [
    b"Content-Length: " + value
    for value in (b"+1", b"1_0", b"1\r\nContent-Length: 2", b"1\r\nTransfer-Encoding: chunked")
]
BAD_FIELDS += [
    b"Content-Length : 1",
    b"Transfer-Encoding: identity",
    b"Transfer-Encoding: \x0bchunked\r\nContent-Length: 1",
]


def test_a_connection_that_breaks_off_leaves_no_error(admin):
    for data in (b"", b"GET /", b"nonsense\r\n\r\n", POST + b"Content-Length: 10\r\n\r\n{"):
        with socket.create_connection(("127.0.0.1", admin.http_port)) as sock:
            sock.sendall(data)
    wait_until(lambda: "400 POST" in admin.log_text(), what="the end of all")
    for head in (
        b"GET / HTTP/1",
        b"GET /",
        b"GET / HTTP/1.1",
        b"GET / HTTP/1.2\r\nHost: x",
        *(POST + fields for fields in BAD_FIELDS),
    ):
        with socket.create_connection(("127.0.0.1", admin.http_port), timeout=40) as sock:
            sock.sendall(head + b"\r\n\r\n")
            assert sock.makefile("rb").read().startswith(b"HTTP/1.1 400 "), head
    assert admin.is_healthy()
    assert "Traceback" not in admin.log_text()
