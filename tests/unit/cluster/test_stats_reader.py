"""Answers of which only the new topics are read: they mean the same as if all of it were read."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqadmin_py.history.series import records
from nsqd_py.cluster.model import BadStats, Cluster
from nsqd_py.cluster.stats_reader import MOST_ROW_BYTES, MOST_WHOLE_BYTES, Rows

CHANNEL_COUNTS = (
    "depth",
    "backend_depth",
    "in_flight_count",
    "deferred_count",
    "message_count",
    "requeue_count",
    "timeout_count",
    "client_count",
)


def topic(name: str, count: int = 0, channels: dict[str, int] | None = None, **more: Any) -> dict[str, Any]:
    rows = [
        {"channel_name": key, **dict.fromkeys(CHANNEL_COUNTS, value), "paused": False} for key, value in (channels or {}).items()
    ]
    figures = {"depth": count, "backend_depth": 0, "message_count": count, "paused": False}
    return {"topic_name": name, "channels": rows, **figures, **more}


def answer(*topics: dict[str, Any], start_time: int = 1, **more: Any) -> bytes:
    head = {"version": "1.3.0", "health": "OK", "start_time": start_time}
    return orjson.dumps({**head, "topics": list(topics), **more})


def names(document: Any) -> list[str]:
    return [row["topic_name"] for row in document["topics"]]


def read(rows: Rows, body: bytes) -> tuple[Any, list[str]]:
    """The answer with its new topics, and the names of the others."""
    news = rows.read(body)
    same: list[str] = []
    for topics, unchanged in news.slices:
        if topics:
            news.document["topics"] += topics
        same += unchanged
    return news.document, same


def test_only_what_changed_is_read() -> None:
    rows = Rows()
    first, same = read(rows, answer(topic("a"), topic("b"), topic("c"), memory={"heap": 1}))
    assert (names(first), same) == (["a", "b", "c"], [])
    again, same = read(rows, answer(topic("a"), topic("b", 1), topic("c"), memory={"heap": 2}))
    assert (names(again), same) == (["b"], ["a", "c"])
    assert again["memory"] == {"heap": 2}
    fewer = read(rows, answer(topic("c"), topic("b", 1), start_time=2))
    assert fewer == (orjson.loads(answer(start_time=2)), ["c", "b"])
    rows.forget()
    assert names(read(rows, answer(topic("b", 1)))[0]) == ["b"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"topics":[]}',
        b'{"topics":null}',
        b"[]",
        b'{"topics":[{"topic_name":5}]}',
        b'{"topics":[{"topic_name":"a"},5]}',
        b'{"topics": [ {"topic_name": "a"} , {"topic_name": "b"} ]}',
        b'{"more":[{"topic_name":"a"}],"topics":[]}',
        b'{"more":{"topics":[{"topic_name":"a"}]},"topics":[]}',
        b'{"topics":[{"topic_name":"a","more":[{"topic_name":"b"},{"topic_name":"c"}]}]}',
        b'[{"topic_name":"a"}]',
        b'{"topic_name":"a"}',
        b'{"topics":[{"topic_name":"a"}],"topics":[{"topic_name":"b"}]}',
    ],
)
def test_other_forms_are_read_as_a_whole(body: bytes) -> None:
    rows = Rows()
    for _ in range(2):
        assert read(rows, body) == (orjson.loads(body), [])


@pytest.mark.parametrize("body", [b"", b"{", b'{"topics":[{"topic_name":"a"}', b'{"topics":[{"topic_name":"a"}]}]'])
def test_what_is_no_json(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"line 1|unexpected|empty"):
        Rows().read(body)


COUNTS = st.integers(0, 2)
NAMES = st.sampled_from(["a", "b", '{"topic_name":', "\n\u2028\\"])
TOPICS = st.dictionaries(NAMES, st.tuples(COUNTS, st.dictionaries(NAMES, COUNTS, max_size=2)), max_size=4)
ANSWERS = st.lists(st.tuples(st.sampled_from("mn"), TOPICS, st.integers(1, 2), st.booleans()), max_size=10)


@given(ANSWERS)
def test_the_cluster_is_the_same(answers: list[tuple[str, dict[str, Any], int, bool]]) -> None:
    whole, piecewise, now_s = Cluster(), Cluster(), 10.0
    for address, topics, start_time, is_failed in answers:
        now_s += 2.0
        body = answer(*(topic(name, *figures) for name, figures in topics.items()), start_time=start_time)
        whole.observe(whole.add_node(address, {}), orjson.loads(body), now_s)
        node = piecewise.add_node(address, {})
        for _ in piecewise.observing(node, node.rows.read(body), now_s):
            pass
        for cluster in (whole, piecewise):
            if is_failed:
                cluster.fail(cluster.nodes[address], "no answer")
            cluster.end_round(now_s, 2.0)
            cluster.tick += 1
        assert list(records(whole)) == list(records(piecewise))
        assert whole.topics.keys() == piecewise.topics.keys()
        for name in whole.topics:
            assert whole.topics[name].changed_at() == piecewise.topics[name].changed_at()


def test_a_long_answer_is_read_in_slices() -> None:
    rows = Rows()
    body = answer(*(topic(f"t{number}", number, {"c": number}) for number in range(10_000)))
    assert len(body) > MOST_WHOLE_BYTES
    news = rows.read(body)
    slices = list(news.slices)
    assert [row["topic_name"] for each in slices for row in each.topics] == [f"t{number}" for number in range(10_000)]
    assert max(len(each.topics) for each in slices) <= 100
    assert sum(len(each.same) for each in rows.read(body).slices) == 10_000


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (answer(topic("t", 0, {f"c{number}": 0 for number in range(20_000)})), "a topic takes more"),
        (answer(topic("t", 0, {f"c{number}": 0 for number in range(20_000)}), topic("u")), "a topic takes more"),
        (answer(topic("t")) + b" " * MOST_ROW_BYTES, "a topic takes more"),
        (b'{"topics":[' + b'{"topic_name":' * 100_000, "not in the form"),
        (b'{"topics": [' + b'{"topic_name": "t"},' * 100_000, "not in the form"),
    ],
)
def test_what_would_take_too_much(body: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        list(Rows().read(body).slices)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_topic_with_thousands_of_channels_is_read_in_slices(place: int) -> None:
    """The first of an answer, one in the middle, or the last; and the figures are the same as if it were read whole."""

    def with_channels(count: int, value: int) -> tuple[dict[str, Any], bytes]:
        topics = [topic(f"t{number}", 1, {"x": 2}) for number in range(2)]
        topics.insert(place, topic("löng", 7, {f"c{number}": value for number in range(count)}))
        body = answer(*topics, memory={"heap": 1})
        assert len(body) > MOST_WHOLE_BYTES
        return orjson.loads(body), body

    whole, sliced = Cluster(), Cluster()
    whole.add_node("n", {})
    node = sliced.add_node("n", {})
    for now_s, (count, value) in enumerate([(5000, 1), (5000, 3), (2000, 3), (5000, 0)], start=1):
        document, body = with_channels(count, value)
        whole.observe(whole.nodes["n"], document, now_s)
        assert len(list(sliced.observing(node, node.rows.read(body), now_s))) > count // 1000
        for cluster in (whole, sliced):
            cluster.end_round(now_s, 1.0)
            cluster.tick += 1
        assert list(records(whole)) == list(records(sliced))


@pytest.mark.parametrize(
    "channels",
    [
        b'{"channel_name":1}' + b',{"channel_name":"c"}' * 20_000,
        b'{"channel_name":"c"}' * 20_000,
        b'{"channel_name":"c"},' * 20_000,
        b'{"channel_name":' * 20_000,
        b'{"x":{"channel_name":"c"}},' * 20_000 + b"{}",
        b'{"channel_name":"' + b"x" * 400_000 + b'"}',
    ],
)
def test_channels_that_are_none(channels: bytes) -> None:
    body = answer(topic("a"), topic("t")).replace(b'"t","channels":[', b'"t","channels":[' + channels)
    assert len(body) > MOST_WHOLE_BYTES
    cluster = Cluster()
    node = cluster.add_node("n", {})
    with pytest.raises((ValueError, BadStats)):
        for _ in cluster.observing(node, node.rows.read(body), 1.0):
            pass
