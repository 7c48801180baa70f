"""Single records of a log, read without those around them."""

from __future__ import annotations

from tests.unit.fakes import messages_of
from tests.unit.log_bench import Disk


def read_each(disk: Disk, seqs: list[int]) -> list[bytes | None]:
    """The message of each number, as the log gives it."""
    return [
        None if batch is None else dict(messages_of([batch]))[seq]
        for seq, batch in zip(seqs, disk.log.read_each(seqs), strict=True)
    ]


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
