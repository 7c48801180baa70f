"""What Go's nsqadmin makes of answers: sums, orders, zero values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqadmin_py import go_json
from nsqd_py.cluster import producers
from nsqd_py.cluster.values import Statistics

HERE = {"hostname": "here", "topology_zone": "z", "topology_region": "r"}
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        "topic_name",
        "channels",
        "clients",
        "depth",
        "paused",
        "e2e_processing_latency",
        "percentiles",
        "count",
        "quantile",
        "channel_name",
        "topics",
        "tombstones",
        "hostname",
        "http_port",
    ]
)
HOSTILE = st.dictionaries(KEYS, ANY_JSON | st.lists(st.dictionaries(KEYS, ANY_JSON, max_size=4), max_size=2))


def topic(node: str, hostname: str, **statistics: Any) -> Statistics:
    return go_json.topic_stats({"topic_name": "t", **statistics}, node, {"hostname": hostname}, 100.0)


@given(HOSTILE | ANY_JSON)
def test_nothing_that_others_answer_breaks_it(answer: Any) -> None:
    go_json.sum_of_topics("t", [go_json.topic_stats(answer, "a", HERE, 0.0), topic("b", "b")])
    producers.merged_producers({"l": [producers.producer(answer), producers.producer({"version": "1.0.0"})]})
    producers.producer_of_info(answer, [], "h:1")


def test_clients_are_near_first() -> None:
    def client(node: str, region: str, zone: str) -> dict[str, Any]:
        return {
            "node": node,
            "node_topology_region": "r",
            "node_topology_zone": "z",
            "topology_region": region,
            "topology_zone": zone,
        }

    far, near, adjacent = client("a", "q", "z"), client("a", "r", "y"), client("a", "r", "z")
    elsewhere = client("b", "r", "z")
    assert sorted([elsewhere, far, near, adjacent], key=go_json.by_node_and_nearness) == [
        adjacent,
        near,
        far,
        elsewhere,
    ]


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("1.2.1", "1.3.0"),
        ("1.3.0-alpha", "1.3.0"),
        ("1.3.0-alpha.2", "1.3.0-alpha.10"),
        ("unknown", "0.1.0"),
        ("1.9.0", "1.10.0"),
    ],
)
def test_versions(older: str, newer: str) -> None:
    assert producers.version_key(older) < producers.version_key(newer)
    nodes = [
        producers.producer({"version": version, "tcp_port": port})
        for port, version in enumerate((older, newer))
    ]
    merged = producers.merged_producers({"l": nodes})
    assert {node["version"]: node["out_of_date"] for node in merged} == {older: True, newer: False}


def test_counts_of_nearness_are_left_out_where_they_are_0() -> None:
    row = topic("a", "a", zone_local_msg_count=2, channels=[{"channel_name": "c", "global_msg_count": 1}])
    shown = go_json.without_empty_counts(row, is_channel=False)
    assert (shown["zone_local_msg_count"], shown["delivery_msg_count"]) == (2, 2)
    assert "global_msg_count" not in shown
    assert (shown["channels"][0]["global_msg_count"], shown["channels"][0]["delivery_msg_count"]) == (1, 1)
    assert "zone_local_msg_count" not in shown["channels"][0]
