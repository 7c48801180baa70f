"""How long a client may keep nsqd or nsqlookupd waiting, on connections in this process.

The clock is the test's: what `overdue` says is asked for at given times, as the sweep of `nsqd_py.net.limits` does.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pytest

from nsqd_py.broker.lifetime.shutdown import close as close_broker
from nsqd_py.clock import SteadyClock
from nsqd_py.net.limits import BODY, HANDSHAKE, HEAD, IDLE, WRITE, TimeLimits
from nsqd_py.net.loop_iteration import LoopIteration
from nsqd_py.net.tls import TlsIfAsked, TlsLayer, server_context
from nsqd_py.net.tls_options import ServerTlsOptions
from nsqd_py.net.transport import Stream
from nsqd_py.runtime.logs.daemon_log import FATAL, Log
from nsqlookupd_py.connection import Directory, PeerConnection
from nsqlookupd_py.registry import Registry
from tests.support.served_broker import DEADLINE_S, ServedBroker, connected, read_all, wait_in_loop
from tests.support.wire import MAGIC, NOP, pub

LIMITS = TimeLimits(handshake_s=10, head_s=30, idle_s=600, write_s=60)
PING = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"
POST_A_BYTE = b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"
POST_100_KB = b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 102400\r\n\r\n"

pytestmark = pytest.mark.ours


class Dialogue:
    """A client, and nsqd's side of its connection. The first sweep, at 0 s, is when nsqd starts to wait."""

    def __init__(self, make: Callable[[socket.socket], Stream]) -> None:
        self.stream, self.client = connected(make)
        self._began_s = gevent.get_hub().loop.now()

    def say(self, data: bytes) -> None:
        """Returns when it was read."""
        self.client.sendall(data)
        wait_in_loop(lambda: self.stream.closed or not _readable(self.stream), "nsqd to read")

    def sweep(self, at_s: float) -> str:
        """For what it is overdue, so long after the beginning."""
        return self.stream.overdue(self._began_s + at_s, LIMITS)

    def end(self, reason: str) -> bytes:
        """What the client gets when it is ended for that."""
        self.stream.time_out(reason)
        return read_all(self.client)


