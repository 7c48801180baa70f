"""A topic whose deletion a kill interrupts is there as before, or it is gone: nothing in it counts as lost."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nsqd_py.broker.broker import Broker
from nsqd_py.fsck.reading import load_directory
from tests.unit.fakes import FakeConsumer, World, close_descriptors, sized, start_broker

CALLS = ("rename", "replace", "unlink")
FILE_BYTES = 400
COUNT = 40
FINISHED = 5


class Killed(BaseException):
    """Stands for the end of the process."""


def publish(world: World, broker: Broker) -> None:
    topic = broker.get_topic("t")
    for number in range(COUNT):
        topic.buffer.publish(sized(b"%020d" % number), 1, 24, Publisher(), 0, 0)
        world.run()


class Publisher:
    def publish_failed(self, ticket: int, error: OSError) -> None:
        raise AssertionError(error)

    def hold(self) -> None: ...

    def release(self) -> None: ...


def kill_at(call: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Let the process end before the call of this number that changes the directory. Return whether it came to that."""
    count, was_killed = 0, False

    def wrapped(real: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*arguments: Any, **named: Any) -> Any:
            nonlocal count, was_killed
            count += 1
            if count > call:
                was_killed = True
                raise Killed
            return real(*arguments, **named)

        return instead

    for name in CALLS:  # `pathlib` looks them up at the call
        monkeypatch.setattr(os, name, wrapped(getattr(os, name)))
    return lambda: was_killed


@pytest.mark.parametrize("is_paused", [False, True], ids=["", "paused"])
@pytest.mark.parametrize("call", range(40))
def test_a_kill_in_the_middle(call: int, is_paused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    broker = start_broker(world, tmp_path, max_bytes_per_file=FILE_BYTES, mem_queue_size=0)
    topic = broker.get_topic("t")
    for name in ("a", "b"):
        broker.get_channel(topic, name)
    publish(world, broker)
    consumer = FakeConsumer(world, rdy=COUNT).subscribe(topic.channels["a"])
    world.run()
    for message in consumer.take()[:FINISHED]:
        consumer.finish(message)
    broker.pause_topic(topic, is_paused)
    world.pass_time(1_000_000_000)
    broker.journals.settle()
    assert len(list(tmp_path.glob("t.*.log"))) > 3
    with monkeypatch.context() as patched:
        was_killed = kill_at(call, patched)
        with contextlib.suppress(Killed):
            broker.delete_topic("t")
        if not was_killed():
            assert call > 5
    close_descriptors(tmp_path)

    report, _ = load_directory(tmp_path, 0)
    assert [finding for finding in report.findings if finding.is_damage] == []
    world = World()
    again = start_broker(world, tmp_path, is_same_boot=True, max_bytes_per_file=FILE_BYTES, mem_queue_size=0)
    assert [line for line in world.log.warnings if "gone" in line] == []
    found = again.topics.get("t")
    if found is not None and found.next_seq:
        assert not (tmp_path / "t.cursor").exists() or is_paused
        assert {name: channel.depth for name, channel in found.channels.items()} == {"a": COUNT - FINISHED, "b": COUNT}
        assert all(channel.lost_count == 0 for channel in found.channels.values())
    else:
        assert list(tmp_path.glob("t.*")) == []
    close_descriptors(tmp_path)
