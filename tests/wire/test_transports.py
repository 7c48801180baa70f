"""TLS, snappy and deflate on nsqd's TCP port, alone and on each other, and what happens at the seams."""

from __future__ import annotations

import http.client
import itertools
import os
import random
import re
import shutil
import signal
import socket
import ssl
import zlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import snappy

from tests.support import wire
from tests.support.certificates import Certificates, make_certificates
from tests.support.nsqd_process import MakeNsqd, NsqdProcess, wait_until
from tests.support.transports import TransportClient
from tests.support.wire import OK, Closed, bodies

NUMBERS = itertools.count()
TRANSPORTS = {
    "plain": {},
    "snappy": {"snappy": True},
    "deflate": {"deflate": True},
    "deflate-1": {"deflate": True, "deflate_level": 1},
}


@pytest.fixture(scope="module")
def nsqd(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[NsqdProcess]:
    with NsqdProcess(tmp_path_factory.mktemp("nsqd") / "data", *certificates.nsqd_flags).start() as process:
        yield process


@pytest.fixture
def topic() -> str:
    return f"topic{next(NUMBERS)}"


@pytest.mark.parametrize("fields", TRANSPORTS.values(), ids=TRANSPORTS)
@pytest.mark.parametrize("secure", [False, True], ids=["tcp", "tls"])
def test_messages_of_all_sizes_pass_both_ways(
    nsqd: NsqdProcess, certificates: Certificates, topic: str, secure: bool, fields: dict[str, object]
) -> None:
    chance = random.Random(1)
    messages = [b"x", b"y" * 70_000, chance.randbytes(200_000), b"z" * 1_000_000, b"last"]
    with TransportClient(nsqd.tcp_port) as client:
        client.upgrade(certificates.client_context() if secure else None, **fields)
        client.sub(topic, "channel", rdy_count=100)
        for message in messages:
            client.pub(topic, message)
        client.mpub(topic, [b"m%d" % number for number in range(5000)])
        received = bodies(client.consume(len(messages) + 5000))
        assert received == messages + [b"m%d" % number for number in range(5000)]
        assert client.tls_version == ("TLSv1.3" if secure else None)


@pytest.mark.parametrize("fields", TRANSPORTS.values(), ids=TRANSPORTS)
def test_heartbeats_come_in_the_agreed_form(nsqd: NsqdProcess, certificates: Certificates, fields: dict[str, object]) -> None:
    with TransportClient(nsqd.tcp_port) as client:
        client.upgrade(certificates.client_context(), heartbeat_interval=1000, **fields)
        assert client.frame() == wire.HEARTBEAT


def compressed(kind: str, data: bytes) -> bytes:
    if kind == "snappy":
        return bytes(snappy.StreamCompressor().add_chunk(data))
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
    return compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH)


@pytest.mark.ours
@pytest.mark.parametrize("kind", ["snappy", "deflate"])
def test_what_follows_identify_in_the_same_packet_survives_compression(nsqd: NsqdProcess, topic: str, kind: str) -> None:
    with TransportClient(nsqd.tcp_port) as client:
        commands = compressed(kind, wire.pub(topic, b"one") + wire.pub(topic, b"two"))
        client.send_raw(wire.identify(feature_negotiation=True, **{kind: True}) + commands)
        assert client.frame().kind == wire.RESPONSE
        getattr(client, f"start_{kind}")()
        assert [client.frame(), client.frame()] == [OK, OK]


@pytest.mark.ours
def test_what_follows_identify_in_the_same_packet_survives_tls(nsqd: NsqdProcess, certificates: Certificates) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = certificates.client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    with socket.create_connection(("127.0.0.1", nsqd.tcp_port), timeout=40) as sock:
        sock.sendall(wire.MAGIC + wire.identify(feature_negotiation=True, tls_v1=True) + outgoing.read())
        received = sock.recv(65536)
        size = int.from_bytes(received[:4], "big")
        incoming.write(received[4 + size :])
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(outgoing.read())
                incoming.write(sock.recv(65536))
        sock.sendall(outgoing.read())
        while True:
            try:
                assert tls.read(100) == b"\0\0\0\6\0\0\0\0OK"
                break
            except ssl.SSLWantReadError:
                incoming.write(sock.recv(65536))


@pytest.mark.ours
def test_a_second_identify_changes_the_transport_no_more(nsqd: NsqdProcess, certificates: Certificates) -> None:
    with TransportClient(nsqd.tcp_port) as client:
        context = certificates.client_context()
        assert client.upgrade(context, snappy=True)["snappy"]
        again = client.identify(tls_v1=True, snappy=True)
        assert (again["tls_v1"], again["snappy"]) == (False, False)
        client.pub("again", b"x")


