"""Messages that are older than their topic's TTL are dropped, delivered or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from nsqd_py.broker.lifetime.shutdown import close as close_broker
from nsqd_py.settings.kinds import ByTopic
from tests.property.real import broken_reads
from tests.unit.fakes import SECOND, World
from tests.unit.queue.test_dead_letters import Bench

TTL_NS = 60 * SECOND


class ExpiryBench(Bench):
    """A broker whose messages live for a minute."""

    def __init__(self, directory: Path, **options: Any) -> None:
        super().__init__(
            directory, **{"message_ttl_ns": ByTopic(TTL_NS), "max_attempts": ByTopic(0)} | options
        )

    def counts(self) -> tuple[int, int, int, int]:
        """depth, in flight, deferred, expired"""
        return *self.statistics(), self.channel.distributor.expired_count

    def restart(self) -> None:
        close_broker(self.broker)
        now_ns = self.world.clock()
        self.world = World()
        self.world.clock.now_ns = now_ns
        self.start()


@pytest.fixture
def bench(tmp_path: Path) -> ExpiryBench:
    return ExpiryBench(tmp_path)


def test_a_run_of_several_ages_goes_when_the_last_is_too_old(bench: ExpiryBench) -> None:
    """After a restart neighbours that were requeued are one run."""
    bench.publish(b"now")
    bench.publish(b"later", delay_ns=30 * SECOND)
    bench.world.pass_time(31 * SECOND)
    bench.requeue_all(bench.consumer())
    bench.restart()
    assert len(bench.channel.position.requeued) == 1
    bench.world.pass_time(35 * SECOND)
    assert bench.counts() == (2, 0, 0, 0)
    bench.world.pass_time(26 * SECOND)
    assert bench.counts() == (0, 0, 0, 2)


def test_setting_the_clock_makes_no_message_old(bench: ExpiryBench) -> None:
    wall_ns = bench.world.clock
    for offset_ns in (0, 3600 * SECOND, -3600 * SECOND):
        bench.broker.services.wall_clock = lambda offset_ns=offset_ns: wall_ns() + offset_ns
        bench.world.pass_time(10 * SECOND)
        bench.publish(b"x")
    bench.world.pass_time(2 * SECOND)
    assert bench.counts() == (3, 0, 0, 0)


def test_a_dead_letter_lives_anew(tmp_path: Path) -> None:
    bench = ExpiryBench(tmp_path, max_attempts=ByTopic(1))
    bench.publish(b"poison")
    consumer = bench.consumer()
    bench.world.pass_time(50 * SECOND)
    consumer.requeue(*consumer.take())
    bench.world.run()
    bench.use_topic("orders.dead")
    bench.world.pass_time(50 * SECOND)
    assert bench.counts() == (1, 0, 0, 0)
    bench.world.pass_time(12 * SECOND)
    assert bench.counts() == (0, 0, 0, 1)


def test_a_disk_that_fails_is_asked_again(tmp_path: Path) -> None:
    bench = ExpiryBench(tmp_path, mem_queue_size=0)
    bench.publish(b"old")
    bench.world.pass_time(30 * SECOND)
    bench.publish(b"young")
    with broken_reads():
        bench.world.pass_time(32 * SECOND)
    assert bench.counts() == (2, 0, 0, 0)
    bench.world.pass_time(SECOND)
    assert bench.counts() == (1, 0, 0, 1)


def test_a_bug_with_one_topic_does_not_end_the_sweeps(bench: ExpiryBench) -> None:
    bench.publish(b"old")
    other = bench.broker.get_topic("other")
    bench.world.publish(other, b"old")
    bench.topic.unreleased_deferred.append(cast(Any, None))
    for _ in range(int(TTL_NS / SECOND) + 2):
        with pytest.raises(TypeError):
            bench.world.pass_time(SECOND)
        bench.world.pass_time(0)
    assert other.expired_count == 1
    bench.topic.unreleased_deferred.pop()
    bench.world.pass_time(SECOND)
    assert bench.counts() == (0, 0, 0, 1)
