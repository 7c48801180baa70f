"""Connections of the client, with gevent and without, to a real nsqd: transports, who is trusted, what goes wrong."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import pytest

from nsqd_py.client import AuthFailed, BadAddress, ConnectionFailed, HandshakeFailed
from nsqd_py.client.options import ClientOptions
from nsqd_py.protocol import frames, outgoing
from tests.support.auth_server import AuthServer
from tests.support.certificates import make_certificates
from tests.support.client_drivers import DRIVERS, Driver
from tests.support.fake_nsqd import agree, agree_then, hang_up, listening, read_late, reset
from tests.support.network import free_ports
from tests.support.nsqd_process import NsqdProcess
from tests.unit.protocol.test_incoming import message

Dial = Callable[..., Driver]

TRANSPORTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "snappy": {"snappy": True},
    "deflate": {"deflate": True, "deflate_level": 3},
    "tls": {"tls_v1": True},
    "tls-snappy": {"tls_v1": True, "snappy": True},
    "tls-deflate": {"tls_v1": True, "deflate": True},
}


@pytest.fixture(params=DRIVERS)
def dial(request) -> Iterator[Dial]:
    """`dial(address, **options)`: a connection that is not open yet."""
    drivers = []

    def make(address, **options):
        driver = DRIVERS[request.param](address, ClientOptions.of(**options))
        drivers.append(driver)
        return driver

    yield make
    for driver in drivers:
        driver.close()


@pytest.fixture
def opened(dial) -> Dial:
    """`opened(address, **options)`: one that is open."""

    def make(address, **options):
        driver = dial(address, **options)
        driver.open()
        return driver

    return make


@pytest.fixture(scope="module")
def shared_nsqd(make_shared_nsqd, certificates) -> NsqdProcess:
    """One nsqd with TLS, for tests that leave it as it was: each has a topic of its own."""
    return make_shared_nsqd(*certificates.nsqd_flags)


def failure(driver: Driver, kind: type[HandshakeFailed | ConnectionFailed]) -> str:
    """The text of the error with which it does not open."""
    with pytest.raises(kind) as raised:
        driver.open()
    assert type(raised.value) is kind
    return str(raised.value)


# ---- transports


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_messages_go_both_ways(shared_nsqd, certificates, dial, topic, transport):
    options = {"tls_root_ca_file": str(certificates.authority), **TRANSPORTS[transport]}
    driver = dial(shared_nsqd.tcp_address, **options)
    negotiated = driver.open()
    assert (negotiated.tls_v1, negotiated.snappy, negotiated.deflate) == tuple(
        options.get(name, False) for name in ("tls_v1", "snappy", "deflate")
    )
    bodies = [b"%d " % number * 1000 for number in range(200)] + [os.urandom(300_000)]
    driver.send(
        outgoing.sub(topic, "channel")
        + outgoing.rdy(500)
        + b"".join(outgoing.pub(topic, body) for body in bodies)
    )
    driver.wait(lambda heard: len(heard.messages) == len(bodies) and len(heard.responses) == len(bodies) + 1)
    assert sorted(driver.heard.bodies) == sorted(bodies)
    assert set(driver.heard.responses) == {b"OK"}
    assert {message.attempts for message in driver.heard.messages} == {1}
    driver.send(outgoing.fins([message.id for message in driver.heard.messages]) + outgoing.CLS)
    driver.wait(lambda heard: heard.responses[-1] == b"CLOSE_WAIT")
    driver.close()
    shared_nsqd.wait_for_channel(
        topic, "channel", depth=0, in_flight_count=0, requeue_count=0, client_count=0
    )


@pytest.mark.ours
def test_unix_sockets(make_nsqd, dial, tmp_path):
    make_nsqd(f"--unix-socket={tmp_path}/nsqd.sock")
    driver = dial(f"unix:{tmp_path}/nsqd.sock", snappy=True)
    assert driver.open().snappy
    driver.send(outgoing.pub("unix", b"x") + outgoing.sub("unix", "channel") + outgoing.rdy(1))
    driver.wait(lambda heard: heard.bodies == [b"x"])


def test_what_was_written_goes_out_before_a_close(shared_nsqd, opened, topic):
    driver = opened(shared_nsqd.tcp_address)
    shared_nsqd.create(topic, "channel")
    driver.connection.send(outgoing.pub(topic, b"x" * 1000) * 2_000)
    driver.close()
    shared_nsqd.wait_for_channel(topic, "channel", depth=2_000)


def test_more_than_the_sockets_hold(shared_nsqd, opened, topic):
    """20 MB go out while their answers come in."""
    driver = opened(shared_nsqd.tcp_address)
    driver.send(outgoing.pub(topic, b"x" * 200) * 100_000)
    driver.wait(lambda heard: len(heard.responses) == 100_000)


def test_both_sides_talk_at_once(opened):
    """Each would wait for the other, if a sender did not read."""
    said = message(1, b"x" * 20_000_000)
    with listening(read_late(20_000_000, said)) as address:
        driver = opened(address)
        driver.send(b"y" * 20_000_000)
        driver.wait(lambda heard: heard.responses == [b"OK"])
    assert [len(body) for body in driver.heard.bodies] == [20_000_000]


# ---- who is trusted


def test_an_authority_that_did_not_sign(shared_nsqd, certificates, dial, tmp_path):
    """The system's authorities count where none is named; a host is trusted by its name too."""
    other = make_certificates(tmp_path / "other")
    driver = dial(shared_nsqd.tcp_address, tls_v1=True, tls_root_ca_file=str(other.authority))
    assert "unable to get local issuer certificate" in failure(driver, HandshakeFailed)
    assert "certificate" in failure(dial(shared_nsqd.tcp_address, tls_v1=True), HandshakeFailed)
    driver = dial(
        f"localhost:{shared_nsqd.tcp_port}", tls_v1=True, tls_root_ca_file=str(certificates.authority)
    )
    assert driver.open().tls_v1


