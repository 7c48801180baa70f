"""nsq-stat's model: rows of the observed cluster, histories."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsq_tools.stat.failures import Failure, failures_of
from nsq_tools.stat.model import HISTORY_LENGTH, Model, NodePart, node_parts, total_depths
from nsq_tools.stat.rows import Name, Row
from nsqd_py.cluster.model import Cluster

ORDERS = Name("orders")
ARCHIVE = Name("orders", "archive")
KEYS = {
    "in_flight": "in_flight_count",
    "deferred": "deferred_count",
    "messages": "message_count",
    "requeued": "requeue_count",
    "timed_out": "timeout_count",
    "clients": "client_count",
}


class Observed(Model):
    """The model of a cluster whose answers a test makes."""

    def __init__(self, *, channel: str = "", per_node: bool = False, **clocks: Any) -> None:
        self.cluster = Cluster()
        super().__init__(self.cluster, channel=channel, per_node=per_node, **clocks)

    def say(
        self, address: str, now_s: float, *channels: dict[str, Any], start_time: int = 1, **topic: Any
    ) -> None:
        """Answer as an nsqd with these channels of a topic; with none, as one without topics."""
        row = {"topic_name": "orders", "depth": 0, "backend_depth": 0, "message_count": 0, "paused": False}
        topics = [row | {"channels": channels} | topic] if channels or topic else []
        document = {"start_time": start_time, "topics": topics}
        list(self.cluster.observing(self.cluster.add_node(address, {}), document, now_s))

    def fail(self, address: str) -> None:
        self.cluster.fail(self.cluster.nodes[address], "no")

    def round(self) -> list[Row]:
        list(self.cluster.ending_round(0.0, 1.0))
        self.cluster.tick += 1
        self.end_round()
        return self.rows


Reading = tuple[str, float, int, dict[str, Any]]


def archive(**counts: Any) -> dict[str, Any]:
    named = {KEYS.get(name, name): value for name, value in counts.items()}
    zeros = dict.fromkeys(("depth", "backend_depth", *KEYS.values()), 0)
    return {"channel_name": "archive", "paused": False, **zeros, **named}


def reading(node: str, taken_s: float, start_time: int = 1, **counts: Any) -> Reading:
    """The answer of an nsqd with one channel."""
    return node, taken_s, start_time, archive(**counts)


def round_of(model: Observed, *readings: Reading) -> Row:
    """The row of the channel after these answers."""
    for node, taken_s, start_time, channel in readings:
        model.say(node, taken_s, channel, start_time=start_time)
    (row,) = (row for row in model.round() if row.name.channel)
    return row


def per_s(row: Row) -> float:
    """Messages that came each second."""
    assert row.rates is not None
    return row.rates.messages / 1000


def test_the_oldest_message_of_all_nsqds_and_the_time_until_nothing_waits() -> None:
    model = Observed(wall_clock=lambda: 20 * 10**9)
    model.say("a", 5.0, archive(depth=100, oldest_timestamp=15 * 10**9), depth=1)
    model.say("b", 5.0, archive(depth=0))
    topic, row = model.round()
    assert (row.oldest_age_s, topic.oldest_age_s) == (5.0, None)
    model.say("a", 6.0, archive(depth=80, oldest_timestamp=16 * 10**9))
    row = model.round()[1]
    assert (row.oldest_age_s, row.drain_s) == (4.0, 8.0)  # 10 a second on average of two rounds
    for second in range(7, 12):
        model.say("a", float(second), archive(depth=80 + second, oldest_timestamp=16 * 10**9))
        row = model.round()[1]
    assert row.drain_s == math.inf
    model.say("a", 12.0, archive())
    assert model.round()[1].drain_s == 0.0


def test_what_leaves_a_topic_is_its_finish_rate() -> None:
    model = Observed()
    model.say("a", 0.0, depth=1, message_count=1)
    model.round()
    model.say("a", 2.0, depth=5, message_count=11)
    (row,) = model.round()
    assert row.rates is not None
    assert (row.rates.messages, row.rates.left, row.rates.finished, row.rates.growth) == (
        5000,
        3000,
        3000,
        2000,
    )


def test_the_size_of_a_log_is_known_if_all_nsqds_report_it() -> None:
    model = Observed()
    model.say("a", 0.0, archive(depth=2), depth=1, log_bytes=1000)
    model.say("b", 0.0, archive(depth=5), log_bytes=234)
    assert [row.log_bytes for row in model.round()] == [1234, None]
    model.say("b", 1.0, archive(depth=5))  # as Go's nsqd
    model.fail("b")
    assert [row.log_bytes for row in model.round()] == [1000, None]
    model.say("b", 2.0, archive(depth=5))
    rows = model.round()
    assert [row.log_bytes for row in rows] == [None, None]
    assert total_depths(rows) == [8.0, 3.0, 8.0]
    assert node_parts(model.cluster, "orders") == [
        NodePart("a", 3, None, 1000, 0, ""),
        NodePart("b", 5, 0.0, None, 0, ""),
    ]
    assert node_parts(model.cluster, "unknown") == []


def test_failures_name_server_and_reason() -> None:
    model = Observed()
    for address in ("fails", "late", "lasts"):
        model.say(address, 5.0)
        model.cluster.nodes[address].asked_s = 9.1 if address == "late" else 6.8
    model.fail("fails")
    model.cluster.failed_lookups["lookup"] = "down"
    model.cluster.nodes["late"].is_late = model.cluster.nodes["lasts"].is_late = True
    assert failures_of(model.cluster, 10.0) == [
        Failure("nsqlookupd", "lookup", "down"),
        Failure("nsqd", "fails", "no"),
        Failure("nsqd", "lasts", "no answer for 3s"),
    ]
    assert str(failures_of(model.cluster, 10.0)[0]) == "nsqlookupd lookup: down"


# --- sums and changes


def test_rates_rest_on_the_time_between_answers() -> None:
    model = Observed()
    round_of(model, reading("a", 10.0, messages=100, depth=10, in_flight=1, deferred=1))
    row = round_of(model, reading("a", 12.5, messages=200, depth=60, in_flight=6, deferred=6))
    assert row.rates is not None
    assert (row.rates.messages, row.rates.left, row.rates.finished) == (40_000, 20_000, 16_000)


def test_an_nsqd_that_fails_is_in_no_sum_and_its_return_is_no_jump() -> None:
    model = Observed()
    round_of(model, reading("a", 0, messages=100), reading("b", 0, messages=1000))
    model.fail("b")
    row = round_of(model, reading("a", 2, messages=102))
    assert (row.counts.messages, per_s(row)) == (102, 1)
    row = round_of(model, reading("a", 4, messages=104), reading("b", 4, messages=1008))
    assert (row.counts.messages, per_s(row)) == (1112, 1 + 2)


def test_all_of_a_new_channel_came_since_the_answer_before() -> None:
    model = Observed()
    model.say("a", 0)
    assert model.round() == []
    assert per_s(round_of(model, reading("a", 2, messages=10))) == 5


# --- histories and warnings


def test_depths_are_remembered_up_to_a_length() -> None:
    model = Observed()
    rows = [round_of(model, reading("a", second, depth=second)) for second in range(HISTORY_LENGTH + 5)]
    assert rows[2].depths == (0, 1, 2)
    assert rows[-1].depths == tuple(range(5, HISTORY_LENGTH + 5))


def test_histories_outlive_a_failure_but_not_a_channel() -> None:
    model = Observed()
    round_of(model, reading("a", 0, depth=1))
    model.fail("a")
    assert model.round() == []
    assert round_of(model, reading("a", 2, depth=2)).depths == (1, 2)
    model.say("a", 3, depth=0)
    model.round()
    assert round_of(model, reading("a", 4, depth=3)).depths == (3,)


def growth(*depths: int) -> bool:
    model = Observed()
    rows = [round_of(model, reading("a", second, depth=depth)) for second, depth in enumerate(depths)]
    return rows[-1].depth_grows


@pytest.mark.parametrize(
    ("depths", "grows"),
    [
        ((5,), False),  # nothing to compare with
        ((5, 5, 5), False),
        ((1, 2), True),
        ((1, 2, 2, 2), True),  # a moment without growth
        ((1, 9, 5), False),  # falls again
        ((1, 2, 2, 2, 2, 2), False),  # stays
        ((9, 5, 6), False),  # less than some rounds before
        ((5, 0), False),
    ],
)
def test_growth_is_judged_over_some_rounds(depths: tuple[int, ...], grows: bool) -> None:
    assert growth(*depths) is grows


def test_time_outs_are_told_only_when_they_happen() -> None:
    model = Observed()
    rates = [
        round_of(model, reading("a", second, timed_out=count)).rates
        for second, count in enumerate((5, 5, 6, 6))
    ]
    assert [rate is not None and rate.timed_out > 0 for rate in rates] == [False, False, True, False]


small = st.integers(0, 1000)


@given(st.lists(st.tuples(small, small), min_size=1, max_size=5))
def test_sums_are_those_of_the_parts(nodes: list[tuple[int, int]]) -> None:
    together, apart = Observed(), Observed(per_node=True)
    for second in (1, 2):
        for number, (depth, messages) in enumerate(nodes):
            for model in (together, apart):
                model.say(str(number), second, archive(depth=depth * second, messages=messages * second))
        together.round()
        apart.round()
    (row,) = (row for row in together.rows if row.name.channel)
    parts = [row for row in apart.rows if row.name.channel]
    assert row.counts.depth == sum(part.counts.depth for part in parts)
    assert per_s(row) == sum(map(per_s, parts))
