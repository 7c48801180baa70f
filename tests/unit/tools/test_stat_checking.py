"""What `nsq-stat --check` reports, and its exit status."""

from __future__ import annotations

from typing import Any

import pytest

from nsq_tools.stat.checking import Checked
from nsq_tools.stat.program import PROGRAM
from tests.unit.cluster.test_stores import STORE
from tests.unit.nsqadmin.test_views import Cluster2, channel, stats, topic

NOW_S, TIME_S = 1000.0, 1_700_000_000.0


def lines(*flags: str, gone: tuple[str, ...] = (), **answers: dict[str, Any]) -> tuple[int, list[str]]:
    cluster = Cluster2()
    cluster.say(NOW_S, **answers)
    checked = Checked(PROGRAM.read(["--nsqd-http-address=a:1", *flags]), cluster, gone)
    found = list(checked.findings(NOW_S, TIME_S))
    return checked.status, [f"{severity} {text}" for severity, text in found]


TOPICS = (
    topic(
        "orders",
        channel("archive", depth=2),
        channel("billing", depth=9, client_count=1),
        channel("idle"),
        channel("mail", depth=4, paused=True),
    ),
    topic("alone", depth=1),
)


@pytest.mark.parametrize(
    ("flags", "status", "found"),
    [
        (
            [],
            2,
            [
                "error orders/archive: no consumer: 2 messages wait, and no consumer is connected",
                "warning orders/mail: paused: The channel is paused; 4 messages wait",
                "warning alone: no channel: 1 message waits, and the topic has no channel",
                "warning lost: no nsqd: listed by an nsqlookupd, but no nsqd has it",
            ],
        ),
        (["--filter=orders/m*"], 1, ["warning orders/mail: paused: The channel is paused; 4 messages wait"]),
        (["--filter=lost"], 1, ["warning lost: no nsqd: listed by an nsqlookupd, but no nsqd has it"]),
        (["--filter=billing", "--filter=idle"], 0, []),
        (["--channel=mail"], 1, ["warning orders/mail: paused: The channel is paused; 4 messages wait"]),
    ],
)
def test_the_worst_are_first_and_decide_about_the_status(
    flags: list[str], status: int, found: list[str]
) -> None:
    assert lines(*flags, gone=("lost",), a=stats(*TOPICS)) == (status, found)


@pytest.mark.parametrize(
    ("answer", "status", "text"),
    [
        ({"health": "NOK - disk: full"}, 2, "error nsqd a: not healthy: reports: NOK - disk: full"),
        (
            {"disk_left_percent": 3},
            1,
            "warning nsqd a: disk: has 3 % left of its disk, or of the limit that it has been given",
        ),
        (
            {"draining": True, "drain_messages_left": 12_300, "health": "NOK - draining"},
            0,
            "info nsqd a: draining: drains: 12,300 messages left",
        ),
        (
            {"tls_certificate_ends": int(TIME_S) + 10 * 86400},
            1,
            "warning nsqd a: certificate: has a TLS certificate that ends in 10 d",
        ),
        (
            {"tls_certificate_ends": int(TIME_S) + 2 * 86400 + 3600},
            2,
            "error nsqd a: certificate: has a TLS certificate that ends in 2 d 1 h",
        ),
        (
            {"tls_certificate_ends": int(TIME_S) - 60},
            2,
            "error nsqd a: certificate: has a TLS certificate that ended 1 min ago",
        ),
        (
            {"disk_slow_since": int(TIME_S) - 7200},
            1,
            "warning nsqd a: slow disk: has had a slow disk for 2 h",
        ),
        (
            {"auth_failure": "no one"},
            2,
            "error nsqd a: auth server: gets no answer from its auth servers: no one",
        ),
        (
            {
                "standby": {
                    "primary": "p:1",
                    "state": "connecting",
                    "is_complete": True,
                    "is_fenced": True,
                    "error": "E_INVALID",
                }
            },
            1,
            "warning nsqd a: refused: was replaced by p:1, and is not connected to it; it never was; E_INVALID",
        ),
        (
            {"standbys": {"acks": 1, "is_alone": False, "list": []}},
            2,
            "error nsqd a: no standby: publishers get no OK: 0 of 1 standby follow",
        ),
        (
            {"store": STORE | {"away_ms": 75_000, "error": "503 Slow Down"}},
            1,
            "warning nsqd a: store away: has had no answer from its store s3://b/p for 75 s: 503 Slow Down",
        ),
        (
            {"store": STORE | {"away_ms": 75_000, "acks": 1}},
            2,
            "error nsqd a: no store: refuses publishes: it has had no answer from its store s3://b/p for 75 s",
        ),
        (
            {"store": STORE | {"lag_ms": 75_000}},
            1,
            "warning nsqd a: store lags: has had changes for 75 s that its store s3://b/p lacks",
        ),
        (
            {"store": STORE | {"damaged_objects": 1}},
            1,
            "warning nsqd a: damaged store: found a damaged object in its store s3://b/p when it started",
        ),
    ],
)
def test_problems_of_an_nsqd(answer: dict[str, Any], status: int, text: str) -> None:
    assert lines(a=stats() | answer) == (status, [text])


def test_a_store_that_takes_what_is_new_is_no_problem() -> None:
    assert lines(a=stats() | {"store": STORE}) == (0, [])


def test_a_disk_that_was_slow_for_a_moment_is_no_problem() -> None:
    assert lines(a=stats() | {"disk_slow_since": int(TIME_S) - 299}) == (0, [])


def test_an_nsqd_says_itself_that_nothing_is_finished() -> None:
    stalled = {"depth": 5, "client_count": 2, "stalled_timestamp": int((TIME_S - 61) * 1e9), "ready_count": 0}
    text = "stuck: 5 messages wait, and nothing was finished for 1 min 1 s: RDY is 0: 2 consumers ask for no messages"
    status, found = lines(a=stats(topic("t", channel("c", **stalled))))
    assert (status, found) == (2, [f"error t/c: {text}, perhaps in back-off after errors"])
    (found_again,) = lines(a=stats(topic("t", channel("c", **stalled | {"ready_count": 7}))))[1]
    assert found_again.endswith(
        "nothing is sent although RDY is 7: 2 consumers take no data from the connection"
    )
    for other in ({"stalled_timestamp": int((TIME_S - 59) * 1e9)}, {"paused": True}, {"depth": 0}):
        assert "stuck" not in str(lines(a=stats(topic("t", channel("c", **stalled | other)))))


def test_old_messages_by_topic() -> None:
    row = channel("c", depth=5, client_count=2, oldest_timestamp=int((TIME_S - 1860) * 1e9))
    answer = stats(topic("t", row), topic("slow.t", row))
    flags = "--max-message-age=30m", "--max-message-age=slow.*=1h"
    text = "old: 5 messages wait, the oldest for 31 min; the limit is 30 min"
    assert lines(*flags, a=answer) == (1, [f"warning t/c: {text}"])
    assert len(lines(a=answer)[1]) == 2
