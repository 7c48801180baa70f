"""Strangers at the door of a group of nsqds: who does not know its secret gets, changes and ends nothing."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from nsqd_py.standby.messages import FENCE, FOLLOW
from tests.support.auth_server import AuthServer
from tests.support.member import (
    SECRET,
    ack,
    caller_of,
    fence_of,
    join,
    member,
    plain_offer,
    secret_file,
    standby,
)
from tests.support.network import Relay, free_ports
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.standby_processes import (
    DEADLINE_S,
    is_primary,
    wait_until_it_follows,
    wait_until_it_gives_way,
)
from tests.support.wire import ERROR, OK, Client, Closed, Frame, auth, pub

pytestmark = pytest.mark.ours

BODY = b"for members only"
NO_PROOF = b"E_INVALID cannot STANDBY: no proof of membership"
WRONG_PROOF = b"E_INVALID cannot STANDBY: the proof of membership is wrong"


@pytest.fixture
def secret(tmp_path) -> str:
    return secret_file(tmp_path / "secret")


@pytest.fixture
def primary(make_nsqd, secret) -> NsqdProcess:
    """A primary with a message, which a member has followed before: so it keeps its epochs."""
    nsqd = make_nsqd("--accept-standbys", secret)
    has_a_past(nsqd)
    return nsqd


def has_a_past(nsqd: NsqdProcess, secret: bytes = SECRET) -> None:
    nsqd.create("orders", "c")
    nsqd.post("/pub?topic=orders", BODY)
    with nsqd.connect() as client:
        client.send(standby(join(client, caller_of(nsqd, secret)).signed(plain_offer())))
        fence_of(nsqd, "")


def is_unharmed(nsqd: NsqdProcess) -> bool:
    nsqd.post("/pub?topic=orders", b"more")
    return is_primary(nsqd) and "FENCED" not in nsqd.log_text()


def received(client: Client) -> list[Frame]:
    """All frames until nsqd closes the connection."""
    with contextlib.suppress(Closed):
        return client.rest(DEADLINE_S)
    return []


# ---- strangers without a proof


@pytest.mark.parametrize("purpose", [FOLLOW, FENCE])
@pytest.mark.parametrize("has_secret", [True, False])
def test_a_stranger_neither_reads_nor_fences(make_nsqd, secret, purpose, has_secret):
    """Also where each process of this machine is a member: the messages of an older version prove nothing."""
    nsqd = make_nsqd("--accept-standbys", *([secret] if has_secret else []))
    has_a_past(nsqd, SECRET if has_secret else b"")
    document = plain_offer() if purpose == FOLLOW else fence_of(nsqd, "127.0.0.1:1")
    with nsqd.connect() as stranger:
        stranger.send(standby(document), ack(1))
        frames = received(stranger)
    assert [(frame.kind, frame.data[: len(NO_PROOF)]) for frame in frames] == [(ERROR, NO_PROOF)]
    assert is_unharmed(nsqd)


@pytest.mark.parametrize("purpose", [FOLLOW, FENCE])
def test_a_client_with_all_permissions_is_no_member(make_nsqd, secret, purpose):
    with contextlib.closing(AuthServer()) as server:  # it permits everything
        nsqd = make_nsqd("--accept-standbys", secret, f"--auth-http-address={server.address}")
        has_a_past(nsqd)
        document = plain_offer() if purpose == FOLLOW else fence_of(nsqd, "127.0.0.1:1")
        with nsqd.connect() as client:
            client.ask(auth(b"x"))
            client.send(standby(document))
            assert [frame.data[: len(NO_PROOF)] for frame in received(client)] == [NO_PROOF]
        assert is_unharmed(nsqd)


def test_a_wrong_secret_is_refused_late_and_quietly(primary):
    """No part of the answer depends on the secret, and many attempts write few lines."""
    strangers = [primary.connect() for _ in range(60)]
    for stranger in strangers:
        caller = caller_of(primary, os.urandom(32))
        stranger.send(member(caller.hello()))
    for stranger in strangers:
        stranger.send(member(caller.prove(stranger.next_frame().data)), standby(caller.signed(plain_offer())))
    for stranger in strangers:
        assert [frame.data[: len(WRONG_PROOF)] for frame in received(stranger)] == [WRONG_PROOF]
        stranger.close()
    lines = [line for line in primary.log_text().splitlines() if "proof of membership" in line]
    assert 1 <= len(lines) < 40
    assert is_unharmed(primary)


def test_a_connection_that_does_not_prove_itself_is_closed(primary):
    with primary.connect() as stranger:
        stranger.ask(member(caller_of(primary).hello()))
        assert received(stranger) == []
    wait_until(lambda: "no proof of membership in time" in primary.log_text(), what="the line of the refusal")


def test_strangers_take_no_places(primary, tmp_path, secret):
    with contextlib.ExitStack() as stack:
        for number in range(40):
            stranger = stack.enter_context(primary.connect())
            stranger.ask(member(caller_of(primary).hello()) if number % 2 else standby(plain_offer()))
        with following(primary, tmp_path, secret):
            assert len(primary.stats()["standbys"]["list"]) == 1


def test_the_ack_of_a_stranger_releases_no_publisher(make_nsqd, secret):
    nsqd = make_nsqd("--standby-acks=1", "--standby-timeout=1s", secret)
    with nsqd.connect() as stranger, nsqd.connect() as publisher:
        stranger.ask(member(caller_of(nsqd).hello()))
        stranger.send(*(ack(number) for number in range(100)))
        publisher.send(pub("orders", BODY))
        stranger.send(*(ack(number) for number in range(100)))
        assert publisher.next_frame().data.startswith(b"E_PUB_FAILED")


@contextlib.contextmanager
def following(primary: NsqdProcess, directory: Path, *flags: str, port: int = 0) -> Iterator[NsqdProcess]:
    with NsqdProcess(
        directory / "b", f"--standby-of=127.0.0.1:{port or primary.tcp_port}", *flags
    ) as process:
        process.start()
        if not port:
            wait_until_it_follows(process)
        yield process


# ---- strangers with the proof of someone else


def test_a_proof_is_worth_nothing_on_another_connection(primary):
    caller = caller_of(primary)
    with primary.connect() as first, primary.connect() as second:
        proof = caller.prove(first.ask(member(caller.hello())).data)
        assert first.ask(member(proof)).kind != ERROR
        second.ask(member(caller.hello()))
        assert second.ask(member(proof)).data.startswith(WRONG_PROOF)


def test_a_proof_for_one_purpose_is_worth_nothing_for_another(primary):
    with primary.connect() as client:
        caller = join(client, caller_of(primary))
        answer = client.ask(standby(caller.signed(fence_of(primary, "127.0.0.1:1"))))
    assert answer.data.startswith(b"E_INVALID cannot STANDBY: the document has another purpose")
    with primary.connect() as client:
        caller = join(client, caller_of(primary, purpose=FENCE))
        answer = client.ask(standby(caller.signed(plain_offer())[:32] + fence_of(primary, "127.0.0.1:1")))
    assert answer.data.startswith(b"E_INVALID cannot STANDBY: the document of STANDBY has a wrong proof")
    assert is_unharmed(primary)


def test_a_relay_gets_nothing_of_both(primary, tmp_path, secret):
    """A member wants to reach the address of a stranger, who passes every byte on to the primary."""
    (port,) = free_ports(1)
    relay = Relay(("127.0.0.1", port), ("127.0.0.1", primary.tcp_port))
    try:
        with following(primary, tmp_path, secret, port=port) as member_of_group:
            refusal = f"the caller wanted to reach 127.0.0.1:{port}"
            wait_until(lambda: refusal in member_of_group.log_text(), DEADLINE_S, "the refusal")
        assert primary.stats()["standbys"]["list"] == []
    finally:
        relay.close()


def test_a_proof_that_is_sent_back_to_its_author(make_nsqd, secret):
    """An nsqd tries to follow a stranger, who lets it solve its own challenge."""
    with contextlib.closing(Stranger()) as stranger:
        victim = make_nsqd("--accept-standbys", secret, f"--standby-of={stranger.address}")
        link = stranger.accept()
        hello = link.hello()
        with victim.connect() as mirror:
            challenge = mirror.ask(member(hello)).data
            link.respond(challenge)
            answer = mirror.ask(member(link.body()))
        assert answer.kind == ERROR
        assert b"the caller wanted to reach" in answer.data
        link.close()


# ---- the fence


class Link:
    """A connection of a member to a stranger. `received` has every byte that came."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._file = sock.makefile("rb")
        self.received = b""

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self.received += data
        return data

    def line(self) -> bytes:
        data = self._file.readline()
        self.received += data
        return data

    def body(self) -> bytes:
        """The body of the next command."""
        self.line()
        return self.read(int.from_bytes(self.read(4), "big"))

    def respond(self, data: bytes) -> None:
        self._sock.sendall((len(data) + 4).to_bytes(4, "big") + bytes(4) + data)

    def hello(self) -> bytes:
        self.read(4)  # the magic
        self.body()
        self.respond(b'{"auth_required": true}')
        return self.body()

    def read_rest(self) -> None:
        self._sock.settimeout(DEADLINE_S)
        self.received += self._file.read()

    def close(self) -> None:
        self._file.close()
        self._sock.close()


