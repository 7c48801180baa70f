"""After a bug nsq-to-file ends, or goes on; it never waits for a greenlet that has ended."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import gevent
import pytest

from nsq_tools.to_file.output import ManifestEntry
from nsq_tools.to_file.program import PROGRAM
from nsq_tools.to_file.topic_writer import Finisher, TopicWriter
from nsqd_py.client.gevent import Consumer
from nsqd_py.runtime.logs.daemon_log import Log
from tests.unit.tools.test_to_file_archive import ArchiveHarness


class BrokenPool:
    def apply(self, *_: object) -> None:
        raise RuntimeError("can't start new thread")


def test_a_bug_while_writing_ends_the_tool(tmp_path: Path) -> None:
    options: Any = PROGRAM.read(["--nsqd-tcp-address=127.0.0.1:1", "--topic=topic", "--sync-interval=1ms"])
    failed = gevent.event.Event()
    harness = ArchiveHarness(tmp_path)
    writer = TopicWriter(harness.plan(), options, BrokenPool(), print, Log("[test] "), failed.set)
    writer.start()
    assert failed.wait(40)
    writer.stop()
    with gevent.Timeout(40):
        writer.join()
    assert writer.has_failed


def test_a_consumer_that_fails_to_stop_does_not_keep_the_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: Any = PROGRAM.read(["--nsqd-tcp-address=127.0.0.1:1", "--topic=topic"])
    writer = TopicWriter(ArchiveHarness(tmp_path).plan(), options, BrokenPool(), print, Log("[test] "), print)
    monkeypatch.setattr(Consumer, "stop", None)
    writer.start()
    writer.stop()
    with gevent.Timeout(40):
        writer.join()
    assert writer.has_failed


class StubFile:
    """A file that gets its place, unless its disk is full."""

    def __init__(self, name: str, placed: list[str], *, is_full: bool = False) -> None:
        self.name = name
        self._placed = placed
        self._is_full = is_full

    def finish(self) -> ManifestEntry:
        if self._is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._placed.append(self.name)
        return ManifestEntry(self.name, "t", "c", "lines", "none", 1, None, None, 0, 4, None, False, 0, 0)

    def damage_text(self, entry: ManifestEntry) -> str:
        return ""


def test_a_file_that_cannot_be_put_in_its_place_does_not_keep_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nsq_tools.to_file.topic_writer._RETRY_S", (0.001,))
    finisher = Finisher("topic/channel", gevent.get_hub().threadpool, Log("[test] "))
    placed: list[str] = []
    files: Any = StubFile("first", placed, is_full=True), StubFile("second", placed)
    for file in files:
        finisher.add(file)
    with gevent.Timeout(40):
        while not placed:
            gevent.sleep(0.001)
        finisher.stop()
    assert placed == ["second"]
    assert finisher.has_failed


def test_a_bug_while_a_file_is_put_in_its_place_leaves_it_to_the_next_start() -> None:
    finisher = Finisher("topic/channel", BrokenPool(), Log("[test] "))
    file: Any = type("File", (), {"name": "file"})
    finisher.add(file)
    gevent.sleep(0)
    with gevent.Timeout(40):
        finisher.stop()
    assert finisher.has_failed
