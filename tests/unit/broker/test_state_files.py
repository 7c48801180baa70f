"""`nsqd.dat`, and replacing a file so that a crash leaves the old or the new one."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import gevent
import pytest
from gevent.event import Event

from nsqd_py.broker import clock_file, flipped_bits, metadata, state_files
from nsqd_py.broker.broker import Broker
from nsqd_py.broker.metadata import BadMetadata, read_metadata
from nsqd_py.broker.state_files import METADATA_FILE
from nsqd_py.clock import SteadyClock
from nsqd_py.diskqueue.files.log_file import replace_file
from nsqd_py.diskqueue.journals.journal import Journal
from tests.unit.fakes import SECOND, FakeClock, GatedPool, World, close_descriptors, refuse, start_broker


@pytest.fixture
def path(directory: Path) -> Path:
    return directory / METADATA_FILE


@pytest.fixture
def broker(directory: Path) -> Broker:
    """With a topic "t" and its channel "ch"."""
    broker = start_broker(World(), directory)
    broker.get_channel(broker.get_topic("t"), "ch")
    return broker


# --- damage


def flips(content: bytes) -> Iterator[bytes]:
    for place in range(len(content)):
        for bit in range(8):
            yield content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]


def test_each_flipped_bit_of_a_small_file_is_corrected_at_the_start(directory: Path) -> None:
    path = directory / state_files.STOP_FILE
    state_files.write_clean_stop(directory, state_files.CleanStop({}, {"t"}))
    content = path.read_bytes()
    for changed in flips(content):
        path.write_bytes(changed)
        assert state_files.damaged_files(directory) == ["nsqd.stop"]
        assert flipped_bits.mend_files(directory) == [
            "nsqd.stop was damaged: one bit had flipped, which its checksum has corrected"
        ]
        assert path.read_bytes() == content
    assert flipped_bits.mend_files(directory) == []
    path.write_bytes(content[:-5] + bytes(5))
    assert flipped_bits.mend_files(directory) == [
        "nsqd.stop is damaged: its checksum is wrong; nsqd starts without it"
    ]


def test_each_flipped_bit_of_the_metadata_is_corrected_or_of_no_effect(
    broker: Broker, path: Path, directory: Path
) -> None:
    broker.metadata.persist()
    content = path.read_bytes()
    topics = read_metadata(path)
    assert topics
    for changed in flips(content):
        path.write_bytes(changed)
        assert flipped_bits.mend_files(directory)
        assert path.read_bytes() == content
        assert read_metadata(path) == topics


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
def test_a_replacement_that_fails_leaves_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    replace_file(path, b"one")
    before = len(os.listdir("/proc/self/fd"))

    with monkeypatch.context() as patch:
        patch.setattr(os, call.removeprefix("short "), refuse if call in dir(os) else Mock(return_value=1))
        with pytest.raises(OSError) as caught:
            replace_file(path, b"two")
    assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == b"one"
    assert len(os.listdir("/proc/self/fd")) == before
    replace_file(path, b"three")
    assert path.read_bytes() == b"three"


@pytest.mark.parametrize("was_recreated", [False, True])
def test_a_channel_that_is_deleted_while_the_file_is_encoded_keeps_its_journal_until_the_next_file(
    broker: Broker, directory: Path, path: Path, monkeypatch: pytest.MonkeyPatch, was_recreated: bool
) -> None:
    """The file still names it: without its journal, the next start would deliver everything to it again."""
    topic = broker.topics["t"]
    broker.get_topic("second")
    journal = directory / "t:ch.cursor"
    pauses = count(1)

    def pause() -> None:
        if next(pauses) == 2:  # after the first topic is encoded
            broker.delete_channel(topic, "ch")

    with monkeypatch.context() as patch:
        patch.setattr(broker.metadata, "want", lambda: None)  # it would wait for this very file
        if was_recreated:  # then this file also removes the journal of the first deletion
            broker.delete_channel(topic, "ch")
            broker.get_channel(topic, "ch")
        patch.setattr(metadata, "WorkSlices", lambda _: Mock(sleep_if_due=pause))
        broker.metadata.persist()
    assert [entry.channels for entry in read_metadata(path)] == [{"ch": False}, {}]
    assert journal.exists()
    broker.metadata.persist()
    assert [entry.channels for entry in read_metadata(path)] == [{}, {}]
    assert not journal.exists()


# --- a topic whose channels are all ephemeral


def test_files_that_were_dropped_are_neither_backlog_nor_lost(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal may know less than the one who dropped them: it could not be written, or not yet."""
    world = World()
    broker = start_broker(world, directory, max_bytes_per_file=200)
    topic = broker.get_topic("t")
    channel = broker.get_channel(topic, "ch")
    consumer = world.consumer(channel, rdy=1_000)
    for _ in range(12):
        world.publish(topic, b"x" * 20)
    consumer.finish(*consumer.take())
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        world.pass_time(SECOND)
    kept = len(list(directory.glob("t.*.log")))
    close_descriptors(directory)
    world = World()
    channel = start_broker(world, directory).topics["t"].channels["ch"]
    assert channel.depth in (kept, 12)  # dropped or not: what is there comes again
    assert len(world.consumer(channel, rdy=1_000).take()) == kept
    assert channel.lost_count == 0


