"""TLS on nsqlookupd's two ports, next to plain connections or in their place (Go's has none)."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.support.certificates import make_certificates
from tests.support.lookup_wire import LookupClient
from tests.support.nsqlookupd_process import NsqlookupdProcess
from tests.support.wire import Closed

pytestmark = pytest.mark.ours


def get(nsqlookupd: NsqlookupdProcess, path: str, context: ssl.SSLContext | None) -> tuple[int, Any]:
    """(status, JSON) of a GET, over TLS where there is a context."""
    scheme = "https" if context else "http"
    url = f"{scheme}://127.0.0.1:{nsqlookupd.http_port}{path}"
    try:
        with urllib.request.urlopen(url, timeout=40, context=context) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_both_ports_take_tls_and_plain_connections(make_nsqlookupd, certificates):
    nsqlookupd = make_nsqlookupd(*certificates.server_flags)
    context = certificates.client_context()
    with LookupClient(nsqlookupd.tcp_port, tls=context) as secure, LookupClient(nsqlookupd.tcp_port) as plain:
        secure.introduce(broadcast_address="secure")
        plain.introduce(broadcast_address="plain")
        secure.register("t c")
        plain.register("t d")
        for used in (context, None):
            status, answer = get(nsqlookupd, "/lookup?topic=t", used)
            assert status == 200
            assert {producer["broadcast_address"] for producer in answer["producers"]} == {"secure", "plain"}


def test_many_commands_and_long_answers_pass_through_tls(make_nsqlookupd, certificates):
    nsqlookupd = make_nsqlookupd(*certificates.server_flags)
    context = certificates.client_context()
    names = [f"topic{number}" for number in range(3000)]
    with LookupClient(nsqlookupd.tcp_port, tls=context) as client:
        client.introduce()
        client.send(b"".join(f"REGISTER {name} c\n".encode() for name in names))
        assert [client.read() for _ in names] == [b"OK"] * len(names)
        assert sorted(get(nsqlookupd, "/topics", context)[1]["topics"]) == sorted(names)
        client.send_byte_by_byte(b"PING\n")
        assert client.read() == b"OK"


def test_with_tls_required_plain_clients_are_refused(make_nsqlookupd, certificates):
    nsqlookupd = make_nsqlookupd(*certificates.server_flags, "--tls-required")
    context = certificates.client_context()
    with LookupClient(nsqlookupd.tcp_port) as plain:
        assert plain.ask("PING") == b"E_INVALID cannot PING in current state (TLS required)"
        with pytest.raises(Closed):
            plain.read()
    assert get(nsqlookupd, "/topics", None) == (403, {"message": "TLS_REQUIRED"})
    assert get(nsqlookupd, "/topics", context) == (200, {"topics": []})
    with LookupClient(nsqlookupd.tcp_port, tls=context) as secure:
        assert secure.ask("PING") == b"OK"


def test_tcp_https_leaves_plain_http_open(make_nsqlookupd, certificates):
    nsqlookupd = make_nsqlookupd(*certificates.server_flags, "--tls-required=tcp-https")
    assert get(nsqlookupd, "/topics", None) == (200, {"topics": []})
    with LookupClient(nsqlookupd.tcp_port) as plain:
        assert plain.ask("PING").startswith(b"E_INVALID")


def test_require_verify_lets_in_who_shows_a_certificate_of_the_authority(
    make_nsqlookupd, certificates, tmp_path
):
    nsqlookupd = make_nsqlookupd(
        *certificates.server_flags,
        "--tls-client-auth-policy=require-verify",
        f"--tls-root-ca-file={certificates.authority}",
    )
    with LookupClient(nsqlookupd.tcp_port, tls=certificates.client_context(with_certificate=True)) as known:
        assert known.ask("PING") == b"OK"
    stranger = make_certificates(tmp_path / "stranger")
    context = certificates.client_context()
    context.load_cert_chain(stranger.client_certificate, stranger.client_key)
    for unknown in (context, certificates.client_context()):
        with (
            pytest.raises((ssl.SSLError, ConnectionError, Closed)),
            LookupClient(nsqlookupd.tcp_port, tls=unknown) as client,
        ):
            client.ask("PING")


def test_what_is_no_tls_ends_only_its_own_connection(make_nsqlookupd, certificates):
    nsqlookupd = make_nsqlookupd(*certificates.server_flags)
    with (
        LookupClient(nsqlookupd.tcp_port, magic=b"\x16\x03\x01\x00\x05hello") as broken,
        pytest.raises(Closed),
    ):
        while True:
            broken.read()
    with LookupClient(nsqlookupd.tcp_port, tls=certificates.client_context()) as client:
        assert client.ask("PING") == b"OK"
    assert "Traceback" not in nsqlookupd.log_text()


def test_without_a_certificate_there_is_no_tls(make_nsqlookupd):
    nsqlookupd = make_nsqlookupd()
    with LookupClient(nsqlookupd.tcp_port, magic=b"\x16\x03\x01\x00") as client:
        assert client.read() == b"E_BAD_PROTOCOL"