def _readable(stream: Stream) -> bool:
    try:
        return bool(stream._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return False


class Nsqd(ServedBroker):
    """A broker, and dialogues with it."""

    def over_http(self) -> Dialogue:
        return Dialogue(self.http)

    def over_tcp(self) -> Dialogue:
        return Dialogue(self.tcp)


@pytest.fixture
def nsqd(tmp_path) -> Iterator[Nsqd]:
    nsqd = Nsqd(tmp_path)
    yield nsqd
    close_broker(nsqd.broker)


# ---- HTTP


def test_a_connection_that_never_asks_has_as_long_as_a_head(nsqd):
    http = nsqd.over_http()
    assert [http.sweep(at_s) for at_s in (0, 29.9, 30)] == ["", "", HEAD]
    assert http.end(HEAD) == b""


def test_a_head_that_dribbles_is_ended_with_408(nsqd):
    http = nsqd.over_http()
    for second in range(30):
        http.say(PING[second : second + 1])
        assert http.sweep(second) == ""
    assert http.sweep(30) == HEAD
    answer = http.end(HEAD)
    assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert b"Connection: close\r\n" in answer


@pytest.mark.parametrize("requests", [PING, POST_A_BYTE])
def test_a_connection_that_asked_may_idle_for_longer(nsqd, requests):
    http = nsqd.over_http()
    http.sweep(0)
    http.say(requests)
    assert [http.sweep(at_s) for at_s in (20, 100, 619)] == ["", "", ""]
    http.say(requests)  # each request is a new beginning, also one whose head is known
    assert [http.sweep(at_s) for at_s in (620, 700, 1219, 1220)] == ["", "", "", IDLE]
    http.client.recv(65536)
    assert http.end(IDLE) == b""


def test_a_body_has_time_by_its_size(nsqd):
    http = nsqd.over_http()
    http.say(POST_100_KB + b"x" * 50 * 1024)
    assert [http.sweep(at_s) for at_s in (0, 30, 79.9)] == ["", "", ""]
    http.say(b"x" * 10 * 1024)
    assert [http.sweep(at_s) for at_s in (80, 89.9, 90)] == ["", "", BODY]
    assert http.end(BODY).startswith(b"HTTP/1.1 408 ")


def test_a_body_that_dribbles_is_too_slow(nsqd):
    http = nsqd.over_http()
    http.say(POST_100_KB)
    http.sweep(0)
    for second in range(1, 30):
        http.say(b"x")
        assert http.sweep(second) == ""
    assert http.sweep(31) == BODY


def test_the_rest_of_a_refused_body_is_not_waited_for_either(nsqd):
    http = nsqd.over_http()
    http.say(b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
    http.sweep(0)
    assert http.sweep(30) == BODY
    assert http.end(BODY).startswith(b"HTTP/1.1 404 ")  # the answer that it had already


def test_who_takes_no_answer_is_ended_for_that(nsqd):
    http = nsqd.over_http()
    many = b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n" * 1000
    http.client.setblocking(False)
    wait_in_loop(
        lambda: _sent_nothing(http.client, many) and http.stream.unsent_bytes, "answers that are not taken"
    )
    assert [http.sweep(at_s) for at_s in (0, 59.9, 60)] == ["", "", WRITE]
    http.client.settimeout(DEADLINE_S)
    wait_in_loop(lambda: http.client.recv(100_000) and http.sweep(70) == "", "some to be taken")


def _sent_nothing(client: Any, data: bytes) -> bool:
    try:
        return client.send(data) == 0
    except BlockingIOError:
        return True


@pytest.mark.parametrize(("requests", "fewest", "most"), [(100, 90, 1_000_000), (1, 0, 1)])
def test_requests_that_came_together_give_way_to_others(nsqd, requests, fewest, most):
    """The last one does not: if it ends the daemon, its answer must leave before."""
    nsqd.iteration.backlog.slice_s = nsqd.iteration.backlog.input_s = (
        1000.0  # a busy machine does not cut what was read
    )
    http = nsqd.over_http()
    http.client.sendall(b"GET /info HTTP/1.1\r\nHost: x\r\n\r\n" * requests)
    turns = 0
    with gevent.Timeout(DEADLINE_S):
        while not http.stream._worker:
            gevent.sleep(0)
        while http.stream._worker:
            gevent.sleep(0)
            turns += 1
    assert fewest <= turns <= most


# ---- TCP


def test_each_end_takes_its_time_in_its_own_turn(nsqd):
    """A thousand consumers may leave at once: what an end costs counts for the slice of its iteration."""
    turns: list[bool] = []

    class Owner:
        def remove(self, _stream: Stream) -> None:
            turns.append(nsqd.iteration.backlog.is_working)

    consumers = [nsqd.over_tcp() for _ in range(20)]
    for consumer in consumers:
        consumer.say(MAGIC + b"SUB t c\nRDY 1\n")
        consumer.client.recv(100)  # unread bytes would make the end a reset
        consumer.stream.owner = Owner()  # type: ignore[assignment]
    nsqd.iteration.backlog.input_s = 0.0  # no iteration has time for them
    for consumer in consumers:
        consumer.client.close()
    wait_in_loop(lambda: len(turns) == len(consumers), "the ends")
    assert all(turns)


def test_a_magic_that_does_not_come_is_not_waited_for(nsqd):
    silent, dribbling = nsqd.over_tcp(), nsqd.over_tcp()
    dribbling.say(MAGIC[:3])
    for tcp in (silent, dribbling):
        assert [tcp.sweep(at_s) for at_s in (0, 9.9, 10)] == ["", "", HANDSHAKE]
        assert tcp.end(HANDSHAKE) == b""


@pytest.mark.parametrize("is_sure", [True, False], ids=["TLS only", "TLS or plain"])
@pytest.mark.parametrize("kind", ["tcp", "http"])
@pytest.mark.parametrize("part", [0.5, 1.0], ids=["half a hello", "a hello"])
def test_a_tls_handshake_has_its_time(nsqd, certificates, kind, is_sure, part):
    files = {"tls_cert": str(certificates.server_certificate), "tls_key": str(certificates.server_key)}
    context = server_context(ServerTlsOptions(**files))
    client = TlsLayer(certificates.client_context(), "localhost")
    client.decode(b"")
    hello = client.take_output()
    dialogue = Dialogue(getattr(nsqd, kind))
    if kind == "tcp":
        dialogue.say(MAGIC)
    dialogue.stream.add_layer((TlsLayer if is_sure else TlsIfAsked)(context))
    dialogue.say(hello[: int(len(hello) * part)])
    assert dialogue.sweep(1) == ""
    dialogue.say(hello[int(len(hello) * part) :][:-1])  # more of it is no reason to wait longer
    assert [dialogue.sweep(at_s) for at_s in (9, 10.9, 11)] == ["", "", HANDSHAKE]


def test_bytes_of_a_command_that_never_ends_are_no_sign_of_life(nsqd):
    tcp = nsqd.over_tcp()
    tcp.say(MAGIC)
    heard_s = tcp.stream.pulse.heard_s
    for byte in pub("t", b"body")[:-1]:
        tcp.say(bytes([byte]))
    assert tcp.stream.pulse.heard_s == heard_s
    tcp.say(b"y" + NOP)
    assert tcp.stream.pulse.heard_s > heard_s


# ---- nsqlookupd


def test_nsqlookupd_waits_for_a_first_command_only_so_long():
    hub = gevent.get_hub()
    log = Log(level=FATAL)

    def make(sock):
        return PeerConnection(
            sock, "a:5", hub.loop, LoopIteration(hub, log), log, Directory(Registry(0, 0), SteadyClock())
        )

    silent, greeting, speaking = Dialogue(make), Dialogue(make), Dialogue(make)
    greeting.say(b"  V1IDENT")
    speaking.say(b"  V1PING\n")
    assert [peer.sweep(9.9) for peer in (silent, greeting, speaking)] == ["", "", ""]
    assert [peer.sweep(10.1) for peer in (silent, greeting, speaking)] == [HANDSHAKE, HANDSHAKE, ""]
