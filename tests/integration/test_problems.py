"""Problems of real nsqds, as nsqadmin's page, its metrics and `nsq-stat --check` report them."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.auth_server import AuthServer
from tests.support.certificates import make_certificates, make_weak_certificates
from tests.support.network import free_ports
from tests.support.nsqadmin_cluster import AdminCluster, address
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.tool_process import run_tool
from tests.support.web_server import Reply, WebServer
from tests.support.wire import RESPONSE, auth, rdy, req

pytestmark = pytest.mark.ours
# The machine of a test may have little disk left.
OF_THE_MACHINE = ("disk", "node_slow", "clock")


@pytest.fixture
def cluster(tmp_path) -> Iterator[AdminCluster]:
    with AdminCluster(tmp_path) as made:
        yield made


def rows(admin: NsqadminProcess) -> list[dict[str, Any]]:
    found = admin.get("/api/v2/attention")["rows"]
    return [row for row in found if row["kind"] not in OF_THE_MACHINE]


def row(admin: NsqadminProcess, kind: str) -> dict[str, Any]:
    found = wait_until(
        lambda: [each for each in rows(admin) if each["kind"] == kind], what=f"{kind} under Attention"
    )
    return found[0]


def check(*flags: str) -> tuple[int, list[str]]:
    """Return the exit status of --check, and the lines about problems other than those of the machine."""
    result = run_tool("nsq_apps", "nsq_stat", "--check", *flags)
    lines = [line.partition("] ")[2] for line in result.stderr.splitlines()]
    texts = [re.sub(r"^\S+ \S+ ", "", line) for line in lines]
    return result.returncode, [text for text in texts if ": disk: has" not in text and ": slow: " not in text]


def of(*nsqds: NsqdProcess) -> list[str]:
    return [f"--nsqd-http-address={address(nsqd)}" for nsqd in nsqds]


# ---- planned work


def test_a_drain_and_a_clean_stop_are_information_and_a_kill_is_an_error(cluster):
    cluster.create("orders", "archive")
    cluster.publish("orders", 3, 0)
    admin = cluster.admin()
    admin.wait_for_topic("orders", depth=3)
    drains, stops = cluster.nsqds
    with drains.consumer("orders", "archive", 1) as consumer:
        consumer.message()
        drains.post("/drain")
        shown = row(admin, "draining")
        assert (shown["severity"], shown["node"], shown["text"]) == (
            "info",
            address(drains),
            "drains: 3 messages left",
        )
        assert [each for each in rows(admin) if each["severity"] == "error"] == []
        assert check(*of(drains))[1] == [f"INFO: nsqd {address(drains)}: draining: drains: 3 messages left"]
    assert stops.stop() == 0
    assert row(admin, "node_stopped")["severity"] == "info"
    seen = set()
    drains.stop()
    wait_until(
        lambda: [each["kind"] for each in rows(admin)].count("node_stopped") == 2 or seen.update(kinds(admin))
    )
    assert not seen & {"node_gone", "node_failed", "unhealthy", "node_unlisted"}
    assert "node_gone" not in [line.split('"')[3] for line in problem_lines(admin)]


def test_an_nsqd_that_is_killed_after_a_clean_stop_is_gone(make_nsqlookupd, make_nsqadmin, make_nsqd):
    lookupd, (tcp_port, http_port) = make_nsqlookupd(), free_ports(2)
    addresses = f"--tcp-address=127.0.0.1:{tcp_port}", f"--http-address=127.0.0.1:{http_port}"
    nsqd = make_nsqd(f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}", *addresses)
    wait_until(lambda: len(lookupd.nodes()) == 1)
    admin = make_nsqadmin(f"--lookupd-http-address={lookupd.http_address}")
    wait_until(lambda: admin.get("/api/v2/overview")["nodes_ok"] == 1)
    starts = set()
    while len(starts) < 4:
        starts.add(nsqd.stats()["start_time"])
        wait_until(lambda: starts & {node["start_time"] for node in admin.get("/api/v2/nodes")["rows"]})
        assert nsqd.stop() == 0
        assert row(admin, "node_stopped")["node"] == address(nsqd)
        nsqd.start()
        wait_until(lambda: "node_stopped" not in kinds(admin))
    shown = row(admin, "restarts")
    assert (shown["node"], shown["severity"]) == (address(nsqd), "warning")
    assert re.match(r"was started [4-9] times within ", shown["text"])
    nsqd.kill()
    assert row(admin, "node_gone")["severity"] == "error"
    assert "node_stopped" not in kinds(admin)


def kinds(admin: NsqadminProcess) -> list[str]:
    return [each["kind"] for each in rows(admin)]


def problem_lines(admin: NsqadminProcess) -> list[str]:
    return [
        line
        for line in admin.http("GET", "/metrics").text.splitlines()
        if line.startswith("nsqadmin_problem{")
    ]


def test_a_consumer_that_restarts_with_messages_in_flight_is_no_problem(cluster):
    cluster.create("orders", "archive")
    admin = cluster.admin()
    nsqd = cluster.nsqds[0]
    with (
        nsqd.consumer("orders", "archive", 3, msg_timeout=1000) as consumer,
        cluster.nsqds[1].consumer("orders", "archive", 3),
    ):
        admin.wait_for_topic("orders", clients=2)
        cluster.publish("orders", 3, 0)
        consumer.messages(3)
        admin.wait_for_topic("orders", in_flight=3)
    admin.wait_for_topic("orders", timed_out=3, depth=3, clients=0)
    assert rows(admin) == []
    with nsqd.consumer("orders", "archive", 3) as consumer:
        consumer.messages(3)
        admin.wait_for_topic("orders", in_flight=3)
        assert rows(admin) == []


def test_an_nsqd_that_goes_on_after_a_stop_makes_no_rows(cluster):
    cluster.create("orders", "archive")
    admin = cluster.admin()
    nsqd = cluster.nsqds[0]
    with (
        nsqd.consumer("orders", "archive", 3, msg_timeout=1000) as consumer,
        cluster.nsqds[1].consumer("orders", "archive", 3),
    ):
        cluster.publish("orders", 3, 0)
        consumer.messages(3)
        consumer.send(rdy(0))
        admin.wait_for_topic("orders", in_flight=3)
        nsqd.signal(signal.SIGSTOP)
        wait_until(
            lambda: (
                admin.get("/api/v2/overview")["nodes_slow"] + admin.get("/api/v2/overview")["nodes_failed"]
                == 1
            )
        )
        nsqd.signal(signal.SIGCONT)
        wait_until(lambda: admin.get("/api/v2/overview")["nodes_ok"] == 2)
        admin.wait_for_topic("orders", timed_out=3)
        assert rows(admin) == []


# ---- what was silent


def test_a_message_that_no_consumer_can_finish_among_others_that_are(make_nsqd, make_nsqadmin):
    nsqd = make_nsqd()
    nsqd.create("orders", "archive")
    admin = make_nsqadmin(*of(nsqd))
    with nsqd.consumer("orders", "archive", 1) as consumer:
        nsqd.post("/pub?topic=orders", b"poison")
        for attempt in range(1, 26):
            (message,) = consumer.messages(1)
            assert message.attempts == attempt
            consumer.send(req(message.id, 0))
        assert "delivered" in (shown := row(admin, "many_attempts"))["text"]
        assert (shown["topic"], shown["channel"], shown["severity"]) == ("orders", "archive", "warning")
        status, texts = check(*of(nsqd))
        assert status == 1
        assert re.fullmatch(
            r"WARNING: orders/archive: many attempts: A message on \S+ was delivered 2\d times, and is not finished",
            texts[0],
        )
    nsqd.post("/channel/empty?topic=orders&channel=archive")
    wait_until(lambda: "many_attempts" not in kinds(admin))


def test_a_dead_letter_topic_that_refuses_messages(make_nsqd, make_nsqadmin):
    nsqd = make_nsqd("--max-attempts=2", "--max-topic-bytes=*.dead=10")
    nsqd.create("orders", "archive")
    admin = make_nsqadmin(*of(nsqd))
    with nsqd.consumer("orders", "archive", 1) as consumer:
        nsqd.post("/pub?topic=orders", b"poison")
        for _ in range(5):
            (message,) = consumer.messages(1)
            consumer.send(req(message.id, 0))
        shown = row(admin, "dead_letters_refused")
        assert (shown["topic"], shown["channel"], shown["severity"]) == ("orders", "archive", "error")
        status, texts = check(*of(nsqd))
        assert status == 2
        assert re.fullmatch(
            r"ERROR: orders/archive: dead letters refused: On \S+: messages with too many attempts are delivered again, "
            r"since the log of topic orders.dead has the 10 bytes of --max-topic-bytes",
            texts[0],
        )
        (refused,) = re.findall(
            r"^nsqd_channel_dead_letters_refused\S* (\S+)$", nsqd.http("GET", "/metrics").text, re.MULTILINE
        )
        assert float(refused) == 1
    nsqd.post("/channel/empty?topic=orders&channel=archive")
    wait_until(lambda: "dead_letters_refused" not in kinds(admin))


def test_an_nsqd_that_only_one_of_two_nsqlookupds_knows(make_nsqd, make_nsqlookupd, make_nsqadmin):
    both, one = make_nsqlookupd(), make_nsqlookupd()
    known = make_nsqd(*(f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}" for lookupd in (both, one)))
    half = make_nsqd(f"--lookupd-tcp-address=127.0.0.1:{both.tcp_port}")
    wait_until(lambda: (len(both.nodes()), len(one.nodes())) == (2, 1))
    lookupds = [f"--lookupd-http-address={lookupd.http_address}" for lookupd in (both, one)]
    admin = make_nsqadmin(*lookupds)
    shown = row(admin, "node_half_listed")
    assert (shown["node"], shown["severity"]) == (address(half), "warning")
    assert shown["text"] == f"is listed by {both.http_address}, and not by {one.http_address}"
    status, texts = check(*lookupds)
    assert (status, [text for text in texts if address(known) in text]) == (1, [])
    assert texts == [f"WARNING: nsqd {address(half)}: half listed: {shown['text']}"]


def test_an_announced_tcp_port_that_no_one_reaches(make_nsqd, make_nsqlookupd, make_nsqadmin):
    lookupd = make_nsqlookupd()
    (port,) = free_ports(1)
    nsqd = make_nsqd(f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}", f"--broadcast-tcp-port={port}")
    wait_until(lambda: len(lookupd.nodes()) == 1)
    flag = f"--lookupd-http-address={lookupd.http_address}"
    text = f"announces the TCP address 127.0.0.1:{port}, and nothing can connect there: Connection refused"
    assert row(make_nsqadmin(flag), "tcp_unreachable")["text"] == text
    assert check(flag) == (1, [f"WARNING: nsqd {address(nsqd)}: no TCP: {text}"])


def test_answers_that_take_two_seconds(make_nsqd, make_nsqadmin):
    body, never = make_nsqd().http("GET", "/stats?format=json").body, threading.Event()

    def reply(_):
        never.wait(2.0)
        return Reply(body=body)

    with WebServer(reply) as server:
        place = server.url.removeprefix("http://").rstrip("/")
        admin = make_nsqadmin(f"--nsqd-http-address={place}", "--poll-interval=5s")
        found = wait_until(
            lambda: [r for r in admin.get("/api/v2/attention")["rows"] if r["kind"] == "node_slow"]
        )
        assert found[0]["node"] == place


def test_an_auth_server_that_is_down(make_nsqd, make_nsqadmin):
    with contextlib.closing(AuthServer()) as server:
        nsqd = make_nsqd(f"--auth-http-address={server.address}")
        with nsqd.connect() as client:
            assert client.ask(auth(b"secret")).kind == RESPONSE
        assert "nsqd_auth_failures_total 0.0" in nsqd.http("GET", "/metrics").text
        assert "auth_failure" not in nsqd.stats()
    with nsqd.connect() as client:
        assert client.ask(auth(b"secret")).data == b"E_AUTH_FAILED AUTH failed"
    assert "nsqd_auth_failures_total 1.0" in nsqd.http("GET", "/metrics").text
    shown = row(make_nsqadmin(*of(nsqd)), "auth_server")
    assert shown["severity"] == "error" and "Connection refused" in shown["text"]
    assert check(*of(nsqd))[0] == 2


def test_a_certificate_that_ends_until_it_is_renewed(make_nsqd, make_nsqadmin, tmp_path):
    used = make_weak_certificates(tmp_path / "used", key_bits=2048)  # for a day
    nsqd = make_nsqd(*used.nsqd_flags)
    admin = make_nsqadmin(*of(nsqd))
    ends_s = nsqd.stats()["tls_certificate_ends"]
    assert 0 < ends_s - time.time() <= 86400
    (metric,) = re.findall(
        r"^nsqd_tls_certificate_expiry_seconds (\S+)$", nsqd.http("GET", "/metrics").text, re.MULTILINE
    )
    assert float(metric) == ends_s
    assert row(admin, "certificate_ends")["severity"] == "error"
    status, (text,) = check(*of(nsqd))
    assert status == 2
    assert re.fullmatch(
        rf"ERROR: nsqd {address(nsqd)}: certificate: has a TLS certificate that ends in \d.*", text
    )
    renewed = make_certificates(tmp_path / "renewed")
    used.server_certificate.write_bytes(renewed.server_certificate.read_bytes())
    used.server_key.write_bytes(renewed.server_key.read_bytes())
    nsqd.signal(signal.SIGHUP)
    wait_until(lambda: nsqd.stats()["tls_certificate_ends"] > ends_s, what="the new certificate")
    wait_until(lambda: rows(admin) == [])
    assert check(*of(nsqd)) == (0, [])


# ---- health


def test_an_nsqd_that_refuses_every_publish(make_nsqd):
    nsqd = make_nsqd("--max-disk-bytes=300000")
    nsqd.create("orders", "archive")
    wait_until(lambda: nsqd.http("POST", "/pub?topic=orders", b"x" * 50_000).status != 200)
    assert nsqd.http("GET", "/ping").status == 500
    status, texts = check(*of(nsqd))
    assert status == 2
    assert any(
        re.match(rf"ERROR: nsqd {address(nsqd)}: (disk full|not healthy): reports: NOK - disk: ", text)
        for text in texts
    )


def test_the_check_of_what_does_not_answer(make_nsqd):
    status, texts = check("--nsqd-http-address=127.0.0.1:1")
    assert (status, texts[0].startswith("ERROR: nsqd 127.0.0.1:1: failed: does not answer (")) == (2, True)
    status, texts = check("--lookupd-http-address=127.0.0.1:1")
    assert status == 2
    assert [text.split(": ")[2] for text in texts] == ["no nsqlookupd"]  # the cause, and not "no nsqd"


def test_nsqlookupds_that_do_not_answer_are_the_cause(make_nsqadmin):
    admin = make_nsqadmin("--lookupd-http-address=127.0.0.1:1")
    row(admin, "no_lookup")
    wait_until(lambda: admin.get("/api/v2/overview")["message_rate"] is not None, what="a settled cluster")
    assert kinds(admin) == ["no_lookup"]


def test_old_messages(make_nsqd, make_nsqadmin):
    nsqd = make_nsqd()
    nsqd.create("orders", "archive")
    with nsqd.consumer("orders", "archive", 1) as consumer:
        nsqd.post("/mpub?topic=orders", b"1\n2\n3")
        consumer.message()
        ages = ("--max-message-age=1h", "--max-message-age=ord*=1s")
        shown = row(make_nsqadmin(*of(nsqd), *ages), "old")
        assert re.fullmatch(r"2 messages wait, the oldest for \d+ s; the limit is 1 s", shown["text"])
        status, texts = check(*of(nsqd), *ages)
        assert status == 1 and texts[0].startswith(
            "WARNING: orders/archive: old: 2 messages wait, the oldest for "
        )
        assert check(*of(nsqd), "--max-message-age=ord*=0s", "--max-message-age=1s")[1] == []
        admin = make_nsqadmin(*of(nsqd))
        admin.wait_for_topic("orders", depth=2)
        assert rows(admin) == []


@pytest.mark.slow
def test_consumers_that_finish_nothing_for_a_minute(make_nsqd, make_nsqadmin):
    nsqd = make_nsqd("--msg-timeout=10m")
    nsqd.create("orders", "holds", "waits")
    with (
        nsqd.consumer("orders", "holds", 1, heartbeat_interval=60_000) as holds,
        nsqd.consumer("orders", "waits", 0, heartbeat_interval=60_000),
    ):
        nsqd.post("/mpub?topic=orders", b"1\n2\n3")
        holds.message()
        admin = make_nsqadmin(*of(nsqd))
        wait_until(lambda: kinds(admin) == ["stuck", "stuck"], deadline_s=100)
        status, texts = check(*of(nsqd))
    assert status == 2
    assert "1 message in flight to 1 consumer with RDY 1, and none of them is answered" in texts[0] + texts[1]
    assert "RDY is 0: 1 consumer asks for no messages" in texts[0] + texts[1]
