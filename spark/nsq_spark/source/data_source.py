"""`nsq` as a data source of PySpark.

Spark makes one in several processes for each query, so each imports only what it needs: readers and writers take 0.1 s
of processor time each.
"""

from __future__ import annotations

import time
from typing import ClassVar

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from nsq_spark.schema import ddl
from nsq_spark.source.declaration import PARALLELISM, TIME_ZONE, BadOption
from nsq_spark.source.live_options import has_stores, is_live, live_options, stream_of
from nsq_spark.source.options import read_columns, read_options, write_columns, write_options


class NsqDataSource(DataSource):
    """Reads archives as a table or a stream, and publishes what is written. `nsq_spark.source.options` has the options.

    spark.read.format("nsq").option("topic", "orders").load("/archive")
    """

    # Settings of the session that hold where an option does not say otherwise; `register` fills them in.
    settings: ClassVar[dict[str, str]] = {}

    @classmethod
    def name(cls) -> str:
        return "nsq"

    def schema(self) -> str:
        # What `streamReader` raises, PySpark replaces by its own error.
        if is_live(given := self._given()):
            live_options(given, time.time_ns())
        return ddl()

    def reader(self, schema: StructType) -> DataSourceReader:
        given = self._given()
        if is_live(given):
            from nsq_spark.source.live import LiveBatchReader

            options = live_options(given, time.time_ns())
            return LiveBatchReader(options, read_columns(schema))
        from nsq_spark.source.batch_reader import NsqReader

        return NsqReader(read_options(given, time.time_ns()), read_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        given = self._given()
        if is_live(given):
            from nsq_spark.source.live import LiveReader

            return LiveReader(stream_of(given, time.time_ns()), read_columns(schema))
        if has_stores(given):
            from nsq_spark.source.live import LiveReader

            return LiveReader(stream_of(given, time.time_ns(), needs_nsqds=False), read_columns(schema))
        raise BadOption(
            "nsq: a stream reads a topic (option nsqd or nsqlookupd), not an archive; Spark streams finished files of an "
            "archive itself: spark.readStream.schema(...).parquet(path), .json(path) or .text(path)"
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from nsq_spark.source.writer import NsqWriter

        if overwrite:
            raise BadOption('nsq: a topic cannot be overwritten; use mode("append")')
        options = write_options(self._given())
        return NsqWriter(options, write_columns(schema, options.topic))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from nsq_spark.source.writer import NsqStreamWriter

        options = write_options(self._given())
        return NsqStreamWriter(options, write_columns(schema, options.topic))

    def _given(self) -> dict[str, str]:
        return {**self.settings, **{name.lower(): value for name, value in self.options.items()}}


def session_settings(session: SparkSession) -> dict[str, str]:
    """Return the session's settings of Hadoop's file systems, `spark.hadoop.fs.…` without the first two words; its zone; and how
    many tasks run at once.
    """
    prefix = "spark.hadoop."
    found = {}
    for name, value in session.conf.getAll.items():
        if name.startswith(f"{prefix}fs."):
            found[name.removeprefix(prefix)] = value
    found[TIME_ZONE.lower()] = str(session.conf.get("spark.sql.session.timeZone"))
    if context := getattr(session, "sparkContext", None):  # a session of Spark Connect has none
        found[PARALLELISM] = str(context.defaultParallelism)
    return found


def register(session: SparkSession) -> None:
    """Register `nsq` with the session and its settings: of Hadoop's file systems, its time zone, and its parallelism."""
    session.dataSource.register(
        type("NsqDataSource", (NsqDataSource,), {"settings": session_settings(session)})
    )
