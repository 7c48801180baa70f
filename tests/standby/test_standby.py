"""A primary and its standby as processes: copying, following, promotion, and what the old primary does then."""

from __future__ import annotations

import contextlib
import signal
import socket
import time

import pytest

from tests.support.auth_server import AuthServer
from tests.support.certificates import make_certificates
from tests.support.go_directory import GoDirectory, numbered
from tests.support.ledger import History, judge
from tests.support.member import secret_file
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.standby_processes import (
    DEADLINE_S,
    NOWHERE,
    LoadedPublisher,
    consume_all,
    drain_into,
    figures_of,
    promote,
    wait_until_it_follows,
    wait_until_it_has_all,
)
from tests.support.wire import Client, pub, sub

pytestmark = pytest.mark.ours


def test_a_primary_that_stops_lets_its_standby_catch_up(start, follow):
    """More than the buffers of the sockets hold: the standby is suspended when the primary is stopped."""
    primary = start("a", "--accept-standbys")
    primary.create("t", "c")
    standby = follow(primary)
    wait_until_it_follows(standby)
    standby.signal(signal.SIGSTOP)
    bodies = [b"%02d" % number + bytes(900_000) for number in range(24)]
    primary.publish("t", bodies, batch=1)
    primary.signal(signal.SIGTERM)
    wait_until(lambda: "closing 127.0.0.1" in primary.log_text(), DEADLINE_S, "the end of listening")
    standby.signal(signal.SIGCONT)
    assert primary.wait() == 0
    promote(standby)
    assert sorted(body[:2] for body in consume_all(standby, "t", "c")) == [body[:2] for body in bodies]


def test_a_primary_does_not_wait_for_long_for_a_standby_that_hangs(start, follow):
    primary = start("a", "--accept-standbys")
    primary.create("t", "c")
    standby = follow(primary)
    wait_until_it_follows(standby)
    standby.signal(signal.SIGSTOP)
    primary.publish("t", [b"x"], batch=1)
    began_s = time.monotonic()
    assert primary.stop() == 0
    took_s = time.monotonic() - began_s
    standby.signal(signal.SIGCONT)
    assert took_s > 2.5
    assert "NSQ: bye" in primary.log_text()


def test_a_standby_copies_follows_and_takes_over(start, follow):
    """The first copy has files that were compacted and rolled; all that follows is in the promoted one too."""
    primary = start("a", "--accept-standbys", "--max-bytes-per-file=20000")
    primary.create("orders", "fast", "slow")
    primary.create("paused", "c")
    primary.publish("orders", [b"%04d" % number + b"x" * 500 for number in range(300)], batch=10)
    primary.pub("paused", b"waits")
    primary.post("/topic/pause?topic=paused")
    with primary.consumer("orders", "slow", 2000) as consumer:
        received = consumer.messages(300)
        consumer.fin(*[message for message in received if message.body[:4] not in (b"0003", b"0200")])
        consumer.round_trip()
    assert len(consume_all(primary, "orders", "fast")) == 300
    wait_until(lambda: _is_sparse(primary), DEADLINE_S, "a sparse file")

    standby = follow(primary)
    with primary.connect() as client:
        client.mpub("orders", [b"later %d" % number for number in range(50)])
        client.pub("new", b"topic")
        client.dpub("orders", 3_600_000, b"deferred")
    primary.create("new", "made-while-following")
    primary.post("/channel/delete?topic=orders&channel=fast")
    wait_until_it_has_all(primary)
    primary.kill()
    promote(standby)

    left = consume_all(standby, "orders", "slow")
    assert sorted(body[:4] for body in left if b"x" in body) == [b"0003", b"0200"]
    assert sorted(body for body in left if body.startswith(b"later")) == sorted(
        b"later %d" % n for n in range(50)
    )
    assert standby.channel_stats("orders", "slow")["deferred_count"] == 1  # type: ignore[index]
    assert standby.channel_stats("orders", "fast") is None
    assert standby.topic_stats("paused")["paused"]  # type: ignore[index]
    assert consume_all(standby, "new", "made-while-following") == [b"topic"]


def _is_sparse(primary: NsqdProcess) -> bool:
    with contextlib.suppress(FileNotFoundError):  # it was dropped or replaced in the meantime
        return any(path.read_bytes()[6] & 2 for path in primary.data_path.glob("orders.*.log"))
    return False


