"""`nsq_archive`: Spark's readers give the messages that ours gives; where they would not, ours reads the file."""

from __future__ import annotations

import gzip
import json
import os
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from nsq_spark.archive.listing import list_files
from nsq_spark.archive.splits import Format
from nsq_spark.source.archive_table import Choice, choose_readers, nsq_archive
from nsq_spark.source.options import read_options
from tests.support.archives import BASE_NS, Message, finished_file, messages

pytestmark = [pytest.mark.ours, pytest.mark.xdist_group("spark")]

NINE = ["topic", "channel", "timestamp", "timestamp_ns", "id", "attempts", "body", "nsqd", "file"]
_SPARKS = (PySparkException, Py4JJavaError)
OLD_NS = BASE_NS  # years ago: nobody writes to these files any more


def settled(file: Path, data: bytes) -> Path:
    file.write_bytes(data)
    os.utime(file, ns=(OLD_NS, OLD_NS))
    return file


def finished(file: Path, data: bytes, **changes: Any) -> Path:
    """Write a file of jsonl as nsq-to-file leaves it: with a line in the manifest."""
    return finished_file(file.parent, file.name, data, **{"format": "jsonl", **changes})


def table_of(some: list[Message]) -> pa.Table:
    names = ("topic", "channel", "id", "body", "nsqd")
    columns = {name: [getattr(one, name) for one in some] for name in names}
    return pa.table(
        {
            **columns,
            "timestamp": pa.array([one.timestamp_ns // 1000 for one in some], pa.timestamp("us", tz="UTC")),
            "timestamp_ns": [one.timestamp_ns for one in some],
            "attempts": pa.array([one.attempts for one in some], pa.int32()),
        }
    )


def jsonl_of(some: list[Message]) -> bytes:
    return b"".join(json.dumps(_document(one)).encode() + b"\n" for one in some)


def _document(one: Message) -> dict[str, Any]:
    fields = {
        "timestamp": one.timestamp_ns,
        **{name: getattr(one, name) for name in ("id", "attempts", "topic")},
    }
    fields |= {"channel": one.channel, "nsqd": one.nsqd}
    try:
        return {**fields, "body": one.body.decode()}
    except UnicodeDecodeError:
        return {**fields, "body_base64": b64encode(one.body).decode()}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A file of each format that Spark reads, with messages of two topics."""
    some = [
        *messages(60),
        *messages(40, topic="clicks"),
        Message(b"\xff\x00", timestamp_ns=-1500, id="f" * 16),
    ]
    some[5] = some[5]._replace(body='\u00fc\n"x'.encode())
    table = table_of(some)
    pq.write_table(
        table, tmp_path / "a.parquet", row_group_size=30, compression="none", write_page_checksum=True
    )
    finished(tmp_path / "b.jsonl", jsonl_of(some))
    settled(tmp_path / "logins.host.2025-11-20_10.log", b"anna\r\n\nbe\xffrt\rx\n")
    return tmp_path


def chosen(path: Path, names: list[str] = NINE, **options: str) -> tuple[dict[Choice, list[str]], list[str]]:
    read = read_options({"path": str(path), **options}, 0)
    files = list_files(read.paths, read.storage, read.hints, read.requested)
    by_spark, ours = choose_readers(files, read, names)
    return by_spark, [Path(info.path).name for info in ours]


def test_spark_does_not_read_a_file_whose_name_has_a_host_for_a_topic(tmp_path: Path) -> None:
    table = pa.table({"body": [b"1"], "nsqd": ["h:4150"]})
    pq.write_table(table, tmp_path / "vm-000000.parquet")
    assert chosen(tmp_path) == ({}, ["vm-000000.parquet"])


def by_us(spark: Any, path: Path, **options: object) -> list[Any]:
    frame = spark.read.format("nsq").options(**options).load(str(path)).drop("position")
    return sorted(map(tuple, frame.collect()), key=repr)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"topic": "clicks"},
        {"topic": "logins,orders"},
        {"startTime": str(BASE_NS + 3), "endTime": str(BASE_NS + 30), "topic": "orders"},
        {"topic": "it's"},
    ],
)
def test_sparks_readers_give_what_ours_gives(spark: Any, archive: Path, options: dict[str, str]) -> None:
    by_spark, ours = chosen(archive, **options)  # type: ignore[arg-type]
    assert not ours
    if not options:
        assert {choice.format for choice in by_spark} == {Format.PARQUET, Format.JSONL, Format.LINES}
    frame = nsq_archive(spark, str(archive), **options)
    assert sorted(map(tuple, frame.collect()), key=repr) == by_us(spark, archive, **options)
    assert frame.count() == len(by_us(spark, archive, **options))


def test_the_columns_are_those_of_the_data_source_without_position(spark: Any, archive: Path) -> None:
    frame = nsq_archive(spark, str(archive))
    assert frame.columns == NINE
    assert frame.dtypes == spark.read.format("nsq").load(str(archive)).drop("position").dtypes


def test_rows_stay_in_the_jvm(spark: Any, archive: Path) -> None:
    plan = nsq_archive(spark, str(archive)).where("attempts > 1")._jdf.queryExecution().toString()
    assert "PushedFilters: [IsNotNull(attempts), GreaterThan(attempts,1)]" in plan
    physical = plan.partition("Physical Plan")[2]
    assert (physical.count("FileScan"), physical.count("BatchScan")) == (2, 0)  # `lines` has no attempts


def test_times_of_earlier_versions_are_numbers(spark: Any, archive: Path) -> None:
    table = table_of(messages(7)).drop_columns("timestamp").rename_columns({"timestamp_ns": "timestamp"})
    pq.write_table(table, archive / "old.parquet")
    by_spark, ours = chosen(archive)
    assert {choice.time for choice in by_spark if choice.format is Format.PARQUET} == {
        "timestamp",
        "timestamp_ns",
    }
    assert not ours
    options = {"startTime": str(BASE_NS + 3)}
    assert sorted(map(tuple, nsq_archive(spark, str(archive), **options).collect()), key=repr) == by_us(
        spark, archive, **options
    )


def test_positions_are_known_of_parquet_alone(archive: Path) -> None:
    by_spark, ours = chosen(archive, ["position"])
    assert [choice.format for choice in by_spark] == [Format.PARQUET]
    assert ours == ["b.jsonl", "logins.host.2025-11-20_10.log"]


def test_files_that_spark_would_read_otherwise_are_read_by_us(tmp_path: Path) -> None:
    whole = b"one\ntwo\n"
    settled(tmp_path / "torn.log", b"one\ntw")
    settled(tmp_path / "mark.log", b"\xef\xbb\xbfone\n")
    settled(tmp_path / "packed.log.gz", gzip.compress(whole))
    settled(tmp_path / "name with spaces.log", whole)
    settled(tmp_path / "glob[1].log", whole)
    settled(tmp_path / "whole.log", whole)
    pq.write_table(pa.table({"body": ["text"]}), tmp_path / "foreign.parquet")
    (tmp_path / "growing.log").write_bytes(whole)
    with (tmp_path / "growing.log").open("ab"):
        by_spark, ours = chosen(tmp_path)
    assert by_spark == {Choice(Format.LINES, "whole"): [str(tmp_path / "whole.log")]}
    assert ours == sorted(path.name for path in tmp_path.iterdir() if path.name != "whole.log")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux knows whether a file has a writer")
def test_a_young_file_that_no_process_writes_to_is_read_by_spark(tmp_path: Path) -> None:
    path = tmp_path / "orders.log"
    path.write_bytes(b"one\ntwo\n")
    if not os.major(path.stat().st_dev):
        pytest.skip("not on a disk of this machine")
    assert chosen(tmp_path) == ({Choice(Format.LINES, "orders"): [str(path)]}, [])


def test_options_that_spark_cannot_keep_are_ours(archive: Path) -> None:
    assert len(chosen(archive, skipDamaged="true")[1]) == 3
    assert chosen(archive, topicPattern=".*")[1] == ["a.parquet", "b.jsonl"]


def test_all_files_are_in_one_table_whoever_reads_them(spark: Any, archive: Path) -> None:
    (archive / "new.log").write_bytes(b"new\nto")
    frame = nsq_archive(spark, str(archive))
    assert frame.count() == 101 + 101 + 2 + 1
    assert [row.topic for row in frame.where("body = CAST('new' AS BINARY)").collect()] == ["new"]


def test_topics_that_only_the_manifest_or_a_directory_has(spark: Any, tmp_path: Path) -> None:
    """Spark's readers get the topics of our listing: with dots, and of files that have no column for them."""
    expected = []
    for topic in "orders.eu", "orders.us":
        name = f"{topic}.web1.2025-11-20_10.log"
        settled(finished(tmp_path / name, b"line\n", topic=topic, format="lines"), b"line\n")
        hive = tmp_path / f"topic={topic}" / "date=2025-11-20" / "web1-000000.parquet"
        hive.parent.mkdir(parents=True)
        pq.write_table(table_of([Message(b"row")]).drop_columns("topic"), hive, write_page_checksum=True)
        expected += [(topic, b"line"), (topic, b"row")]
    by_spark, ours = chosen(tmp_path)
    assert {choice.topic for choice in by_spark} == {"orders.eu", "orders.us"} and not ours
    of_us = nsq_archive(spark, str(tmp_path), topic="orders.us").select("topic", "body").collect()
    assert sorted((row.topic, bytes(row.body)) for row in of_us) == expected[2:]
    for frame in nsq_archive(spark, str(tmp_path)), spark.read.format("nsq").load(str(tmp_path)):
        assert (
            sorted((row.topic, bytes(row.body)) for row in frame.select("topic", "body").collect())
            == expected
        )
    unknown = settled(tmp_path / "a.b.web1.parquet", b"")
    pq.write_table(table_of([Message(b"row")]).drop_columns("topic"), unknown)
    assert chosen(tmp_path)[1] == [unknown.name]


def test_spark_itself_reads_hives_directories_and_passes_over_the_manifest(
    spark: Any, tmp_path: Path
) -> None:
    path = tmp_path / "topic=orders.eu" / "date=2025-11-20" / "web1-000000.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(table_of([Message(b"row")]).drop_columns("topic"), path)
    (tmp_path / "_nsq_manifest").write_bytes(b"{}\n")
    (row,) = spark.read.parquet(str(tmp_path)).select("topic", "date", "body").collect()
    assert (row.topic, str(row.date), bytes(row.body)) == ("orders.eu", "2025-11-20", b"row")


def test_no_file_and_no_topic_are_errors(spark: Any, tmp_path: Path) -> None:
    for text in "no files with messages in", "no topic orders in":
        for read in (
            spark.read.format("nsq").option("topic", "orders").load,
            lambda path: nsq_archive(spark, path, topic="orders"),
        ):
            with pytest.raises(Exception, match=f"there (are|is) {text} {tmp_path}"):
                read(str(tmp_path)).count()
        settled(tmp_path / "logins.log", b"1\n")


def test_damage_in_parquet_and_jsonl_ends_a_query_by_name(spark: Any, archive: Path) -> None:
    data = bytearray((archive / "a.parquet").read_bytes())
    place = data.index(b"00000000000000000007")
    data[place] ^= 1
    (archive / "a.parquet").write_bytes(data)
    with pytest.raises(_SPARKS, match=r"a\.parquet"):
        nsq_archive(spark, str(archive / "a.parquet")).select("body").collect()
    torn = b'{"timestamp":1,"id":"x","bo\n'
    finished(archive / "b.jsonl", jsonl_of(messages(3)) + torn + jsonl_of(messages(3)))
    frame = nsq_archive(spark, str(archive / "b.jsonl"))
    for query in (frame.select("body").collect, frame.select("attempts").collect, frame.count):
        with pytest.raises(_SPARKS, match=r"b\.jsonl"):
            query()


def test_a_message_without_a_body_ends_a_query(spark: Any, tmp_path: Path) -> None:
    finished(tmp_path / "b.jsonl", jsonl_of(messages(2)) + b'{"timestamp":1,"id":"x"}\n')
    with pytest.raises(_SPARKS, match="no body"):
        nsq_archive(spark, str(tmp_path)).select("body").collect()


def test_two_objects_on_a_line_end_a_query(spark: Any, tmp_path: Path) -> None:
    """Spark's reader ignores what follows the first object of a line, so such a file is ours."""
    one, other = jsonl_of(messages(2)).splitlines()
    settled(tmp_path / "b.jsonl", one + other + b"\n")
    assert chosen(tmp_path) == ({}, ["b.jsonl"])
    with pytest.raises(_SPARKS, match=r"b\.jsonl is damaged at 0"):
        nsq_archive(spark, str(tmp_path)).count()
