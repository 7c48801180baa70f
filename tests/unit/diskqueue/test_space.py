"""Decisions about space: what retention keeps, how much of a file is alive, where a time is in a log."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from nsqd_py.batch import Batch
from nsqd_py.diskqueue.compaction import alive_bytes, is_worth_moving, moved_bytes, retained_seq
from nsqd_py.diskqueue.files import Segment
from nsqd_py.diskqueue.records import RECORD_HEADER_BYTES
from tests.unit.fakes import make_batch
from tests.unit.log_bench import Disk, append_to

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
    times: list[int] = []
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
    path = disk.paths()[0]
    data = bytearray(path.read_bytes())
    record_bytes = RECORD_HEADER_BYTES + 54
    data[64 + 4 * record_bytes] ^= 1  # the magic of the fifth
    path.write_bytes(data)
    assert [disk.log.seq_at(1_000 + seq) for seq in range(11)] == [0, 1, 2, 3, 4, 4, 4, 4, 4, 4, 10]
