"""Files of which little is needed become sparse: the disk holds what is alive, and a crash loses none of it."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gevent
import pytest

from nsqd_py.broker.upkeep.needed import living
from nsqd_py.diskqueue.compaction import Compaction, alive_bytes, is_worth_moving, moved_bytes, retained_seq
from nsqd_py.diskqueue.files.log_file import COMPACT_SUFFIX, Segment
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, RECORD_HEADER_BYTES
from nsqd_py.protocol.batch import Batch
from tests.unit.fakes import SECOND, Received, World, close_descriptors, make_batch, start_broker
from tests.unit.log_bench import Disk, append_to, clear, flip

TOPIC = "orders"
HOUR = 3600 * SECOND
BODY_BYTES = 96
RECORD_BYTES = RECORD_HEADER_BYTES + 4 + BODY_BYTES
PER_FILE = 10


class Orders:
    """A topic in files of ten messages or more, with a consumer that has them all."""

    def __init__(
        self, directory: Path, file_bytes: int = FILE_HEADER_BYTES + PER_FILE * RECORD_BYTES
    ) -> None:
        self.directory = directory
        self.file_bytes = file_bytes
        self.published = 0
        self.start()

    def start(self) -> None:
        self.world = World()
        self.broker = start_broker(
            self.world, self.directory, max_bytes_per_file=self.file_bytes, mem_queue_size=5
        )
        self.topic: Any = self.broker.get_topic(TOPIC)
        self.channel = self.broker.get_channel(self.topic, "ch")
        self.consumer = self.world.consumer(self.channel, rdy=1 << 30)

    def restart_after_kill(self) -> None:
        close_descriptors(self.directory)
        self.start()

    def publish(self, count: int = 1) -> None:
        numbers = range(self.published, self.published + count)
        self.world.publish(self.topic, *[b"%012d" % number * (BODY_BYTES // 12) for number in numbers])
        self.published += count

    def go_on(self, count: int, *kept: int) -> None:
        """Publish, one by one; the consumer finishes what it has, but for these numbers, which it puts off for an hour."""
        for _ in range(count):
            self.publish()
        for message in self.consumer.take():
            if number_of(message) in kept:
                self.consumer.requeue(message, HOUR)
            else:
                self.consumer.finish(message)
        self.channel.save_changes()

    def compact(self) -> None:
        self.world.pass_time(SECOND)
        gevent.sleep(0)  # a sync ends; its files may be compacted after that
        self.broker.housekeeper.run()

    def received_in_the_end(self) -> list[int]:
        """What comes, and is finished, until nothing is put off any more."""
        received = []
        for _ in range(70):
            received += self.consumer.received
            self.consumer.finish(*self.consumer.take())
            self.world.pass_time(60 * SECOND)
        return [number_of(message) for message in received]

    def shapes(self) -> list[tuple[int, int]]:
        """(first number, messages) of each file."""
        return [(file.first_seq, file.message_count) for file in self.topic.log.files]

    def log_bytes(self) -> int:
        return sum(
            path.stat().st_size for path in self.directory.iterdir() if path.suffix in (".log", ".spare")
        )


def number_of(message: Received) -> int:
    return int(message.body[:12])


# ---- the bound


@pytest.mark.parametrize(("put_off_every", "per_second"), [(10_000, 20), (40, 4)])
def test_the_disk_stays_within_its_bound(directory: Path, put_off_every: int, per_second: int) -> None:
    """Twice what is alive and two files, with one message in so many put off for an hour, in steady traffic."""
    orders = Orders(directory, file_bytes=32 * 1024)
    put_off = {}
    come_again = {}
    for _ in range(480):
        orders.publish(10 * per_second)
        for message in orders.consumer.take():
            number = number_of(message)
            if number % put_off_every == 0 and message.attempts == 1:
                orders.consumer.requeue(message, HOUR)
                put_off[number] = message
            else:
                orders.consumer.finish(message)
                if message.attempts > 1:
                    come_again[number] = message
        orders.world.pass_time(9 * SECOND)
        orders.compact()
        live_bytes = (len(put_off) - len(come_again)) * RECORD_BYTES
        assert orders.log_bytes() <= 2 * live_bytes + 2 * orders.file_bytes
    assert orders.world.log.errors == []
    assert len(come_again) > (4800 - 3600) * per_second // put_off_every - 2
    for number, message in come_again.items():
        first = put_off[number]
        assert (message.id, message.timestamp_ns, message.body) == (first.id, first.timestamp_ns, first.body)


# ---- what becomes of files


def test_a_sparse_file_becomes_smaller_again(directory: Path) -> None:
    orders = Orders(directory)
    orders.go_on(25, 0, 1, 2, 13)
    orders.compact()
    assert orders.shapes() == [(0, 4), (20, 5)]
    orders.world.pass_time(HOUR)
    orders.consumer.finish(*[message for message in orders.consumer.take() if number_of(message) != 13])
    orders.compact()
    assert orders.shapes() == [(0, 1), (20, 5)]
    orders.restart_after_kill()
    assert orders.received_in_the_end() == [13]


def test_sparse_files_grow_up_to_half_a_file(directory: Path) -> None:
    orders = Orders(directory)
    orders.go_on(105, *range(0, 100, 5))
    orders.compact()
    sparse = [count for _, count in orders.shapes()[:-1]]
    assert sum(sparse) == 20
    assert all(2 <= count <= PER_FILE // 2 for count in sparse)
    orders.restart_after_kill()
    assert orders.received_in_the_end() == list(range(0, 100, 5))


# ---- crashes


class Killed(BaseException):
    """The process ends here."""


class Killer:
    """Lets so many calls that change files through; at the next one, and ever after, there is no process."""

    CALLS = ("open", "pwrite", "fsync", "fdatasync", "rename", "unlink", "ftruncate")

    def __init__(self, patched: pytest.MonkeyPatch, after: int, *, torn: bool) -> None:
        self.left = after
        self.torn = torn
        for name in self.CALLS:
            patched.setattr(os, name, partial(self._call, name, getattr(os, name)))

    def _call(self, name: str, real: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        self.left -= 1
        if self.left >= 0:
            return real(*arguments, **named)
        if self.left == -1 and self.torn and name == "pwrite":
            fd, data, offset = arguments
            real(fd, data[: len(data) * 2 // 3], offset)
        raise Killed


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("has_neighbour", [False, True])
def test_killed_at_each_step(
    directory: Path, monkeypatch: pytest.MonkeyPatch, has_neighbour: bool, torn: bool
) -> None:
    alive = [3, 16, 17] if has_neighbour else [3]
    for kill_after in range(100):
        orders = Orders(directory)
        orders.go_on(15, 3)
        if has_neighbour:
            orders.compact()
            orders.go_on(10, 16, 17)
        orders.world.pass_time(SECOND)
        with monkeypatch.context() as patched:
            killer = Killer(patched, kill_after, torn=torn)
            with contextlib.suppress(Killed):
                orders.broker.housekeeper.run()
        orders.restart_after_kill()
        assert not list(directory.glob(f"*{COMPACT_SUFFIX}"))
        orders.compact()
        orders.go_on(3)
        orders.restart_after_kill()
        assert orders.received_in_the_end() == alive, f"killed after {kill_after} calls"
        assert orders.channel.lost_count == 0
        assert orders.world.log.errors == []
        assert orders.topic.next_seq == (28 if has_neighbour else 18)
        clear(directory)
        if killer.left >= 0:
            assert kill_after > 5
            return
    raise AssertionError("never came to its end")


# ---- what happens in the meantime


def test_a_topic_that_is_deleted_meanwhile(directory: Path) -> None:
    """All of the first file's living messages are copied, but the file is still there."""
    orders = Orders(directory)
    orders.go_on(15, 3)
    file = orders.topic.log.files[0]
    compaction = Compaction(orders.topic.log, file, living(orders.topic, file.first_seq, file.end_seq), None)
    while not compaction.is_done:
        compaction.step()
    orders.broker.delete_topic(TOPIC)
    assert compaction.settle([]) is None
    compaction.abandon()
    assert [path.name for path in directory.iterdir()] == ["nsqd.dat"]


