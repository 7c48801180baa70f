"""nsqd and its nsqlookupds: what it tells them, what it asks them, and that it never waits for them."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from nsqd_py.lookup.connection import parse_peer_info
from nsqd_py.lookup.peers import LookupPeers
from nsqd_py.server.options import NSQD
from tests.support.certificates import Certificates, make_certificates
from tests.support.consumer_drivers import SHELLS
from tests.support.nsqd_process import MakeNsqd, NsqdProcess, wait_until
from tests.support.web_server import Asked, Reply, WebServer
from tests.unit.fakes import FakeLog, World, start_broker

HOST = "127.0.0.1"
SOON_S = 4.0  # nsqd would wait longer for an nsqlookupd


# --- an nsqlookupd that does what a test wants


class Session:
    """One connection of an nsqd: what it sent, in order, and what it has registered."""

    def __init__(self, sock: Any) -> None:
        self.sock = sock
        self.identity: dict[str, Any] = {}
        self.commands: list[str] = []
        self.has_ended = False
        self.unsent: list[bytes] = []

    @property
    def registered(self) -> set[str]:
        """`topic` and `topic channel`, each."""
        known = set()
        for command in self.commands:
            verb, _, words = command.partition(" ")
            if verb == "REGISTER":
                known |= {words, words.split(" ")[0]}
            elif verb == "UNREGISTER":
                known.discard(words)
        return known


class FakeLookupd:
    """Threads that speak nsqlookupd's two protocols.

    channels    topic: the channels that other nsqds have
    is_silent   take what comes and answer nothing
    answers_from  on each connection, answer no command before so many have come
    may_answer_http  HTTP waits until it is set
    """

    def __init__(
        self, channels: dict[str, list[str]] | None = None, *, tls: ssl.SSLContext | None = None
    ) -> None:
        self.channels = channels or {}
        self.is_silent = False
        self.answers_from = 1
        self.may_answer_http = threading.Event()
        self.may_answer_http.set()
        self.asked: list[str] = []
        self.events: list[str] = []  # commands and questions in the order in which they came
        self.sessions: list[Session] = []
        self.tcp_port = self.http_port = 0
        self._tls = tls
        self._listener: socket.socket | None = None
        self._http: WebServer | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.tcp_port}"

    @property
    def flag(self) -> str:
        return f"--lookupd-tcp-address={self.address}"

    @property
    def live(self) -> list[Session]:
        """Connections that stand and were identified."""
        return [session for session in self.sessions if session.identity and not session.has_ended]

    @property
    def registered(self) -> set[str]:
        """What all nsqds have here now."""
        return set().union(*(session.registered for session in self.live))

    def start(self) -> FakeLookupd:
        """On the ports of its last start, if there was one."""
        self._listener = socket.create_server((HOST, self.tcp_port))
        self.tcp_port = self._listener.getsockname()[1]
        self._http = WebServer(self._reply, self._tls, self.http_port)
        self.http_port = self._http.port
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Dies: connections end, nothing listens, what was registered is forgotten."""
        if self._listener is None:
            return
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._listener = None
        self.may_answer_http.set()
        self._http.close()
        for session in self.sessions:
            with contextlib.suppress(OSError):
                session.sock.shutdown(socket.SHUT_RDWR)
        wait_until(lambda: all(session.has_ended for session in self.sessions), what="its connections to end")

    def speak(self) -> None:
        """Silent no more; what it did not say comes now."""
        self.is_silent = False
        for session in self.sessions:
            for data in session.unsent:
                self._answer(session, data)

    # --- TCP

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                session = Session(sock)
                self.sessions.append(session)
                threading.Thread(target=self._serve, args=(session,), daemon=True).start()

    def _serve(self, session: Session) -> None:
        with contextlib.suppress(OSError, EOFError):
            if self._tls is not None:
                session.sock = self._tls.wrap_socket(session.sock, server_side=True)
            self._read_commands(session, session.sock.makefile("rb"))
        session.has_ended = True
        session.sock.close()

    def _read_commands(self, session: Session, source: Any) -> None:
        assert _exactly(source, 4) == b"  V1"
        unanswered = 0
        while line := source.readline():
            if line == b"IDENTIFY\n":
                body = _exactly(source, int.from_bytes(_exactly(source, 4), "big"))
                self._answer(session, self._info())
                session.identity = json.loads(body)
                continue
            session.commands.append(line.decode().rstrip("\n"))
            self.events.append(session.commands[-1])
            unanswered += 1
            if len(session.commands) >= self.answers_from:
                for _ in range(unanswered):
                    self._answer(session, b"OK")
                unanswered = 0

    def _info(self) -> bytes:
        info = {"tcp_port": self.tcp_port, "http_port": self.http_port, "version": "1.3.0"}
        return json.dumps({**info, "broadcast_address": HOST, "hostname": "h"}).encode()

    def _answer(self, session: Session, data: bytes) -> None:
        if self.is_silent:
            session.unsent.append(data)
        else:
            session.sock.sendall(len(data).to_bytes(4, "big") + data)

    # --- HTTP

    def _reply(self, asked: Asked) -> Reply:
        url = urlsplit(asked.target)
        topic = parse_qs(url.query)["topic"][0]
        self.asked.append(topic)
        self.events.append(f"{url.path} {topic}")
        self.may_answer_http.wait()
        return Reply(body=json.dumps({"channels": self.channels.get(topic, [])}).encode(), close=True)


