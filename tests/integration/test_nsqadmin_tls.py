"""nsqadmin and TLS: towards nsqds that want it, and on its own port; and nsqds that want a token."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import socket

import pytest

from tests.support.lookup_wire import LookupClient
from tests.support.nsqadmin_cluster import address
from tests.support.nsqd_process import wait_until
from tests.support.nsqlookupd_process import NsqlookupdProcess
from tests.support.web_server import Reply, WebServer

pytestmark = pytest.mark.ours


@pytest.fixture
def with_token(tmp_path) -> str:
    """The flag of a client that shows a token."""
    (tmp_path / "token").write_text("s3cret\n")
    return f"--http-client-token-file={tmp_path / 'token'}"


def test_tls_on_both_sides(make_nsqd, make_nsqadmin, certificates):
    """An nsqd that says 403 and where its TLS is gets asked there."""
    nsqd = make_nsqd(*certificates.nsqd_flags, "--tls-required")
    assert nsqd.http("GET", "/stats").status == 403
    admin = make_nsqadmin(
        f"--nsqd-http-address={address(nsqd)}",
        f"--http-client-tls-root-ca-file={certificates.authority}",
        *certificates.server_flags,
    )
    connection = http.client.HTTPSConnection(
        "127.0.0.1", admin.http_port, context=certificates.client_context()
    )
    with contextlib.closing(connection):
        connection.request("POST", "/api/topics", b'{"topic":"orders"}')
        assert connection.getresponse().read() == b'{"message":""}'
        connection.request("GET", "/api/topics")
        assert connection.getresponse().read() == b'{"topics":["orders"],"message":""}'
    stranger = make_nsqadmin(f"--nsqd-http-address={address(nsqd)}")
    answer = stranger.http("GET", "/api/topics")
    assert answer.status == 502
    assert "certificate" in answer.json()["message"]
    trusting = make_nsqadmin(f"--nsqd-http-address={address(nsqd)}", "--http-client-tls-insecure-skip-verify")
    assert trusting.get("/api/topics")["topics"] == ["orders"]


def test_clients_that_say_nothing_hold_up_no_one(make_nsqadmin, certificates):
    """One in its handshake, and one after it."""
    admin = make_nsqadmin("--nsqd-http-address=127.0.0.1:1", *certificates.server_flags)
    context = certificates.client_context()
    with contextlib.ExitStack() as stack:
        for is_shaken in (False, True):
            silent = stack.enter_context(socket.create_connection(("127.0.0.1", admin.http_port)))
            if is_shaken:
                stack.enter_context(context.wrap_socket(silent, server_hostname="localhost"))
            connection = http.client.HTTPSConnection(
                "127.0.0.1", admin.http_port, context=context, timeout=40
            )
            with contextlib.closing(connection):
                connection.request("GET", "/ping")
                assert connection.getresponse().read() == b"OK"


def test_webhook_and_graphite_over_tls(make_nsqd, make_nsqadmin, certificates):
    with WebServer(tls=certificates.server_context()) as server:
        admin = make_nsqadmin(
            f"--nsqd-http-address={address(make_nsqd())}",
            f"--http-client-tls-root-ca-file={certificates.authority}",
            f"--notification-http-endpoint={server.url}",
            f"--graphite-url={server.url}",
            "--proxy-graphite",
        )
        assert admin.http("GET", "/render?target=x").status == 200
        admin.http("POST", "/api/topics", b'{"topic":"orders"}')
        server.wait_until_asked(2)


def test_a_token_for_nsqds_that_want_one(make_nsqd, make_nsqadmin, with_token, tmp_path):
    known = tmp_path / "known"
    known.write_text(f"token:admin:{hashlib.sha256(b's3cret').hexdigest()}\n")
    nsqd = make_nsqd(f"--http-auth-file={known}")
    nsqd.post("/pub?topic=orders", b"x")
    flag = f"--nsqd-http-address={address(nsqd)}"
    answer = make_nsqadmin(flag).http("POST", "/api/topics/orders", b'{"action":"pause"}')
    assert "401 Unauthorized" in answer.json()["message"]
    admin = make_nsqadmin(flag, with_token)
    assert admin.http("POST", "/api/topics/orders", b'{"action":"pause"}').json() == {"message": ""}
    assert nsqd.topic_stats("orders")["paused"]


def _register(nsqlookupd: NsqlookupdProcess, host: str, http_port: int) -> LookupClient:
    """Return the connection of a stranger that has registered an address; it stays registered until this is closed."""
    registration = LookupClient(nsqlookupd.tcp_port)
    registration.introduce(broadcast_address=host, http_port=http_port)
    return registration


@pytest.mark.parametrize("has_own_authority", [False, True])
def test_an_answer_does_not_move_the_token_to_https(
    has_own_authority, make_nsqlookupd, make_nsqadmin, certificates, with_token, monkeypatch
):
    """A stranger has a certificate that the system trusts, for the name that he registers, and asks for HTTPS.

    A certificate of the cluster's own authority is a proof that he belongs to it.
    """
    flags = [f"--http-client-tls-root-ca-file={certificates.authority}"]
    if not has_own_authority:
        flags = []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    nsqlookupd = make_nsqlookupd()
    with WebServer(lambda _: Reply(body=b"{}"), tls=certificates.server_context()) as secure:
        refusal = json.dumps({"message": "TLS_REQUIRED", "https_port": secure.port}).encode()
        with (
            WebServer(lambda _: Reply(403, body=refusal)) as plain,
            _register(nsqlookupd, "localhost", plain.port),
        ):
            make_nsqadmin(f"--lookupd-http-address={nsqlookupd.http_address}", with_token, *flags)
            secure.wait_until_asked(2)
            assert not any("authorization" in asked.headers for asked in plain.asked)
            shown = {asked.headers.get("authorization") for asked in secure.asked}
    assert shown == {"Bearer s3cret" if has_own_authority else None}


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])  # the second is the host of an option
def test_a_server_that_registered_itself_does_not_see_the_token(
    host, make_nsqlookupd, make_nsqadmin, with_token
):
    nsqlookupd = make_nsqlookupd()
    with WebServer(lambda _: Reply(body=b"{}")) as server, _register(nsqlookupd, host, server.port):
        admin = make_nsqadmin(
            f"--lookupd-http-address={nsqlookupd.http_address}",
            with_token,
            "--proxy-graphite",
            f"--graphite-url=http://127.0.0.1:{server.port}",
        )
        wait_until(lambda: any(asked.target.startswith("/stats") for asked in server.asked))
        admin.http("GET", "/render?target=x")
        admin.http("GET", "/api/graphite?metric=rate&target=sumSeries(x)")
        assert sum(asked.target.startswith("/render") for asked in server.asked) == 2
    assert not any("authorization" in asked.headers for asked in server.asked)
