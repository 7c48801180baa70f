"""TLS, snappy and deflate on nsqd's TCP port, alone and on each other, and what happens at the seams."""

from __future__ import annotations

import http.client
import itertools
import random
import re
import shutil
import signal
import socket
import ssl
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import snappy

from tests.support import wire
from tests.support.certificates import Certificates, make_certificates
from tests.support.memory import resident_bytes
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.transports import TransportClient
from tests.support.wire import OK, Closed, bodies

NUMBERS = itertools.count()
TRANSPORTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "snappy": {"snappy": True},
    "deflate": {"deflate": True},
    "deflate-1": {"deflate": True, "deflate_level": 1},
}
OK_FRAME = b"\0\0\0\6\0\0\0\0OK"


def seams(*quick: tuple[str, str]) -> pytest.MarkDecorator:
    """Each transport over TCP and TLS; those that are not `quick` in the slow lane."""
    return pytest.mark.parametrize(
        ("base", "transport"),
        [
            pytest.param(base, transport, marks=() if (base, transport) in quick else pytest.mark.slow)
            for base in ("tcp", "tls")
            for transport in TRANSPORTS
        ],
    )


@pytest.fixture(scope="module")
def nsqd(tmp_path_factory, certificates) -> Iterator[NsqdProcess]:
    with NsqdProcess(tmp_path_factory.mktemp("nsqd") / "data", *certificates.nsqd_flags).start() as process:
        yield process


@pytest.fixture
def contexts(certificates) -> dict[str, ssl.SSLContext | None]:
    return {"tcp": None, "tls": certificates.client_context()}


@pytest.fixture
def topic() -> str:
    return f"topic{next(NUMBERS)}"


@seams(("tcp", "snappy"), ("tls", "plain"), ("tls", "deflate"))
def test_messages_of_all_sizes_pass_both_ways(nsqd, contexts, topic, base, transport):
    messages = [b"x", b"y" * 70_000, random.Random(1).randbytes(200_000), b"z" * 1_000_000, b"last"]
    small = [b"m%d" % number for number in range(5000)]
    with TransportClient(nsqd.tcp_port) as client:
        client.upgrade(contexts[base], **TRANSPORTS[transport])
        client.sub(topic, "channel", rdy_count=100)
        client.pub(topic, *messages)
        client.mpub(topic, small)
        assert bodies(client.consume(len(messages + small))) == messages + small
        assert client.tls_version == {"tcp": None, "tls": "TLSv1.3"}[base]


def test_heartbeats_come_in_the_agreed_form(nsqd, contexts):
    with ExitStack() as stack:
        clients = [stack.enter_context(TransportClient(nsqd.tcp_port)) for _ in TRANSPORTS]
        for client, fields in zip(clients, TRANSPORTS.values(), strict=True):
            client.upgrade(contexts["tls"], heartbeat_interval=1000, **fields)
        assert [client.frame() for client in clients] == [wire.HEARTBEAT] * len(clients)


def compressed(kind: str, data: bytes) -> bytes:
    if kind == "snappy":
        return bytes(snappy.StreamCompressor().add_chunk(data))
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
    return compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH)


@pytest.mark.ours
@pytest.mark.parametrize("kind", ["snappy", "deflate"])
def test_what_follows_identify_in_the_same_packet_survives_compression(nsqd, topic, kind):
    with TransportClient(nsqd.tcp_port) as client:
        commands = compressed(kind, wire.pub(topic, b"one") + wire.pub(topic, b"two"))
        client.send_raw(wire.identify(feature_negotiation=True, **{kind: True}) + commands)
        assert client.frame().kind == wire.RESPONSE
        getattr(client, f"start_{kind}")()
        assert [client.frame(), client.frame()] == [OK, OK]


@pytest.mark.ours
def test_what_follows_identify_in_the_same_packet_survives_tls(nsqd, certificates):
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = certificates.client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    with socket.create_connection(("127.0.0.1", nsqd.tcp_port), timeout=40) as sock:
        sock.sendall(wire.MAGIC + wire.identify(feature_negotiation=True, tls_v1=True) + outgoing.read())
        received = sock.recv(65536)
        size = int.from_bytes(received[:4], "big")
        incoming.write(received[4 + size :])

        def until_done(step):
            while True:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    sock.sendall(outgoing.read())
                    incoming.write(sock.recv(65536))

        until_done(tls.do_handshake)
        sock.sendall(outgoing.read())
        assert until_done(lambda: tls.read(100)) == OK_FRAME


@pytest.mark.ours
def test_a_second_identify_changes_the_transport_no_more(nsqd, contexts):
    with TransportClient(nsqd.tcp_port) as client:
        assert client.upgrade(contexts["tls"], snappy=True)["snappy"]
        again = client.identify(tls_v1=True, snappy=True)
        assert (again["tls_v1"], again["snappy"]) == (False, False)
        client.pub("again", b"x")


