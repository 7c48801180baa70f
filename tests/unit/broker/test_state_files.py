"""`nsqd.dat`, and replacing a file so that a crash leaves the old or the new one."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from gevent.event import Event

from nsqd_py.broker import state_files
from nsqd_py.broker.state_files import METADATA_FILE, BadMetadata, read_metadata
from nsqd_py.clock import SteadyClock
from nsqd_py.diskqueue.files import replace_file
from nsqd_py.diskqueue.journal import Journal
from tests.unit.broker.test_disk_io import GatedPool
from tests.unit.fakes import SECOND, FakeConsumer, World, close_descriptors, refuse, sized, start_broker


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / METADATA_FILE


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    close_descriptors(tmp_path)


# --- reading and writing


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"1",
        b"null",
        b"{}",
        b'{"topics":1}',
        b'{"topics":"t"}',
        b'{"topics":{"t":1}}',
        b'{"topics":[1]}',
        b'{"topics":[{}]}',
        b'{"topics":[{"name":"t","channels":"ch"}]}',
        b'{"topics":[{"name":"t","channels":["ch"]}]}',
        b'{"topics":[{"name":"t","channels":[{}]}]}',
        b"\xff\xfe",
    ],
)
def test_what_cannot_be_understood(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(BadMetadata, match=METADATA_FILE):
        read_metadata(path)


# --- replacing


@pytest.mark.parametrize("call", ["open", "write", "short write", "fsync", "rename"])
def test_a_replacement_that_fails_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    replace_file(path, b"one")
    before = len(os.listdir("/proc/self/fd"))

    with monkeypatch.context() as patch:
        if call == "short write":
            patch.setattr(os, "write", lambda fd, data: 1)
        else:
            patch.setattr(os, call, refuse)
        with pytest.raises(OSError) as caught:
            replace_file(path, b"two")
    assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == b"one"
    assert len(os.listdir("/proc/self/fd")) == before
    replace_file(path, b"three")
    assert path.read_bytes() == b"three"


class PauseOnce:
    """In place of a `WorkSlices`: calls `work` in its second pause, after the first topic is encoded."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._pauses = 0

    def __call__(self, pause_s: float) -> PauseOnce:
        return self

    def sleep_if_due(self) -> None:
        self._pauses += 1
        if self._pauses == 2:
            self._work()


@pytest.mark.parametrize("was_recreated", [False, True])
def test_a_channel_that_is_deleted_while_the_file_is_encoded_keeps_its_journal_until_the_next_file(
    directory: Path, path: Path, monkeypatch: pytest.MonkeyPatch, was_recreated: bool
) -> None:
    """The file still names it: without its journal, the next start would deliver everything to it again."""
    broker = start_broker(World(), directory)
    first = broker.get_topic("first")
    broker.get_topic("second")
    broker.get_channel(first, "ch")
    journal = directory / "first:ch.cursor"
    with monkeypatch.context() as patch:
        patch.setattr(broker.metadata, "want", lambda: None)  # it would wait for this very file
        if was_recreated:  # then this file also removes the journal of the first deletion
            broker.delete_channel(first, "ch")
            broker.get_channel(first, "ch")
        patch.setattr(state_files, "WorkSlices", PauseOnce(lambda: broker.delete_channel(first, "ch")))
        broker.metadata.persist()
    assert [entry.channels for entry in read_metadata(path)] == [{"ch": False}, {}]
    assert journal.exists()
    broker.metadata.persist()
    assert [entry.channels for entry in read_metadata(path)] == [{}, {}]
    assert not journal.exists()


# --- a topic whose channels are all ephemeral