def test_a_certificate_for_another_host(make_nsqd, dial, tmp_path):
    others = make_certificates(tmp_path / "other", "nsqd.example.org")
    nsqd = make_nsqd(*others.nsqd_flags)
    trusting = {"tls_v1": True, "tls_root_ca_file": str(others.authority)}
    assert "not valid for '127.0.0.1'" in failure(dial(nsqd.tcp_address, **trusting), HandshakeFailed)
    named = f"localhost:{nsqd.tcp_port}"
    assert "not valid for 'localhost'" in failure(dial(named, **trusting), HandshakeFailed)
    assert dial(nsqd.tcp_address, **trusting, tls_insecure_skip_verify=True).open().tls_v1


def test_an_nsqd_that_asks_for_certificates(make_nsqd, certificates, dial):
    nsqd = make_nsqd(
        *certificates.nsqd_flags,
        f"--tls-root-ca-file={certificates.authority}",
        "--tls-client-auth-policy=require-verify",
    )
    trusting = {"tls_v1": True, "tls_root_ca_file": str(certificates.authority)}
    assert nsqd.tcp_address in failure(dial(nsqd.tcp_address, **trusting), HandshakeFailed)
    shown = {"tls_cert": str(certificates.client_certificate), "tls_key": str(certificates.client_key)}
    assert dial(nsqd.tcp_address, **trusting, **shown).open().tls_v1


@pytest.mark.parametrize("transport", ["plain", "tls-snappy"])
def test_who_may_do_what(make_nsqd, certificates, dial, transport):
    with contextlib.closing(AuthServer()) as server:
        nsqd = make_nsqd(f"--auth-http-address={server.address}", *certificates.nsqd_flags)
        options = {"tls_root_ca_file": str(certificates.authority), **TRANSPORTS[transport]}
        assert "give auth_secret" in failure(dial(nsqd.tcp_address, **options), AuthFailed)
        assert dial(nsqd.tcp_address, auth_secret="hush", **options).open().auth_required
        assert server.asked[-1].values["secret"] == ["hush"]
        server.refuse()
        assert "E_AUTH_FAILED" in failure(dial(nsqd.tcp_address, auth_secret="wrong", **options), AuthFailed)


# ---- what goes wrong