@pytest.mark.parametrize("garbage", [b"PUB topic\n\0\0\0\1x", b"\xff" * 100, b"\0" * 5000])
@pytest.mark.parametrize("kind", ["snappy", "deflate"])
def test_garbage_ends_its_own_connection_only(nsqd, kind, garbage):
    with TransportClient(nsqd.tcp_port) as client, TransportClient(nsqd.tcp_port) as other:
        client.upgrade(**{kind: True})
        client.send_raw(garbage)
        client.end_input()
        with pytest.raises((Closed, zlib.error)):
            while True:
                client.frame()
        other.pub("other", b"x")
    assert "Traceback" not in nsqd.log_text()


def test_a_plain_client_of_a_tls_port_is_told_nothing_it_cannot_read(nsqd):
    with TransportClient(nsqd.tcp_port) as client:
        assert client.identify(tls_v1=True)["tls_v1"]
        client.send(wire.pub("plain", b"x"))
        with pytest.raises(Closed):
            while True:
                client.arrived()


@pytest.mark.parametrize(
    ("base", "kind"),
    [
        ("tcp", "snappy"),
        ("tls", "deflate"),
        pytest.param("tcp", "deflate", marks=pytest.mark.slow),
        pytest.param("tls", "snappy", marks=pytest.mark.slow),
    ],
)
def test_what_becomes_much_is_taken_bit_by_bit(make_nsqd, certificates, contexts, base, kind):
    """200 MB of messages from less than 10 MB, and at most a fraction of it in memory at once."""
    nsqd = make_nsqd(*certificates.nsqd_flags, "--mem-queue-size=5")
    before_bytes = resident_bytes(nsqd)
    with TransportClient(nsqd.tcp_port) as client:
        client.upgrade(contexts[base], heartbeat_interval=-1, **{kind: True})
        for _ in range(10):
            client.send(wire.pub("bomb", b"\0" * 1_000_000) * 20)
        for _ in range(200):
            assert client.frame() == OK
        assert resident_bytes(nsqd) - before_bytes < 100_000_000
    nsqd.create("bomb", "channel")
    nsqd.wait_for_channel("bomb", "channel", depth=200)


# ---- policies


def connects(nsqd: NsqdProcess, context: ssl.SSLContext) -> bool:
    with TransportClient(nsqd.tcp_port) as client:
        try:
            client.upgrade(context)
            client.pub("policy", b"x")
        except (ssl.SSLError, Closed):
            return False
        return True


@pytest.mark.parametrize(
    ("policy", "without", "stranger", "known"),
    [("", True, True, True), ("require", False, True, True), ("require-verify", False, False, True)],
)
def test_client_certificates(make_nsqd, certificates, tmp_path, policy, without, stranger, known):
    flags = [f"--tls-client-auth-policy={policy}"] if policy else []
    nsqd = make_nsqd(*certificates.nsqd_flags, f"--tls-root-ca-file={certificates.authority}", *flags)
    others = make_certificates(tmp_path / "others")
    of_stranger = certificates.client_context()
    of_stranger.load_cert_chain(others.client_certificate, others.client_key)
    assert connects(nsqd, certificates.client_context()) is without
    assert connects(nsqd, of_stranger) is stranger
    assert connects(nsqd, certificates.client_context(with_certificate=True)) is known


def test_a_policy_makes_tls_a_must(make_nsqd, certificates):
    nsqd = make_nsqd(*certificates.nsqd_flags, "--tls-client-auth-policy=require")
    with TransportClient(nsqd.tcp_port) as client:
        assert client.ask(b"NOP\n").data == b"E_INVALID cannot NOP in current state (TLS required)"


def test_without_the_required_tls_nothing_but_identify_works(make_nsqd, certificates):
    nsqd = make_nsqd(*certificates.nsqd_flags, "--tls-required")
    for command in ("PUB topic", "AUTH", "HELLO", "SUB topic channel", "CLS"):
        with TransportClient(nsqd.tcp_port) as client:
            client.identify(tls_v1=False)
            refusal = f"E_INVALID cannot {command.split()[0]} in current state (TLS required)"
            assert client.ask(f"{command}\n".encode()).data == refusal.encode()
            with pytest.raises(Closed):
                client.frame()


@pytest.mark.parametrize(
    ("lowest", "works"),
    [
        ("tls1.2", {ssl.TLSVersion.TLSv1_2: True}),
        ("tls1.3", {ssl.TLSVersion.TLSv1_2: False, ssl.TLSVersion.TLSv1_3: True}),
    ],
)
def test_the_lowest_version(make_nsqd, certificates, lowest, works):
    nsqd = make_nsqd(*certificates.nsqd_flags, f"--tls-min-version={lowest}")
    context = certificates.client_context()
    for version, is_taken in works.items():
        context.maximum_version = version
        assert connects(nsqd, context) is is_taken


# ---- HTTPS


