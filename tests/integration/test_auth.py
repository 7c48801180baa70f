"""Clients of an nsqd that asks auth servers what they may do."""

from __future__ import annotations

import itertools
import json
import re
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.support import real_clients
from tests.support.auth_server import BOTH, EVERYTHING, HOST, AuthServer
from tests.support.nsqd_process import REPOSITORY, MakeNsqd, NsqdProcess, wait_until
from tests.support.transports import TransportClient
from tests.support.wire import (
    ERROR,
    HEARTBEAT,
    NOP,
    OK,
    RESPONSE,
    Client,
    Closed,
    Frame,
    auth,
    bodies,
    dpub,
    identify,
    int32,
    mpub,
    pub,
    rdy,
    sub,
)

SECRET = b"open sesame&=?"
AUTH_FAILED = Frame(ERROR, b"E_AUTH_FAILED AUTH failed")
LONG_NAME = "a" * 63
_numbers = itertools.count()


def welcome(permission_count: int = 1) -> Frame:
    document = {"identity": "me", "identity_url": "http://me.example/", "permission_count": permission_count}
    return Frame(RESPONSE, json.dumps(document, separators=(",", ":")).encode())


@pytest.fixture
def make_server() -> Iterator[Callable[[], AuthServer]]:
    servers: list[AuthServer] = []

    def make() -> AuthServer:
        servers.append(AuthServer())
        return servers[-1]

    yield make
    for server in servers:
        server.close()


@pytest.fixture(scope="module")
def shared_server() -> Iterator[AuthServer]:
    server = AuthServer()
    yield server
    server.close()


@pytest.fixture
def server(shared_server: AuthServer) -> AuthServer:
    """It grants everything, until the test says otherwise."""
    shared_server.asked.clear()
    shared_server.grant(EVERYTHING)
    return shared_server


@pytest.fixture(scope="module")
def guarded(shared_server: AuthServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NsqdProcess]:
    """One for all tests; each test has a topic of its own."""
    nsqd = NsqdProcess(tmp_path_factory.mktemp("auth") / "nsqd", f"--auth-http-address={shared_server.address}")
    yield nsqd.start()
    nsqd.destroy()


@pytest.fixture
def topic() -> str:
    return f"topic{next(_numbers)}"


def authorized(nsqd: NsqdProcess) -> Client:
    client = nsqd.connect()
    frame = client.ask(auth(SECRET))
    assert frame.kind == RESPONSE, frame
    return client


def refusal(client: Client, *parts: bytes) -> bytes:
    """The error that ends the connection."""
    with client:
        client.send(*parts)
        (frame,) = client.rest()
        assert frame.kind == ERROR
        return frame.data


def message_count(nsqd: NsqdProcess, topic: str) -> int:
    stats = nsqd.topic_stats(topic)
    return stats["message_count"] if stats is not None else 0


def until_the_deadline(deadline_s: float = 15.0) -> Iterator[None]:
    """For what has to come to an end: `for _ in until_the_deadline(): ...; break`."""
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        yield
    raise AssertionError(f"no end within {deadline_s} s")


# --- AUTH


def test_the_question_and_the_answer(guarded: NsqdProcess, server: AuthServer, topic: str) -> None:
    server.grant(EVERYTHING, ("other", ("x",), ("publish",)))
    with guarded.connect() as client:
        assert client.identify()["auth_required"] is True
        assert client.ask(auth(SECRET)) == welcome(2)
        client.pub(topic, b"1", b"2")
        client.sub(topic, "archive", rdy_count=2)
        assert bodies(client.consume(2)) == [b"1", b"2"]
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("GET", "/auth")
    assert asked.values == {"secret": [SECRET.decode()], "remote_ip": [HOST], "tls": ["false"], "common_name": [""]}


def test_a_question_by_post(make_nsqd: MakeNsqd, server: AuthServer) -> None:
    nsqd = make_nsqd(f"--auth-http-address=http://{server.address}/nsq", "--auth-http-request-method=post")
    authorized(nsqd).close()
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/nsq")
    assert asked.values == {"secret": [SECRET.decode()], "remote_ip": [HOST], "tls": ["false"], "common_name": [""]}


