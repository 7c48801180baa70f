"""--attention-http-endpoint: problems that begin and end, to real receivers that are there, away, slow or hostile."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from tests.support.network import free_ports
from tests.support.nsqadmin_cluster import AdminCluster
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import wait_until
from tests.support.web_server import CUT, HANG, OK, Reply, WebServer

pytestmark = pytest.mark.ours

SECRET = "c4n4ry"
FAST = ("--attention-quiet-time=1s", "--http-client-request-timeout=1s")


@pytest.fixture(autouse=True)
def quick_reports(set_constants) -> None:
    """Problems are reported after a second, not after ten, and again after half a second."""
    quick = {
        "nsqadmin_py.cluster.reports.BEGINS_AFTER_S": 1.0,
        "nsqadmin_py.problem_webhook._FIRST_PAUSE_S": 0.5,
    }
    set_constants("nsqadmin", quick)


def pause(cluster: AdminCluster, action: str = "pause") -> None:
    """A paused topic is a problem at once."""
    for nsqd in cluster.nsqds:
        nsqd.post(f"/topic/{action}?topic=orders")


def reports(server: WebServer) -> list[dict[str, Any]]:
    """Those about the paused topic. On a busy machine, an nsqd may be slow too."""
    return [report for report in map(json.loads, server.bodies()) if report["kind"] == "paused"]


def wait_for_reports(server: WebServer, number: int) -> None:
    wait_until(lambda: len(reports(server)) >= number, what=f"{number} reports")


def observer(cluster: AdminCluster, server: WebServer, *flags: str) -> NsqadminProcess:
    return cluster.admin(f"--attention-http-endpoint={server.url}{SECRET}?key={SECRET}", *FAST, *flags)


def test_a_problem_is_posted_when_it_begins_and_when_it_ends(cluster):
    cluster.create("orders", "archive")
    with WebServer(lambda _: Reply(202)) as server:
        pages = ("--page-url=https://nsqadmin.example.org/", "--runbooks-url=https://wiki.example.org/nsq")
        observer(cluster, server, *pages)
        pause(cluster)
        wait_for_reports(server, 1)
        pause(cluster, "unpause")
        wait_for_reports(server, 2)
    began, ended = reports(server)
    assert (began["event"], ended["event"]) == ("problem_began", "problem_ended")
    assert began["dedup_key"] == ended["dedup_key"] == "paused|orders||"
    expected = {
        "severity": "warning",
        "kind": "paused",
        "word": "paused",
        "topic": "orders",
        "advice": "Resume it once the reason for the pause is over.",
        "runbook_url": "https://wiki.example.org/nsq#paused",
        "url": "https://nsqadmin.example.org/topics/orders",
        "source": "https://nsqadmin.example.org",
        "via": socket.gethostname(),
    }
    assert expected.items() <= began.items()
    assert began["text"].startswith("The topic is paused")
    assert began["began_s"] <= ended["ended_s"] <= ended["timestamp"] + 1
    assert (server.asked[0].method, server.asked[0].headers["content-type"]) == ("POST", "application/json")


def test_a_receiver_that_is_away_gets_it_later_and_costs_two_lines(cluster):
    cluster.create("orders", "archive")
    (port,) = free_ports(1)
    admin = cluster.admin(
        f"--attention-http-endpoint=http://ada:{SECRET}@127.0.0.1:{port}/{SECRET}?x={SECRET}", *FAST
    )
    pause(cluster)
    wait_until(
        lambda: "cannot POST to --attention-http-endpoint" in admin.log_text(), what="a failure in the log"
    )
    # It cannot be noticed from outside that nothing else is logged until the second attempt has failed too.
    with WebServer(lambda _: CUT, port=port) as server:
        wait_for_reports(server, 1)
        server.reply = lambda _: Reply(500, body=f"cannot POST /{SECRET}".encode())
        wait_for_reports(server, 2)
        server.reply = lambda _: OK
        wait_until(lambda: "takes reports again" in admin.log_text(), what="success in the log")
        delivered = reports(server)[-1]
    assert (delivered["event"], delivered["dedup_key"]) == ("problem_began", "paused|orders||")
    lines = [line for line in admin.log_text().splitlines() if "attention-http-endpoint" in line]
    assert len(lines) == 2, lines
    assert SECRET not in admin.log_text()


def test_a_restart_repeats_nothing_and_reports_what_ended_in_between(cluster, tmp_path):
    cluster.create("orders", "archive")
    kept = f"--history-file={tmp_path / 'history.db'}"
    with WebServer() as server:
        admin = observer(cluster, server, kept)
        pause(cluster)
        wait_for_reports(server, 1)
        wait_until(lambda: (tmp_path / "history.db.problems").exists(), what="the file")
        admin.kill()
        admin = observer(cluster, server, kept)
        admin.wait_for_topic("orders", nodes=2)
        admin.stop()
        assert len(reports(server)) == 1
        pause(cluster, "unpause")
        observer(cluster, server, kept)
        wait_for_reports(server, 2)
        events = [(report["event"], report["dedup_key"]) for report in reports(server)]
    assert events == [("problem_began", "paused|orders||"), ("problem_ended", "paused|orders||")]


def test_a_receiver_that_does_not_answer_stops_nothing_else(cluster):
    cluster.create("orders", "archive")
    with WebServer(lambda _: HANG) as server:
        admin = observer(cluster, server)
        pause(cluster)
        wait_for_reports(server, 1)
        cluster.publish("orders", 1, 1)
        admin.wait_for_topic("orders", depth=2)
        wait_until(
            lambda: "cannot POST to --attention-http-endpoint" in admin.log_text(),
            what="the time limit of the POST",
        )
        server.reply = lambda _: OK
        server.go_on()
        wait_for_reports(server, 2)  # its answer did not arrive in time
    assert {report["dedup_key"] for report in reports(server)} == {"paused|orders||"}


def test_two_nsqadmins_can_be_told_apart_and_name_a_problem_alike(cluster):
    cluster.create("orders", "archive")
    with WebServer() as server:
        for name in ("one", "two"):
            observer(cluster, server, f"--page-url=http://{name}.example.org")
        pause(cluster)
        wait_until(lambda: len({report["source"] for report in reports(server)}) == 2, what="reports of both")
        found = reports(server)
    assert {report["dedup_key"] for report in found} == {"paused|orders||"}
    assert sorted(report["source"] for report in found) == [
        "http://one.example.org",
        "http://two.example.org",
    ]


@pytest.mark.parametrize(
    "flag", ["--attention-http-endpoint=ftp://x", "--page-url=here", "--attention-quiet-time=-1s"]
)
def test_what_is_refused_at_the_start(cluster, flag, tmp_path):
    admin = NsqadminProcess(tmp_path / "log", f"--lookupd-http-address={cluster.lookupd.http_address}", flag)
    with pytest.raises(AssertionError, match=flag.partition("=")[0].removeprefix("--")):
        admin.start()
