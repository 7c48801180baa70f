"""How far a stream of a topic is, and how much of it comes next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")


from nsq_spark.source.live_options import LATEST, BadOffset, NumberRange, TopicOffset, is_live, live_options, next_batch, shares
from nsq_spark.source.options import BadOption

HERE = {"nsqd": "127.0.0.1:4151, b:4151", "topic": "orders"}


def test_an_offset_as_spark_keeps_it() -> None:
    offset = TopicOffset({"b:1": NumberRange(3, 9, 7), "a:1": NumberRange(0, 0, 8)})
    assert offset.to_json() == {"version": 2, "topic": {"a:1": [0, 0, 8], "b:1": [3, 9, 7]}}
    assert TopicOffset.of_json(offset.to_json()) == offset
    assert offset.ends == {"a:1": (0, 0, 8), "b:1": (9, 9, 7)}


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"version": 1, "topic": {"a": [3, 4]}},
        {"version": 2, "topic": {"a": 3}},
        {"version": 2, "topic": {"a": [3]}},
        {"version": 9, "topic": {}},
    ],
)
def test_another_checkpoint_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(BadOffset):
        TopicOffset.of_json(document)


def test_a_batch_goes_on_where_the_last_one_ended() -> None:
    starts = {nsqd: NumberRange(seq, seq, 1) for nsqd, seq in {"a": 5, "b": 7, "away": 3}.items()}
    batch = next_batch(starts, {"a": 10, "b": 7}, None)
    assert batch.ranges == {"a": (5, 10, 1), "b": (7, 7, 1), "away": (3, 3, 1)}
    assert next_batch(batch.ends, {"a": 100, "b": 9}, 12).ranges["a"] == (10, 20, 1)


@given(st.dictionaries(st.text("ab", max_size=3), st.integers(0, 50)), st.integers(1, 100))
def test_a_limit_is_used_up_and_shared(there: dict[str, int], most: int) -> None:
    found = shares(there, most)
    assert sum(found.values()) == min(most, sum(there.values()))
    assert all(found[nsqd] <= there[nsqd] for nsqd in there)
    waiting = [found[nsqd] for nsqd in there if found[nsqd] < there[nsqd]]
    assert not waiting or max(found.values()) - min(waiting) <= 1


def test_options() -> None:
    options = live_options({**HERE, "startingOffsets": "latest", "maxMessagesPerTrigger": "9"}, 0)
    assert (options.nsqds, options.start, options.most_messages) == (("127.0.0.1:4151", "b:4151"), LATEST, 9)
    assert options.fails_on_loss
    assert live_options({**HERE, "startingOffsets": "2026-01-01T00:00:00Z"}, 0).start == 1_767_225_600_000_000_000
    assert is_live({"LOOKUPD": "a:4161"}) and not is_live({"path": "/archive"})


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"topic": ""}, "topic"),
        ({"topic": "no good"}, "topic"),
        ({"path": "/archive"}, "path"),
        ({"nsqd": "127.0.0.1"}, "nsqd"),
        ({"nsqd": ""}, "nsqd"),
        ({"startingOffsets": "soon"}, "startingOffsets"),
        ({"maxMessagesPerTrigger": "0"}, "maxMessagesPerTrigger"),
        ({"failOnDataLos": "no"}, "failOnDataLoss"),
    ],
)
def test_options_that_are_none(changed: dict[str, str], named: str) -> None:
    with pytest.raises(BadOption, match=named):
        live_options({**HERE, **changed}, 0)
