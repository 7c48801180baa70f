"""A connection that has ended leaves no object behind that only the garbage collector could free."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gevent
import gevent.ssl
import pytest

from nsqd_py.standby.messages import FOLLOW, NONCE_BYTES, Caller
from nsqd_py.standby.primary import Standbys
from tests.support.certificates import make_certificates
from tests.support.member import member, plain_offer, standby
from tests.support.nsqd_process import NsqdProcess
from tests.support.served_broker import ServedBroker, connected, read_until, wait_in_loop
from tests.support.wire import MAGIC, identify, pub, rdy, sub

COUNT = 20
COUNTED = ("nsqd_py.", "gevent.", "ssl.", "builtins.cell", "builtins.frame", "builtins.traceback")
# The messages in memory, and the heap's outdated entries, which do not refer to the connection.
BOUNDED = ("nsqd_py.protocol.batch.Batch", "nsqd_py.pqueues.alarms.Alarm")


class Nsqd(ServedBroker):
    def __init__(self, directory: Path) -> None:
        self._certificates = make_certificates(directory / "certificates")
        data_path = directory / "data"
        data_path.mkdir()
        super().__init__(data_path, "--accept-standbys", *self._certificates.nsqd_flags, tls_enabled=True)
        self.broker.read_credentials()
        self.broker.additions.take_role(Standbys(self.broker, data_path, self.broker.services.threadpool))
        self._address = f"{self.options.broadcast_address}:{self.options.broadcast_tcp_port}"

    def talk(self, kind: str, *sent: bytes, until: bytes) -> None:
        """Send something, read until these bytes, and close."""
        connection, client = connected(self.http if kind == "http" else self.tcp)
        with client:
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
                offer, *sent = sent
                client.sendall(standby(caller.signed(offer)))
                read_until(client, until)  # a round is acknowledged after it was sent
                until = b""
            for piece in sent:
                client.sendall(piece)
            read_until(client, until)
            client.close()
            wait_in_loop(lambda: connection.closed, "the end of the connection")
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


def ours() -> Counter[str]:
    """The number of objects of our classes, and of greenlets and functions, by class."""
    names = (f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects())
    return Counter(name for name in names if name.startswith(COUNTED) and name not in BOUNDED)


@pytest.mark.parametrize("name", TALKS)
def test_a_closed_connection_leaves_nothing(name, tmp_path):
    kind, sent, until = TALKS[name]
    nsqd = Nsqd(tmp_path)
    for _ in range(3):  # what is made once
        nsqd.talk(kind, *sent, until=until)
    with without_collector():
        before = ours()
        for _ in range(COUNT):
            nsqd.talk(kind, *sent, until=until)
        gained = ours() - before
    assert {name: count for name, count in gained.items() if count >= COUNT} == {}


@pytest.mark.ours
def test_a_client_that_is_closed_in_the_middle_of_its_commands_executes_no_more(tmp_path):
    """Here by an IDENTIFY with an upgrade behind a PUB that waits for its sync. The SUB would be a consumer for ever."""
    with NsqdProcess(tmp_path, "--sync-every=1").start() as nsqd:
        with nsqd.connect() as client:
            client.send(
                pub("t", b"x"), identify(feature_negotiation=True, snappy=True), sub("t", "c"), rdy(1)
            )
            client.rest()
        topic = nsqd.topic_stats("t")
        assert (topic["message_count"], topic["channels"]) == (1, [])