def test_identify_tells_that_no_auth_is_required(nsqd: NsqdProcess) -> None:
    client = nsqd.connect()
    assert client.identify()["auth_required"] is False
    assert refusal(client, auth(SECRET)) == b"E_AUTH_DISABLED AUTH disabled"


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (pub("unknown", b"x"), b"E_AUTH_FIRST AUTH required before PUB"),
        (dpub("unknown", 10, b"x"), b"E_AUTH_FIRST AUTH required before DPUB"),
        (mpub("unknown", [b"x"]), b"E_AUTH_FIRST AUTH required before MPUB"),
        (b"MPUB unknown\n", b"E_AUTH_FIRST AUTH required before MPUB"),  # before its body, and what is wrong with it
        (b"MPUB unknown\n" + int32(-1), b"E_AUTH_FIRST AUTH required before MPUB"),
        (sub("unknown", "archive"), b"E_AUTH_FIRST AUTH required before SUB"),
        # What is wrong with the command comes first.
        (b"PUB unknown\n" + int32(0), b"E_BAD_MESSAGE PUB invalid message body size 0"),
        (b"PUB $\n", b'E_BAD_TOPIC PUB topic name "$" is not valid'),
        (b"DPUB unknown x\n", b"E_INVALID DPUB could not parse timeout x"),
        (b"SUB unknown $\n", b'E_BAD_CHANNEL SUB channel name "$" is not valid'),
    ],
)
def test_before_auth(guarded: NsqdProcess, command: bytes, error: bytes) -> None:
    assert refusal(guarded.connect(), command) == error
    assert guarded.topic_stats("unknown") is None


def test_auth_twice(guarded: NsqdProcess, server: AuthServer) -> None:
    assert refusal(authorized(guarded), auth(b"again")) == b"E_INVALID AUTH already set"
    assert len(server.asked) == 1


def test_auth_after_sub(guarded: NsqdProcess, server: AuthServer, topic: str) -> None:
    client = authorized(guarded)
    client.sub(topic, "archive")
    assert refusal(client, auth(b"again")) == b"E_INVALID cannot AUTH in current state"


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (403, b"no", 'got response 403 Forbidden "no"|invalid'),
        (500, {}, "got response 500"),
        (200, b"not json", "unexpected|invalid|JSON"),
        (200, {"ttl": 0, "authorizations": []}, "invalid TTL 0"),
        (200, {"ttl": 9, "authorizations": [{"permissions": ["fly"]}]}, "unknown permission fly"),
        (200, {"ttl": 9, "authorizations": [{"topic": "("}]}, "unable to compile topic"),
    ],
)
def test_an_answer_that_is_none(guarded: NsqdProcess, server: AuthServer, status: int, body: Any, reason: str) -> None:
    server.refuse(status, body)
    assert refusal(guarded.connect(), auth(SECRET)) == AUTH_FAILED.data
    log = guarded.log_text()
    assert re.search(f"AUTH failed failed to auth against .*{server.address} - .*({reason})", log), log
    assert "sesame" not in log


def test_a_secret_without_authorizations(guarded: NsqdProcess, server: AuthServer) -> None:
    server.grant()
    assert refusal(guarded.connect(), auth(SECRET)) == b"E_UNAUTHORIZED AUTH no authorizations found"


def test_a_client_with_a_certificate(make_nsqd: MakeNsqd, server: AuthServer, tmp_path: Path) -> None:
    authority = trustme.CA()
    mine, its = authority.issue_cert("localhost"), authority.issue_cert("worker@example.org", common_name="worker")
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    mine.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    context = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
    its.configure_cert(context)
    nsqd = make_nsqd(
        f"--auth-http-address={server.address}",
        f"--tls-cert={tmp_path / 'server.pem'}",
        f"--tls-key={tmp_path / 'server.pem'}",
        f"--tls-root-ca-file={tmp_path / 'authority.pem'}",
        "--tls-client-auth-policy=require-verify",
    )
    with TransportClient(nsqd.tcp_port) as client:
        client.upgrade(context)
        assert client.ask(auth(SECRET)) == welcome()
        client.pub("orders", b"x")
    assert server.asked[0].values["tls"] == ["true"]
    assert server.asked[0].values["common_name"] == ["worker"]


@pytest.mark.parametrize("fields", [{"snappy": True}, {"deflate": True}])
def test_a_compressed_client(guarded: NsqdProcess, server: AuthServer, topic: str, fields: dict[str, bool]) -> None:
    with TransportClient(guarded.tcp_port) as client:
        client.upgrade(**fields)
        client.send(auth(SECRET), pub(topic, b"1") * 100, mpub(topic, [b"2"]))
        assert [client.next_frame() for _ in range(102)] == [welcome()] + [OK] * 101


