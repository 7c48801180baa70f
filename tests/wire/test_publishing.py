"""Publishes of several connections in one iteration of the event loop, each read when the test says so."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nsqd_py.broker.lifetime.shutdown import close as close_broker
from nsqd_py.net.socket_buffers import SMALL_READ
from nsqd_py.net.transport import Stream
from nsqd_py.queue.topic import Topic
from nsqd_py.tcp.connection import ClientConnection
from nsqd_py.tcp.fast_publishing import FastConnection
from tests.support import wire
from tests.support.general_nsqd import GENERAL_NSQD
from tests.support.served_broker import ServedBroker, wait_in_loop
from tests.support.wire import MAGIC, bodies, dpub, identify, mpub, pub, sub
from tests.unit.fakes import messages_of, parse_messages, sized

OK = b"\0\0\0\6\0\0\0\0OK"
HTTP_PUB = b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b"


class Peer:
    """A client, with the connection at its other end. Each piece that it sends is read by itself."""

    def __init__(self, make: Any, kind: int = socket.SOCK_SEQPACKET) -> None:
        self.sock, served = socket.socketpair(socket.AF_UNIX, kind)
        self.sock.setblocking(False)
        self.stream: Stream = make(served)

    def say(self, *pieces: bytes) -> Peer:
        for piece in pieces:
            self.sock.send(piece)
        return self

    def read(self, times: int = 1) -> None:
        for _ in range(times):
            self.stream.is_quick = True  # whatever the time
            self.stream._on_readable()

    def answers(self) -> bytes:
        data = b""
        while True:
            try:
                piece = self.sock.recv(65536)
            except BlockingIOError:
                return data
            if not piece:
                return data + b"(end)"
            data += piece


class Nsqd(ServedBroker):
    """A broker, and connections to it."""

    def __init__(self, directory: Path, connection: type[ClientConnection]) -> None:
        super().__init__(directory, connection=connection)
        # On a busy machine, a new topic alone may take a slice.
        self.iteration.backlog.slice_s = self.iteration.backlog.input_s = 1000.0

    def publisher(self) -> Peer:
        """A client whose last command was a PUB to the topic t."""
        peer = Peer(self.tcp)
        self.hear(peer.say(MAGIC + pub("t", b"first")))
        assert peer.answers() == OK
        return peer

    def eager(self) -> bytes:
        """What a client is answered that asks for an upgrade behind a publish, in one packet."""
        peer = Peer(self.tcp).say(
            MAGIC + pub("t", b"early") + identify(feature_negotiation=True, snappy=True)
        )
        peer.read()
        return peer.answers()

    def hear(self, *peers: Peer) -> None:
        """One iteration, in which all of these are readable."""
        for peer in peers:
            peer.read()
        self.iteration.end()

    def subscribe(self, peer: Peer, rdy: int) -> bytes:
        """Make it a consumer of topic t, and return what it is sent."""
        self.hear(peer.say(sub("t", "ch")))
        assert wait_in_loop(peer.answers) == OK  # the channel is created in a thread
        self.hear(peer.say(b"RDY %d\n" % rdy))
        return peer.answers()

    @property
    def topic(self) -> Topic:
        return self.broker.topics["t"]

    @property
    def next_seq(self) -> int:
        return self.topic.log.next_seq

    def written(self, low: int) -> list[tuple[int, list[bytes]]]:
        """The due time (0: none) and the messages of each record from this number on."""
        found = []
        while low < self.next_seq:
            for batch in self.topic.log.read(low):
                if batch.first_seq >= low:
                    found.append((batch.due_ns, [body for _, body in messages_of([batch])]))
                    low = batch.end_seq
        return found


@pytest.fixture(params=[ClientConnection, FastConnection])
def nsqd(request, tmp_path) -> Iterator[Nsqd]:
    """With the shortcut for publishes and without it."""
    nsqd = Nsqd(tmp_path, request.param)
    yield nsqd
    close_broker(nsqd.broker)


class Disk:
    """Fails the next writes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fails = 0
        self.writes = 0
        self._real = os.pwrite
        monkeypatch.setattr(os, "pwrite", self._write)

    def _write(self, descriptor: int, data: bytes, offset: int) -> int:
        self.writes += 1
        if self.fails:
            self.fails -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._real(descriptor, data, offset)


