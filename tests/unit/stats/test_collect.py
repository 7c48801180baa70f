"""The statistics of /stats: filters, order, and the two formats."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from nsqd_py.diskqueue.memory_budget import MemoryBudget
from nsqd_py.stats.collect import Stats, collect, render_json

NONE = dict.fromkeys(
    [
        "dead_letter_count",
        "dropped_count",
        "lost_count",
        "finish_count",
        "oldest_ns",
        "most_attempts",
        "stalled_ns",
        "ready_count",
    ],
    0,
)


def make_channel(name: str, **statistics: Any) -> Any:
    settings = {
        "counts_by_nearness": [0, 0, 0],
        "latency": None,
        "distributor": SimpleNamespace(expired_count=0, unreadable_count=0),
        "depth": 4,
        "backend_depth": lambda first_in_memory: first_in_memory,
        "in_flight_count": 1,
        "deferred_count": 2,
        "message_count": 9,
        "requeue_count": 3,
        "timeout_count": 6,
        "is_paused": False,
        "clients": {},
        "dead_letter_error": "",
    }
    return SimpleNamespace(**{"name": name} | settings | NONE | statistics)


def make_topic(name: str, *channels: Any, **statistics: Any) -> Any:
    settings = {
        "expired_count": 0,
        "dropped_count": 0,
        "dead_letters": [],
        "oldest_ns": 0,
        "depth": 1,
        "backend_depth": 2,
        "message_count": 10,
        "message_bytes": 100,
        "is_paused": False,
        "first_in_memory": 8,
        "log": None,
    }
    return SimpleNamespace(
        **{"name": name} | settings | statistics, channels={channel.name: channel for channel in channels}
    )


def make_broker(*topics: Any, left_percent: int = 100) -> Any:
    return SimpleNamespace(
        topics={topic.name: topic for topic in topics},
        clients={},
        start_time=1_700_000_000.5,
        health=lambda: None,
        memory=MemoryBudget(1 << 20),
        space=SimpleNamespace(left_percent=lambda: left_percent),
        tls=None,
        auth_failures=None,
        disk_speed=SimpleNamespace(slow_since_ns=0),
    )


def rows(*topics: Any) -> list[dict[str, Any]]:
    return collect(make_broker(*topics), "", "", include_clients=False).topics


def test_what_go_does_not_count_shows_where_there_is_any() -> None:
    died = {"id": "f" * 16, "attempts": 3, "topic": "t", "channel": "c", "timestamp": 1, "died": 2}
    distributor = SimpleNamespace(expired_count=2, unreadable_count=3)
    channel = make_channel("c", dead_letter_count=1, dropped_count=5, distributor=distributor)
    topic = make_topic("t", channel, make_channel("plain"), expired_count=4, dropped_count=6)
    topics = rows(topic, make_topic("t.dead", dead_letters=[died]))
    first, plain = topics[0]["channels"]
    own = {"dead_letter_count", "dropped_count", "expired_count", "unreadable_count"}
    assert {key: first[key] for key in own} == {
        "dead_letter_count": 1,
        "dropped_count": 5,
        "expired_count": 2,
        "unreadable_count": 3,
    }
    assert not own & plain.keys()
    assert (topics[0]["expired_count"], topics[0]["dropped_count"]) == (4, 6)
    assert topics[1]["dead_letters"] == [died]
    assert "expired_count" not in topics[1]
    assert "dead_letters" not in topics[0]


def test_a_scarce_disk_shows_before_the_topics() -> None:
    document = render_json(make_broker(left_percent=19), Stats([], None), include_memory=False)
    assert (list(document)[4:6], document["disk_left_percent"]) == (["disk_left_percent", "topics"], 19)
    assert "disk_left_percent" not in render_json(
        make_broker(left_percent=20), Stats([], None), include_memory=False
    )


def test_the_bytes_of_a_log_show_and_without_one_there_are_none() -> None:
    kept, ephemeral = make_topic("kept"), make_topic("passing#ephemeral")
    kept.log = SimpleNamespace(damage=None, size_bytes=4096)
    assert [row["log_bytes"] for row in rows(kept, ephemeral)] == [4096, 0]


def test_a_damaged_log_shows() -> None:
    topic = make_topic("t")
    none = {
        "bytes_found": 0,
        "bytes_repaired": 0,
        "missing_count": 0,
        "removed_files": 0,
        "restored_files": 0,
    }
    topic.log = SimpleNamespace(damage=SimpleNamespace(**none), size_bytes=4096)
    assert "damaged_bytes" not in rows(topic)[0]
    topic.log.damage.bytes_found = 77
    (row,) = rows(topic)
    assert row["damaged_bytes"] == 77
    assert not {"missing_count", "removed_files"} & row.keys()
    topic.log.damage = SimpleNamespace(**none | {"missing_count": 5, "removed_files": 1})
    (row,) = rows(topic)
    assert (row["missing_count"], row["removed_files"]) == (5, 1)