@pytest.mark.parametrize(("library", "module"), [("pynsq", "nsq"), ("gnsq", "gnsq")])
def test_client_libraries_of_others(make_nsqd: MakeNsqd, server: AuthServer, library: str, module: str) -> None:
    pytest.importorskip(module)
    nsqd = make_nsqd(f"--auth-http-address={server.address}")
    server.grant((f"^{real_clients.TOPIC}$", (f"^{real_clients.CHANNEL}$", "^$"), BOTH))
    settings = json.dumps({"auth_secret": "sesame"})
    program = subprocess.run(
        [sys.executable, "-m", "tests.support.real_clients", library, str(nsqd.tcp_port), settings],
        cwd=REPOSITORY,
        capture_output=True,
        timeout=90,
    )
    assert program.returncode == 0, program.stderr.decode()
    assert sorted(json.loads(program.stdout)["finished"]) == sorted(real_clients.ALL)
    assert [asked.values["secret"] for asked in server.asked] == [["sesame"]] * 2


# --- permissions

RESTRICTIONS = (("^good$", ("^ch$", ".*"), ("publish",)), ("^read$", ("^ch[12]$",), ("subscribe",)))


def test_what_is_permitted(guarded: NsqdProcess, server: AuthServer) -> None:
    server.grant(*RESTRICTIONS)
    before = message_count(guarded, "good")
    with authorized(guarded) as client:
        client.pub("good", b"1", b"2")
        client.mpub("good", [b"3"])
        client.dpub("good", 1, b"4")
        client.sub("read", "ch2")
        assert guarded.channel_stats("read", "ch2") is not None
    assert message_count(guarded, "good") == before + 4


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (sub("good", "ch"), b'E_UNAUTHORIZED AUTH failed for SUB on "good" "ch"'),
        (sub("read", "ch3"), b'E_UNAUTHORIZED AUTH failed for SUB on "read" "ch3"'),
        (sub("else", "ch1"), b'E_UNAUTHORIZED AUTH failed for SUB on "else" "ch1"'),
        (pub("read", b"x"), b'E_UNAUTHORIZED AUTH failed for PUB on "read" ""'),
        (mpub("else", [b"x"]), b'E_UNAUTHORIZED AUTH failed for MPUB on "else" ""'),
        (b"MPUB else\n" + int32(-1), b'E_UNAUTHORIZED AUTH failed for MPUB on "else" ""'),
        (dpub("else", 10, b"x"), b'E_UNAUTHORIZED AUTH failed for DPUB on "else" ""'),
    ],
)
def test_what_is_not_permitted(guarded: NsqdProcess, server: AuthServer, command: bytes, error: bytes) -> None:
    server.grant(*RESTRICTIONS)
    assert refusal(authorized(guarded), command) == error
    assert guarded.topic_stats("else") is None
    assert guarded.channel_stats("read", "ch3") is None


def test_a_run_of_publishes_ends_at_what_is_not_permitted(guarded: NsqdProcess, server: AuthServer, topic: str) -> None:
    server.grant((f"^{topic}$", (".*",), ("publish",)))
    with authorized(guarded) as client:
        client.send(pub(topic, b"1") * 3, pub("else", b"2") * 3, pub(topic, b"3"))
        assert client.rest() == [OK] * 3 + [Frame(ERROR, b'E_UNAUTHORIZED AUTH failed for PUB on "else" ""')]
    assert message_count(guarded, topic) == 3
    assert guarded.topic_stats("else") is None


def test_publishing_over_http_needs_no_auth(guarded: NsqdProcess, topic: str) -> None:
    """As with Go's nsqd."""
    guarded.post(f"/pub?topic={topic}", b"x")
    guarded.post(f"/mpub?topic={topic}", b"x\ny")
    assert message_count(guarded, topic) == 3


# --- several servers


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        port: int = sock.getsockname()[1]
        return port


def test_another_server_is_asked_where_one_fails(make_nsqd: MakeNsqd, make_server: Callable[[], AuthServer]) -> None:
    refusing, good = make_server(), make_server()
    refusing.refuse()
    addresses = [good.address, f"{HOST}:{closed_port()}", refusing.address]
    nsqd = make_nsqd(*[f"--auth-http-address={address}" for address in addresses])
    for _ in range(30):
        authorized(nsqd).close()
    assert len(good.asked) == 30
    assert 0 < len(refusing.asked) < 30  # it began at any of them