# ---- disks that fail


def test_what_cannot_be_read_stays_where_it_is(directory: Path) -> None:
    orders = Orders(directory)
    orders.go_on(25, 3, 5, 13)
    path = next(directory.glob("*00.log"))
    flip(path, FILE_HEADER_BYTES + 3 * RECORD_BYTES + RECORD_HEADER_BYTES + 20)
    orders.compact()
    assert orders.shapes() == [(0, 10), (10, 1), (20, 5)]
    assert len(orders.world.log.errors) == 1
    assert "the file stays as it is" in orders.world.log.errors[0]
    orders.compact()
    assert len(orders.world.log.errors) == 1
    assert orders.received_in_the_end() == [5, 13]
    assert orders.channel.lost_count == 1
    orders.compact()
    assert orders.shapes() == [(20, 5)]


def test_a_damaged_byte_in_a_sparse_file_loses_one_message(directory: Path) -> None:
    alive = [1, 6, 7, 14]
    for place in range(0, RECORD_HEADER_BYTES + 8, 5):
        orders = Orders(directory)
        orders.go_on(25, *alive)
        orders.compact()
        assert orders.shapes() == [(0, 4), (20, 5)]
        close_descriptors(directory)
        flip(next(directory.glob("*00.log")), FILE_HEADER_BYTES + RECORD_BYTES + place)
        orders.start()
        assert orders.received_in_the_end() == [1, 7, 14], f"byte {place}"
        clear(directory)


