"""Topics: publishes become batches in a log and are released to channels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.fakes import close_descriptors
from tests.unit.topic_bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    yield Bench(tmp_path)
    close_descriptors(tmp_path)


# --- one turn


def test_those_who_wait_for_the_disk_are_handed_on(bench: Bench) -> None:
    topic = bench.topic()
    first, second = bench.publish(topic, b"one"), bench.publish(topic, b"two")
    bench.world.run()
    assert bench.syncer.calls == [(2, [(first, 7), (second, 7)])]


# --- lone messages


@pytest.mark.parametrize("every", [2, 3, 5])
def test_lone_messages_are_synced_as_often_as_others(bench: Bench, every: int) -> None:
    """The syncer hears of the first, which sets its time, and of the one that makes it `every`."""
    bench.syncer.every = every
    topic = bench.topic()
    for _ in range(every):
        bench.publish(topic, b"x")
        bench.world.run()
    assert [unsynced for unsynced, _ in bench.syncer.calls] == [1, every]


# --- releasing


def test_a_topic_that_was_not_started_holds_what_comes(bench: Bench) -> None:
    topic = bench.topic()
    topic.is_started = False
    channel = bench.channel(topic)
    bench.publish(topic, b"one")
    bench.world.run()
    assert (topic.depth, channel.depth) == (1, 0)
    topic.start()
    assert (topic.depth, channel.depth) == (0, 1)


def test_emptying_a_paused_topic_lets_go_of_its_files(bench: Bench) -> None:
    topic = bench.topic()
    bench.channel(topic)
    topic.pause()
    bench.publish(topic, b"dropped", b"dropped too")
    topic.empty()
    assert not topic.is_needed(0, 2)


# --- memory
