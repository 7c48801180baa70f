"""A connection that has ended leaves no object behind that only the garbage collector could free."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import gevent
import gevent.socket
import gevent.ssl
import pytest

from nsqd_py.alarms import Alarms
from nsqd_py.api.publishing import PublishingConnection
from nsqd_py.broker.broker import Broker
from nsqd_py.net.loop_iteration import LoopIteration
from nsqd_py.net.tls import CertificateReloader
from nsqd_py.options import read_options
from nsqd_py.protocol.session import Limits
from nsqd_py.runtime.logs import FATAL, Log
from nsqd_py.standby.messages import FOLLOW, NONCE_BYTES, Caller
from nsqd_py.standby.primary import Standbys
from nsqd_py.tcp.connection import ClientConnection
from tests.support.certificates import make_certificates
from tests.support.member import member, plain_offer, standby
from tests.support.nsqd_process import NsqdProcess
from tests.support.wire import MAGIC, identify, pub, sub
from tests.unit.fakes import disk_threads

COUNT = 20
COUNTED = ("nsqd_py.", "gevent.", "ssl.", "builtins.cell", "builtins.frame", "builtins.traceback")
# The messages in memory, and the heap's outdated entries, which do not refer to the connection.
BOUNDED = ("nsqd_py.batch.Batch", "nsqd_py.alarms.Alarm")
DEADLINE_S = 40


class Nsqd:
    def __init__(self, directory: Path) -> None:
        hub = gevent.get_hub()
        log = Log(level=FATAL)
        iteration = LoopIteration(hub, log)
        self._certificates = make_certificates(directory / "certificates")
        data_path = directory / "data"
        data_path.mkdir()
        flags = [f"--data-path={data_path}", "--accept-standbys", *self._certificates.nsqd_flags]
        options = read_options(flags)
        self.broker = broker = Broker(options, log, iteration, Alarms(), disk_threads())
        broker.tls = CertificateReloader(options, log)
        broker.replication = Standbys(broker, data_path, broker.services.threadpool)
        peer = "127.0.0.1:5"
        self._address = f"{options.broadcast_address}:{options.broadcast_tcp_port}"
        self.tcp = lambda sock: ClientConnection(sock, peer, hub.loop, iteration, log, broker, Limits(tls_enabled=True))
        self.http = lambda sock: PublishingConnection(sock, peer, hub.loop, iteration, log, broker)

    def talk(self, kind: str, *sent: bytes, until: bytes) -> None:
        """Send something, read until these bytes, and close."""
        ours, theirs = socket.socketpair()
        connection = (self.http if kind == "http" else self.tcp)(theirs)
        connection.start()
        with gevent.Timeout(DEADLINE_S), gevent.socket.socket(fileno=ours.detach()) as client:
            received = b""
            if kind == "tls":
                client.sendall(MAGIC + identify(feature_negotiation=True, tls_v1=True))
                assert b'"tls_v1":true' in client.recv(1 << 16)
                context = gevent.ssl.SSLContext(gevent.ssl.PROTOCOL_TLS_CLIENT)
                context.load_verify_locations(str(self._certificates.authority))
                client = context.wrap_socket(client, server_hostname="localhost")
            if kind == "member":
                caller = Caller(b"", FOLLOW, self._address, self._address, bytes(NONCE_BYTES))
                client.sendall(MAGIC + member(caller.hello()))
                client.sendall(member(caller.prove(frame_of(client))))
                caller.check(frame_of(client))
                client.sendall(standby(caller.signed(sent[0])))
                sent = sent[1:]
                while until not in received:  # a round is acknowledged after it was sent
                    received += client.recv(1 << 16)
            for piece in sent:
                client.sendall(piece)
            while until not in received:
                piece = client.recv(1 << 16)
                assert piece, received
                received += piece
            client.close()
            while not connection.closed:
                gevent.sleep(0)
            gevent.sleep(0)


def frame_of(client: Any) -> bytes:
    """Return the data of the next frame."""
    data = client.recv(1 << 16)
    assert len(data) == int.from_bytes(data[:4], "big") + 4, data
    return bytes(data[8:])


ROUND = b"\0\0\0\x25\0\0\0\3\x08"
HTTP_PUB = b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
TALKS: dict[str, tuple[str, list[bytes], bytes]] = {
    "publisher": ("tcp", [MAGIC + pub("t", b"x" * 1000)], b"OK"),
    "consumer": ("tcp", [MAGIC + identify(feature_negotiation=True) + sub("t", "c") + b"RDY 5\n"], b"OK"),
    "error": ("tcp", [MAGIC + b"NONSENSE\n"], b"E_INVALID"),
    "deflate": ("tcp", [MAGIC + identify(feature_negotiation=True, deflate=True)], b"max_deflate_level"),
    "snappy": ("tcp", [MAGIC + identify(feature_negotiation=True, snappy=True)], b"NaPpY"),
    "tls": ("tls", [b"NOP\n" + pub("t", b"x")], b"OK\0\0\0\6\0\0\0\0OK"),
    "half a command": ("tcp", [MAGIC + identify(feature_negotiation=True) + b"PUB t\n\0\0\1"], b"version"),
    "http publish": ("http", [HTTP_PUB], b"OK"),
    "http stats": ("http", [b"GET /stats?format=json HTTP/1.1\r\nHost: h\r\n\r\n"], b"topics"),
    "standby": ("member", [plain_offer()], ROUND),
    "standby that acknowledges": ("member", [plain_offer(), b"ACK 1\n"], ROUND),
    "standby, refused": ("member", [b"{}"], b"E_INVALID"),
    "no member": ("tcp", [MAGIC + standby(plain_offer())], b"E_INVALID"),
}


@contextmanager
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def ours() -> dict[str, int]:
    """The number of objects of our classes, and of greenlets and functions, by class."""
    counts: dict[str, int] = {}
    for each in gc.get_objects():
        name = f"{type(each).__module__}.{type(each).__qualname__}"
        if name.startswith(COUNTED) and name not in BOUNDED:
            counts[name] = counts.get(name, 0) + 1
    return counts


@pytest.mark.parametrize("name", TALKS)
def test_a_closed_connection_leaves_nothing(name: str, tmp_path: Path) -> None:
    kind, sent, until = TALKS[name]
    nsqd = Nsqd(tmp_path)
    for _ in range(3):  # what is made once
        nsqd.talk(kind, *sent, until=until)
    with without_collector():
        before = ours()
        for _ in range(COUNT):
            nsqd.talk(kind, *sent, until=until)
        gained = {name: count - before.get(name, 0) for name, count in ours().items()}
    assert {name: count for name, count in gained.items() if count >= COUNT} == {}


@pytest.mark.ours
def test_a_client_that_is_closed_in_the_middle_of_its_commands_executes_no_more(tmp_path: Path) -> None:
    """Here by an IDENTIFY with an upgrade behind a PUB that waits for its sync. The SUB would be a consumer for ever."""
    with NsqdProcess(tmp_path, "--sync-every=1").start() as nsqd:
        with socket.create_connection(("127.0.0.1", nsqd.tcp_port), DEADLINE_S) as client:
            upgrade = identify(feature_negotiation=True, snappy=True)
            client.sendall(MAGIC + pub("t", b"x") + upgrade + sub("t", "c") + b"RDY 1\n")
            with suppress(ConnectionResetError):
                while client.recv(1 << 16):
                    pass
        topic = nsqd.topic_stats("t")
        assert topic is not None and topic["message_count"] == 1 and not topic["channels"]
