"""--http-auth-file: who may administer over HTTP, and what stays open to all."""

from __future__ import annotations

import hashlib
import http.client
import itertools
import socket
from base64 import b64encode
from pathlib import Path

import bcrypt
import pytest

from nsqd_py.api.routes import ROUTES as NSQD_ROUTES
from nsqd_py.net.http.handling import access_refusal
from nsqd_py.net.http.router import Access
from nsqlookupd_py.http import ROUTES as NSQLOOKUPD_ROUTES
from tests.support.background import Background
from tests.support.nsqd_process import NsqdProcess, ServerProcess, wait_until
from tests.support.tool_process import run_tool

pytestmark = pytest.mark.ours

TOKEN = "5a1f0c"
WITH_TOKEN = {"Authorization": f"Bearer {TOKEN}"}
TOKEN_LINE = f"token:ci:{hashlib.sha256(TOKEN.encode()).hexdigest()}\n"

ADMIN_PATHS_OF_NSQD = [
    "POST /topic/create?topic=t",
    "POST /channel/create?topic=t&channel=c",
    "POST /channel/pause?topic=t&channel=c",
    "POST /channel/unpause?topic=t&channel=c",
    "POST /channel/empty?topic=t&channel=c",
    "GET /channel/peek?topic=t&channel=c",
    "GET /topic/read?topic=t&seq=0",
    "POST /channel/finish?topic=t&channel=c&seq=0&id=0123456789abcdef",
    "POST /channel/seek?topic=t&channel=c&to=earliest",
    "POST /channel/delete?topic=t&channel=c",
    "POST /topic/pause?topic=t",
    "POST /topic/unpause?topic=t",
    "POST /topic/empty?topic=t",
    "POST /topic/delete?topic=t",
    "PUT /config/log_level",
    "POST /promote",
    "GET /debug/pprof/",
    "GET /debug/pprof/profile?seconds=1",
    "GET /debug/pprof/cmdline",
    "GET /debug/greenlets",
    "POST /debug/freememory",
]
# Allowed, and refused for another reason: there is no such message, and this is no standby.
NOT_POSSIBLE = {"POST /channel/finish": 404, "POST /promote": 409}
OPEN_PATHS_OF_NSQD = ["/ping", "/health", "/info", "/stats", "/config/log_level"]
ADMIN_PATHS_OF_NSQLOOKUPD = [
    "POST /topic/create?topic=t",
    "POST /channel/create?topic=t&channel=c",
    "POST /channel/delete?topic=t&channel=c",
    "POST /topic/tombstone?topic=t&node=n:1",
    "POST /topic/delete?topic=t",
    "GET /debug",
    "GET /debug/greenlets",
]
OPEN_PATHS_OF_NSQLOOKUPD = ["/ping", "/info", "/topics", "/channels?topic=t", "/nodes"]


def password_line(user: str, password: str, cost: int = 4) -> str:
    return f"{user}:{bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()}\n"


def with_password(user: str, password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}


@pytest.fixture
def auth_file(tmp_path) -> Path:
    path = tmp_path / "auth"
    path.write_text(f"# the admins\n{password_line('ann', 'secret')}{TOKEN_LINE}")
    return path


@pytest.fixture
def guarded(make_nsqd, auth_file) -> NsqdProcess:
    return make_nsqd(f"--http-auth-file={auth_file}")


def check_paths(daemon: ServerProcess, admin_paths: list[str], open_paths: list[str]) -> None:
    def ask(request, headers):
        method, path = request.split(" ")
        return daemon.http(method, path, b"info" if method == "PUT" else None, headers)

    wrong = [with_password("ann", "wrong"), {"Authorization": "Bearer wrong"}]
    for request in admin_paths:
        for headers in ({}, *wrong):
            refused = ask(request, headers)
            assert refused.refusal == "401 UNAUTHORIZED", request
            schemes = [value.partition(" ")[0] for value in refused.headers.get_all("WWW-Authenticate") or ()]
            assert schemes == ["Basic", "Bearer"]
        wrong = []  # many of them would be slowed
    for request in admin_paths:
        allowed = ask(request, WITH_TOKEN)
        assert allowed.status == NOT_POSSIBLE.get(request.partition("?")[0], 200), (request, allowed)
    for path in open_paths:
        assert daemon.http("GET", path).status == 200


