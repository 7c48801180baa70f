"""A topic whose deletion a kill interrupts is there as before, or it is gone: nothing in it counts as lost."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from nsqd_py.fsck.reading import load_directory
from tests.unit.fakes import World, close_descriptors, start_broker

CALLS = ("rename", "replace", "unlink")
FILE_BYTES = 400
COUNT = 40
FINISHED = 5


class Killed(BaseException):
    """Stands for the end of the process."""


def kill_at(call: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Let the process end before the call of this number that changes the directory. The result counts the calls."""
    calls = count()

    def instead(real: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if next(calls) >= call:
            raise Killed
        return real(*arguments, **named)

    for name in CALLS:  # `pathlib` looks them up at the call
        monkeypatch.setattr(os, name, partial(instead, getattr(os, name)))
    return calls


@pytest.mark.parametrize("is_paused", [False, True], ids=["", "paused"])
@pytest.mark.parametrize(
    "call", [call if call < 8 else pytest.param(call, marks=pytest.mark.slow) for call in range(40)]
)
def test_a_kill_in_the_middle(
    call: int, is_paused: bool, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    broker = start_broker(world, directory, max_bytes_per_file=FILE_BYTES, mem_queue_size=0)
    topic = broker.get_topic("t")
    for name in ("a", "b"):
        broker.get_channel(topic, name)
    for number in range(COUNT):
        assert not world.publish(topic, b"%020d" % number).failures
    consumer = world.consumer(topic.channels["a"], rdy=COUNT)
    consumer.finish(*consumer.take()[:FINISHED])
    broker.pause_topic(topic, is_paused)
    world.pass_time(1_000_000_000)
    broker.journals.settle()
    assert len(list(directory.glob("t.*.log"))) > 3
    with monkeypatch.context() as patched:
        calls = kill_at(call, patched)
        with contextlib.suppress(Killed):
            broker.delete_topic("t")
        assert next(calls) > min(call, 5), "too few calls"
    close_descriptors(directory)

    report, _ = load_directory(directory, 0)
    assert [finding for finding in report.findings if finding.is_damage] == []
    world = World()
    again = start_broker(world, directory, is_same_boot=True, max_bytes_per_file=FILE_BYTES, mem_queue_size=0)
    assert [line for line in world.log.warnings if "gone" in line] == []
    found = again.topics.get("t")
    if found is not None and found.next_seq:
        assert not (directory / "t.cursor").exists() or is_paused
        assert {name: channel.depth for name, channel in found.channels.items()} == {
            "a": COUNT - FINISHED,
            "b": COUNT,
        }
        assert all(channel.lost_count == 0 for channel in found.channels.values())
    else:
        assert list(directory.glob("t.*")) == []