def test_nobody_listens(dial):
    (port,) = free_ports(1)
    assert (
        failure(dial(f"127.0.0.1:{port}"), ConnectionFailed)
        == f"127.0.0.1:{port}: cannot connect: Connection refused"
    )
    assert "No such file" in failure(dial("unix:/nowhere/nsqd.sock"), ConnectionFailed)


def test_a_name_that_is_no_host(dial):
    with pytest.raises(BadAddress, match="is not a host"):
        dial(f"{'x' * 64}.example:4150")


@pytest.mark.parametrize("behaviour", [hang_up, reset], ids=["end", "reset"])
def test_a_server_that_closes_in_the_handshake(dial, behaviour):
    with listening(behaviour) as address:
        assert "during the handshake" in failure(dial(address), HandshakeFailed)


def test_a_server_that_says_nothing(dial):
    with listening() as address:
        driver = dial(address, read_timeout="1s", heartbeat_interval="500ms")
        assert "no end of the handshake within 1s" in failure(driver, HandshakeFailed)


def test_a_server_that_falls_silent(opened):
    with listening(agree) as address:
        driver = opened(address, read_timeout="1s", heartbeat_interval="500ms")
        driver.wait(lambda heard: bool(heard.end))
    assert driver.heard.end == "nothing came for 1s, not even a heartbeat"


def talk(sock: socket.socket) -> None:
    agree(sock)
    while True:
        sock.sendall(message(1, bytes(1_000_000)))


@pytest.mark.parametrize("behaviour", [agree, talk])
def test_a_server_that_reads_nothing(opened, behaviour):
    """What it says in the meantime waits in memory: only a part of it is read."""
    with listening(behaviour) as address:
        driver = opened(address, write_timeout="1s")
        driver.send(b"x" * 20_000_000)
        driver.wait(lambda heard: bool(heard.end))
        driver.close()
    assert driver.heard.end == "nsqd took nothing for 1s"
    assert len(driver.heard.messages) < 100


def test_heartbeats_without_end_do_not_keep_the_caller(opened):
    """The caller may have other nsqds."""
    has_returned = threading.Event()

    def flood(sock):
        agree(sock)
        ends_s = monotonic() + 10
        while not has_returned.is_set() and monotonic() < ends_s:
            sock.sendall(frames.HEARTBEAT * 10_000)
            with contextlib.suppress(BlockingIOError):
                sock.recv(1 << 20, socket.MSG_DONTWAIT)

    with listening(flood) as address:
        driver = opened(address)
        began_s = monotonic()
        while monotonic() < began_s + 1:
            assert driver.connection.receive(0) == []
        took_s = monotonic() - began_s
        has_returned.set()
        driver.close()
    assert took_s < 8


def test_a_server_that_goes_away(opened):
    with listening(agree_then(frames.OK, and_close=True)) as address:
        driver = opened(address)
        driver.send(outgoing.NOP)
        driver.wait(lambda heard: bool(heard.end))
    assert driver.heard.end == "nsqd closed the connection"
    assert driver.heard.responses == [b"OK"]


def test_why_nsqd_closed_is_heard_though_sending_failed(shared_nsqd, opened, topic):
    driver = opened(shared_nsqd.tcp_address)
    driver.send(outgoing.pub(topic, b"x" * 30_000_000))
    driver.wait(lambda heard: bool(heard.end))
    assert [error.code for error in driver.heard.errors] == ["E_BAD_MESSAGE"]
    assert driver.heard.ends == 1


def test_heartbeats_keep_it_open(shared_nsqd, opened):
    """nsqd closes the connection of a client that does not answer two of them."""
    driver = opened(shared_nsqd.tcp_address, heartbeat_interval="1s")
    opened_s = monotonic()
    driver.wait(lambda heard: driver.connection.last_received_s > opened_s + 2.5)
    assert driver.connection.is_open


def test_a_thread_that_was_busy_does_not_take_it_for_silence(opened):
    """What came in the meantime has not been read yet."""
    with listening(agree_then(frames.OK)) as address:
        driver = opened(address, read_timeout="1s", heartbeat_interval="500ms")
        driver.send(outgoing.NOP)
        select.select([], [], [], 1.2)  # longer than the time-out
        driver.wait(lambda heard: heard.responses == [b"OK"])
        assert driver.connection.is_open