def test_admin_paths_of_nsqd(guarded):
    check_paths(guarded, ADMIN_PATHS_OF_NSQD, OPEN_PATHS_OF_NSQD)


def test_admin_paths_of_nsqlookupd(make_nsqlookupd, auth_file):
    check_paths(
        make_nsqlookupd(f"--http-auth-file={auth_file}"), ADMIN_PATHS_OF_NSQLOOKUPD, OPEN_PATHS_OF_NSQLOOKUPD
    )


def test_every_path_that_changes_something_is_in_the_table():
    routes = [*NSQD_ROUTES, *NSQLOOKUPD_ROUTES]
    open_to_all = {(route.method, route.path) for route in routes if route.access.is_open}
    assert {(method, path) for method, path in open_to_all if method != "GET"} == {
        ("POST", "/pub"),
        ("POST", "/mpub"),
    }
    assert not [path for _, path in open_to_all if path.startswith("/debug")]


def test_where_clients_authorize_bodies_are_read_with_credentials_only(make_nsqd, auth_file):
    authorizing = "--auth-http-address=127.0.0.1:1"
    without_file, nsqd = make_nsqd(authorizing), make_nsqd(authorizing, f"--http-auth-file={auth_file}")
    nsqd.post("/pub?topic=t", b"secret")
    assert nsqd.http("POST", "/channel/create?topic=t&channel=c", headers=WITH_TOKEN).status == 200
    for path in ("/topic/read?topic=t&seq=0", "/channel/peek?topic=t&channel=c"):
        assert without_file.http("GET", path).refusal == "403 HTTP_AUTH_FILE_REQUIRED"
        assert nsqd.http("GET", path).status == 401
        assert b"secret" in nsqd.http("GET", path, headers=WITH_TOKEN).body


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("127.0.0.1:5", None),
        ("127.8.9.10:5", None),
        ("[::1]:5", None),
        ("[::ffff:127.0.0.1]:5", None),
        ("@", None),
        ("192.0.2.1:5", 403),
        ("[2001:db8::1]:5", 403),
        ("[::ffff:192.0.2.1]:5", 403),
    ],
)
def test_the_process_is_ended_from_its_own_machine_or_with_credentials(peer, expected):
    refused = access_refusal(Access.SHUT_DOWN, peer, has_guard=False, clients_authorize=False)
    assert (refused.status if refused is not None else None) == expected
    assert access_refusal(Access.SHUT_DOWN, peer, has_guard=True, clients_authorize=False) is None


def test_a_request_that_a_proxy_passed_on_is_not_from_this_machine(nsqd, guarded):
    """A proxy on nsqd's machine serves the whole world."""
    proxied = {
        "X-Forwarded-For": "127.0.0.1",
        "Forwarded": "for=127.0.0.1",
        "via": "1.1 proxy",
        "X-Real-IP": "::1",
    }
    for header in proxied.items():
        for path in ("/drain", "/promote"):
            assert nsqd.http("POST", path, headers=dict([header])).refusal == "403 HTTP_AUTH_FILE_REQUIRED", (
                header
            )
        assert nsqd.http("POST", "/topic/create?topic=t", headers=dict([header])).status == 200
        assert guarded.http("POST", "/promote", headers=dict([header], **WITH_TOKEN)).status == 409


