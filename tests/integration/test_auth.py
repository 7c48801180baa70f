"""Clients of an nsqd that asks auth servers what they may do."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator

import pytest
import trustme

from tests.support import real_clients, wire
from tests.support.auth_server import BOTH, EVERYTHING, HOST, AuthServer
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.sweeps import sample, sweep
from tests.support.transports import TransportClient

SECRET = b"open sesame&=?"
AUTH_FAILED = wire.Frame(wire.ERROR, b"E_AUTH_FAILED AUTH failed")
LONG_NAME = "a" * 63


def welcome(permission_count: int = 1) -> wire.Frame:
    document = {"identity": "me", "identity_url": "http://me.example/", "permission_count": permission_count}
    return wire.Frame(wire.RESPONSE, json.dumps(document, separators=(",", ":")).encode())


@pytest.fixture(scope="module")
def shared_server() -> Iterator[AuthServer]:
    server = AuthServer()
    yield server
    server.close()


@pytest.fixture
def server(shared_server) -> AuthServer:
    """It grants everything, until the test says otherwise."""
    shared_server.asked.clear()
    shared_server.grant(EVERYTHING)
    return shared_server


@pytest.fixture(scope="module")
def guarded(shared_server, make_shared_nsqd) -> NsqdProcess:
    """One for all tests; each test has a topic of its own."""
    return make_shared_nsqd(f"--auth-http-address={shared_server.address}")


def authorized(nsqd: NsqdProcess) -> wire.Client:
    client = nsqd.connect()
    frame = client.ask(wire.auth(SECRET))
    assert frame.kind == wire.RESPONSE, frame
    return client


def refusal(client: wire.Client, *parts: bytes) -> bytes:
    """The error that ends the connection."""
    with client:
        client.send(*parts)
        (frame,) = client.rest()
        assert frame.kind == wire.ERROR
        return frame.data


# --- AUTH


def test_the_question_and_the_answer(guarded, server, topic):
    server.grant(EVERYTHING, ("other", ("x",), ("publish",)))
    with guarded.connect() as client:
        assert client.identify()["auth_required"] is True
        assert client.ask(wire.auth(SECRET)) == welcome(2)
        client.pub(topic, b"1", b"2")
        client.sub(topic, "archive", 2)
        assert wire.bodies(client.consume(2)) == [b"1", b"2"]
        (row,) = guarded.wait_for_channel(topic, "archive", client_count=1)["clients"]
        assert (row["authed"], row["auth_identity"], row["auth_identity_url"]) == (
            True,
            "me",
            "http://me.example/",
        )
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("GET", "/auth")
    assert asked.values == {
        "secret": [SECRET.decode()],
        "remote_ip": [HOST],
        "tls": ["false"],
        "common_name": [""],
    }


def test_identify_tells_that_no_auth_is_required(nsqd):
    client = nsqd.connect()
    assert client.identify()["auth_required"] is False
    assert refusal(client, wire.auth(SECRET)) == b"E_AUTH_DISABLED AUTH disabled"


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (wire.pub("unknown", b"x"), b"E_AUTH_FIRST AUTH required before PUB"),
        (wire.dpub("unknown", 10, b"x"), b"E_AUTH_FIRST AUTH required before DPUB"),
        (wire.mpub("unknown", [b"x"]), b"E_AUTH_FIRST AUTH required before MPUB"),
        (
            b"MPUB unknown\n",
            b"E_AUTH_FIRST AUTH required before MPUB",
        ),  # before its body, and what is wrong with it
        (b"MPUB unknown\n" + wire.int32(-1), b"E_AUTH_FIRST AUTH required before MPUB"),
        (wire.sub("unknown", "archive"), b"E_AUTH_FIRST AUTH required before SUB"),
        # What is wrong with the command comes first.
        (b"PUB unknown\n" + wire.int32(0), b"E_BAD_MESSAGE PUB invalid message body size 0"),
        (b"PUB $\n", b'E_BAD_TOPIC PUB topic name "$" is not valid'),
        (b"DPUB unknown x\n", b"E_INVALID DPUB could not parse timeout x"),
        (b"SUB unknown $\n", b'E_BAD_CHANNEL SUB channel name "$" is not valid'),
    ],
)
def test_before_auth(guarded, command, error):
    assert refusal(guarded.connect(), command) == error
    assert guarded.topic_stats("unknown") is None


def test_auth_after_sub(guarded, server, topic):
    client = authorized(guarded)
    client.sub(topic, "archive")
    assert refusal(client, wire.auth(b"again")) == b"E_INVALID cannot AUTH in current state"


def test_a_client_with_a_certificate(make_nsqd, server, tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(
        str(tmp_path / "server.pem")
    )
    context = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
    authority.issue_cert("worker@example.org", common_name="worker").configure_cert(context)
    nsqd = make_nsqd(
        f"--auth-http-address={server.address}",
        f"--tls-cert={tmp_path / 'server.pem'}",
        f"--tls-key={tmp_path / 'server.pem'}",
        f"--tls-root-ca-file={tmp_path / 'authority.pem'}",
        "--tls-client-auth-policy=require-verify",
    )
    with TransportClient(nsqd.tcp_port) as client:
        client.upgrade(context)
        assert client.ask(wire.auth(SECRET)) == welcome()
        client.pub("orders", b"x")
    values = server.asked[0].values
    assert (values["tls"], values["common_name"]) == (["true"], ["worker"])


@pytest.mark.parametrize(("library", "module"), [("pynsq", "nsq"), ("gnsq", "gnsq")])
def test_client_libraries_of_others(make_nsqd, server, library, module):
    pytest.importorskip(module)
    nsqd = make_nsqd(f"--auth-http-address={server.address}")
    server.grant((f"^{real_clients.TOPIC}$", (f"^{real_clients.CHANNEL}$", "^$"), BOTH))
    outcome = real_clients.run_in_process(library, nsqd.tcp_port, {"auth_secret": "sesame"})
    assert sorted(outcome["finished"]) == sorted(real_clients.ALL)
    assert [asked.values["secret"] for asked in server.asked] == [["sesame"]] * 2


# --- permissions

RESTRICTIONS = (("^good$", ("^ch$", ".*"), ("publish",)), ("^read$", ("^ch[12]$",), ("subscribe",)))


def test_what_is_permitted(guarded, server):
    server.grant(*RESTRICTIONS)
    with authorized(guarded) as client:
        client.pub("good", b"1", b"2")
        client.mpub("good", [b"3"])
        client.dpub("good", 1, b"4")
        client.sub("read", "ch2")
        assert guarded.channel_stats("read", "ch2")
    assert guarded.topic_stats("good")["message_count"] == 4


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (wire.sub("good", "ch"), b'E_UNAUTHORIZED AUTH failed for SUB on "good" "ch"'),
        (wire.sub("read", "ch3"), b'E_UNAUTHORIZED AUTH failed for SUB on "read" "ch3"'),
        (wire.sub("else", "ch1"), b'E_UNAUTHORIZED AUTH failed for SUB on "else" "ch1"'),
        (wire.pub("read", b"x"), b'E_UNAUTHORIZED AUTH failed for PUB on "read" ""'),
        (wire.mpub("else", [b"x"]), b'E_UNAUTHORIZED AUTH failed for MPUB on "else" ""'),
        (b"MPUB else\n" + wire.int32(-1), b'E_UNAUTHORIZED AUTH failed for MPUB on "else" ""'),
        (wire.dpub("else", 10, b"x"), b'E_UNAUTHORIZED AUTH failed for DPUB on "else" ""'),
    ],
)
def test_what_is_not_permitted(guarded, server, command, error):
    server.grant(*RESTRICTIONS)
    assert refusal(authorized(guarded), command) == error
    assert guarded.topic_stats("else") is None
    assert guarded.channel_stats("read", "ch3") is None


def test_a_run_of_publishes_ends_at_what_is_not_permitted(guarded, server, topic):
    server.grant((f"^{topic}$", (".*",), ("publish",)))
    with authorized(guarded) as client:
        client.send(wire.pub(topic, b"1") * 3, wire.pub("else", b"2") * 3, wire.pub(topic, b"3"))
        assert client.rest() == [wire.OK] * 3 + [
            wire.Frame(wire.ERROR, b'E_UNAUTHORIZED AUTH failed for PUB on "else" ""')
        ]
    assert guarded.topic_stats(topic)["message_count"] == 3
    assert guarded.topic_stats("else") is None


def test_publishing_over_http_needs_no_auth(guarded, topic):
    """As with Go's nsqd."""
    guarded.post(f"/pub?topic={topic}", b"x")
    guarded.post(f"/mpub?topic={topic}", b"x\ny")
    assert guarded.topic_stats(topic)["message_count"] == 3