# --- renewal


def test_an_authorization_is_renewed_at_the_first_command_after_its_time(
    guarded: NsqdProcess, server: AuthServer, topic: str
) -> None:
    server.grant(EVERYTHING, ttl=1)
    published = 0
    with authorized(guarded) as client:
        for _ in until_the_deadline():
            client.pub(topic, b"x")  # one at a time, the quick way
            published += 1
            if len(server.asked) == 2:
                break
        client.pub(topic, b"x")
    assert server.asked[0].values == server.asked[1].values
    assert len(server.asked) == 2
    assert message_count(guarded, topic) == published + 1


@pytest.mark.parametrize("in_a_row", [1, 50])
def test_what_is_revoked_ends_with_the_time_of_the_authorization(
    guarded: NsqdProcess, server: AuthServer, topic: str, in_a_row: int
) -> None:
    server.grant(EVERYTHING, ttl=1)
    published = 0
    with authorized(guarded) as client:
        server.grant(("^read$", (".*",), BOTH))
        for _ in until_the_deadline():
            answer = client.ask(pub(topic, b"x") * in_a_row)
            if answer != OK:
                break
            assert [client.next_frame() for _ in range(in_a_row - 1)] == [OK] * (in_a_row - 1)
            published += in_a_row
        assert answer == Frame(ERROR, b'E_UNAUTHORIZED AUTH failed for PUB on "%s" ""' % topic.encode())
        assert client.rest() == []
    assert len(server.asked) == 2
    assert message_count(guarded, topic) == published


def test_servers_that_are_away_at_the_renewal(guarded: NsqdProcess, server: AuthServer, topic: str) -> None:
    server.grant(EVERYTHING, ttl=1)
    with authorized(guarded) as client:
        server.refuse()
        for _ in until_the_deadline():
            answer = client.ask(pub(topic, b"x"))
            if answer != OK:
                break
        assert answer == AUTH_FAILED
        assert client.rest() == []


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("is_refused", [True, False])
def test_a_withdrawn_permission_ends_a_consumer(
    guarded: NsqdProcess, server: AuthServer, topic: str, is_refused: bool, reads: bool
) -> None:
    """It sends no command. Its message in flight goes to another consumer, after the message's time-out."""
    server.grant(EVERYTHING, ttl=1)
    with authorized(guarded) as client:
        client.identify(msg_timeout=2000)
        client.sub(topic, "archive", 1)
        client.pub(f"{topic}-other", b"x")
        if is_refused:
            server.refuse()
        else:
            server.grant((f"^{topic}$", (".*",), ("publish",)))
        guarded.post(f"/pub?topic={topic}", b"first")
        if reads:
            frames = client.rest()
            error = b'E_UNAUTHORIZED AUTH failed for SUB on "%s" "archive"' % topic.encode()
            assert frames[-1] == (AUTH_FAILED if is_refused else Frame(ERROR, error))
        wait_until(lambda: not guarded.channel_stats(topic, "archive")["clients"], what="the consumer to be gone")  # type: ignore[index]
    server.grant(EVERYTHING)
    with authorized(guarded) as other:
        other.sub(topic, "archive", 1)
        message = other.message()
        assert message.body == b"first"
        assert message.attempts >= 2


def test_a_consumer_with_a_permission_stays_and_survives_a_restart_of_the_auth_server(
    guarded: NsqdProcess, server: AuthServer, topic: str
) -> None:
    server.grant(EVERYTHING, ttl=1)
    with authorized(guarded) as client:
        client.sub(topic, "archive", 10)
        server.wait_until_asked(3)
        server.refuse(503)
        asked = len(server.asked)
        server.wait_until_asked(asked + 2)
        server.grant(EVERYTHING, ttl=1)
        asked = len(server.asked)
        server.wait_until_asked(asked + 2)
        guarded.post(f"/pub?topic={topic}", b"x")
        assert client.message().body == b"x"


def test_publishes_that_wait_for_the_disk_and_for_the_auth_server(make_nsqd: MakeNsqd, server: AuthServer) -> None:
    nsqd = make_nsqd(f"--auth-http-address={server.address}", "--sync-every=1")
    server.grant(EVERYTHING, ttl=1)
    rounds = 0
    with authorized(nsqd) as client:
        for _ in until_the_deadline():
            client.send(pub("a", b"1"), pub("b", b"2"), mpub("a", [b"3", b"4"]), dpub("b", 1, b"5"))
            assert [client.next_frame() for _ in range(4)] == [OK] * 4
            rounds += 1
            if len(server.asked) == 2:
                break
    assert (message_count(nsqd, "a"), message_count(nsqd, "b")) == (3 * rounds, 2 * rounds)


