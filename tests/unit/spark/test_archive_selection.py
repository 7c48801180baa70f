"""Times of files without timestamps: those in their names."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from nsq_spark.archive.listing import Hints, survey, time_in, zone_of
from nsq_spark.archive.read import read
from nsq_spark.archive.splits import ArchiveError, Wanted, plan_splits
from nsq_spark.archive.storage import Storage
from nsqd_py.settings.durations import parse_time

HOUR_NS = 3600 * 10**9


def at(text: str) -> int:
    return parse_time(text, 0)


def bodies(directory: Path, wanted: Wanted | None = None, hints: Hints | None = None) -> list[bytes]:
    storage = Storage()
    splits = plan_splits(survey([str(directory)], storage, hints).files, wanted=wanted)
    return [body for split in splits for chunk in read(split, storage, wanted) for body in chunk.bodies.to_pylist()]


# ---- times


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("orders.host.2024-01-31_13.log", "2024-01-31T13:00:00Z", "2024-01-31T14:00:00Z"),
        ("orders.host-000001.2024-01-31_13.log.gz", "2024-01-31T13:00:00Z", "2024-01-31T14:00:00Z"),
        ("orders.2023-01-01.2024-01-31_13-000002.log", "2024-01-31T13:00:00Z", "2024-01-31T14:00:00Z"),
        ("orders.2024-01-31_1330.log", "2024-01-31T13:30:00Z", "2024-01-31T13:31:00Z"),
        ("orders.2024-01-31.log", "2024-01-31T00:00:00Z", "2024-02-01T00:00:00Z"),
    ],
)
def test_the_hour_in_a_name(name: str, first: str, last: str) -> None:
    assert time_in(name, zone_of("UTC")) == (at(first), at(last))


def test_the_hour_is_that_of_a_zone() -> None:
    summer = time_in("x.2024-07-01_13.log", zone_of("Europe/Rome"))
    assert summer == (at("2024-07-01T11:00:00Z"), at("2024-07-01T12:00:00Z"))
    with pytest.raises(ArchiveError, match="'Rome' is no time zone; it has to be a name such as UTC"):
        zone_of("Rome")


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("x.2024-10-27_02.log", "2024-10-27T00:00:00Z", "2024-10-27T02:00:00Z"),  # the hour comes twice
        ("x.2024-10-27_0230.log", "2024-10-27T00:30:00Z", "2024-10-27T01:31:00Z"),
        ("x.2024-10-27_03.log", "2024-10-27T02:00:00Z", "2024-10-27T03:00:00Z"),
        ("x.2024-10-27.log", "2024-10-26T22:00:00Z", "2024-10-27T23:00:00Z"),
        ("x.2024-03-31_02.log", "2024-03-31T01:00:00Z", "2024-03-31T02:00:00Z"),  # there is no such hour
    ],
)
def test_the_hours_of_a_change_of_clocks(name: str, first: str, last: str) -> None:
    assert time_in(name, zone_of("Europe/Rome")) == (at(first), at(last))


@pytest.mark.parametrize("name", ["orders.log", "orders.2024-13-01_00.log", "orders.12024-01-01.log", "2024-01.log"])
def test_a_name_without_a_time(name: str) -> None:
    assert time_in(name, zone_of("UTC")) is None


def test_files_of_lines_are_taken_by_the_hours_in_their_names(tmp_path: Path) -> None:
    for hour in range(10, 15):
        (tmp_path / f"orders.host.2024-01-31_{hour}.log").write_bytes(b"%d\n" % hour)
    noon = at("2024-01-31T12:00:00Z")
    assert bodies(tmp_path, Wanted(start_ns=noon, end_ns=noon + HOUR_NS)) == [b"12"]
    assert bodies(tmp_path, Wanted(start_ns=noon - 1, end_ns=noon + 1)) == [b"11", b"12"]
    assert bodies(tmp_path, Wanted(start_ns=noon + HOUR_NS)) == [b"13", b"14"]
    in_rome = bodies(tmp_path, Wanted(start_ns=noon, end_ns=noon + HOUR_NS), Hints(time_zone="Europe/Rome"))
    assert in_rome == [b"13"]


def test_a_time_of_files_that_tell_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "orders.log").write_bytes(b"1\n")
    assert bodies(tmp_path, Wanted()) == [b"1"]
    with pytest.raises(ArchiveError, match=r"orders\.log keeps no times.* no hour such as 2024-01-31_13 in its name"):
        bodies(tmp_path, Wanted(start_ns=1))
    assert bodies(tmp_path, Wanted(frozenset(("other",)), start_ns=1)) == []
