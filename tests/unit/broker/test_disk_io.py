"""Reading and writing in threads: after a bug, what waits goes on, and the error is reported."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gevent
import pytest

from nsqd_py.broker.disk_io import JournalWriter, SaveResult, SlowReader, StillReading
from nsqd_py.runtime.disk_speed import DiskSpeed
from tests.unit.fakes import SECOND, FakeThreadPool, World


def fail(*_: object) -> Any:
    raise KeyError("a bug")


def fail_not(*_: object) -> None: ...


class Large:
    """A channel whose journal needs a large snapshot, and that snapshot. One of its methods fails."""

    is_closed = wants_snapshot = False
    wants_large_snapshot = True

    def __init__(self, failing: str) -> None:
        self.calls: list[str] = []
        self._failing = failing

    def __getattr__(self, name: str) -> Any:
        def call() -> Large:
            self.calls.append(name)
            return fail() if name == self._failing else self

        return call


@pytest.mark.parametrize("failing", ["begin_large_snapshot", "write", "finish"])
def test_a_bug_in_the_replacement_of_a_journal_is_reported_and_the_next_one_begins(failing: str) -> None:
    world, channel = World(), Large(failing)
    disk_speed = DiskSpeed(world.alarms, world.clock, world.clock)
    services: Any = SimpleNamespace(disk_speed=disk_speed, alarms=world.alarms, clock=world.clock, threadpool=FakeThreadPool())
    saved: list[SaveResult] = []
    writer: Any = JournalWriter(services, saved.extend)
    for round_number in (1, 2):
        writer.channel_changed(None, channel)
        world.pass_time(SECOND)
        gevent.sleep(0)
        assert channel.calls.count(failing) == round_number
        assert channel.calls.count("abandon") == (round_number if failing != "begin_large_snapshot" else 0)
        assert "KeyError" in str(saved[-1][2])
    assert not writer.is_writing


def test_a_bug_in_a_read_is_the_error_of_that_read() -> None:
    world = World()
    disk_speed = DiskSpeed(world.alarms, world.clock, world.clock)
    disk_speed.stall(world)
    woken: list[bool] = []
    read = SlowReader(FakeThreadPool(), disk_speed, lambda: woken.append(True)).read
    file: Any = type("File", (), {"pin": fail_not, "unpin": fail_not, "read": fail})()
    with pytest.raises(StillReading):
        read(file, 0, 10)
    gevent.sleep(0)
    assert woken
    with pytest.raises(OSError, match="internal error: KeyError"):
        read(file, 0, 10)