def _exactly(source: Any, size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        raise EOFError
    return data


MakeLookupd = Callable[..., FakeLookupd]


@pytest.fixture
def make_lookupd() -> Iterator[MakeLookupd]:
    """`make_lookupd(channels)` starts one."""
    fakes = []

    def make(*args, **settings):
        fakes.append(FakeLookupd(*args, **settings))
        return fakes[-1].start()

    yield make
    for fake in fakes:
        fake.stop()


@pytest.fixture
def lookupd(make_lookupd) -> FakeLookupd:
    return make_lookupd()


def connected(make_nsqd: MakeNsqd, *fakes: FakeLookupd) -> NsqdProcess:
    """An nsqd that is registered with each of them."""
    nsqd = make_nsqd(*(fake.flag for fake in fakes))
    for fake in fakes:
        wait_until(lambda fake=fake: fake.live, what="nsqd to connect")
    return nsqd


def wait_for(fake: FakeLookupd, *registrations: str) -> None:
    """Until it has exactly these."""
    wait_until(lambda: fake.registered == set(registrations), what=f"{registrations} to be registered")


def channels_of(nsqd: NsqdProcess, topic: str) -> dict[str, int]:
    """Channels with their depths."""
    stats = nsqd.topic_stats(topic) or {"channels": ()}
    return {channel["channel_name"]: channel["depth"] for channel in stats["channels"]}


def wait_for_depths(nsqd: NsqdProcess, topic: str, depths: dict[str, int]) -> None:
    wait_until(lambda: channels_of(nsqd, topic) == depths, what=f"depths of {depths}")


# --- telling


def test_nsqd_says_who_it_is(make_nsqd, lookupd):
    nsqd = make_nsqd(lookupd.flag, "--topology-zone=z", "--topology-region=r")
    session = wait_until(lambda: lookupd.live)[0]
    info = nsqd.http("GET", "/info").json()
    assert session.identity == {
        "version": info["version"],
        "tcp_port": nsqd.tcp_port,
        "http_port": nsqd.http_port,
        "hostname": socket.gethostname(),
        "broadcast_address": "127.0.0.1",
        "topology_zone": "z",
        "topology_region": "r",
    }


def test_changes_are_told_as_they_come(make_nsqd, lookupd):
    nsqd = connected(make_nsqd, lookupd)
    nsqd.create("orders", "a", "b")
    wait_for(lookupd, "orders", "orders a", "orders b")
    nsqd.post("/channel/delete?topic=orders&channel=a")
    wait_for(lookupd, "orders", "orders b")
    nsqd.post("/topic/delete?topic=orders")
    wait_for(lookupd)
    assert lookupd.events[-2:] == ["UNREGISTER orders b", "UNREGISTER orders"]


def test_a_topic_made_again_is_told_as_deleted_and_made(make_nsqd, lookupd):
    """Only so nsqlookupd forgets that it was tombstoned."""
    nsqd = connected(make_nsqd, lookupd)
    nsqd.create("orders", "ch")
    wait_for(lookupd, "orders", "orders ch")
    lookupd.is_silent = True  # it is notified at one go, when it answers again
    nsqd.create("other")
    wait_until(lambda: "REGISTER other" in lookupd.events)
    nsqd.post("/topic/delete?topic=orders")
    nsqd.create("orders", "ch", "new")
    lookupd.speak()
    wait_for(lookupd, "other", "orders", "orders ch", "orders new")
    reported = lookupd.live[0].commands[lookupd.live[0].commands.index("REGISTER other") + 1 :]
    assert reported[:2] == ["UNREGISTER orders ch", "UNREGISTER orders"]
    assert sorted(reported[2:]) == ["REGISTER orders", "REGISTER orders ch", "REGISTER orders new"]


def test_what_was_loaded_is_told_in_a_pipe(tmp_path, lookupd):
    """Answers come only after 200 commands: one at a time would wait for ever."""
    topics = [
        {"name": f"t{n}", "paused": False, "channels": [{"name": c, "paused": False} for c in "abc"]}
        for n in range(500)
    ]
    nsqd = NsqdProcess(tmp_path / "nsqd", lookupd.flag)
    nsqd.data_path.mkdir()
    (nsqd.data_path / "nsqd.dat").write_text(json.dumps({"topics": topics, "version": "1.3.0"}))
    lookupd.answers_from = 200
    with nsqd:
        nsqd.start()
        wait_until(lambda: len(lookupd.registered) == 2000, what="1500 channels")


def test_an_address_that_refuses_is_logged_and_others_are_used(make_nsqd, lookupd):
    nsqd = make_nsqd("--lookupd-tcp-address=127.0.0.1:1", lookupd.flag, lookupd.flag)
    wait_until(lambda: lookupd.live)
    nsqd.create("orders")
    wait_for(lookupd, "orders")
    assert "ERROR: LOOKUPD(127.0.0.1:1): Connection refused" in nsqd.log_text()
    assert len(lookupd.sessions) == 1


# --- never waiting


def test_hanging_http_delays_no_publish_and_a_dead_lookupd_frees_the_topic(make_nsqd, lookupd):
    nsqd = connected(make_nsqd, lookupd)
    lookupd.may_answer_http.clear()
    with nsqd.connect() as client:
        start = time.monotonic()
        client.pub("orders", b"message")
        client.sub("orders", "ch", 1)
        assert time.monotonic() - start < SOON_S
        wait_until(lambda: lookupd.asked == ["orders"])
        assert channels_of(nsqd, "orders") == {"ch": 0}  # held: other channels would miss it
        lookupd.stop()
        assert client.message().body == b"message"


# --- the channels of a new topic


def test_held_messages_survive_a_crash(make_nsqd, lookupd):
    lookupd.channels["orders"] = ["a", "b"]
    nsqd = connected(make_nsqd, lookupd)
    lookupd.may_answer_http.clear()
    nsqd.pub("orders", b"one", b"two")
    wait_until(lambda: lookupd.asked)
    nsqd.kill()
    lookupd.may_answer_http.set()
    nsqd.start()
    wait_for_depths(nsqd, "orders", {"a": 2, "b": 2})


def test_a_lookupd_that_was_away_is_asked_before_it_is_told(make_nsqd, lookupd):
    """So that no consumer comes and gets alone what waits for all channels."""
    lookupd.channels = {"orders": ["a", "b"], "known": ["x"]}
    nsqd = connected(make_nsqd, lookupd)
    nsqd.create("asked")
    wait_until(lambda: lookupd.asked == ["asked"])
    lookupd.stop()
    with nsqd.consumer("known", "ch") as client:
        client.pub("orders", b"message")
        wait_until(lambda: nsqd.log_text().count("failed to query nsqlookupd") == 2)
    lookupd.start()
    wait_for_depths(nsqd, "orders", {"a": 1, "b": 1})
    wait_for(lookupd, "asked", "orders", "orders a", "orders b", "known", "known ch")
    assert lookupd.asked == ["asked", "orders"]  # `asked` is no news, and `known` has a channel
    # It had its channels when it was notified of: nothing was there to be notified of without them.
    assert "REGISTER orders" not in lookupd.live[0].commands


# --- addresses that change


class Embedded:
    """A broker and its nsqlookupds in this process; the fakes have threads of their own."""

    def __init__(self, directory: Path, *addresses: str) -> None:
        self.broker = start_broker(World(), directory)
        self.peers = LookupPeers(self.broker, NSQD.defaults(), self.broker.log)
        self.broker.lookups = self.peers
        self.peers.set_addresses(addresses)
        self.peers.start()


wait_here = SHELLS["gevent"].wait  # greenlets run in the meantime


def test_addresses_are_exchanged_while_it_runs(tmp_path, make_lookupd):
    first, second = make_lookupd(), make_lookupd()
    embedded = Embedded(tmp_path, first.address, first.address)
    embedded.broker.get_topic("orders")
    wait_here(lambda: first.registered == {"orders"})
    embedded.peers.set_addresses((first.address, second.address))
    wait_here(lambda: second.registered == {"orders"})
    assert len(first.sessions) == 1
    embedded.peers.set_addresses((second.address,))
    wait_here(lambda: not first.live)
    embedded.broker.get_topic("new")
    wait_here(lambda: second.registered == {"orders", "new"})
    assert "REGISTER new" not in first.events
    embedded.peers.close()
    wait_here(lambda: not second.live)


def test_a_name_for_two_families_is_registered_with_once(tmp_path, make_lookupd):
    """Nobody listens on ::1, so 127.0.0.1 it is."""
    fake = make_lookupd()
    embedded = Embedded(tmp_path, f"localhost:{fake.tcp_port}", f"127.0.0.1:{fake.tcp_port}")
    embedded.broker.get_topic("orders")
    wait_here(lambda: fake.registered == {"orders"})
    embedded.peers.close()
    assert len(fake.sessions) == 1


def test_after_a_defect_it_registers_again(tmp_path, make_lookupd, monkeypatch):
    defects = [KeyError("a bug"), KeyError("another one")]

    def parse(response):
        if defects:
            raise defects.pop()
        return parse_peer_info(response)

    monkeypatch.setattr("nsqd_py.lookup.peer.parse_peer_info", parse)
    logged = []
    monkeypatch.setattr(FakeLog, "exception", lambda _, text, *arguments: logged.append(text % arguments))
    fake = make_lookupd()
    embedded = Embedded(tmp_path, fake.address)
    embedded.broker.get_topic("orders")
    wait_here(lambda: fake.registered == {"orders"})
    embedded.peers.close()
    assert len(logged) == 2


# --- TLS


@pytest.fixture
def tls_lookupd(make_lookupd, certificates) -> FakeLookupd:
    """It wants a certificate too."""
    context = certificates.server_context()
    context.load_verify_locations(certificates.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    return make_lookupd({"orders": ["a"]}, tls=context)


def tls_flags(fake: FakeLookupd, certificates: Certificates, authority: Path | None = None) -> list[str]:
    return [
        f"--lookupd-tcp-address=localhost:{fake.tcp_port}",
        "--lookupd-tls",
        f"--client-tls-root-ca-file={authority or certificates.authority}",
        f"--client-tls-cert={certificates.client_certificate}",
        f"--client-tls-key={certificates.client_key}",
    ]


def test_tls_on_both_ports(make_nsqd, tls_lookupd, certificates):
    """The name that counts is the configured one, whatever the nsqlookupd says of itself."""
    nsqd = make_nsqd(*tls_flags(tls_lookupd, certificates))
    wait_until(lambda: tls_lookupd.live)
    nsqd.post("/pub?topic=orders", b"message")
    wait_for_depths(nsqd, "orders", {"a": 1})
    wait_for(tls_lookupd, "orders", "orders a")
    tls_lookupd.stop()
    wait_until(lambda: "closed by nsqlookupd" in nsqd.log_text(), what="the end to be noticed")


def test_tls_with_certificates_that_are_replaced_while_nsqd_runs(make_nsqd, make_lookupd, tmp_path):
    """Or nsqd is missing in each nsqlookupd that starts again, until nsqd does."""
    certificates = make_certificates(tmp_path)
    context = certificates.server_context()
    fake = make_lookupd(tls=context)
    make_nsqd(*tls_flags(fake, certificates))
    wait_until(lambda: fake.live)
    fake.stop()
    make_certificates(tmp_path)  # of another authority, in the same files
    context.load_cert_chain(certificates.server_certificate, certificates.server_key)
    context.load_verify_locations(certificates.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    fake.start()
    wait_until(lambda: fake.live, what="nsqd to connect again")


def test_tls_with_a_stranger_is_refused_unless_it_is_asked_for(
    make_nsqd, tls_lookupd, certificates, tmp_path
):
    flags = tls_flags(tls_lookupd, certificates, make_certificates(tmp_path).authority)
    nsqd = make_nsqd(*flags)
    wait_until(lambda: "certificate verify failed" in nsqd.log_text())
    assert not tls_lookupd.live
    make_nsqd(*flags, "--lookupd-tls-insecure-skip-verify")
    wait_until(lambda: tls_lookupd.live)
