"""Topics and times of files whose messages have neither: of the manifest first, and then of names."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from nsq_spark.archive.listing import Hints, list_files, survey
from nsq_spark.archive.names import time_in, topics_in, zone_of
from nsq_spark.archive.read import read
from nsq_spark.archive.splits import ArchiveError, Requested, plan_splits
from nsq_spark.archive.storage import Storage
from nsqd_py.settings.durations import parse_time
from tests.support.archives import BASE_NS, finished_file

ORDERS, US = "orders.eu.web1.2026-11-28_20.log", "orders.us.web1.2026-11-28_20.log"


def lines_of(directory: Path, topic: str, name: str, data: bytes, **changes: Any) -> Path:
    """Write a file of lines as nsq-to-file leaves it: with a line in the manifest."""
    times = {"first_timestamp": BASE_NS, "last_timestamp": BASE_NS + 99}
    return finished_file(directory, name, data, topic=topic, **{**times, **changes})


def without_manifest(directory: Path, **files: bytes) -> None:
    for name, data in files.items():
        path = directory / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def topics(*paths: Path, hints: Hints | None = None, requested: Requested | None = None) -> list[str]:
    infos = list_files(list(map(str, paths)), Storage(), hints, requested)
    return [info.topic for info in infos if not info.is_unwanted]


def bodies(directory: Path, requested: Requested | None = None, hints: Hints | None = None) -> list[bytes]:
    splits = plan_splits(list_files([str(directory)], Storage(), hints, requested), requested=requested)
    return [
        body
        for split in splits
        for chunk in read(split, Storage(), requested)
        for body in chunk.bodies.to_pylist()
    ]


# ---- the topics that a name may mean


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("orders.web1.2026-11-28_20.log", ["orders"]),
        ("orders.web1-000001.2026-11-28_20.log.gz", ["orders"]),
        ("orders.2026-11-28_20.log", ["orders"]),
        ("orders.log", ["orders"]),
        ("_orders.web1.log", ["_orders"]),
        (ORDERS, ["orders", "orders.eu"]),
        ("orders.eu.web1.jsonl", ["orders", "orders.eu"]),
        ("a.b.c.web1.2026-11-28_20.log", ["a", "a.b", "a.b.c"]),
        ("orders/2026-11-28_20.log", ["orders"]),
        ("orders.eu/2026-11-28_20.log.gz", ["orders.eu"]),
        ("orders.eu/2026-11-28_20.web1-000000.log", ["orders.eu"]),
        ("orders.eu/2026/11/28/20.log", ["orders.eu"]),
        ("orders.eu/date=2026-11-28/20.log", ["orders.eu"]),
        ("orders.eu/web1.2026-11-28_20.log", ["orders.eu", "web1"]),
        ("orders.eu/web1.log", ["web1"]),
        ("orders.eu/web1/2026-11-28_20.log", ["orders.eu", "web1"]),
        ("orders.eu/web1/2026/11/28/20.log", ["orders.eu", "web1"]),
        ("dc1/orders.eu/web1.2026-11-28_20.log", ["dc1", "orders.eu", "web1"]),
        ("orders/orders/2026-11-28_20.log", ["orders"]),
        ("2026-11-28/orders.web1.2026-11-28_20.log", ["orders"]),
        ("2026-11-28/orders.2026-11-28_20.log", ["orders"]),
        ("backup/orders.web1.2026-11-28_20.log", ["orders"]),
        ("topic=orders.eu/date=2026-11-28/web1-000000.log", ["orders.eu"]),
        ("x/topic=orders%23ephemeral/a.b.c.log", ["orders#ephemeral"]),
        ("2026-11-28_20.log", ["archive"]),
        ("2026-11-28_20.web1.log", ["archive", "web1"]),
    ],
)
def test_the_topics_that_a_name_may_mean(path: str, expected: list[str]) -> None:
    assert sorted(topics_in(f"/data/archive/{path}", "/data/archive")) == expected


def test_a_name_without_any_topic_is_a_topic_itself() -> None:
    assert topics_in("/2026-11-28_20.log", "/") == ("2026-11-28_20.log",)


# ---- the manifest's topic


def test_the_topic_of_the_manifest_wins_over_the_name(tmp_path: Path) -> None:
    lines_of(tmp_path, "orders.eu", ORDERS, b"eu\n")
    lines_of(tmp_path, "orders.us", US, b"us\n")
    lines_of(tmp_path, "clicks", "orders.2026-11-28_20.log", b"click\n")
    assert topics(tmp_path) == ["clicks", "orders.eu", "orders.us"]
    assert bodies(tmp_path, Requested(frozenset({"orders.us"}))) == [b"us"]
    assert bodies(tmp_path, Requested(topic_pattern=r"^orders\.")) == [b"eu", b"us"]
    with pytest.raises(
        ArchiveError, match=r"there is no topic orders in .*; there are clicks, orders\.eu, orders\.us$"
    ):
        topics(tmp_path, requested=Requested(frozenset({"orders"})))


@pytest.mark.parametrize(
    "name", ["{}/2026-11-28_20.log", "{}/2026-11-28_20.web1.log", "2026-11-28_20.{}.web1.log", "x.{}.y.z.log"]
)
def test_names_of_every_form_with_a_manifest(tmp_path: Path, name: str) -> None:
    for topic in ("orders.eu", "orders.us"):
        lines_of(tmp_path, topic, name.format(topic), topic.encode() + b"\n")
    assert topics(tmp_path) == ["orders.eu", "orders.us"]


def test_a_file_that_the_manifest_does_not_describe_wholly_has_its_topic_too(tmp_path: Path) -> None:
    path = lines_of(tmp_path, "orders.eu", ORDERS, b"eu\n")
    path.write_bytes(b"eu\nmore\n")
    assert topics(path) == ["orders.eu"]
    assert bodies(tmp_path, Requested(frozenset({"orders.eu"}))) == [b"eu", b"more"]


def test_lines_of_two_topics_in_one_file(tmp_path: Path) -> None:
    path = lines_of(tmp_path, "orders.eu", "2026-11-28_20.log", b"eu\n")
    lines_of(tmp_path, "orders.us", path.name, b"eu\nus\n", offset=3, bytes=3)
    with pytest.raises(
        ArchiveError,
        match=r"2026-11-28_20\.log has lines of the topics orders\.eu, orders\.us, .*defaultTopic",
    ):
        topics(tmp_path)
    lines_of(tmp_path, "clicks", "clicks.log", b"1\n")
    assert bodies(tmp_path, Requested(frozenset({"clicks"}))) == [b"1"]
    assert topics(tmp_path, hints=Hints(topic="both")) == ["both", "both"]


def test_what_the_user_says_goes_before_the_manifest(tmp_path: Path) -> None:
    path = lines_of(tmp_path, "orders.eu", ORDERS, b"eu\n")
    assert topics(path, hints=Hints(topic="x")) == ["x"]
    assert topics(path, hints=Hints(topic_from_name=r"(?P<topic>web\d)")) == ["web1"]
    assert topics(path, hints=Hints(topic_from_name=r"(?P<topic>shop\d)")) == ["orders.eu"]
    assert topics(path, hints=Hints(format="lines")) == ["orders.eu"]
    assert bodies(path, Requested(frozenset({"x"})), Hints(topic="x")) == [b"eu"]


# ---- names alone, as Go's nsq_to_file leaves them


def test_a_name_that_fits_two_topics_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    without_manifest(tmp_path, **{ORDERS: b"eu\n", US: b"us\n", "clicks.web1.2026-11-28_20.log": b"click\n"})
    with pytest.raises(ArchiveError) as refused:
        topics(tmp_path)
    text = str(refused.value)
    assert text.startswith(
        f"{tmp_path / ORDERS}: its name fits the topics orders, orders.eu, and no manifest says which"
    )
    assert "defaultTopic" in text and "--default-topic" in text
    pattern = text.split("topicFromName='")[1].split("'")[0]
    assert topics(tmp_path, hints=Hints(topic_from_name=pattern)) == ["clicks", "orders.eu", "orders.us"]
    assert topics(tmp_path / ORDERS, hints=Hints(topic="orders.eu")) == ["orders.eu"]


def test_directories_that_fit_two_topics_are_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    without_manifest(
        tmp_path,
        **{"orders.eu__web1__2026-11-28_20.log": b"eu\n", "clicks__web1__2026-11-28_20.log": b"click\n"},
    )
    with pytest.raises(
        ArchiveError, match="its name fits the topics web1, clicks, and no manifest"
    ) as refused:
        topics(tmp_path)
    pattern = str(refused.value).split("topicFromName='")[1].split("'")[0]
    assert topics(tmp_path, hints=Hints(topic_from_name=pattern)) == ["clicks", "orders.eu"]
    assert bodies(tmp_path, Requested(frozenset({"orders.eu"}))) == [b"eu"]


def test_a_topic_by_name_decides_where_it_can(tmp_path: Path) -> None:
    """The longest of the topics is the one that nsq_to_file's default name has."""
    without_manifest(tmp_path, **{ORDERS: b"eu\n", US: b"us\n", "orders.web1.2026-11-28_20.log": b"all\n"})
    with pytest.raises(ArchiveError, match="fits the topics orders, orders.us"):
        bodies(tmp_path, Requested(frozenset({"orders.eu", "orders"})))
    assert bodies(tmp_path, Requested(frozenset({"orders.eu", "orders.us"}))) == [b"eu", b"us"]
    assert bodies(tmp_path / ORDERS, Requested(frozenset({"orders.eu"}))) == [b"eu"]
    with pytest.raises(ArchiveError, match="fits the topics orders, orders.eu"):
        bodies(tmp_path, Requested(frozenset({"orders"})))
    with pytest.raises(ArchiveError, match="fits the topics orders, orders.eu"):
        bodies(tmp_path, Requested(topic_pattern="orders"))
    without_manifest(tmp_path, **{"clicks.web1.2026-11-28_20.log": b"click\n"})
    assert bodies(tmp_path, Requested(topic_pattern="^cl")) == [b"click"]