# --- servers that hang


def test_a_server_that_hangs_delays_its_client_only(guarded: NsqdProcess, server: AuthServer, topic: str) -> None:
    """Not even a client that would have to be heard of by now is given up, as it is not listened to."""
    with authorized(guarded) as other, guarded.connect() as client:
        for each in (client, other):
            assert each.ask(identify(heartbeat_interval=1000)) == OK
        with server.hanging():
            client.send(auth(SECRET), pub(topic, b"behind"), sub(topic, "archive"), rdy(1))
            server.wait_until_asked(2)
            for _ in range(3):
                other.pub(f"{topic}-other", b"x")
                assert other.frame() == HEARTBEAT
                other.send(NOP)
            assert guarded.topic_stats(topic) is None
        frames = [client.frame()]
        while frames[-1] == HEARTBEAT:
            frames.append(client.frame())
        assert frames[-1] == welcome()
        assert 2 <= len(frames) - 1 <= 5  # one a second
        assert [client.next_frame() for _ in range(2)] == [OK, OK]
        assert client.message().body == b"behind"


def test_a_server_that_hangs_has_its_time(make_nsqd: MakeNsqd, server: AuthServer) -> None:
    nsqd = make_nsqd(f"--auth-http-address={server.address}", "--http-client-request-timeout=200ms")
    with server.hanging():
        assert refusal(nsqd.connect(), auth(SECRET), pub("behind", b"x")) == AUTH_FAILED.data
    assert nsqd.topic_stats("behind") is None


@pytest.mark.parametrize("behind", [b"", pub("behind", b"x")])
def test_a_client_that_leaves_while_it_waits(guarded: NsqdProcess, server: AuthServer, behind: bytes) -> None:
    client = guarded.connect()
    with server.hanging():
        client.send(auth(SECRET), behind)
        server.wait_until_asked(1)
        gone = guarded.log_text().count("exiting ioloop")
        client.close()
    wait_until(lambda: guarded.log_text().count("exiting ioloop") > gone, what="the client to be gone")
    authorized(guarded).close()
    assert "Traceback" not in guarded.log_text()


def test_nsqd_stops_while_a_client_waits(make_nsqd: MakeNsqd, server: AuthServer) -> None:
    nsqd = make_nsqd(f"--auth-http-address={server.address}")
    with nsqd.connect() as client, server.hanging():
        client.send(auth(SECRET))
        server.wait_until_asked(1)
        assert nsqd.stop() == 0
        with pytest.raises(Closed):
            client.next_frame()
    assert "Traceback" not in nsqd.log_text()


def test_everything_in_one_packet(guarded: NsqdProcess, server: AuthServer, topic: str) -> None:
    with guarded.connect() as client:
        commands = [identify(), auth(SECRET), pub(topic, b"1"), mpub(topic, [b"2", b"3"]), sub(topic, "c"), rdy(3)]
        client.send(*commands)
        assert [client.next_frame() for _ in range(5)] == [OK, welcome(), OK, OK, OK]
        assert bodies(client.messages(3)) == [b"1", b"2", b"3"]


def test_a_byte_at_a_time(guarded: NsqdProcess, server: AuthServer, topic: str) -> None:
    with guarded.connect() as client:
        client.send_byte_by_byte(auth(SECRET) + pub(topic, b"1") + mpub(topic, [b"2"]))
        assert [client.next_frame() for _ in range(3)] == [welcome(), OK, OK]


# --- expressions that are meant to hurt


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*a){30}b", "(a*)*$", "([a-j]?){1000}y"])
def test_no_expression_makes_nsqd_slow(guarded: NsqdProcess, server: AuthServer, pattern: str) -> None:
    server.grant(*[(f"{pattern}{number}", (pattern,), BOTH) for number in range(50)])
    client = authorized(guarded)
    begin_s = guarded.loop_cpu_s
    error = refusal(client, sub(LONG_NAME + "-", LONG_NAME + "-"))
    assert guarded.loop_cpu_s - begin_s < 1
    assert error.startswith(b"E_UNAUTHORIZED AUTH failed for SUB")
