"""Answers of nsqds become the topics and channels of the cluster."""

from __future__ import annotations

from typing import Any

from nsqd_py.cluster.model import Cluster
from tests.support.fake_nsqd import CHANNEL_COUNTS


def topic(name: str, count: int = 0, channels: dict[str, int] | None = None) -> dict[str, Any]:
    rows = [
        {"channel_name": key, **dict.fromkeys(CHANNEL_COUNTS, value), "paused": False}
        for key, value in (channels or {}).items()
    ]
    counts = {"depth": count, "backend_depth": 0, "message_count": count, "paused": False}
    return {"topic_name": name, "channels": rows, **counts}


def test_a_topic_with_thousands_of_channels_lets_others_run() -> None:
    cluster = Cluster()
    node = cluster.add_node("n", {})
    for now_s, (count, value) in enumerate([(5000, 1), (5000, 3), (2000, 3)], start=1):
        topics = [
            topic("few", 1, {"x": 2}),
            topic("many", 7, {f"c{number}": value for number in range(count)}),
        ]
        assert len(list(cluster.observing(node, {"topics": topics}, now_s))) > count // 1000
        list(cluster.ending_round(now_s, 1.0))
        cluster.tick += 1
        assert sum(row.counts[0] for row in cluster.topics["many"].channels.values()) == count * value
        assert cluster.topics["few"].channels["x"].counts[0] == 2
