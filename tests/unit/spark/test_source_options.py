"""The options of `nsq`: how they are given, and what they mean."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from pyspark_nsq import DefaultSource

pytest.importorskip("pyspark")

from nsq_spark.source import NsqDataSource, register
from nsq_spark.source.data_source import session_settings
from nsq_spark.source.options import BadOption, read_options, split_bytes, write_columns
from nsq_spark.source.options import write_options as write_options_of

MIB = 1024 * 1024
HERE = {"path": "/archive"}
THERE = {"nsqdTcpAddress": "127.0.0.1:4150", "topic": "orders"}


def test_nothing_but_a_path() -> None:
    options = read_options(HERE, 0)
    assert options.paths == ("/archive",)
    assert (
        options.requested.topics is None
        and options.requested.topic_pattern is None
        and not options.requested.has_range
    )
    assert (options.skip_damaged, options.split_bytes) == (False, None)


def test_names_in_any_case() -> None:
    options = read_options({**HERE, "SKIPDAMAGED": "true", "splitbytes": "1MiB", "Subscribe": " a, b "}, 0)
    assert (options.skip_damaged, options.split_bytes, options.requested.topics) == (
        True,
        MIB,
        frozenset("ab"),
    )


def test_relative_times_begin_now() -> None:
    wanted = read_options({**HERE, "startTime": "-2s", "endTime": "now"}, 10**12).requested
    assert (wanted.start_ns, wanted.end_ns) == (10**12 - 2 * 10**9, 10**12)


def test_names_of_kafkas_source() -> None:
    given = {
        "startingTimestamp": "1767225600000",
        "endingTimestamp": "1767225601000",
        "includeHeaders": "false",
    }
    wanted = read_options({**HERE, **given}, 0).requested
    assert (wanted.start_ns, wanted.end_ns) == (1_767_225_600_000_000_000, 1_767_225_601_000_000_000)
    with pytest.raises(BadOption, match="option includeHeaders: NSQ's messages have no headers"):
        read_options({**HERE, "includeHeaders": "true"}, 0)


def test_times_without_an_offset_are_in_a_time_zone_that_is_known() -> None:
    given = {**HERE, "startTime": "2024-07-01T12:00:00", "endTime": "2024-07-01 12:00:00Z"}
    for zone in "Europe/Rome", "+02:00", "UTC+02:00":
        wanted = read_options({**given, "timeZone": zone}, 0).requested
        assert (wanted.start_ns, wanted.end_ns) == (1_719_828_000 * 10**9, 1_719_835_200 * 10**9)
    with pytest.raises(
        BadOption, match=r"option startTime: '2024-07-01T12:00:00' has no offset: append Z or \+02:00,"
    ):
        read_options(given, 0)
    with pytest.raises(BadOption, match="option timeZone .*: 'Rome' is no time zone"):
        read_options({**given, "timeZone": "Rome"}, 0)


@pytest.mark.parametrize(
    "options",
    [{"startTime": "yesterday"}, {"startTime": "2024-07-01"}, {"endTime": "1e9", "timeZone": "UTC"}],
)
def test_an_error_names_its_option_once(options: dict[str, str]) -> None:
    with pytest.raises(BadOption) as refused:
        read_options({**HERE, **options}, 0)
    assert str(refused.value).count("nsq: ") == str(refused.value).count("Time: ") == 1


def test_heartbeats_are_off_unless_they_are_asked_for() -> None:
    assert write_options_of(THERE).client.heartbeat_interval_s == -1
    assert write_options_of({**THERE, "nsq.heartbeat_interval": "5s"}).client.heartbeat_interval_s == 5


@pytest.mark.parametrize(
    ("name", "text"), [("splitBytes", "-1"), ("skipDamaged", "perhaps"), ("paths", "/a")]
)
def test_values_that_cannot_be(name: str, text: str) -> None:
    with pytest.raises(BadOption, match=f"nsq: option {name} \\('{text}'\\)"):
        read_options({**HERE, name: text}, 0)


@pytest.mark.parametrize(
    ("total_bytes", "split"), [(1000, 16 * MIB), (256 * MIB, 32 * MIB), (1 << 40, 64 * MIB)]
)
def test_how_much_a_task_reads(total_bytes: int, split: int) -> None:
    assert split_bytes(None, total_bytes) == split
    assert split_bytes(5, total_bytes) == split_bytes(5, total_bytes, 4) == 5


@pytest.mark.parametrize(
    ("total_bytes", "parallelism", "split"),
    [
        (1000, 2, 16 * MIB),
        (160 * MIB, 2, 80 * MIB),
        (160 * MIB, 32, 16 * MIB),
        (1 << 40, 2, 128 * MIB),
        (1 << 40, 1 << 20, 16 * MIB),
    ],
)
def test_tasks_that_run_at_once_share_an_archive(total_bytes: int, parallelism: int, split: int) -> None:
    assert split_bytes(None, total_bytes, parallelism) == split


def test_the_session_says_how_file_systems_are_reached() -> None:
    registered: list[Any] = []
    settings = {
        "spark.hadoop.fs.s3a.endpoint": "http://one",
        "spark.hadoop.fs.defaultFS": "hdfs://h",
        "spark.x": "1",
    }
    settings["spark.sql.session.timeZone"] = "Europe/Rome"
    session: Any = SimpleNamespace(
        conf=SimpleNamespace(getAll=settings, get=settings.get),
        dataSource=SimpleNamespace(register=registered.append),
        sparkContext=SimpleNamespace(defaultParallelism=6),
    )
    register(session)
    (source,) = registered
    given = source({"path": "s3a://b/a", "fs.s3a.endpoint": "http://two"})._given()
    assert read_options(given, 0).storage.options == {
        "fs.s3a.endpoint": "http://two",
        "fs.defaultFS": "hdfs://h",
    }
    assert given["timezone"] == "Europe/Rome"
    assert read_options(given, 0).parallelism == 6
    assert read_options({**given, "parallelism": "4"}, 0).parallelism == 4
    assert write_options_of({**given, **THERE}).topic == "orders"


def test_a_session_of_spark_connect_does_not_say_how_many_tasks_run_at_once() -> None:
    settings = {"spark.sql.session.timeZone": "UTC"}
    session: Any = SimpleNamespace(conf=SimpleNamespace(getAll=settings, get=settings.get))
    assert session_settings(session) == {"timezone": "UTC"}
    assert NsqDataSource.settings == {}


# ---- names that users of Spark's Kafka source know: taken as ours, or refused with ours

TYPES: dict[str, DataType] = {
    "STRING": StringType(),
    "BINARY": BinaryType(),
    "INT": IntegerType(),
    "LIST": ArrayType(StringType()),
}


def schema_of(text: str) -> StructType:
    found = StructType()
    for field in text.split(", "):
        name, kind = field.split()
        found = found.add(name, TYPES[kind])
    return found


def test_a_value_is_a_body() -> None:
    found = write_columns(schema_of("topic STRING, value BINARY"), "")
    assert (found.body, found.topic) == (1, 0)
    assert write_columns(schema_of("value INT, body STRING"), "t").body == 1
    with pytest.raises(BadOption, match="column value is int, but has to be BINARY or STRING"):
        write_columns(schema_of("value INT"), "t")


@pytest.mark.parametrize(
    ("schema", "column"), [("body STRING, headers STRING", "headers"), ("key STRING, value STRING", "key")]
)
def test_what_a_message_does_not_have_is_not_dropped_silently(schema: str, column: str) -> None:
    with pytest.raises(BadOption, match=f"column {column} cannot be published: NSQ's messages have none"):
        write_columns(schema_of(schema), "t")


def test_pyspark_finds_it_by_itself() -> None:
    assert DefaultSource.name() == "nsq"