class Stranger:
    """A server that members connect to."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(DEADLINE_S)
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"

    def accept(self) -> Link:
        sock, _ = self._server.accept()
        sock.settimeout(DEADLINE_S)
        return Link(sock)

    def close(self) -> None:
        self._server.close()


def test_a_new_primary_that_proves_nothing_gets_and_changes_nothing(primary):
    """Even if a member names it: it gets neither the secret, nor a word about the messages."""
    with contextlib.closing(Stranger()) as stranger:
        with primary.connect() as client:
            caller = join(client, caller_of(primary, purpose=FENCE))
            assert client.ask(standby(caller.signed(fence_of(primary, stranger.address)))) == OK
        wait_until_it_gives_way(primary)
        for answer in (b'{"proof": "' + b"00" * 32 + b'"}', b"OK", b"\x06{}"):
            link = stranger.accept()
            link.hello()
            link.respond(b'{"nonce": "' + b"00" * 32 + b'"}')
            link.body()
            link.respond(answer)
            link.read_rest()
            link.close()
            for word in (SECRET, SECRET.hex().encode(), b"orders", b"STANDBY", b"epoch"):
                assert word not in link.received
        assert "the proof of membership is wrong" in primary.log_text()
        assert BODY in b"".join(path.read_bytes() for path in primary.data_path.glob("orders.*.log"))
        assert (primary.data_path / "orders:c.cursor").exists()


def test_a_member_without_the_epochs_of_the_logs_does_not_fence(primary):
    with primary.connect() as client:
        caller = join(client, caller_of(primary, purpose=FENCE))
        document = fence_of(primary, "127.0.0.1:1").replace(b'"orders"', b'"other"')
        answer = client.ask(standby(caller.signed(document)))
    assert answer.data == b"E_INVALID cannot STANDBY: no log of the sender continues one of this nsqd's logs"
    assert is_unharmed(primary)


@pytest.mark.parametrize("address", ["203.0.113.5:4150", "127.evil.example:4150", "nowhere", "b:4150"])
def test_without_a_secret_no_fence_names_another_machine(make_nsqd, address):
    nsqd = make_nsqd("--accept-standbys")
    has_a_past(nsqd, b"")
    with nsqd.connect() as client:
        caller = join(client, caller_of(nsqd, b"", FENCE))
        answer = client.ask(standby(caller.signed(fence_of(nsqd, address))))
    assert answer.data.startswith(b"E_INVALID cannot STANDBY: ")
    assert is_unharmed(nsqd)


# ---- the secret


def test_the_secret_changes_without_a_stop(primary, tmp_path):
    new = b"the next secret of the group"
    path = tmp_path / "secret"

    def is_refused(secret):
        with primary.connect() as client:
            caller = caller_of(primary, secret)
            return client.ask(member(caller.prove(client.ask(member(caller.hello())).data))).kind == ERROR

    assert is_refused(new)
    path.write_bytes(SECRET + b"\n" + new + b"\n")
    assert not is_refused(new)
    assert not is_refused(SECRET)
    path.write_bytes(new + b"\n")
    assert is_refused(SECRET)
    path.write_bytes(b"")
    with primary.connect() as client:
        refusal = client.ask(member(caller_of(primary).hello()))
    assert refusal.data == b"E_INVALID cannot STANDBY: this nsqd cannot use its --standby-secret-file"
    assert "is empty; make a secret" in primary.log_text()


@pytest.mark.parametrize("number", ["9", "9" * 15, "9" * 4000], ids=len)
def test_a_member_cannot_acknowledge_what_was_not_sent(primary, number):
    with primary.connect() as client:
        client.send(
            standby(join(client, caller_of(primary)).signed(plain_offer())), f"ACK {number}\n".encode()
        )
        assert any(frame.data.startswith(b"E_INVALID") for frame in received(client))
    assert is_unharmed(primary)
    assert "Traceback" not in primary.log_text()