def test_a_standby_refuses_clients_and_shows_its_lag(start, follow):
    primary = start("a", "--accept-standbys")
    primary.create("t", "c")
    standby = follow(primary)
    address = f"127.0.0.1:{primary.tcp_port}"
    for command, code in ((pub("t", b"x"), b"E_PUB_FAILED PUB"), (sub("t", "c"), b"E_SUB_FAILED SUB")):
        with standby.connect() as client:
            assert client.ask(command).data == code + f" failed nsqd is a standby of {address}".encode()
    assert standby.http("POST", "/pub?topic=t", b"x").status == 503
    assert standby.http("POST", "/topic/create?topic=u").json() == {"message": "STANDBY"}
    assert standby.http("GET", "/ping").text == "OK"
    assert standby.http("GET", "/health").status == 503
    statistics = figures_of(standby)
    assert (statistics["primary"], statistics["is_complete"], statistics["lag_messages"]) == (
        address,
        True,
        0,
    )
    listed = primary.stats()["standbys"]["list"]
    assert [each["http_address"] for each in listed] == [f"127.0.0.1:{standby.http_port}"]
    assert "nsqd_standby_lag_messages" in primary.http("GET", "/metrics").text
    assert "nsqd_standby_lag_messages" in standby.http("GET", "/metrics").text


def test_killed_under_load_and_promoted_nothing_acknowledged_is_lost(start, follow, tmp_path):
    primary = start("a", "--standby-acks=1", "--standby-timeout=30s")
    standby = follow(primary)
    primary.create("t", "c")
    history = History(tmp_path / "history.jsonl")
    history.created("t", "c")
    publishers = [
        LoadedPublisher(history, primary, "t", f"p{number}", batch=1 + 9 * (number % 2))
        for number in range(6)
    ]
    for publisher in publishers:
        publisher.start()
    wait_until(lambda: all(publisher.acknowledged > 50 for publisher in publishers), DEADLINE_S)
    primary.kill()
    for publisher in publishers:
        publisher.end()
    promote(standby)
    drain_into(history, standby, "t", "c")
    judge(history).require_sound()


def test_the_old_primary_comes_back_as_standby_and_sets_aside_what_it_had_alone(start, follow):
    primary = start("a", "--accept-standbys")
    primary.create("t", "c")
    primary.post("/pub?topic=t", b"both")
    standby = follow(primary, "--accept-standbys")
    standby.kill()
    for number in range(3):
        primary.post("/pub?topic=t", b"alone %d" % number)
    primary.kill()
    new_primary = start("b", "--promote", "--accept-standbys")
    new_primary.post("/pub?topic=t", b"new")

    old = follow(new_primary, name="a")
    assert figures_of(old)["set_aside_messages"] == 3
    assert "3 messages are here, but not in the logs of" in old.log_text()
    (kept,) = old.data_path.glob("standby-alone-*/t.*.log")
    assert b"alone 2" in kept.read_bytes()
    new_primary.kill()
    promote(old)
    assert consume_all(old, "t", "c") == [b"both", b"new"]


def test_a_standby_that_was_away_gets_what_is_new(start, follow):
    primary = start("a", "--accept-standbys", "--max-bytes-per-file=100000")
    primary.create("t", "c")
    primary.create("gone", "c")
    primary.post("/pub?topic=gone", b"of the old log")
    standby = follow(primary)
    standby.kill()
    primary.publish("t", [b"%d " % number + b"x" * 500 for number in range(1000)], batch=100)
    primary.post("/topic/delete?topic=gone")
    primary.create("gone", "c")
    primary.post("/pub?topic=gone", b"of the new log")
    standby.start()
    wait_until_it_follows(standby)
    wait_until_it_has_all(primary)
    primary.kill()
    promote(standby)
    assert len(consume_all(standby, "t", "c")) == 1000
    assert consume_all(standby, "gone", "c") == [b"of the new log"]
    assert "damage" not in standby.log_text()


def test_a_publish_is_refused_when_no_standby_acknowledges_it(start, follow):
    primary = start("a", "--standby-acks=1", "--standby-timeout=300ms")
    primary.create("t", "c")
    with primary.connect() as client:
        assert client.ask(pub("t", b"x")).data.startswith(b"E_PUB_FAILED PUB failed")
    assert primary.http("POST", "/pub?topic=t", b"y").status == 503
    follow(primary)
    assert primary.http("POST", "/pub?topic=t", b"z").status == 200


def test_with_tls_and_a_secret_where_clients_need_permissions(start, follow, tmp_path):
    certificates = make_certificates(tmp_path / "certificates")
    secret = secret_file(tmp_path / "secret")
    with contextlib.closing(AuthServer()) as server:
        primary = start(
            "a",
            "--accept-standbys",
            "--tls-required",
            *certificates.nsqd_flags,
            secret,
            f"--auth-http-address={server.address}",
        )
        flags = ("--standby-tls", f"--standby-tls-root-ca-file={certificates.authority}")
        stranger = follow(
            primary, *flags, secret_file(tmp_path / "other", b"another secret, also long"), wait=False
        )
        wait_until(
            lambda: "the proof of membership is wrong" in stranger.log_text(), DEADLINE_S, "the refusal"
        )
        stranger.kill()
        follow(primary, *flags, secret)
        assert server.asked == []