# --- renewal


@pytest.mark.parametrize(("is_refused", "reads"), sweep([True, False], [True, False]))
def test_a_withdrawn_permission_ends_a_consumer(guarded, server, topic, is_refused, reads):
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
            assert frames[-1] == (AUTH_FAILED if is_refused else wire.Frame(wire.ERROR, error))
        wait_until(
            lambda: not guarded.channel_stats(topic, "archive")["clients"], what="the consumer to be gone"
        )
    server.grant(EVERYTHING)
    with authorized(guarded) as other:
        other.sub(topic, "archive", 1)
        message = other.message()
        assert message.body == b"first"
        assert message.attempts >= 2


def test_a_consumer_with_a_permission_stays_and_survives_a_restart_of_the_auth_server(guarded, server, topic):
    server.grant(EVERYTHING, ttl=1)
    with authorized(guarded) as client:
        client.sub(topic, "archive", 10)
        server.wait_until_asked(2)
        server.refuse(503)
        server.wait_until_asked(len(server.asked) + 2)
        server.grant(EVERYTHING, ttl=1)
        server.wait_until_asked(len(server.asked) + 2)
        guarded.post(f"/pub?topic={topic}", b"x")
        assert client.message().body == b"x"


# --- servers that hang


def test_a_server_that_hangs_delays_its_client_only(guarded, server, topic):
    """Not even a client that would have to be heard of by now is given up, as it is not listened to."""
    with authorized(guarded) as other, guarded.connect() as client:
        for each in (client, other):
            assert each.ask(wire.identify(heartbeat_interval=1000)) == wire.OK
        with server.hanging():
            client.send(
                wire.auth(SECRET), wire.pub(topic, b"behind"), wire.sub(topic, "archive"), wire.rdy(1)
            )
            server.wait_until_asked(2)
            for _ in range(3):
                other.pub(f"{topic}-other", b"x")
                assert other.frame() == wire.HEARTBEAT
                other.send(wire.NOP)
            assert guarded.topic_stats(topic) is None
        frames = [client.frame()]
        while frames[-1] == wire.HEARTBEAT:
            frames.append(client.frame())
        assert frames[-1] == welcome()
        assert 2 <= len(frames) - 1 <= 5  # one a second
        assert [client.next_frame() for _ in range(2)] == [wire.OK, wire.OK]
        assert client.message().body == b"behind"


