"""The statistics of /stats: filters, order, and the two formats."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from nsqd_py.memory_budget import MemoryBudget
from nsqd_py.stats.collect import Stats, collect, render_json

START_S = 1_700_000_000.5


def make_channel(name: str, *clients: Any, is_paused: bool = False, **statistics: Any) -> Any:
    settings = {
        "counts_by_nearness": [0, 0, 0],
        "latency": None,
        "dead_letter_count": 0,
        "lost_count": 0,
        "finish_count": 0,
        "oldest_ns": 0,
        "most_attempts": 0,
        "stalled_ns": 0,
        "ready_count": 0,
        "distributor": SimpleNamespace(expired_count=0, unreadable_count=0),
        **statistics,
    }
    return SimpleNamespace(
        **settings,
        name=name,
        depth=4,
        backend_depth=lambda first_in_memory: first_in_memory,
        in_flight_count=1,
        deferred_count=2,
        message_count=9,
        requeue_count=3,
        timeout_count=6,
        is_paused=is_paused,
        clients=dict.fromkeys(clients_as_keys(clients)),
    )


def clients_as_keys(clients: tuple[Any, ...]) -> list[Any]:
    """SimpleNamespace has no hash; the stats only go through them."""
    return [Hashed(client) for client in clients]


class Hashed:
    def __init__(self, target: Any) -> None:
        self.__dict__.update(vars(target))


def make_topic(name: str, *channels: Any, is_paused: bool = False, **statistics: Any) -> Any:
    return SimpleNamespace(
        **{"expired_count": 0, "dead_letters": [], "oldest_ns": 0, **statistics},
        name=name,
        depth=1,
        backend_depth=2,
        message_count=10,
        message_bytes=100,
        is_paused=is_paused,
        first_in_memory=8,
        log=None,
        channels={channel.name: channel for channel in channels},
    )


def make_broker(*topics: Any, clients: tuple[Any, ...] = (), problem: str | None = None, left_percent: int = 100) -> Any:
    return SimpleNamespace(
        topics={topic.name: topic for topic in topics},
        clients=dict.fromkeys(clients_as_keys(clients)),
        start_time=START_S,
        health=lambda: problem,
        memory=MemoryBudget(1 << 20),
        space=SimpleNamespace(left_percent=lambda: left_percent),
        tls=None,
        auth_failures=None,
        disk_speed=SimpleNamespace(slow_since_ns=0),
    )


def test_what_go_does_not_count_shows_where_there_is_any() -> None:
    died = {"id": "f" * 16, "attempts": 3, "topic": "t", "channel": "c", "timestamp": 1, "died": 2}
    distributor = SimpleNamespace(expired_count=2, unreadable_count=3)
    channel = make_channel("c", dead_letter_count=1, distributor=distributor)
    topics = collect(
        make_broker(make_topic("t", channel, make_channel("plain"), expired_count=4), make_topic("t.dead", dead_letters=[died])),
        "",
        "",
        include_clients=False,
    ).topics
    assert topics is not None
    (first, plain), own = topics[0]["channels"], {"dead_letter_count", "expired_count", "unreadable_count"}
    assert {key: first[key] for key in own} == {"dead_letter_count": 1, "expired_count": 2, "unreadable_count": 3}
    assert not own & plain.keys()
    assert topics[0]["expired_count"] == 4
    assert topics[1]["dead_letters"] == [died]
    assert "expired_count" not in topics[1]
    assert "dead_letters" not in topics[0]


def test_a_scarce_disk_shows_before_the_topics() -> None:
    document = render_json(make_broker(left_percent=19), Stats([], None), include_memory=False)
    assert (list(document)[4:6], document["disk_left_percent"]) == (["disk_left_percent", "topics"], 19)
    assert "disk_left_percent" not in render_json(make_broker(left_percent=20), Stats([], None), include_memory=False)


def test_the_bytes_of_a_log_show_and_without_one_there_are_none() -> None:
    kept, ephemeral = make_topic("kept"), make_topic("passing#ephemeral")
    kept.log = SimpleNamespace(damage=None, size_bytes=4096)
    topics = collect(make_broker(kept, ephemeral), "", "", include_clients=False).topics
    assert topics is not None
    assert [row["log_bytes"] for row in topics] == [4096, 0]


def test_a_damaged_log_shows() -> None:
    topic = make_topic("t")
    none = {"bytes_found": 0, "bytes_repaired": 0, "missing_count": 0, "removed_files": 0, "restored_files": 0}
    topic.log = SimpleNamespace(damage=SimpleNamespace(**none), size_bytes=4096)
    broker = make_broker(topic)

    def statistics() -> Any:
        topics, _ = collect(broker, "", "", include_clients=False)
        assert topics is not None
        return topics[0]

    assert "damaged_bytes" not in statistics()
    topic.log.damage.bytes_found = 77
    assert statistics()["damaged_bytes"] == 77
    assert not {"missing_count", "removed_files"} & set(statistics())
    topic.log.damage = SimpleNamespace(**none | {"missing_count": 5, "removed_files": 1})
    assert (statistics()["missing_count"], statistics()["removed_files"]) == (5, 1)