def test_a_full_disk_leaves_all_as_it_was(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = Orders(directory)
    orders.go_on(25, 3)
    orders.compact()
    orders.go_on(10, 27)
    orders.world.pass_time(SECOND)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", lambda fd, data, offset, write=os.pwrite: write(fd, data[:5], offset))
        orders.broker.housekeeper.run()
    assert orders.shapes() == [(0, 1), (20, 10), (30, 5)]
    assert "failed to make room on the disk" in orders.world.log.errors[-1]
    orders.world.pass_time(60 * SECOND)
    orders.broker.housekeeper.check_soon(orders.topic)
    orders.compact()
    assert orders.shapes() == [(0, 2), (30, 5)]
    orders.restart_after_kill()
    assert orders.received_in_the_end() == [3, 27]


# --- decisions about space: what retention keeps, how much of a file is alive, where a time is in a log


# ---- retention


@dataclass
class File:
    first_seq: int
    end_seq: int
    end_offset: int
    newest_ns: int
    is_whole: bool = True


FILES = [File(0, 10, 100, 1_000), File(10, 20, 100, 2_000), File(20, 30, 100, 3_000), File(30, 35, 50, 4_000)]


@pytest.mark.parametrize(
    ("retention_ns", "retention_bytes", "kept_from"),
    [
        (0, 0, 35),
        (1, 0, 35),
        (1_001, 0, 30),
        (2_500, 0, 20),
        (9_999, 0, 0),
        (0, 1, 30),
        (0, 50, 30),
        (0, 51, 20),
        (0, 150, 20),
        (0, 151, 10),
        (0, 9_999, 0),
        (1_001, 151, 10),
        (9_999, 1, 0),
    ],
)
def test_what_retention_keeps(retention_ns: int, retention_bytes: int, kept_from: int) -> None:
    assert retained_seq(FILES, retention_ns, retention_bytes, 5_000, 35) == kept_from


def test_moving_has_to_be_worth_it() -> None:
    tiny = [(number, number + 1) for number in range(0, 1000, 3)]  # 14 bytes each in a batch, 70 when alone
    alive = alive_bytes([Segment(0, 1000, 14_000, 1000)], tiny)
    assert 2 * alive < 14_000
    assert not is_worth_moving(14_000, alive, moved_bytes(alive, tiny, is_sparse=False))
    assert is_worth_moving(14_000, alive, moved_bytes(alive, tiny, is_sparse=True))
    assert not is_worth_moving(14_000, 7_000, 7_000)
    assert is_worth_moving(14_000, 6_999, 6_999)
    assert moved_bytes(0, tiny[:2], is_sparse=False) == 2 * RECORD_HEADER_BYTES


# ---- from a time to a number


def batch_at(first_seq: int, timestamp_ns: int, *messages: bytes) -> Batch:
    batch = make_batch(first_seq, *messages)
    batch.timestamp_ns = timestamp_ns
    return batch


@pytest.mark.parametrize("reopen", [False, True])
def test_the_first_message_of_a_time_or_later(disk: Disk, reopen: bool) -> None:
    """The clock steps back now and then; some records are large, so that a file has several places in its index."""
    chooser = random.Random(7)
    disk.new_log(max_file_bytes=1_500_000)
    now_ns = 1_000
    times = []
    for _ in range(300):
        now_ns += chooser.choice([0, 3, 5, 8, -40 if chooser.random() < 0.2 else 1])
        count = chooser.randrange(1, 4)
        append_to(disk.log, batch_at(len(times), now_ns, *[b"x" * chooser.choice([10, 40_000])] * count))
        times += [now_ns] * count
        if chooser.random() < 0.1:
            disk.log.read(chooser.randrange(len(times)))  # readers note places too
    if reopen:
        disk.reopen()
    assert len(disk.log.files) > 5
    for timestamp_ns in range(min(times) - 1, max(times) + 2):
        for low in (0, 100, len(times) - 1):
            expected = next((s for s in range(low, len(times)) if times[s] >= timestamp_ns), len(times))
            assert disk.log.seq_at(timestamp_ns, low) == expected


def test_behind_damage_it_is_rather_too_early(disk: Disk) -> None:
    """What is older may be dropped: never count a message older than it is."""
    for seq in range(10):
        append_to(disk.log, batch_at(seq, 1_000 + seq, b"x" * 50))
    flip(disk.paths()[0], 64 + 4 * (RECORD_HEADER_BYTES + 54))  # the magic of the fifth
    assert [disk.log.seq_at(1_000 + seq) for seq in range(11)] == [0, 1, 2, 3, 4, 4, 4, 4, 4, 4, 10]