def test_directories_with_the_names_of_topics(tmp_path: Path) -> None:
    without_manifest(
        tmp_path, **{"orders.eu__2026-11-28_20.log": b"1\n", "orders.us__2026-11-28_20.web1.log": b"1\n"}
    )
    assert topics(tmp_path) == topics(tmp_path / "*" / "*.log") == ["orders.eu", "orders.us"]
    assert (
        topics(tmp_path / "orders.eu")
        == topics(tmp_path / "orders.eu" / "2026-11-28_20.log")
        == ["orders.eu"]
    )


def test_an_empty_file_is_of_no_topic_in_doubt(tmp_path: Path) -> None:
    without_manifest(tmp_path, **{ORDERS: b"", "clicks.log": b"1\n"})
    assert topics(tmp_path) == ["clicks"]


def test_messages_without_a_topic_in_a_file_whose_name_fits_two(tmp_path: Path) -> None:
    """Where messages have their topics, the name does not matter; one that has none is not given another's."""
    own = b'{"timestamp":1,"id":"i","attempts":1,"topic":"orders.eu","body":"own"}\n'
    without_manifest(tmp_path, **{"orders.eu.web1.2026-11-28_20.jsonl": own})
    assert bodies(tmp_path) == [b"own"]
    without_manifest(
        tmp_path, **{"orders.eu.web1.2026-11-28_20.jsonl": own + own.replace(b'"topic":"orders.eu",', b"")}
    )
    with pytest.raises(
        ArchiveError, match=r"has messages without a topic, and its name fits several: .*defaultTopic"
    ):
        bodies(tmp_path)
    assert bodies(tmp_path, hints=Hints(topic="orders.eu")) == [b"own", b"own"]


