"""How far a stream of a topic is, and how much of it comes next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")


from nsq_spark.source.live_options import (
    LATEST,
    BadOffset,
    LogKey,
    Position,
    TopicOffset,
    is_live,
    live_options,
    quotas,
    stream_of,
)
from nsq_spark.source.options import BadOption

HERE = {"nsqd": "127.0.0.1:4151, b:4151", "topic": "orders"}


def test_an_offset_as_spark_keeps_it() -> None:
    here, there = LogKey("t", "a:1"), LogKey("t", "b:1")
    offset = TopicOffset(
        {there: Position(0xABC, 9, 7), here: Position(None, 5, None)}, {here: Position(0, None, 8)}
    )
    document = {
        "version": 4,
        "topics": {
            "t": {
                "a:1": {"id": None, "count": 5, "epoch": None},
                "b:1": {"id": "0000000000000abc", "count": 9, "epoch": 7},
            }
        },
        "begins": {"t": {"a:1": {"id": "0000000000000000", "count": None, "epoch": 8}}},
    }
    assert offset.to_json() == document
    assert TopicOffset.of_json(document) == offset


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"version": 2, "topic": {"a": [3, 4, 5]}},
        {"version": 3, "topics": {"t": 3}},
        {"version": 3, "topics": {"t": {"a": [3]}}},
        {"version": 4, "topics": {"t": {"a": [3, 4]}}},
        {"version": 4, "topics": {"t": {"a": {"id": "x", "count": 1, "epoch": 1}}}},
        {"version": 9, "topics": {}},
    ],
)
def test_another_checkpoint_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(BadOffset):
        TopicOffset.of_json(document)


LOGS = st.builds(LogKey, st.text("ab", max_size=2), st.text("ab", max_size=2))


@given(st.dictionaries(LOGS, st.integers(0, 50)), st.integers(0, 100))
def test_a_limit_is_used_up_and_shared(there: dict[LogKey, int], most: int) -> None:
    assert quotas(there, None) == there
    found = quotas(there, most)
    assert sum(found.values()) == min(most, sum(there.values()))
    assert all(found[nsqd] <= there[nsqd] for nsqd in there)
    waiting = [found[nsqd] for nsqd in there if found[nsqd] < there[nsqd]]
    assert not waiting or max(found.values()) - min(waiting) <= 1


def test_options() -> None:
    options = live_options({**HERE, "startingOffsets": "latest", "maxMessagesPerTrigger": "9"}, 0)
    assert (options.nsqds, options.start, options.most_messages) == (("127.0.0.1:4151", "b:4151"), LATEST, 9)
    assert options.fails_on_loss
    assert (
        live_options({**HERE, "startingOffsets": "2026-01-01T00:00:00Z"}, 0).start
        == 1_767_225_600_000_000_000
    )
    by_topic = live_options(
        {**HERE, "topic": "a,b", "startingOffsets": '{"a": {"b:4151": 7}, "b": {"b:4151": -1}}'}, 0
    )
    assert by_topic.start == {LogKey("a", "b:4151"): 7, LogKey("b", "b:4151"): -1}
    of_kafka = live_options(
        {**HERE, "startingTimestamp": "1767225600000", "endingTimestamp": "1767225601000"}, 0
    )
    assert (of_kafka.start, of_kafka.end) == (1_767_225_600_000_000_000, 1_767_225_601_000_000_000)
    assert live_options({**HERE, "includeHeaders": "False"}, 0) == live_options(HERE, 0)
    assert is_live({"LOOKUPD": "a:4161"}) and not is_live({"path": "/archive"})


def test_a_stream_has_no_end() -> None:
    for name in "endingOffsets", "endingTimestamp":
        with pytest.raises(BadOption, match="a stream has no end"):
            stream_of({**HERE, name: "1767225600000"}, 0)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"topic": ""}, "topic"),
        ({"topic": "no good"}, "topic"),
        ({"topicPattern": "("}, "topicPattern"),
        ({"nsqd": "user:password@127.0.0.1:4151"}, "over TLS only"),
        ({"nsqd": "https://a:b@c:1,https://d:e@c:2"}, "several logins"),
        ({"nsqd": "127.0.0.1"}, "nsqd"),
        ({"nsqd": ""}, "nsqd"),
        ({"startingOffsets": "soon"}, "startingOffsets"),
        (
            {"startingOffsets": '{"b:4151": 1.9}'},
            r"startingOffsets .*: expected sequence numbers, -2 .*, got 1\.9$",
        ),
        ({"startingOffsets": '{"b:4151": true}'}, "startingOffsets .*, got true$"),
        ({"endingOffsets": '{"b:4151": "12"}'}, 'endingOffsets .*, got "12"$'),
        ({"endingOffsets": '{"b:4151": null}'}, "endingOffsets .*, got null$"),
        ({"includeHeaders": "true"}, "includeHeaders: NSQ's messages have no headers"),
        (
            {"startingTimestamp": "1795256009520", "startingOffsets": "latest"},
            "and startingTimestamp are the same",
        ),
        ({"maxMessagesPerTrigger": "0"}, "maxMessagesPerTrigger"),
        ({"failOnDataLos": "no"}, "failOnDataLoss"),
        ({"startingOffsets": ""}, "startingOffsets is empty: leave it out for the default, earliest"),
        ({"endingOffsets": " "}, "endingOffsets is empty: leave it out for the default, latest"),
        ({"giveUpAfter": ""}, "giveUpAfter is empty: leave it out for the default, 60s"),
    ],
)
def test_options_that_are_none(changed: dict[str, str], named: str) -> None:
    with pytest.raises(BadOption, match=named):
        live_options({**HERE, **changed}, 0)
