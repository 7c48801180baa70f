"""Spark on the tables that nsq-to-file writes: Hive's partitions, and the files of Delta and Iceberg.

Spark's own readers of Delta and Iceberg are jars of theirs, which no package of Python brings: here it reads the files
that the table lists.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from deltalake import DeltaTable

from nsq_spark import nsq_archive
from tests.support.nsqd_process import NsqdProcess
from tests.support.tables import TABLE, make_table
from tests.support.tool_process import ToolProcess

pytestmark = [pytest.mark.ours, pytest.mark.xdist_group("spark")]


@pytest.mark.parametrize("flag", ["delta", pytest.param(f"iceberg:{TABLE}", marks=pytest.mark.slow)])
def test_spark_reads_what_other_engines_read(
    flag: str, spark: Any, nsqd: NsqdProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(tmp_path, flag, f"{tmp_path}/archive", monkeypatch)
    expected = [b"%03d" % number for number in range(100)]
    nsqd.create("orders", "archive")
    nsqd.post("/mpub?topic=orders", b"\n".join(expected))
    source = (
        f"--nsqd-tcp-address=127.0.0.1:{nsqd.tcp_port}",
        "--topic=orders",
        "--channel=archive",
        "--sync-interval=100ms",
    )
    names = (
        "--filename-format=topic=<TOPIC>/date=<DATETIME>/<HOST><REV>.parquet",
        "--datetime-format=%Y-%m-%d",
    )
    target = ("--format=parquet", f"--table={flag}", f"--output-dir={table.root}", *names)
    with ToolProcess("nsq_apps", "nsq_to_file", *source, *target, log_path=tmp_path / "log") as tool:
        nsqd.wait_for_channel("orders", "archive", depth=0, in_flight_count=0)
        assert tool.stop() == 0
    listed = spark.read.parquet(*(f"{table.root}/{path}" for path in table.files()))
    partitioned = spark.read.parquet(table.root).where("topic = 'orders' AND date >= '2020-01-01'")
    for frame in (
        listed,
        partitioned,
        nsq_archive(spark, table.root),
        spark.read.format("nsq").load(table.root),
    ):
        rows = frame.where("timestamp > '2020-01-01'").select("body", "timestamp_ns").collect()
        assert sorted(bytes(row.body) for row in rows) == expected == table.by_polars() == table.by_duckdb()
        assert sorted(row.timestamp_ns for row in rows) == sorted(table.arrow()["timestamp_ns"].to_pylist())
    gone = f"id = '{table.arrow()['id'][0]}'"
    if flag == "delta":
        DeltaTable(table.root).delete(gone)
        DeltaTable(table.root).optimize.compact()
    else:
        table.catalog.load_table(TABLE).delete(gone)
    for frame in nsq_archive(spark, table.root), spark.read.format("nsq").load(table.root):
        rows = frame.where("topic = 'orders'").select("body").collect()
        assert sorted(bytes(row.body) for row in rows) == table.by_polars()
        assert len(rows) == len(expected) - 1