@pytest.mark.parametrize("requested", [Requested(), Requested(frozenset({"orders"}))])
def test_a_file_that_was_copied_out_of_its_directory(tmp_path: Path, requested: Requested) -> None:
    """Nsq-to-file leaves the topic of Parquet to Hive's directory; the name of the file begins with that of a host."""
    hive = tmp_path / "topic=orders" / "date=2026-11-28"
    hive.mkdir(parents=True)
    columns = {"id": ["00000000000000aa"], "body": [b"1"], "nsqd": ["h:4150"]}
    pq.write_table(pa.table(columns), hive / "vm-000000.parquet")
    assert bodies(hive, requested) == [b"1"]
    copied = tmp_path / "copied"
    copied.mkdir()
    (copied / "vm-000000.parquet").write_bytes((hive / "vm-000000.parquet").read_bytes())
    with pytest.raises(
        ArchiveError, match=r"vm-000000.parquet does not store its topic: .* set defaultTopic"
    ):
        bodies(copied, requested)
    assert bodies(copied, requested, Hints(topic="orders")) == [b"1"]


# ---- times


def at(text: str) -> int:
    return parse_time(text, 0)


def between(first: str, end: str) -> Requested:
    return Requested(start_ns=at(first), end_ns=at(end))


def hourly(directory: Path, hours: range, zone_h: int) -> None:
    """Write files as nsq-to-file does, of messages at 10:20Z, 11:20Z, ... on a machine whose clock is `zone_h` before UTC."""
    for hour in hours:
        time_ns = at(f"2026-11-21T{hour}:20:00Z")
        name = f"orders.web1.2026-11-21_{hour + zone_h:02}.log"
        path = lines_of(
            directory, "orders", name, b"%d\n" % hour, first_timestamp=time_ns, last_timestamp=time_ns
        )
        os.utime(path, ns=(time_ns, time_ns))


