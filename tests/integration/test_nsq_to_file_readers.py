"""Archives of nsq-to-file in Parquet, read by other programs: in Hive's directories and without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pyarrow.parquet
import pytest

from nsq_spark.archive.names import topics_in
from tests.support.archives import read_messages, splits_of
from tests.support.written_files import manifest, message_files

pytestmark = pytest.mark.ours

TOPICS = ("orders.eu", "orders.us")
HIVE = ("--filename-format=topic=<TOPIC>/date=<DATETIME>/<HOST><REV>.parquet", "--datetime-format=%Y-%m-%d")
CHANNEL = "nsq_to_file"
EXPECTED = sorted((topic, b"%s %d" % (topic.encode(), number)) for topic in TOPICS for number in range(3))

Archive = Callable[..., Path]


@pytest.fixture
def archive(nsqd, start, tmp_path) -> Archive:
    """Return the directory that nsq-to-file has filled with these flags."""

    def make(*flags):
        for topic in TOPICS:
            nsqd.create(topic, CHANNEL)
            nsqd.mpub(topic, [body for name, body in EXPECTED if name == topic])
        output = tmp_path / "archive"
        run = (
            "--format=parquet",
            f"--output-dir={output}",
            "--sync-interval=100ms",
            *(f"--topic={topic}" for topic in TOPICS),
        )
        with start("nsq_to_file", f"--nsqd-tcp-address=127.0.0.1:{nsqd.tcp_port}", *run, *flags) as tool:
            for topic in TOPICS:
                nsqd.wait_for_channel(topic, CHANNEL, depth=0, in_flight_count=0)
            assert tool.stop() == 0
        assert len(manifest(output)) == len(message_files(output)) == len(TOPICS)
        return output

    return make


def rows_of(table: Any) -> Any:
    """The topics and bodies of a table of pyarrow."""
    return zip(table["topic"].to_pylist(), table["body"].to_pylist(), strict=True)


def by_pandas(path: Path) -> Any:
    import pandas

    frame = pandas.read_parquet(path)
    return zip(frame["topic"].astype(str), frame["body"], strict=True)


def by_duckdb(path: Path) -> Any:
    import duckdb

    with duckdb.connect() as connection:
        return connection.sql(f"SELECT topic, body FROM read_parquet('{path}/**/*.parquet')").fetchall()


def by_ours(path: Path) -> Any:
    return ((message.topic, message.body) for message in read_messages(splits_of(path)))


def by_polars(path: Path, **options: Any) -> Any:
    import polars

    return polars.scan_parquet(path, **options).select("topic", "body").collect().rows()


READERS: dict[str, Callable[[Path], Any]] = {
    "pandas": by_pandas,
    "pyarrow": lambda path: rows_of(pyarrow.parquet.read_table(path)),
    "a dataset of pyarrow": lambda path: rows_of(
        pyarrow.dataset.dataset(path, partitioning="hive").to_table()
    ),
    "polars": lambda path: by_polars(path, hidden_file_prefix=["_", "."]),
    "polars by a pattern": lambda path: by_polars(path / "**/*.parquet", hive_partitioning=True),
    "duckdb": by_duckdb,
    "ours": by_ours,
}


@pytest.mark.parametrize("flags", [(), HIVE], ids=["flat", "hive"])
def test_other_programs_read_the_archive(archive, flags):
    path = archive(*flags)
    for name, read in READERS.items():
        assert sorted((topic, bytes(body)) for topic, body in read(path)) == EXPECTED, name
    names = pyarrow.parquet.read_schema(message_files(path)[0]).names
    assert ("topic" in names) == (not flags)
    if flags:  # as Hive's own files, these do not store what their directories say
        assert {topics_in(str(file), str(path)) for file in message_files(path)} == {
            (topic,) for topic in TOPICS
        }
        (path / "_nsq_manifest").unlink()
        assert sorted(by_ours(path)) == EXPECTED
