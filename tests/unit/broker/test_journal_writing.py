"""Journals on a slow disk are written in a thread."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest

from nsqd_py.diskqueue.journal import Journal
from tests.support.broker_life import TOPIC, Life
from tests.unit.broker.test_disk_io import GatedPool
from tests.unit.fakes import SECOND, FakeConsumer, close_descriptors, refuse


class SlowLife(Life):
    """The disk is slow, and a channel has six messages in flight."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, lambda *_: None)
        self.create()
        for number in range(6):
            self.publish(b"%d" % number)
        self.fast: FakeConsumer = self.consumer("fast", rdy=6)
        self.settle()
        self.received = self.fast.take()
        self.pass_time(SECOND)
        self.pool = GatedPool()
        self.broker.services.threadpool = self.pool
        self.broker.disk_speed.stall(self)

    def finish_next(self) -> None:
        self.fast.finish(self.received.pop(0))
        self.pass_time(SECOND // 5)

    def open_gate(self) -> None:
        self.pool.gate.set()
        self.settle()

    def on_disk(self) -> int:
        """How many messages are finished, as a start would find it."""
        saved = Journal(self.directory / f"{TOPIC}:fast.cursor").load()
        assert saved is not None
        return saved.finished.floor


@pytest.fixture
def life(tmp_path: Path) -> Iterator[SlowLife]:
    yield SlowLife(tmp_path)
    close_descriptors(tmp_path)


def test_what_comes_meanwhile_is_written_next(life: SlowLife) -> None:
    life.finish_next()
    life.finish_next()
    life.open_gate()
    assert life.on_disk() == 1
    life.pass_time(SECOND)
    assert life.on_disk() == 2


def test_what_could_not_be_written_is_not_forgotten(life: SlowLife, monkeypatch: pytest.MonkeyPatch) -> None:
    life.finish_next()
    life.finish_next()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        life.open_gate()
        assert life.broker.health() is not None
    life.pass_time(SECOND)
    assert life.on_disk() == 2
    assert life.broker.health() is None


def test_who_writes_a_journal_anew_waits_for_the_thread(life: SlowLife) -> None:
    life.finish_next()
    topic = life.broker.get_topic(TOPIC)
    emptying: Any = gevent.spawn(life.broker.empty_channel, topic, topic.channels["fast"])
    gevent.sleep(0)
    assert not emptying.ready()
    life.open_gate()
    emptying.get(timeout=40)
    assert life.on_disk() == 6
