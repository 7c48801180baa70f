"""`spark.read.format("nsq")`: what is read, by which options, and what is said when it cannot be."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.archives import BASE_NS, Message, framed, messages

# One Spark for all of them.
pytestmark = [pytest.mark.ours, pytest.mark.xdist_group("spark")]

COLUMNS = [
    "topic",
    "channel",
    "timestamp",
    "timestamp_ns",
    "id",
    "attempts",
    "body",
    "nsqd",
    "file",
    "position",
]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Two topics: framed, and lines in gzip."""
    directory = tmp_path / "archive"
    directory.mkdir()
    orders, clicks = messages(300), messages(100, topic="clicks")
    (directory / "mixed.framed").write_bytes(framed([orders[:200], clicks, orders[200:]]))
    (directory / "logins.host.2025-11-20_10.log.gz").write_bytes(gzip.compress(b"anna\nbert\n"))
    return directory


def rows_of(spark: Any, path: Path | list[str], **options: object) -> list[Any]:
    given = path if isinstance(path, list) else str(path)
    return list(spark.read.format("nsq").options(**options).load(given).collect())


def test_a_message_is_a_row(spark: Any, archive: Path) -> None:
    frame = spark.read.format("nsq").load(str(archive))
    assert frame.columns == COLUMNS
    rows = frame.where("topic = 'orders'").orderBy("id").collect()
    expected = messages(300)
    assert [bytes(row.body) for row in rows] == [message.body for message in expected]
    assert [(row.id, row.attempts, row.timestamp_ns) for row in rows] == [
        (message.id, message.attempts, message.timestamp_ns) for message in expected
    ]
    assert {(row.channel, row.nsqd, row.file) for row in rows} == {
        ("archive", "127.0.0.1:4150", str(archive / "mixed.framed"))
    }
    assert rows[0].timestamp.timestamp() == BASE_NS // 10**9
    assert len({row.position for row in rows}) == 300


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"topic": "orders"}, 300),
        ({"topic": "clicks, logins"}, 102),
        ({"TOPICPATTERN": "^(cl|lo)"}, 102),
        ({"startTime": "2023-11-14T22:13:20.00000001Z", "endTime": "1700000000000000020"}, 20),
        ({"startTime": "now"}, 0),
        ({"topic": "none"}, 0),
    ],
)
def test_options_choose_messages(spark: Any, archive: Path, options: dict[str, str], count: int) -> None:
    assert len(rows_of(spark, archive, **options)) == count


def test_a_frame_that_is_used_again_counts_the_same(spark: Any, archive: Path) -> None:
    frame = spark.read.format("nsq").load(str(archive))
    orders = frame.where("topic = 'orders'")
    assert [orders.count(), frame.count(), orders.where("attempts = 1").count(), orders.count()] == [
        300,
        402,
        100,
        300,
    ]


def test_a_schema_chooses_columns(spark: Any, archive: Path) -> None:
    frame = spark.read.format("nsq").schema("position BIGINT, topic STRING").load(str(archive))
    assert frame.columns == ["position", "topic"]
    assert (
        sorted(row.topic for row in frame.collect()) == ["clicks"] * 100 + ["logins"] * 2 + ["orders"] * 300
    )


def test_the_body_as_text(spark: Any, tmp_path: Path) -> None:
    """As Spark casts it, also where it is no text; it may be there in addition to the body, and in any order."""
    bodies = [b"one", b"", "größer".encode(), b"\xff\xfe no text \xc3", b"\x00"]
    (tmp_path / "a.framed").write_bytes(framed([[Message(body) for body in bodies]]))
    frame = spark.read.format("nsq").schema("text STRING, id STRING, body BINARY").load(str(tmp_path))
    assert frame.columns == ["text", "id", "body"]
    assert frame.where("NOT text <=> CAST(body AS STRING) OR hex(text) != hex(body)").count() == 0
    assert [bytes(row.body) for row in frame.collect()] == bodies
    only = spark.read.format("nsq").schema("text STRING").load(str(tmp_path))
    assert only.where("contains(text, 'n')").count() == 2


def test_a_view_chooses_columns(spark: Any, archive: Path) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW some (topic STRING) USING nsq OPTIONS (path '{archive}')")
    assert spark.sql("SELECT * FROM some").columns == ["topic"]
    assert spark.sql("SELECT count(*) FROM some").collect() == [(402,)]


def test_files_in_many_splits_are_read_once(spark: Any, archive: Path) -> None:
    frame = spark.read.format("nsq").option("splitBytes", "1k").load(str(archive / "mixed.framed"))
    assert frame.rdd.getNumPartitions() > 4
    assert sorted(bytes(row.body) for row in frame.where("topic = 'orders'").select("body").collect()) == [
        message.body for message in messages(300)
    ]


def test_many_small_files_are_few_tasks(spark: Any, tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"t.{number}.log").write_bytes(b"%d\n" % number)
    frame = spark.read.format("nsq").load(str(tmp_path))
    assert frame.rdd.getNumPartitions() < 10
    assert frame.count() == 300


def test_executors_import_no_gevent(spark: Any, archive: Path) -> None:
    def seen(batches: Any) -> Any:
        import sys

        import pyarrow as pa

        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"is_there": ["gevent" in sys.modules]})

    frame = spark.read.format("nsq").load(str(archive)).mapInArrow(seen, "is_there BOOLEAN")
    assert {row.is_there for row in frame.collect()} == {False}


# ---- what cannot be read


@pytest.fixture
def damaged(archive: Path) -> Path:
    path = archive / "mixed.framed"
    data = bytearray(path.read_bytes())
    data[data.index(b"%020d" % 250)] ^= 1
    path.write_bytes(data)
    return archive


def test_damage_fails_and_says_where(spark: Any, damaged: Path) -> None:
    with pytest.raises(Exception, match=r"mixed\.framed is damaged at \d+: .*option skipDamaged"):
        rows_of(spark, damaged)


def test_a_stream_of_an_archive_says_what_to_use(spark: Any, damaged: Path) -> None:
    with pytest.raises(Exception, match="a stream reads a topic .* spark.readStream.schema"):
        spark.readStream.format("nsq").load(str(damaged)).writeStream.format("noop").start().awaitTermination(
            60
        )
    with pytest.raises(Exception, match="option topic: '\u00fc' is no name of a topic"):
        spark.readStream.format("nsq").options(nsqd="127.0.0.1:1", topic="\u00fc").load()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topik": "orders"}, "there is no option topik; is it topic?"),
        ({"format": "avro"}, "'avro' is no format; there are lines"),
    ],
)
def test_errors_name_the_option(spark: Any, archive: Path, options: dict[str, str], text: str) -> None:
    with pytest.raises(Exception) as raised:
        rows_of(spark, archive, **options)
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("load", "text"),
    [
        (lambda reader: reader.load(), "option path: no path is given"),
        (lambda reader: reader.load("/no/such"), "/no/such is not there"),
        (lambda reader: reader.schema("body STRING").load("/"), "there is no column body STRING"),
    ],
)
def test_errors_name_what_is_wrong(spark: Any, load: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(Exception) as raised:
        load(spark.read.format("nsq")).count()
    assert text in str(raised.value)