def test_with_names_in_certificates(start, follow, tmp_path):
    """One name is that of the servers, the other one that of the standby's certificate."""
    certificates = make_certificates(tmp_path / "certificates")
    flags = (
        *certificates.nsqd_flags,
        "--tls-client-auth-policy=require-verify",
        "--tls-required=tcp-https",
        f"--tls-root-ca-file={certificates.authority}",
        "--standby-tls",
        f"--standby-tls-root-ca-file={certificates.authority}",
        f"--standby-tls-cert={certificates.client_certificate}",
        f"--standby-tls-key={certificates.client_key}",
    )

    def names(*names):
        return [*flags, *(f"--standby-tls-allowed-names={name}" for name in names)]

    primary = start("a", "--accept-standbys", *names("Client@example.org", "localhost"))
    stranger = follow(primary, *names("b.example.org"), wait=False)
    refusal = "the certificate has none of the names of --standby-tls-allowed-names"
    wait_until(lambda: refusal in stranger.log_text(), DEADLINE_S, "the standby to refuse the primary")
    stranger.kill()
    follow(primary, *names("localhost"))
    primary.kill()
    other = start("a", "--accept-standbys", *names("a.example.org", "localhost"))
    refused = follow(other, *names("localhost"), name="c", wait=False)
    wait_until(
        lambda: f"E_INVALID cannot STANDBY: {refusal}" in refused.log_text(), DEADLINE_S, "the refusal"
    )
    assert refusal in other.log_text()


@pytest.mark.parametrize("flags", [(), ("--promote",)])
def test_a_promoted_standby_starts_again_with_the_same_flags(start, follow, flags):
    primary = start("a", "--accept-standbys")
    primary.post("/pub?topic=t", b"x")
    standby = follow(primary)
    primary.kill()
    promote(standby)
    standby.kill()
    standby = start("b", f"--standby-of=127.0.0.1:{primary.tcp_port}", *flags)
    assert standby.topic_stats("t")["depth"] == 1  # type: ignore[index]
    assert "--standby-of has no effect" in standby.log_text()


def test_a_primary_that_nothing_came_from_changes_no_copy(start, follow):
    """An address may be wrong, or its nsqd lost: the copy of another primary, or its own messages, can still be promoted."""
    primary = start("a", "--accept-standbys")
    primary.create("t", "c")
    standby = follow(primary)
    primary.publish("t", [b"1", b"2"])
    wait_until_it_has_all(primary)
    for nsqd in (primary, standby):
        nsqd.kill()
        name = nsqd.data_path.name
        lost = start(name, f"--standby-of={NOWHERE}")
        assert not figures_of(lost)["is_complete"]
        assert lost.http("POST", "/promote").json() == {"message": "STANDBY_INCOMPLETE"}
        lost.kill()
        promoted = start(name, "--promote")
        assert sorted(consume_all(promoted, "t", "c")) == [b"1", b"2"]
        promoted.stop()


def test_roles_that_a_start_refuses(start, follow):
    primary = start("a")
    standby = follow(primary, wait=False)
    wait_until(
        lambda: "--accept-standbys is off" in standby.log_text(), DEADLINE_S, "the standby to be refused"
    )
    assert standby.http("POST", "/promote").json() == {"message": "STANDBY_INCOMPLETE"}
    assert primary.http("POST", "/promote").json() == {"message": "NOT_A_STANDBY"}
    for line in (b"STANDBY\n", b"MEMBER\n"):  # whose bodies are not waited for
        with Client(primary.tcp_port) as client:
            assert client.ask(line).data == b"E_INVALID cannot STANDBY: --accept-standbys is off"
    standby.kill()
    primary.kill()
    for path, flags, reason in (
        (primary.data_path, ("--promote", "--standby-of=127.0.0.1:1"), "was never a standby's"),
        (standby.data_path, (), "is the copy of 127.0.0.1:"),
        (standby.data_path, ("--promote",), "is not complete, and cannot be"),
    ):
        assert reason in NsqdProcess(path, *flags).fails_to_start()
    assert "--standby-of" in NsqdProcess(primary.data_path, "--standby-of=nowhere").fails_to_start(status=2)


def test_messages_that_were_imported_from_go_are_copied(start, follow, tmp_path):
    go = GoDirectory(tmp_path / "a")
    go.name_topics({"t": ["a", "b"]})
    go.queue("t:a", numbered("a", 30))
    go.queue("t:b", numbered("b", 10, 30))
    primary = start("a", "--accept-standbys")
    primary.post("/pub?topic=t", b"new")
    standby = follow(primary)
    primary.kill()
    promote(standby)
    expected = [message.body for message in numbered("a", 30)]
    assert sorted(consume_all(standby, "t", "a")) == sorted([*expected, b"new"])
    assert len(consume_all(standby, "t", "b")) == 11


def test_systemd_sees_one_process_that_goes_on(start, follow, tmp_path, monkeypatch):
    """STOPPING would make systemd end the process that was just promoted."""
    primary = start("a", "--accept-standbys")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(tmp_path / "notify"))
        notify.settimeout(DEADLINE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        promote(follow(primary))
        reported = ""
        while reported.count("READY=1") < 2:
            reported += notify.recv(4096).decode() + "\n"
    assert "STOPPING" not in reported
