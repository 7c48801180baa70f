"""Single records of a log, read without those around them."""

from __future__ import annotations

import pytest

from tests.unit.fakes import messages_of
from tests.unit.log_bench import Disk


def read_each(disk: Disk, seqs: list[int]) -> list[bytes | None]:
    """The message of each number, as the log gives it."""
    return [
        None if batch is None else dict(messages_of([batch]))[seq]
        for seq, batch in zip(seqs, disk.log.read_each(seqs), strict=True)
    ]


@pytest.mark.parametrize(
    ("place", "damage", "found"),
    [
        (3, b"!", [b"0" * 60, b"1" * 60, None, b"3" * 60, b"4" * 60]),
        (-60, bytes(8), [b"0" * 60, b"1" * 60, None, None, None]),
    ],
    ids=["its body", "its header, which ends the walk"],
)
def test_a_damaged_record_is_not_found(
    disk: Disk, place: int, damage: bytes, found: list[bytes | None]
) -> None:
    places = [disk.append(b"%d" % i * 60).first_seq for i in range(5)]
    (path,) = disk.paths()
    data = path.read_bytes()
    at = data.index(b"2" * 60) + place
    path.write_bytes(data[:at] + damage + data[at + len(damage) :])
    assert read_each(disk, places) == found