@pytest.fixture
def disk(monkeypatch) -> Disk:
    return Disk(monkeypatch)


def test_publishes_like_the_last_ones_share_a_record_with_others(nsqd, disk):
    """From TCP and HTTP alike."""
    peers = [nsqd.publisher() for _ in range(3)]
    web = Peer(nsqd.http).say(HTTP_PUB % (3, b"web"))
    low, before = nsqd.next_seq, disk.writes
    for number, peer in enumerate(peers):
        peer.stream.pulse.heard_s = 0.0  # type: ignore[attr-defined]
        peer.say(pub("t", b"%03d" % number), pub("t", b"%03d" % (10 + number))).read(2)
    assert all(peer.stream.pulse.heard_s for peer in peers)  # type: ignore[attr-defined]
    peers[0].say(mpub("t", [b"xyz", b"larger"]), pub("t", b"end")).read(2)
    web.read()
    nsqd.iteration.end()
    assert web.answers().startswith(b"HTTP/1.1 200 OK\r\n")
    bodies = [b"000", b"010", b"001", b"011", b"002", b"012", b"xyz", b"larger", b"end", b"web"]
    assert nsqd.written(low) == [(0, bodies)]
    assert disk.writes == before + 1
    assert [peer.answers() for peer in peers] == [OK * 4, OK * 2, OK * 2]
    assert [peer.stream.pub_counts for peer in peers] == [{"t": 6}, {"t": 3}, {"t": 3}]  # type: ignore[attr-defined]


def test_publishes_of_several_clients_share_a_record(nsqd, disk):
    """Nothing is written before the end of the iteration to wait for more of one client."""
    one, other = nsqd.publisher(), nsqd.publisher()
    before = disk.writes
    other.say(pub("t", b"other")).read()
    for _ in range(40):
        one.say(pub("t", b"one")).read()
    nsqd.iteration.end()
    assert disk.writes == before + 1


def test_after_publishes_of_one_size_others_are_parsed(nsqd):
    peer = nsqd.publisher()
    low = nsqd.next_seq
    peer.say(
        pub("t", b"abcd"),
        pub("u", b"abc"),
        dpub("t", 0, b"a"),
        pub("t", b"a") + pub("t", b"b"),
        pub("t", b"0"),
    )
    peer.read(5)
    nsqd.iteration.end()
    assert [body for _, record in nsqd.written(low) for body in record] == [b"abcd", b"a", b"a", b"b", b"0"]
    assert nsqd.broker.topics["u"].message_count == 1
    assert peer.answers() == OK * 6
    assert peer.stream.pub_counts == {"t": 6, "u": 1}  # type: ignore[attr-defined]


def test_publishes_to_several_open_topics_in_turn_are_counted_and_checked(nsqd):
    nsqd.broker.get_topic("u")
    peer = nsqd.publisher()
    peer.say(
        pub("u", b"1"), pub("t", b"2"), pub("u", b"3"), pub("new", b"4"), pub("u", b"5"), pub("b@d", b"6")
    )
    for _ in range(6):
        nsqd.hear(peer)
    answers = peer.answers()
    assert answers.startswith(OK * 5) and b"E_BAD_TOPIC" in answers
    assert [nsqd.broker.topics[name].message_count for name in ("u", "new")] == [3, 1]
    assert peer.stream.pub_counts == {"t": 2, "u": 3, "new": 1}  # type: ignore[attr-defined]