@pytest.mark.parametrize("behind", [b"", wire.pub("behind", b"x")])
def test_a_client_that_leaves_while_it_waits(guarded, server, behind):
    client = guarded.connect()
    with server.hanging():
        client.send(wire.auth(SECRET), behind)
        server.wait_until_asked(1)
        client.close()
    none_left = 'nsqd_connections{protocol="tcp"} 0.0'
    wait_until(
        lambda: none_left in guarded.http("GET", "/metrics").text.splitlines(), what="the client to be gone"
    )
    authorized(guarded).close()
    assert "Traceback" not in guarded.log_text()


def test_nsqd_stops_while_a_client_waits(make_nsqd, server):
    nsqd = make_nsqd(f"--auth-http-address={server.address}")
    with nsqd.connect() as client, server.hanging():
        client.send(wire.auth(SECRET))
        server.wait_until_asked(1)
        assert nsqd.stop() == 0
        assert client.rest() == []
    assert "Traceback" not in nsqd.log_text()


# --- expressions that are meant to hurt


@pytest.mark.parametrize("pattern", sample("(a+)+$", "(a|aa)+$", "(.*a){30}b", "(a*)*$", "([a-j]?){1000}y"))
def test_no_expression_makes_nsqd_slow(guarded, server, pattern):
    server.grant(*[(f"{pattern}{number}", (pattern,), BOTH) for number in range(50)])
    client = authorized(guarded)
    begin_s = guarded.loop_cpu_s
    error = refusal(client, wire.sub(LONG_NAME + "-", LONG_NAME + "-"))
    assert guarded.loop_cpu_s - begin_s < 1
    assert error.startswith(b"E_UNAUTHORIZED AUTH failed for SUB")