def test_files_that_were_dropped_are_neither_backlog_nor_lost(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal may know less than the one who dropped them: it could not be written, or not yet."""
    world = World()
    broker = start_broker(world, directory, max_bytes_per_file=200)
    topic = broker.get_topic("t")
    channel = broker.get_channel(topic, "ch")
    consumer = FakeConsumer(world, rdy=1_000).subscribe(channel)
    for _ in range(12):
        topic.buffer.publish(sized(b"x" * 20), 1, 24, None, 0)
        world.run()
    consumer.finish(*consumer.take())

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        world.pass_time(SECOND)
    kept = len(list(directory.glob("t.*.log")))
    close_descriptors(directory)
    world = World()
    channel = start_broker(world, directory).topics["t"].channels["ch"]
    assert channel.depth in (kept, 12)  # dropped or not: what is there comes again
    consumer = FakeConsumer(world, rdy=1_000).subscribe(channel)
    world.run()
    assert len(consumer.take()) == kept
    assert channel.lost_count == 0


# --- what exists is the union of what it names and what has files


@pytest.mark.parametrize("missing", [METADATA_FILE, "t:ch.cursor"])
def test_a_channel_without_its_journal_or_its_name_in_the_file_gets_everything(directory: Path, missing: str) -> None:
    """A crash may have come before the file was written."""
    world = World()
    broker = start_broker(world, directory)
    topic = broker.get_topic("t")
    broker.get_channel(topic, "ch")
    topic.buffer.publish(sized(b"x", b"y"), 2, 5, None, 0)
    world.run()
    (directory / missing).unlink()
    close_descriptors(directory)
    assert start_broker(World(), directory).topics["t"].channels["ch"].depth == 2


def test_a_deletion_that_a_kill_interrupts_lasts_also_if_the_next_start_fails(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`nsqd.dat` names the channel until a start succeeds: only the journal says that it is deleted."""
    broker = start_broker(World(), directory)
    topic = broker.get_topic("t")
    broker.get_channel(topic, "ch")
    broker.get_channel(topic, "other")
    monkeypatch.setattr(broker.metadata, "want", lambda: None)
    broker.delete_channel(topic, "ch")
    for _ in range(2):
        close_descriptors(directory)
        broker = start_broker(World(), directory)
        assert list(broker.topics["t"].channels) == ["other"]
    broker.metadata.persist()
    assert not (directory / "t:ch.cursor").exists()


def test_leftovers_of_a_crash_are_removed(directory: Path) -> None:
    for name in ("t.spare", "t.00000000000000000000.log.gone", "t:ch.cursor.tmp", "nsqd.dat.tmp"):
        (directory / name).write_bytes(b"x")
    (directory / "somebody's.txt").write_bytes(b"x")
    assert start_broker(World(), directory).topics == {}
    assert os.listdir(directory) == ["somebody's.txt"]


def test_a_channel_that_is_made_again_while_its_deletion_is_written_keeps_its_journal(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start_broker(World(), directory)
    topic = broker.get_topic("t")
    broker.make_channel(topic, "c")
    monkeypatch.setattr(broker.metadata, "want", lambda: None)  # the deletion is written down when the test says
    broker.delete_channel(topic, "c")
    write = Journal.snapshot

    def write_and_persist(journal: Journal, *position: Any) -> None:
        write(journal, *position)
        broker.metadata.persist()

    monkeypatch.setattr(Journal, "snapshot", write_and_persist)
    channel = broker.make_channel(topic, "c")
    assert channel.journal is not None and channel.journal.path.exists()


def test_makers_of_one_channel_wait_for_each_other_also_across_topics_of_one_name(directory: Path) -> None:
    broker = start_broker(World(), directory)
    old = broker.get_topic("t")
    begun = broker._begun["t", "c"] = Event()
    broker.delete_topic("t")
    made = gevent.spawn(broker.make_channel, broker.get_topic("t"), "c")
    gevent.sleep(0)
    assert not made.ready() and old.is_closed
    del broker._begun["t", "c"]
    begun.set()
    assert made.get(timeout=40).journal.path.exists()


def test_the_last_time_is_written_after_the_one_that_a_thread_still_writes(tmp_path: Path) -> None:
    world, pool, wall_ns = World(), GatedPool(), [2_000_000_000 * SECOND]
    services: Any = SimpleNamespace(
        directory=tmp_path, alarms=world.alarms, wall_clock=lambda: wall_ns[0], threadpool=pool, log=world.log
    )
    clock = SteadyClock()
    keeper = state_files.ClockKeeper(services, clock)
    keeper.start()
    wall_ns[0] += 3600 * SECOND  # the clock was set
    world.alarms.ring_due(clock() + 10 * SECOND)
    gevent.sleep(0)
    before = clock()
    closing = gevent.spawn(keeper.close)
    gevent.sleep(0)
    pool.gate.set()
    closing.get(timeout=40)
    gevent.sleep(0)
    written = state_files.read_clock_file(tmp_path)
    assert written is not None
    assert written.steady_ns >= before