@pytest.mark.parametrize("zone_h", [-8, 0, 5])
@pytest.mark.parametrize("hints", [Hints(), Hints(time_zone="Asia/Tokyo")])
def test_the_times_of_the_manifest_decide(tmp_path: Path, zone_h: int, hints: Hints) -> None:
    hourly(tmp_path, range(10, 18), zone_h)
    assert bodies(tmp_path, between("2026-11-21T10:00:00Z", "2026-11-21T16:00:00Z"), hints) == [
        b"%d" % hour for hour in range(10, 16)
    ]
    assert bodies(tmp_path, between("2026-11-21T12:20:00Z", "2026-11-21T12:20:01Z"), hints) == [b"12"]
    assert bodies(tmp_path, between("2026-11-21T12:20:01Z", "2026-11-21T13:20:00Z"), hints) == []


def test_times_of_a_file_without_an_hour_in_its_name(tmp_path: Path) -> None:
    time_ns = at("2026-11-21T12:20:00Z")
    lines_of(tmp_path, "orders", "orders.log", b"1\n", first_timestamp=time_ns, last_timestamp=time_ns)
    assert bodies(tmp_path, between("2026-11-21T12:00:00Z", "2026-11-21T13:00:00Z")) == [b"1"]
    assert bodies(tmp_path, between("2026-11-21T13:00:00Z", "2026-11-21T14:00:00Z")) == []


def test_a_file_of_several_parts_has_the_times_of_all(tmp_path: Path) -> None:
    first, last = at("2026-11-21T12:00:00Z"), at("2026-11-21T18:00:00Z")
    name = "orders.web1.2026-11-20_00.log"
    lines_of(tmp_path, "orders", name, b"1\n", first_timestamp=first, last_timestamp=first)
    lines_of(
        tmp_path, "orders", name, b"1\n2\n", offset=2, bytes=2, first_timestamp=last, last_timestamp=last
    )
    assert bodies(tmp_path, between("2026-11-21T17:00:00Z", "2026-11-21T19:00:00Z")) == [b"1", b"2"]
    assert bodies(tmp_path, between("2026-11-21T11:00:00Z", "2026-11-21T12:00:01Z")) == [b"1", b"2"]
    assert bodies(tmp_path, between("2026-11-21T19:00:00Z", "2026-11-21T20:00:00Z")) == []


@pytest.mark.parametrize("name", ["2026-11-21_12/orders.web1.log.gz", "orders.log.gz"])
def test_a_compressed_file_without_messages_has_no_times_and_needs_none(tmp_path: Path, name: str) -> None:
    """Nsq-to-file begins a file when the last one is large enough; if no message comes, it has a few bytes of gzip."""
    time_ns = at("2026-11-21T12:20:00Z")
    lines_of(tmp_path, "orders", "orders.log", b"1\n", first_timestamp=time_ns, last_timestamp=time_ns)
    nothing = gzip.compress(b"")
    lines_of(
        tmp_path,
        "orders",
        name,
        nothing,
        compress="gzip",
        first_timestamp=None,
        last_timestamp=None,
        messages=0,
    )
    assert bodies(tmp_path, between("2026-11-21T12:00:00Z", "2026-11-21T13:00:00Z")) == [b"1"]
    assert bodies(tmp_path, between("2026-11-21T13:00:00Z", "2026-11-21T14:00:00Z")) == []
    assert bodies(tmp_path, Requested()) == [b"1"]


