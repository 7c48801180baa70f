"""nsq-stat's model: sums over nsqd, changes per second, histories."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsq_tools.stat.figures import BadStats, Counts, Name, Reading, read_stats
from nsq_tools.stat.model import HISTORY_LENGTH, Model, Row

ORDERS = Name("orders")
ARCHIVE = Name("orders", "archive")


def reading(node: str, taken_s: float, start_time: int = 1, **counts: int) -> Reading:
    """An nsqd with one channel."""
    return Reading(node, taken_s, start_time, {ARCHIVE: Counts(**counts)}, frozenset())


def round_of(model: Model, *readings: Reading) -> Row:
    """The one row after these answers."""
    for each in readings:
        model.observe(each)
    (row,) = model.end_round()
    return row


# --- what an nsqd says


def channel_document(name: str, **changes: Any) -> dict[str, Any]:
    figures = dict.fromkeys(
        ("depth", "backend_depth", "in_flight_count", "deferred_count", "message_count", "requeue_count",
         "timeout_count", "client_count"), 0
    )  # fmt: skip
    return {"channel_name": name, "paused": False, **figures, **changes}


def test_figures_of_topics_and_channels_are_read() -> None:
    channel = channel_document(
        "archive", depth=7, backend_depth=2, in_flight_count=3, deferred_count=4, message_count=50,
        requeue_count=5, timeout_count=6, client_count=8, paused=True,
    )  # fmt: skip
    topic = {"topic_name": "orders", "depth": 1, "backend_depth": 1, "message_count": 51, "paused": False}
    found = read_stats("a", {"start_time": 99, "topics": [{**topic, "channels": [channel]}]}, 5.0)
    counts = Counts(7, 2, 3, 4, 50, 5, 6, 8)
    assert found == Reading("a", 5.0, 99, {ORDERS: Counts(1, 1, messages=51), ARCHIVE: counts}, frozenset([ARCHIVE]))
    assert (counts.memory_depth, counts.left, counts.finished) == (5, 43, 36)


def test_no_topics_may_be_null_as_in_go() -> None:
    assert read_stats("a", {"start_time": 1, "topics": None}, 0.0).counts == {}


TOPIC = {"topic_name": "t", "depth": 0, "backend_depth": 0, "message_count": 0, "paused": False, "channels": None}


@pytest.mark.parametrize(
    "document",
    [
        None, [], {}, {"topics": 5}, {"topics": [{}]}, {"topics": [None]}, "x",
        {"topics": [{**TOPIC, "depth": "1"}]}, {"topics": [{**TOPIC, "depth": 1e308}]},
        {"topics": [{**TOPIC, "depth": 2**63}]},
        {"topics": [{**TOPIC, "channels": [channel_document("c", depth=1e308)]}]}, {"topics": [], "start_time": "x"},
    ],
)  # fmt: skip
def test_what_no_nsqd_says_is_refused(document: object) -> None:
    with pytest.raises(BadStats):
        read_stats("a", document, 0.0)


# --- sums and changes


def test_a_first_answer_has_no_rates() -> None:
    row = round_of(Model(), reading("a", 0, messages=10, depth=4))
    assert (row.name, row.node, row.counts.depth, row.per_s) == (ARCHIVE, "", 4, None)


def test_rates_rest_on_the_time_between_answers() -> None:
    model = Model()
    round_of(model, reading("a", 10.0, messages=100, depth=10, in_flight=1, deferred=1))
    row = round_of(model, reading("a", 12.5, messages=200, depth=60, in_flight=6, deferred=6))
    assert row.per_s is not None
    assert row.per_s.messages == pytest.approx(40)
    assert row.per_s.left == pytest.approx(20)
    assert row.per_s.finished == pytest.approx(16)


def test_several_nsqd_are_added_up() -> None:
    model = Model()
    round_of(model, reading("a", 0, messages=1, depth=1), reading("b", 0, messages=2, depth=2))
    row = round_of(model, reading("a", 1, messages=11, depth=3), reading("b", 2, messages=12, depth=4))
    assert (row.counts.depth, row.counts.messages) == (7, 23)
    assert row.per_s is not None
    assert row.per_s.messages == pytest.approx(10 + 5)


def test_with_per_node_each_nsqd_has_rows() -> None:
    model = Model(per_node=True)
    model.observe(reading("b", 0, depth=2))
    model.observe(reading("a", 0, depth=1))
    assert [(row.node, row.counts.depth) for row in model.end_round()] == [("a", 1), ("b", 2)]


def test_an_nsqd_that_fails_is_in_no_sum_and_its_return_is_no_jump() -> None:
    model = Model()
    round_of(model, reading("a", 0, messages=100), reading("b", 0, messages=1000))
    model.fail("b")
    row = round_of(model, reading("a", 2, messages=102))
    assert (row.counts.messages, row.per_s and row.per_s.messages) == (102, 1)
    row = round_of(model, reading("a", 4, messages=104), reading("b", 4, messages=1008))
    assert (row.counts.messages, row.per_s and row.per_s.messages) == (1112, 1 + 2)


def test_an_nsqd_that_is_late_keeps_its_place() -> None:
    model = Model()
    round_of(model, reading("a", 0, messages=1), reading("b", 0, messages=5))
    assert round_of(model, reading("a", 2, messages=3)).counts.messages == 8


def test_an_nsqd_that_was_started_again_has_no_rates_at_first() -> None:
    model = Model()
    round_of(model, reading("a", 0, start_time=1, messages=100))
    assert round_of(model, reading("a", 1, start_time=2, messages=500)).per_s is None
    row = round_of(model, reading("a", 2, start_time=2, messages=507))
    assert row.per_s is not None
    assert row.per_s.messages == 7


def test_a_channel_that_was_made_again_has_no_negative_rates() -> None:
    model = Model()
    round_of(model, reading("a", 0, messages=100))
    assert round_of(model, reading("a", 1, messages=5)).per_s is None


def test_all_of_a_new_channel_came_since_the_answer_before() -> None:
    model = Model()
    model.observe(Reading("a", 0, 1, {}, frozenset()))
    assert model.end_round() == []
    row = round_of(model, reading("a", 2, messages=10))
    assert row.per_s is not None
    assert row.per_s.messages == 5


def test_an_nsqd_that_is_gone_is_forgotten() -> None:
    model = Model()
    round_of(model, reading("a", 0, depth=1), reading("b", 0, depth=5))
    model.forget("b")
    model.forget("unknown")
    assert round_of(model, reading("a", 1, depth=1)).counts.depth == 1


def test_a_pause_on_one_nsqd_is_shown() -> None:
    model = Model()
    model.observe(Reading("a", 0, 1, {ARCHIVE: Counts()}, frozenset([ARCHIVE])))
    model.observe(reading("b", 0))
    assert [row.is_paused for row in model.end_round()] == [True]


# --- histories and warnings


def test_depths_are_remembered_up_to_a_length() -> None:
    model = Model()
    rows = [round_of(model, reading("a", second, depth=second)) for second in range(HISTORY_LENGTH + 5)]
    assert rows[2].depths == (0, 1, 2)
    assert rows[-1].depths == tuple(range(5, HISTORY_LENGTH + 5))


def test_histories_outlive_a_failure_but_not_a_channel() -> None:
    model = Model()
    round_of(model, reading("a", 0, depth=1))
    model.fail("a")
    assert model.end_round() == []
    assert round_of(model, reading("a", 2, depth=2)).depths == (1, 2)
    model.observe(Reading("a", 3, 1, {ORDERS: Counts()}, frozenset()))
    model.end_round()
    assert round_of(model, reading("a", 4, depth=3)).depths == (3,)


def growth(*depths: int) -> bool:
    model = Model()
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
    model = Model()
    told = [
        round_of(model, reading("a", second, timed_out=count)).has_timed_out
        for second, count in enumerate((5, 5, 6, 6))
    ]
    assert told == [False, False, True, False]


small = st.integers(0, 1000)


@given(st.lists(st.tuples(small, small), min_size=1, max_size=5))
def test_sums_are_those_of_the_parts(nodes: list[tuple[int, int]]) -> None:
    together, apart = Model(), Model(per_node=True)
    for second in (1, 2):
        for number, (depth, messages) in enumerate(nodes):
            for model in (together, apart):
                model.observe(reading(str(number), second, depth=depth * second, messages=messages * second))
        together.end_round()
        apart.end_round()
    (row,) = together.rows
    assert row.counts.depth == sum(part.counts.depth for part in apart.rows)
    assert row.per_s is not None
    assert row.per_s.messages == sum(part.per_s.messages for part in apart.rows if part.per_s)
