"""The lines of a report to statsd, and their packets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gevent

from nsqd_py.stats.statsd import StatsdReporter, StatsdReports, packets


def make_channel(
    name: str, messages: int = 0, *percentiles: tuple[float, float], **statistics: Any
) -> dict[str, Any]:
    return {
        "channel_name": name,
        "depth": 1,
        "backend_depth": 2,
        "in_flight_count": 3,
        "deferred_count": 4,
        "message_count": messages,
        "requeue_count": 5,
        "timeout_count": 6,
        "client_count": 7,
        "e2e_processing_latency": latency(*percentiles),
        **statistics,
    }


def make_topic(name: str, messages: int, *channels: dict[str, Any], percentiles: Any = ()) -> dict[str, Any]:
    return {
        "topic_name": name,
        "channels": list(channels),
        "depth": 8,
        "backend_depth": 9,
        "message_count": messages,
        "message_bytes": 10 * messages,
        "e2e_processing_latency": latency(*percentiles),
    }


def latency(*percentiles: tuple[float, float]) -> dict[str, Any]:
    return {"count": 0, "percentiles": [{"quantile": q, "value": value} for q, value in percentiles] or None}


def lines(reports: StatsdReports, *topics: dict[str, Any], memory: Any = None) -> list[str]:
    return [line.removesuffix("\n") for line in reports.lines(topics, memory)]


def test_keys_and_their_order_are_those_of_go() -> None:
    topic = make_topic(
        "t", 2, make_channel("c", 3, (0.999, 1e9 + 0.9)), percentiles=((1.0, 7.5), (0.995, 2.0))
    )
    assert lines(StatsdReports("p.", exclude_ephemeral=False), topic) == [
        "p.topic.t.message_count:2|c",
        "p.topic.t.message_bytes:20|c",
        "p.topic.t.depth:8|g",
        "p.topic.t.backend_depth:9|g",
        "p.topic.t.e2e_processing_latency_100:7|g",
        "p.topic.t.e2e_processing_latency_100:2|g",  # as Go rounds 99.5
        "p.topic.t.channel.c.message_count:3|c",
        "p.topic.t.channel.c.depth:1|g",
        "p.topic.t.channel.c.backend_depth:2|g",
        "p.topic.t.channel.c.in_flight_count:3|g",
        "p.topic.t.channel.c.deferred_count:4|g",
        "p.topic.t.channel.c.requeue_count:5|c",
        "p.topic.t.channel.c.timeout_count:6|c",
        "p.topic.t.channel.c.clients:7|g",
        "p.topic.t.channel.c.e2e_processing_latency_100:1000000000|g",
    ]


def test_packets_end_with_lines_and_are_as_full_as_may_be() -> None:
    given = ["a" * 9 + "\n", "b" * 9 + "\n", "c" * 9 + "\n", "d" * 40 + "\n", "e\n"]
    assert packets(given, 20) == [
        (given[0] + given[1]).encode(),
        given[2].encode(),
        given[3].encode(),
        b"e\n",
    ]
    assert packets(given, 19)[0] == given[0].encode()
    assert packets(given, 0) == ["".join(given).encode()]
    assert packets([], 20) == []


def test_after_a_bug_in_a_report_comes_the_next_one() -> None:
    bugs = []
    log = SimpleNamespace(info=print, exception=lambda *line: bugs.append(line))
    options = SimpleNamespace(
        statsd_prefix="",
        statsd_exclude_ephemeral=False,
        statsd_interval_ns=1_000_000,
        statsd_address="127.0.0.1:8125",
    )
    broker = SimpleNamespace(options=options, log=log)  # of which a report needs more
    reporter = StatsdReporter(broker)
    with gevent.Timeout(40):
        while len(bugs) < 2:
            gevent.sleep(0.001)
    reporter.stop()