def test_after_a_publish_a_read_may_end_anywhere(nsqd):
    """Also in the name of a command, or with one that is shorter than the line of a publish."""
    line = b"NOP\n" + pub("u", b"b") + b"NOP\n" + pub("t", b"c")
    for cut in range(1, len(line)):
        peer = nsqd.publisher().say(pub("t", b"a"), line[:cut], line[cut:])
        peer.read(3)
        nsqd.iteration.end()
        assert peer.answers() == OK * 3


def test_a_publish_like_the_last_one_creates_its_topic_again(nsqd):
    peer = nsqd.publisher()
    nsqd.broker.delete_topic("t")
    nsqd.hear(peer.say(pub("t", b"new")))
    assert peer.answers() == OK
    assert nsqd.written(0) == [(0, [b"new"])]


def test_a_publish_like_the_last_one_is_refused_while_nsqd_drains(nsqd):
    peer = nsqd.publisher()
    low = nsqd.next_seq
    nsqd.broker.begin_drain(0)
    nsqd.hear(peer.say(pub("t", b"new")))
    assert b"E_PUB_FAILED" in peer.answers()
    assert nsqd.next_seq == low


def test_a_publish_like_the_last_one_that_fails_gets_an_error(nsqd, disk):
    peers = [nsqd.publisher() for _ in range(3)]
    low = nsqd.next_seq
    disk.fails = 1
    for peer in peers:
        peer.say(pub("t", b"bad"), pub("t", b"too")).read(2)
    nsqd.iteration.end()
    assert nsqd.next_seq == low
    for peer in peers:
        answer = peer.answers()
        assert b"E_PUB_FAILED PUB failed No space left on device" in answer and OK not in answer


@pytest.mark.calm  # a slow disk delays the answers
def test_commands_that_are_larger_than_a_small_read_are_soon_read_at_once(nsqd):
    reads: list[int] = []

    class Socket(socket.socket):
        """Notes the sizes of its reads."""

        def recv(self, size: int, flags: int = 0) -> bytes:
            data = super().recv(size, flags)
            reads.append(len(data))
            return data

    nsqd.publisher()  # the size of a read depends on the time that the last one took: a new topic takes long
    peer = Peer(lambda served: nsqd.tcp(Socket(fileno=served.detach())), socket.SOCK_STREAM).say(MAGIC)
    peer.read()
    command = mpub("t", [b"x" * 200] * 100)
    peer.say(command).read(2)
    for _ in range(5):
        peer.say(command).read()
    assert reads[1:] == [SMALL_READ, len(command) - SMALL_READ, *[len(command)] * 5]
    nsqd.iteration.end()
    assert peer.answers() == OK * 6
    for _ in range(5):
        peer.say(pub("t", b"x")).read()
    peer.say(command).read()
    assert reads[-1] == SMALL_READ  # many small ones need little memory


def test_deferred_publishes_with_one_delay_share_one_record(nsqd):
    peers = [nsqd.publisher() for _ in range(2)]
    low = nsqd.next_seq
    peers[0].say(dpub("t", 60_000, b"a") + dpub("t", 60_000, b"b") + dpub("t", 60_001, b"later"))
    peers[1].say(dpub("t", 60_001, b"c"))
    nsqd.hear(*peers)
    assert [peer.answers() for peer in peers] == [OK * 3, OK]
    (due_ns, early), (due_later_ns, later) = nsqd.written(low)
    assert (early, later) == ([b"a", b"b"], [b"later", b"c"])
    assert 900_000 < due_later_ns - due_ns < 100_000_000


def test_a_write_that_fails_withdraws_the_answers_of_all(nsqd, disk):
    """And of nothing else: what was answered before, and on other topics, stays."""
    lone, deferring, many, several = (nsqd.publisher() for _ in range(4))
    web = Peer(nsqd.http).say(HTTP_PUB % (3, b"web"))
    low = nsqd.next_seq
    disk.fails = 1
    lone.say(pub("t", b"1"))
    deferring.say(dpub("t", 1000, b"2"))
    many.say(mpub("t", [b"3", b"4"]))
    several.say(pub("t", b"5") + pub("other", b"6"))
    nsqd.hear(lone, deferring, many, several, web)
    assert nsqd.written(low) == []
    assert b"E_PUB_FAILED PUB failed No space left on device" in lone.answers()
    assert b"E_DPUB_FAILED DPUB failed No space left on device" in deferring.answers()
    assert b"E_MPUB_FAILED MPUB failed No space left on device" in many.answers()
    failed = several.answers()
    assert b"E_PUB_FAILED" in failed and OK not in failed
    assert web.answers().startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    again = nsqd.publisher()
    nsqd.hear(again.say(pub("t", b"again")))
    assert again.answers() == OK