def test_each_proxy_on_the_way_may_add_its_line(nsqd):
    with socket.create_connection(("127.0.0.1", nsqd.http_port), timeout=40) as sock:
        sock.sendall(
            b"POST /drain HTTP/1.1\r\nHost: localhost\r\nVia: 1.1 a\r\nVia: 1.1 b\r\nContent-Length: 0\r\n\r\n"
        )
        assert sock.recv(4096).startswith(b"HTTP/1.1 403 Forbidden\r\n")


def test_users_come_and_go_with_the_file(guarded, auth_file):
    ann, bob = with_password("ann", "secret"), with_password("bob", "geheim")
    assert guarded.http("POST", "/topic/create?topic=t", headers=ann).status == 200
    assert guarded.http("POST", "/topic/create?topic=t", headers=bob).status == 401
    auth_file.write_text(password_line("bob", "geheim").replace("$2b$", "$2y$"))
    wait_until(lambda: guarded.http("GET", "/debug/greenlets", headers=bob).status == 200)
    assert guarded.http("GET", "/debug/greenlets", headers=ann).status == 401
    assert guarded.http("GET", "/debug/greenlets", headers=WITH_TOKEN).status == 401


def test_the_body_of_a_refused_request_is_skipped(guarded):
    connection = http.client.HTTPConnection("127.0.0.1", guarded.http_port, timeout=40)
    for headers, status in (
        ({}, 401),
        (with_password("ann", "no"), 401),
        (with_password("ann", "secret"), 200),
    ):
        connection.request("PUT", "/config/log_level", b"debug", headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
    connection.close()
    assert guarded.http("GET", "/config/log_level").text == "1"


@pytest.mark.parametrize(
    ("command", "text", "problem"),
    [
        ("nsq_apps.nsqd", "ann:secret\n", "line 1: expected a hash"),
        ("nsq_apps.nsqlookupd", None, "No such file"),
    ],
)
def test_a_bad_file_at_the_start_is_one_line_and_status_1(tmp_path, command, text, problem):
    path = tmp_path / "auth"
    if text is not None:
        path.write_text(text)
    done = run_tool(command, f"--http-auth-file={path}")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert f"--http-auth-file {path}" in done.stderr
    assert problem in done.stderr


def test_a_flood_of_wrong_passwords_keeps_nobody_waiting(make_nsqd, tmp_path):
    path = tmp_path / "auth"
    path.write_text(password_line("ann", "secret", cost=9) + TOKEN_LINE)  # 30 ms each
    nsqd = make_nsqd(f"--http-auth-file={path}")
    statuses, guesses = [], itertools.count()

    def attack():
        while not attackers.is_over.is_set():
            statuses.append(
                nsqd.http("GET", "/debug/greenlets", headers=with_password("ann", str(next(guesses)))).status
            )

    attackers = Background(*[attack] * 30)
    with attackers, nsqd.consumer("t", "c", 1) as client:
        for _ in range(21):
            client.pub("t", b"message")
            client.fin(client.message(deadline_s=2.0))
            assert nsqd.http("GET", "/debug/greenlets", headers=WITH_TOKEN).status == 200
    assert set(statuses) == {401, 429}
    assert nsqd.http("GET", "/debug/greenlets", headers=with_password("ann", "secret")).status == 200
    assert nsqd.stop() == 0


def test_the_log_names_the_user_of_an_admin_path(guarded):
    assert guarded.http("POST", "/topic/create?topic=a", headers=with_password("ann", "secret")).status == 200
    assert guarded.http("POST", "/topic/create?topic=b", headers=WITH_TOKEN).status == 200
    assert guarded.http("POST", "/topic/create?topic=c", headers={"Authorization": "Bearer x"}).status == 401
    wait_until(lambda: "create?topic=c " in guarded.log_text(), what="the last line")
    log = guarded.log_text().splitlines()
    lines = {topic: line for line in log for topic in "abc" if f"create?topic={topic} " in line}
    assert lines["a"].endswith(' by="ann"')
    assert lines["b"].endswith(' by="token:ci"')
    assert " by=" not in lines["c"]