@pytest.mark.parametrize("garbage", [b"PUB topic\n\0\0\0\1x", b"\xff" * 100, b"\0" * 5000])
@pytest.mark.parametrize("kind", ["snappy", "deflate"])
def test_garbage_ends_its_own_connection_only(nsqd: NsqdProcess, kind: str, garbage: bytes) -> None:
    with TransportClient(nsqd.tcp_port) as client, TransportClient(nsqd.tcp_port) as other:
        client.upgrade(**{kind: True})
        client.send_raw(garbage)
        client.end_input()
        with pytest.raises((Closed, zlib.error)):
            while True:
                client.frame()
        other.pub("other", b"x")
    assert "Traceback" not in nsqd.log_text()


def test_a_plain_client_of_a_tls_port_is_told_nothing_it_cannot_read(nsqd: NsqdProcess) -> None:
    with TransportClient(nsqd.tcp_port) as client:
        assert client.identify(tls_v1=True)["tls_v1"]
        client.send(wire.pub("plain", b"x"))
        with pytest.raises(Closed):
            while True:
                client.arrived()


@pytest.mark.parametrize("secure", [False, True], ids=["tcp", "tls"])
@pytest.mark.parametrize("kind", ["snappy", "deflate"])
def test_what_becomes_much_is_taken_bit_by_bit(make_nsqd: MakeNsqd, certificates: Certificates, kind: str, secure: bool) -> None:
    """200 MB of messages from less than 10 MB, and at most a fraction of it in memory at once."""
    nsqd = make_nsqd(*certificates.nsqd_flags, "--mem-queue-size=5")
    before_bytes = psutil.Process(nsqd.pid).memory_info().rss
    with TransportClient(nsqd.tcp_port) as client:
        client.upgrade(certificates.client_context() if secure else None, **{kind: True})
        for _ in range(10):
            client.send(wire.pub("bomb", b"\0" * 1_000_000) * 20)
        for _ in range(200):
            assert client.frame() == OK
        grown_bytes = psutil.Process(nsqd.pid).memory_info().rss - before_bytes
    assert grown_bytes < 100_000_000
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
def test_client_certificates(
    make_nsqd: MakeNsqd, certificates: Certificates, tmp_path: Path, policy: str, without: bool, stranger: bool, known: bool
) -> None:
    flags = [f"--tls-client-auth-policy={policy}"] if policy else []
    nsqd = make_nsqd(*certificates.nsqd_flags, f"--tls-root-ca-file={certificates.authority}", *flags)
    others = make_certificates(tmp_path / "others")
    of_stranger = certificates.client_context()
    of_stranger.load_cert_chain(others.client_certificate, others.client_key)
    assert connects(nsqd, certificates.client_context()) is without
    assert connects(nsqd, of_stranger) is stranger
    assert connects(nsqd, certificates.client_context(with_certificate=True)) is known


def test_a_policy_makes_tls_a_must(make_nsqd: MakeNsqd, certificates: Certificates) -> None:
    nsqd = make_nsqd(*certificates.nsqd_flags, "--tls-client-auth-policy=require")
    with TransportClient(nsqd.tcp_port) as client:
        assert client.ask(b"NOP\n").data == b"E_INVALID cannot NOP in current state (TLS required)"


@pytest.mark.parametrize("command", [b"PUB topic\n", b"AUTH\n", b"HELLO\n", b"SUB topic channel\n", b"CLS\n"])
def test_without_the_required_tls_nothing_but_identify_works(
    make_nsqd: MakeNsqd, certificates: Certificates, command: bytes
) -> None:
    nsqd = make_nsqd(*certificates.nsqd_flags, "--tls-required")
    with TransportClient(nsqd.tcp_port) as client:
        client.identify(tls_v1=False)
        verb = command.split()[0].decode()
        assert client.ask(command).data == f"E_INVALID cannot {verb} in current state (TLS required)".encode()
        with pytest.raises(Closed):
            client.frame()


@pytest.mark.parametrize(
    ("lowest", "highest", "works"),
    [
        ("tls1.2", ssl.TLSVersion.TLSv1_2, True),
        ("tls1.3", ssl.TLSVersion.TLSv1_2, False),
        ("tls1.3", ssl.TLSVersion.TLSv1_3, True),
    ],
)
def test_the_lowest_version(
    make_nsqd: MakeNsqd, certificates: Certificates, lowest: str, highest: ssl.TLSVersion, works: bool
) -> None:
    nsqd = make_nsqd(*certificates.nsqd_flags, f"--tls-min-version={lowest}")
    context = certificates.client_context()
    context.maximum_version = highest
    assert connects(nsqd, context) is works


# ---- HTTPS


def https(nsqd: NsqdProcess, context: ssl.SSLContext, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    port = int(nsqd.log_text().split("HTTPS: listening on 127.0.0.1:")[1].split()[0])
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=40, context=context)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_the_http_api_over_tls(make_nsqd: MakeNsqd, certificates: Certificates) -> None:
    nsqd = make_nsqd(*certificates.nsqd_flags)
    context = certificates.client_context()
    assert https(nsqd, context, "GET", "/ping") == (200, b"OK")
    assert https(nsqd, context, "POST", "/pub?topic=t", b"hello") == (200, b"OK")
    assert https(nsqd, context, "POST", "/mpub?topic=t", b"\n".join([b"x" * 1000] * 2000)) == (200, b"OK")
    assert nsqd.http("GET", "/ping").body == b"OK"
    status, stats = https(nsqd, context, "GET", "/stats?format=json")
    assert status == 200
    assert b'"message_count":2001' in stats


