"""Single records of a log, read without those around them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.fakes import close_descriptors, messages_of
from tests.unit.log_bench import Disk, fill


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    yield Disk(tmp_path)
    close_descriptors(tmp_path)


def read_each(disk: Disk, seqs: list[int]) -> list[bytes | None]:
    """The message of each number, as the log gives it."""
    return [
        None if batch is None else dict(messages_of([batch]))[seq]
        for seq, batch in zip(seqs, disk.log.read_each(seqs), strict=True)
    ]


def test_each_is_found_in_any_file(disk: Disk) -> None:
    fill(disk, files=5)
    bodies = dict(disk.written)
    for seqs in ([0], [9], [0, 1, 4, 9], list(range(10))):
        assert read_each(disk, seqs) == [bodies[seq] for seq in seqs]


def test_batches_of_several_messages(disk: Disk) -> None:
    chance = random.Random(1)
    for _ in range(300):
        disk.append(*[b"x" * chance.choice([1, 50, 3_000]) for _ in range(chance.randint(1, 9))])
    bodies = dict(disk.written)
    for _ in range(50):
        seqs = sorted(chance.sample(range(len(bodies)), 20))
        assert read_each(disk, seqs) == [bodies[seq] for seq in seqs]


def test_a_damaged_record_is_not_found_and_the_others_are(disk: Disk) -> None:
    places = [disk.append(b"%d" % i * 50).first_seq for i in range(5)]
    (path,) = disk.paths()
    data = path.read_bytes()
    at = data.index(b"2" * 50)
    path.write_bytes(data[: at + 3] + b"!" + data[at + 4 :])
    assert read_each(disk, places) == [b"0" * 50, b"1" * 50, None, b"3" * 50, b"4" * 50]


def test_a_damaged_header_ends_the_walk(disk: Disk) -> None:
    for i in range(5):
        disk.append(b"%d" % i * 60)
    (path,) = disk.paths()
    data = path.read_bytes()
    at = data.index(b"2" * 60) - 60
    path.write_bytes(data[:at] + b"\0" * 8 + data[at + 8 :])
    assert read_each(disk, [0, 1, 2, 3, 4]) == [b"0" * 60, b"1" * 60, None, None, None]
