"""Damage is met by several readers, each with other neighbours, and again before it is repaired: each byte counts once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from nsqd_py.diskqueue.files.log_file import LogFile
from nsqd_py.diskqueue.journals.ranges import Range
from nsqd_py.standby.copies.damage import CopyDamage
from tests.unit.log_bench import Disk

SIZE = 400
STEPS = 200


def some_range(chance: random.Random) -> Range:
    start = chance.randrange(SIZE - 1)
    return start, min(SIZE, start + chance.randint(1, 60))


def some_left(chance: random.Random, start: int, end: int) -> list[Range]:
    """A part of a range that no copy has, or none."""
    if chance.random() < 0.7:
        return []
    low = chance.randrange(start, end)
    return [(low, chance.randint(low + 1, end))]


def bytes_of(ranges: list[Range]) -> set[int]:
    return {place for start, end in ranges for place in range(start, end)}


def asides(directory: Path) -> dict[int, int]:
    """The copies of damaged bytes: where each begins, and its size."""
    return {int(path.name.split(".")[-2]): path.stat().st_size for path in directory.glob("*.damaged")}


def file_of(disk: Disk) -> LogFile:
    """A file of so many bytes, or some more."""
    disk.append(*[b"x" * 50] * 8)
    (file,) = disk.log.files
    return file


@pytest.mark.parametrize("seed", range(5))
def test_of_a_primary(disk: Disk, seed: int) -> None:
    chance = random.Random(seed)
    file, damage, known, found = file_of(disk), disk.log.damage, set[int](), 0
    for _ in range(STEPS):
        start, end = some_range(chance)
        these = bytes_of([(start, end)])
        if chance.random() < 0.5:
            new = these - known
            assert damage.note(file, start, end) == len(new)
            known |= these
            found += len(new)
        else:
            met = these & known
            left = [each for each in some_left(chance, start, end) if bytes_of([each]) <= met]
            assert damage.repaired(file, start, end, left) == len(met) - len(bytes_of(left))
            known -= these - bytes_of(left)
        assert damage.bytes_found == found
        assert damage.bytes_found - damage.bytes_repaired == len(known)
    damage.repaired(file, 0, SIZE)
    assert damage.bytes_found == damage.bytes_repaired
    assert asides(disk.directory) == {}


def test_a_larger_copy_takes_the_place_of_those_in_it(disk: Disk) -> None:
    file, damage = file_of(disk), disk.log.damage
    damage.note(file, 100, 120)
    damage.note(file, 150, 160)
    assert asides(disk.directory) == {100: 20, 150: 10}
    damage.note(file, 110, 155)
    assert asides(disk.directory) == {100: 60}
    damage.repaired(file, 90, 200)
    assert asides(disk.directory) == {}


@pytest.mark.parametrize("seed", range(5))
def test_of_a_copy(seed: int) -> None:
    chance = random.Random(seed)
    damage, known, found = CopyDamage(), set[int](), 0
    for _ in range(STEPS):
        ranges = [some_range(chance) for _ in range(chance.randint(1, 3))]
        these = bytes_of(ranges)
        what = chance.random()
        if what < 0.5:
            new = these - known
            assert damage.note("a", ranges) is bool(new)
            known |= these
            found += len(new)
        elif what < 0.9:
            left = [
                each
                for start, end in ranges
                for each in some_left(chance, start, end)
                if bytes_of([each]) <= known
            ]
            damage.repaired("a", ranges, left)
            known = (known - these) | bytes_of(left)
        else:
            damage.forget("a")
            known.clear()
        assert damage.damaged_bytes == found
        assert damage.damaged_bytes - damage.repaired_bytes == len(known)
        assert damage.is_well is not bool(known)