# --- what exists is the union of what it names and what has files


@pytest.mark.parametrize("missing", [METADATA_FILE, "t:ch.cursor"])
def test_a_channel_without_its_journal_or_its_name_in_the_file_gets_everything(
    directory: Path, missing: str
) -> None:
    """A crash may have come before the file was written."""
    world = World()
    broker = start_broker(world, directory)
    topic = broker.get_topic("t")
    broker.get_channel(topic, "ch")
    world.publish(topic, b"x", b"y")
    (directory / missing).unlink()
    close_descriptors(directory)
    assert start_broker(World(), directory).topics["t"].channels["ch"].depth == 2


def test_a_deletion_that_a_kill_interrupts_lasts_also_if_the_next_start_fails(
    broker: Broker, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`nsqd.dat` names the channel until a start succeeds: only the journal says that it is deleted."""
    topic = broker.topics["t"]
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
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topics["t"]
    # The deletion is written down when the test says.
    monkeypatch.setattr(broker.metadata, "want", lambda: None)
    broker.delete_channel(topic, "ch")
    write = Journal.snapshot
    monkeypatch.setattr(Journal, "snapshot", lambda *position: (write(*position), broker.metadata.persist()))
    assert broker.make_channel(topic, "ch").journal.path.exists()


def test_makers_of_one_channel_wait_for_each_other_also_across_topics_of_one_name(broker: Broker) -> None:
    old = broker.topics["t"]
    begun = broker._begun["t", "c"] = Event()
    broker.delete_topic("t")
    made = gevent.spawn(broker.make_channel, broker.get_topic("t"), "c")
    gevent.sleep(0)
    assert not made.ready() and old.is_closed
    del broker._begun["t", "c"]
    begun.set()
    assert made.get(timeout=40).journal.path.exists()


def test_the_last_time_is_written_after_the_one_that_a_thread_still_writes(tmp_path: Path) -> None:
    world = World()
    wall_clock, clock = FakeClock(), SteadyClock()
    world.directory, world.wall_clock, world.threadpool = tmp_path, wall_clock, GatedPool()
    keeper = clock_file.ClockKeeper(world, clock)
    keeper.start()
    wall_clock.now_ns += 3600 * SECOND  # the clock was set
    world.alarms.ring_due(clock() + 10 * SECOND)
    gevent.sleep(0)
    before = clock()
    closing = gevent.spawn(keeper.close)
    gevent.sleep(0)
    world.threadpool.gate.set()
    closing.get(timeout=40)
    gevent.sleep(0)
    written = clock_file.read_clock_file(tmp_path)
    assert written.steady_ns >= before