# ---- certificates that are renewed


@pytest.mark.ours
@pytest.mark.parametrize("how", ["by itself", "SIGHUP"])
def test_a_renewed_certificate_is_shown_and_nobody_is_dropped(
    make_nsqd: MakeNsqd, certificates: Certificates, tmp_path: Path, how: str
) -> None:
    shown = tmp_path / "shown"
    shutil.copytree(certificates.server_key.parent, shown)
    files = [f"--tls-cert={shown / 'server.pem'}", f"--tls-key={shown / 'server.key'}"]
    nsqd = make_nsqd(*files, "--https-address=127.0.0.1:0")
    renewed = make_certificates(tmp_path / "renewed")
    with TransportClient(nsqd.tcp_port) as client:
        client.upgrade(certificates.client_context())
        for name in ("server.key", "server.pem"):
            shutil.copy(renewed.authority.parent / name, shown / f"{name}.new")
            os.replace(shown / f"{name}.new", shown / name)
        if how == "SIGHUP":
            nsqd.signal(signal.SIGHUP)
        wait_until(lambda: connects(nsqd, renewed.client_context()), 40, "the new certificate")
        assert not connects(nsqd, certificates.client_context())
        client.pub("still", b"there")


@pytest.mark.ours
def test_an_https_client_that_is_refused_gets_a_line_of_log(make_nsqd: MakeNsqd, certificates: Certificates) -> None:
    nsqd = make_nsqd(*certificates.server_flags, "--https-address=127.0.0.1:0")
    with pytest.raises(ssl.SSLError):
        https(nsqd, ssl.create_default_context(), "GET", "/ping")  # it does not know the authority
    wait_until(lambda: re.search(r"INFO: HTTPS: client\(127\.0\.0\.1:\d+\) - TLS: ", nsqd.log_text()), what="the line")


@pytest.mark.ours
def test_a_broken_new_certificate_leaves_the_old_one(make_nsqd: MakeNsqd, certificates: Certificates, tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    shutil.copytree(certificates.server_key.parent, shown)
    files = [f"--tls-cert={shown / 'server.pem'}", f"--tls-key={shown / 'server.key'}"]
    nsqd = make_nsqd(*files, "--https-address=127.0.0.1:0")
    (shown / "server.pem").write_text("broken")
    nsqd.signal(signal.SIGHUP)
    wait_until(lambda: "cannot use the new certificate" in nsqd.log_text(), what="the complaint")
    assert connects(nsqd, certificates.client_context())


# ---- unix sockets and IPv6


@pytest.mark.ours
def test_unix_sockets_beside_the_ports(make_nsqd: MakeNsqd, tmp_path: Path) -> None:
    tcp_path, http_path = tmp_path / "nsqd.sock", tmp_path / "nsqd-http.sock"
    nsqd = make_nsqd(f"--unix-socket={tcp_path}", f"--http-unix-socket={http_path}")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(tcp_path))
        sock.sendall(wire.MAGIC + wire.pub("unix", b"x"))
        assert sock.recv(100) == b"\0\0\0\6\0\0\0\0OK"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(http_path))
        sock.sendall(b"POST /pub?topic=unix HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\ny")
        assert sock.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")
    with nsqd.connect() as client:
        client.pub("unix", b"z")
    topic = nsqd.topic_stats("unix")
    assert topic is not None
    assert topic["message_count"] == 3
    assert nsqd.stop() == 0
    assert not tcp_path.exists()
    assert not http_path.exists()


@pytest.mark.ours
def test_the_socket_of_another_process_stays(make_nsqd: MakeNsqd, tmp_path: Path) -> None:
    """Somebody removed the file while nsqd ran, and another process listens there now."""
    path = tmp_path / "nsqd.sock"
    nsqd = make_nsqd(f"--unix-socket={path}")
    path.unlink()
    other = make_nsqd(f"--unix-socket={path}")
    assert nsqd.stop() == 0
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
    assert other.stop() == 0
    assert not path.exists()


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
def test_ipv6(tmp_path: Path) -> None:
    with NsqdProcess(tmp_path / "data", "--tcp-address=[::1]:0", "--http-address=[::1]:0").start() as nsqd:
        with socket.create_connection(("::1", nsqd.tcp_port), timeout=40) as sock:
            sock.sendall(wire.MAGIC + wire.pub("six", b"x"))
            assert sock.recv(100) == b"\0\0\0\6\0\0\0\0OK"
        with socket.create_connection(("::1", nsqd.http_port), timeout=40) as sock:
            sock.sendall(b"GET /ping HTTP/1.0\r\n\r\n")
            assert sock.recv(1000).endswith(b"OK")