@pytest.mark.parametrize(
    "changes", [{"first_timestamp": None, "last_timestamp": None}, {"bytes": 1}, {"damaged_bytes": 1}]
)
def test_names_decide_where_the_manifest_does_not_know(tmp_path: Path, changes: dict[str, Any]) -> None:
    lines_of(
        tmp_path,
        "orders",
        "orders.web1.2026-11-21_12.log",
        b"1\n",
        **{"first_timestamp": 1, "last_timestamp": 1, **changes},
    )
    in_utc = Hints(time_zone="UTC")
    assert bodies(tmp_path, between("2026-11-21T12:00:00Z", "2026-11-21T13:00:00Z"), in_utc) == [b"1"]
    assert bodies(tmp_path, between("2026-11-21T13:00:00Z", "2026-11-21T14:00:00Z"), in_utc) == []


@pytest.mark.parametrize(
    ("hour", "is_read"),
    [
        ("2026-11-20T22", True),  # of a clock of UTC+14
        ("2026-11-20T20", False),
        ("2026-11-21T12", True),
        ("2026-11-22T00", True),  # of a clock of UTC-12
        ("2026-11-22T02", False),
    ],
)
def test_without_a_zone_a_name_is_of_any_zone(
    tmp_path: Path, hour: str, is_read: bool, caplog: pytest.LogCaptureFixture
) -> None:
    without_manifest(tmp_path, **{"orders.web1.2026-11-21_12.log": b"1\n"})
    day, _, number = hour.partition("T")
    requested = between(f"{day}T{number}:00:00Z", f"{day}T{number}:59:59Z")
    assert bodies(tmp_path, requested) == ([b"1"] if is_read else [])
    assert ("fileTimeZone" in caplog.text) == is_read
    assert bodies(tmp_path, requested, Hints(time_zone="UTC")) == ([b"1"] if number == "12" else [])


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("orders.web1.2026-11-21_10Z.log", "2026-11-21T10:00:00Z", "2026-11-21T11:00:00Z"),
        ("orders.web1.2026-11-21_1030Z.log.gz", "2026-11-21T10:30:00Z", "2026-11-21T10:31:00Z"),
        ("orders.web1.2026-11-21_10UTC.log", "2026-11-21T10:00:00Z", "2026-11-21T11:00:00Z"),
        ("orders.web1.2026-11-21_05-0500.log", "2026-11-21T10:00:00Z", "2026-11-21T11:00:00Z"),
        ("orders.web1.2026-11-21_1545+0545-000001.log", "2026-11-21T10:00:00Z", "2026-11-21T10:01:00Z"),
        ("orders.web1.2026-11-21_05-30.log", "2026-11-21T05:30:00+09:00", "2026-11-21T05:31:00+09:00"),
        ("orders.web1.2026-11-21_05-4711.log", "2026-11-21T05:00:00+09:00", "2026-11-21T06:00:00+09:00"),
        ("orders.web1.2026-11-21Z.log", "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"),
    ],
)
def test_a_name_with_its_zone(name: str, first: str, last: str) -> None:
    assert time_in(name, zone_of("Asia/Tokyo")) == (at(first), at(last))


def test_what_was_found_of_files_in_doubt(tmp_path: Path) -> None:
    without_manifest(
        tmp_path, **{"orders.web1.2026-11-21_12.log": b"1\n", "orders.web1.2026-11-21_13.log": b"1\n"}
    )
    requested = between("2026-11-21T12:00:00Z", "2026-11-21T13:00:00Z")
    assert survey([str(tmp_path)], Storage(), None, requested).in_any_zone == 2
    assert survey([str(tmp_path)], Storage()).in_any_zone == 0
    assert survey([str(tmp_path)], Storage(), Hints(time_zone="UTC"), requested).in_any_zone == 0
