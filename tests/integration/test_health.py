"""Liveness (/ping) and readiness (/health) of nsqd: what fails which, and what is named."""

from __future__ import annotations

import resource

import pytest

from tests.support.nsqd_process import HTTPAnswer, NsqdProcess, wait_until

pytestmark = pytest.mark.ours

LIMIT = 300_000
BODY = b"x" * 10_000
FULL = {"topic_name": "full", "reason": f"the log of topic full has the {LIMIT} bytes of --max-topic-bytes"}


def health(nsqd: NsqdProcess) -> HTTPAnswer:
    return nsqd.http("GET", "/health?format=json")


def fill(nsqd: NsqdProcess, topic: str) -> None:
    wait_until(lambda: nsqd.http("POST", f"/pub?topic={topic}", BODY).status == 503, what="a full topic")


def test_all_is_well(nsqd):
    answer = health(nsqd)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    assert answer.json() == {"status": "ok", "live": True, "ready": True, "reason": None, "topics": []}
    plain = nsqd.http("GET", "/health")
    assert (plain.status, plain.body) == (200, b"ok")


def test_a_topic_at_its_own_limit_fails_nobody_else(make_nsqd):
    nsqd = make_nsqd(f"--max-topic-bytes=full={LIMIT}", "--max-bytes-per-file=65536")
    nsqd.create("full", "ch")
    fill(nsqd, "full")
    assert nsqd.is_healthy()
    answer = health(nsqd)
    assert answer.status == 200
    assert answer.json() == {
        "status": "degraded",
        "live": True,
        "ready": True,
        "reason": None,
        "topics": [FULL],
    }
    assert nsqd.http("GET", "/health").text == f"degraded\ntopic full: {FULL['reason']}"
    assert nsqd.post("/pub?topic=other", BODY).body == b"OK"
    nsqd.post("/channel/empty?topic=full&channel=ch")
    wait_until(lambda: health(nsqd).json()["status"] == "ok", what="room again")


def test_a_disk_that_fails_fails_the_node(nsqd):
    nsqd.create("orders", "ch")
    _, hard = resource.prlimit(nsqd.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(nsqd.pid, resource.RLIMIT_FSIZE, (1, hard))
    assert nsqd.http("POST", "/pub?topic=orders", BODY).status == 503
    answer = health(nsqd)
    assert answer.status == 503
    said = answer.json()
    assert (said["status"], said["live"], said["ready"]) == ("failing", False, False)
    assert said["reason"].startswith("disk: ")
    assert [topic["topic_name"] for topic in said["topics"]] == ["orders"]
    assert nsqd.http("GET", "/ping").status == 500
    resource.prlimit(nsqd.pid, resource.RLIMIT_FSIZE, (hard, hard))
    nsqd.post("/pub?topic=orders", BODY)
    assert health(nsqd).status == 200


def test_a_limit_of_the_node_fails_it(make_nsqd):
    nsqd = make_nsqd(f"--max-disk-bytes={LIMIT}", "--max-bytes-per-file=65536")
    reason = f"disk: all logs together have the {LIMIT} bytes of --max-disk-bytes"

    def refused_and(path):
        """An answer soon after a publish was refused: four times a second nsqd looks whether there is room again."""
        fill(nsqd, "orders")
        return nsqd.http("GET", path)

    answer = wait_until(lambda: (seen := refused_and("/health?format=json")).status == 503 and seen)
    assert (answer.json()["reason"], answer.json()["topics"]) == (reason, [])
    wait_until(lambda: refused_and("/ping").text == f"NOK - {reason}")