def test_large_messages_reach_a_client_that_takes_them_in_small_pieces(nsqd):
    reader = Peer(nsqd.tcp, socket.SOCK_STREAM)
    reader.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    nsqd.hear(reader.say(MAGIC))
    nsqd.subscribe(reader, rdy=100)
    stream: Any = reader.stream
    bodies = [bytes([number]) * (20_000 + number) for number in range(60)]
    for low in range(0, 60, 20):
        nsqd.topic.buffer.publish(sized(*bodies[low : low + 20]), 20, 0, None, 0)
        nsqd.iteration.end()
        # What waits here keeps no batch of 400 kB in memory: it is a copy.
        assert isinstance(stream._unsent.obj, bytes) and len(stream._unsent.obj) < sum(map(len, bodies))
        assert all(isinstance(part, bytes) for part in stream.out)
    received = bytearray()

    def has_all():
        received.extend(reader.answers())
        return len(received) >= sum(map(len, bodies)) + 30 * len(bodies)

    wait_in_loop(has_all, "all messages")
    assert [message.body for message in parse_messages(bytes(received))] == bodies


def test_an_upgrade_behind_a_publish_that_waits_for_its_sync_gets_no_ok(nsqd):
    nsqd.publisher()
    nsqd.broker.sync.every = nsqd.broker.sync.sync_every = 1
    assert nsqd.eager() == b"(end)"


@pytest.mark.parametrize("fails", [0, 1])
def test_a_publish_before_an_upgrade_is_answered_when_it_is_written(nsqd, disk, fails):
    """In one packet: the upgrade changes how all that follows is sent."""
    nsqd.publisher()
    low = nsqd.next_seq
    disk.fails = fails
    answers = nsqd.eager()
    if fails:
        assert b"E_PUB_FAILED" in answers
        assert OK not in answers
    else:
        assert answers.startswith(OK)
        assert nsqd.next_seq == low + 1


@pytest.mark.parametrize("command", [None, GENERAL_NSQD], ids=["", "general"])
def test_a_process_publishes_and_delivers_with_the_shortcut_and_without_it(make_nsqd, monkeypatch, command):
    if command is not None:
        monkeypatch.setenv("NSQD_COMMAND", command)
    nsqd = make_nsqd()
    clients = [nsqd.connect() for _ in range(4)]
    topics = ["a", "b"]
    sent: dict[str, list[bytes]] = {topic: [] for topic in topics}
    for number in range(40):
        for client in clients:
            topic = topics[number // 4 % 2]
            body = b"%d" % len(sent[topic]) * (number + 1)
            client.send(dpub(topic, 1, body) if number % 8 == 7 else pub(topic, body))
            sent[topic].append(body)
        assert [client.frame() for client in clients] == [wire.OK] * len(clients)
    assert clients[0].ask(pub("a", b"")).data.startswith(b"E_BAD_MESSAGE")
    clients[1].send(pub("a", b"x") * 3, mpub("a", [b"y", b"z"]))
    assert [clients[1].frame() for _ in range(4)] == [wire.OK] * 4
    sent["a"] += [b"x", b"x", b"x", b"y", b"z"]
    for topic in topics:
        assert sorted(bodies(nsqd.consume(topic, "ch", len(sent[topic])))) == sorted(sent[topic])
        nsqd.wait_for_channel(topic, "ch", depth=0, in_flight_count=0, deferred_count=0)