def https(
    nsqd: NsqdProcess, context: ssl.SSLContext, method: str, path: str, body: bytes = b""
) -> tuple[int, bytes]:
    port = int(nsqd.log_text().split("HTTPS: listening on 127.0.0.1:")[1].split()[0])
    with closing(http.client.HTTPSConnection("127.0.0.1", port, timeout=40, context=context)) as connection:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_the_http_api_over_tls(nsqd, certificates, topic):
    context = certificates.client_context()
    assert https(nsqd, context, "GET", "/ping") == (200, b"OK")
    assert https(nsqd, context, "POST", f"/pub?topic={topic}", b"hello") == (200, b"OK")
    assert https(nsqd, context, "POST", f"/mpub?topic={topic}", b"\n".join([b"x" * 1000] * 2000)) == (
        200,
        b"OK",
    )
    assert nsqd.is_healthy()
    status, stats = https(nsqd, context, "GET", f"/stats?format=json&topic={topic}")
    assert status == 200
    assert b'"message_count":2001' in stats


# ---- certificates that are renewed


@pytest.fixture
def shown(certificates, tmp_path) -> Certificates:
    """Copies of the certificates, which a test changes."""
    folder = Path(shutil.copytree(certificates.server_key.parent, tmp_path / "shown"))
    return replace(certificates, server_certificate=folder / "server.pem", server_key=folder / "server.key")


@pytest.mark.ours
@pytest.mark.parametrize("how", ["by itself", "SIGHUP"])
def test_a_renewed_certificate_is_shown_and_nobody_is_dropped(make_nsqd, certificates, shown, tmp_path, how):
    nsqd = make_nsqd(*shown.nsqd_flags)
    renewed = make_certificates(tmp_path / "renewed")
    with TransportClient(nsqd.tcp_port) as client:
        client.upgrade(certificates.client_context())
        for path in (shown.server_key, shown.server_certificate):
            (renewed.authority.parent / path.name).replace(path)
        if how == "SIGHUP":
            nsqd.signal(signal.SIGHUP)
        wait_until(lambda: connects(nsqd, renewed.client_context()), 40, "the new certificate")
        assert not connects(nsqd, certificates.client_context())
        client.pub("still", b"there")


@pytest.mark.ours
def test_an_https_client_that_is_refused_gets_a_line_of_log(nsqd):
    with pytest.raises(ssl.SSLError):
        https(nsqd, ssl.create_default_context(), "GET", "/ping")  # it does not know the authority
    wait_until(
        lambda: re.search(r"INFO: HTTPS: client\(127\.0\.0\.1:\d+\) - TLS: ", nsqd.log_text()),
        what="the line",
    )


@pytest.mark.ours
def test_a_broken_new_certificate_leaves_the_old_one(make_nsqd, certificates, shown):
    nsqd = make_nsqd(*shown.nsqd_flags)
    shown.server_certificate.write_text("broken")
    nsqd.signal(signal.SIGHUP)
    wait_until(lambda: "cannot use the new certificate" in nsqd.log_text(), what="the complaint")
    assert connects(nsqd, certificates.client_context())


# ---- unix sockets and IPv6


def answer_at(address: Path | tuple[str, int], data: bytes) -> bytes:
    """What one read brings after this was sent to a unix socket, or to an address of IPv6."""
    family = socket.AF_UNIX if isinstance(address, Path) else socket.AF_INET6
    with socket.socket(family) as sock:
        sock.settimeout(40)
        sock.connect(str(address) if isinstance(address, Path) else address)
        sock.sendall(data)
        return sock.recv(1000)


@pytest.mark.ours
def test_unix_sockets_beside_the_ports(make_nsqd, tmp_path):
    tcp_path, http_path = tmp_path / "nsqd.sock", tmp_path / "nsqd-http.sock"
    nsqd = make_nsqd(f"--unix-socket={tcp_path}", f"--http-unix-socket={http_path}")
    assert answer_at(tcp_path, wire.MAGIC + wire.pub("unix", b"x")) == OK_FRAME
    post = b"POST /pub?topic=unix HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\ny"
    assert answer_at(http_path, post).startswith(b"HTTP/1.1 200 OK\r\n")
    nsqd.pub("unix", b"z")
    assert nsqd.topic_stats("unix")["message_count"] == 3
    assert nsqd.stop() == 0
    assert not tcp_path.exists()
    assert not http_path.exists()


@pytest.mark.ours
def test_the_socket_of_another_process_stays(make_nsqd, tmp_path):
    """Somebody removed the file while nsqd ran, and another process listens there now."""
    path = tmp_path / "nsqd.sock"
    nsqd = make_nsqd(f"--unix-socket={path}")
    path.unlink()
    other = make_nsqd(f"--unix-socket={path}")
    assert nsqd.stop() == 0
    assert answer_at(path, wire.MAGIC + wire.pub("unix", b"x")) == OK_FRAME
    assert other.stop() == 0
    assert not path.exists()


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
def test_ipv6(tmp_path):
    with NsqdProcess(tmp_path / "data", "--tcp-address=[::1]:0", "--http-address=[::1]:0").start() as nsqd:
        assert answer_at(("::1", nsqd.tcp_port), wire.MAGIC + wire.pub("six", b"x")) == OK_FRAME
        assert answer_at(("::1", nsqd.http_port), b"GET /ping HTTP/1.0\r\n\r\n").endswith(b"OK")
