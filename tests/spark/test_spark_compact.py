"""spark-compact: sealed log files of a store become Parquet files, Delta and Iceberg tables; each message once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq

from nsq_spark.archive.splits import ArchiveError
from nsq_spark.compact import tables
from nsq_spark.compact.command import Compaction
from nsq_spark.compact.options import CompactOptions
from tests.support.archived_topic import TOPIC, publish
from tests.support.nsqd_process import MakeNsqd, NsqdProcess
from tests.support.stored import STORE, StoreOfFiles
from tests.support.tables import TABLE, Table, make_table

pytestmark = [pytest.mark.ours, pytest.mark.xdist_group("spark")]

SMALL_FILES = "--max-bytes-per-file=16384"
PARQUET, DELTA, ICEBERG = "", "delta", f"iceberg:{TABLE}"


@pytest.fixture
def nsqd(make_nsqd: MakeNsqd) -> NsqdProcess:
    nsqd = make_nsqd(SMALL_FILES)
    publish(nsqd, range(100))
    publish(nsqd, range(40), "clicks")
    for topic in (TOPIC, "clicks"):  # so that it writes the epochs of its logs
        assert nsqd.http("GET", f"/topic/read?topic={topic}&seq=0").status == 200
    return nsqd


@pytest.fixture
def store(nsqd: NsqdProcess, tmp_path: Path) -> StoreOfFiles:
    store = StoreOfFiles((tmp_path / "store").as_uri())
    store.base(nsqd.data_path)
    return store


class Lake:
    """What messages are compacted into, and what a reader finds in it."""

    def __init__(self, flag: str, directory: Path, environment: pytest.MonkeyPatch) -> None:
        self.flag = flag
        self.directory = directory / "lake"
        self._table: Table | None = (
            make_table(directory, flag, str(self.directory), environment) if flag else None
        )

    def work(self, store: StoreOfFiles, **more: Any) -> Compaction:
        place = {} if self.flag.startswith("iceberg") else {"output_dir": str(self.directory)}
        return Compaction.of(CompactOptions(store=(store.url,), table=self.flag, **place, **more))

    def rows(self) -> pa.Table:
        if self._table is not None:
            return self._table.arrow()
        return pa.concat_tables([pq.read_table(path) for path in self.files()])

    def files(self) -> list[Path]:
        return sorted(self.directory.glob("*.parquet"))

    def messages(self, topic: str = TOPIC) -> list[tuple[int, int]]:
        """The numbers of messages, and the bodies."""
        rows = self.rows().to_pylist()
        return sorted((row["position"], int(row["body"])) for row in rows if row["topic"] == topic)


@pytest.fixture(params=[PARQUET, DELTA, ICEBERG], ids=["parquet", "delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    return Lake(request.param, tmp_path, monkeypatch)


def sealed(store: StoreOfFiles, topic: str = TOPIC) -> int:
    """The number after the last message in a file that does not grow any more."""
    return max(one.end_seq for one in store.files() if one.topic == topic)


def same(count: int) -> list[tuple[int, int]]:
    return [(number, number) for number in range(count)]


def test_each_message_once_whatever_is_killed(
    spark: Any, nsqd: NsqdProcess, store: StoreOfFiles, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = lake.work(store, file_size=40_000)
    written = work.run(spark)
    assert lake.messages() == same(sealed(store))
    assert lake.messages("clicks") == same(sealed(store, "clicks"))
    assert len(written) < len(store.files())  # several log files become one
    assert lake.work(store).groups == []

    publish(nsqd, range(100, 200))
    store.round(nsqd.data_path, seals=True)
    killed = lake.work(store, topic=(TOPIC,), file_size=1)
    with monkeypatch.context() as patch:
        patch.setattr(killed._table, "add", _kill)
        with pytest.raises(KeyboardInterrupt):
            killed.run(spark)
    lake.work(store).run(spark)
    assert lake.messages() == same(sealed(store))
    row = min(
        lake.rows().filter(pa.compute.field("topic") == TOPIC).to_pylist(), key=lambda row: row["position"]
    )
    assert (row["nsqd"], row["attempts"], len(row["id"])) == (store.node, 0, 16)
    assert row["timestamp_ns"] // 1000 == row["timestamp"].timestamp() * 10**6
    # The same table is read by the data source.
    if lake.flag != ICEBERG:
        frame = spark.read.format("nsq").options(topic=TOPIC).load(str(lake.directory))
        assert frame.count() == sealed(store)


def _kill(written: object) -> None:
    raise KeyboardInterrupt


def test_one_that_was_planned_before_another_one_has_added(
    spark: Any, store: StoreOfFiles, lake: Lake
) -> None:
    first = lake.work(store, file_size=1)
    second = lake.work(store)
    first.run(spark)
    with pytest.raises(ArchiveError, match="another spark-compact has added to it since this one began"):
        second.run(spark)
    assert lake.messages() == same(sealed(store))


def test_what_the_store_lost_in_between_is_reported(
    spark: Any, nsqd: NsqdProcess, store: StoreOfFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(PARQUET, tmp_path, monkeypatch)
    lake.work(store).run(spark)
    before = sealed(store)
    publish(nsqd, range(100, 160))
    store.round(nsqd.data_path, seals=True)
    gone = next(one for one in store.files() if one.topic == TOPIC and one.first_seq >= before)
    store.drop(
        *(one.local_name for one in store.files() if one.topic == TOPIC and one.end_seq <= gone.end_seq)
    )
    work = lake.work(store)
    assert {log.topic: count for log, count in work.lost.items()} == {TOPIC: gone.end_seq - before}
    work.run(spark)
    assert [number for number, _ in lake.messages()] == [*range(before), *range(gone.end_seq, sealed(store))]
    assert lake.work(store).lost == {}


def test_damage(spark: Any, store: StoreOfFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table has all messages before a number, so a file behind the damaged one waits."""
    lake = Lake(DELTA, tmp_path, monkeypatch)
    second = [one for one in store.files() if one.topic == TOPIC][1]
    path = tmp_path / "store" / second.name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArchiveError, match=f"{second.name} is damaged at .*--skip-damaged leaves it out"):
        lake.work(store, file_size=1).run(spark)
    assert lake.messages() == same(second.first_seq)
    lake.work(store, skip_damaged=True).run(spark)
    found = [number for number, _ in lake.messages()]
    assert found[-1] == sealed(store) - 1
    assert len(set(found)) == len(found) == sealed(store) - 10


def test_a_table_that_forgets_is_refused(
    store: StoreOfFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deltalake import DeltaTable

    configuration = {"delta.setTransactionRetentionDuration": "interval 30 days"}
    DeltaTable.create(tmp_path / "lake", tables.table_schema(), configuration=configuration)
    with pytest.raises(OSError, match="forgets after a time what was compacted"):
        Lake(DELTA, tmp_path, monkeypatch).work(store)


def test_a_table_and_files_without_one_do_not_share_a_directory(
    spark: Any, store: StoreOfFiles, tmp_path: Path
) -> None:
    """A reader of all Parquet files in it would find messages twice."""

    def work(name: str, table: str) -> Compaction:
        options = CompactOptions(store=(store.url,), output_dir=str(tmp_path / name), table=table)
        return Compaction.of(options)

    work("files", PARQUET).run(spark)
    with pytest.raises(OSError, match="has Parquet files of spark-compact without --table"):
        work("files", DELTA)
    assert work("files", PARQUET).groups == []
    work("table", DELTA)
    with pytest.raises(OSError, match="is a Delta table: add to it with --table=delta"):
        work("table", PARQUET)
    assert work("table", DELTA).groups


def test_the_command(store: StoreOfFiles, tmp_path: Path, spark_environment: dict[str, str]) -> None:
    environment = {**spark_environment, "PYTHONPATH": f"{spark_environment['PYTHONPATH']}:apps"}

    def run(*flags: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "nsq_apps.spark_compact", *flags]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        return done.returncode, done.stdout, done.stderr

    lake = tmp_path / "lake"
    status, output, errors = run(store.url, "--topic=orders", f"--output-dir={lake}", "--master=local[2]")
    assert (status, errors) == (0, "")
    assert output.startswith(f"compacted {sealed(store)} messages of 1 topics into 1 files, ")
    (path,) = lake.glob("*.parquet")
    assert path.name.startswith(f"{STORE}-{TOPIC}-")
    assert run(store.url, f"--output-dir={lake}", "--topic=orders") == (
        0,
        "there is nothing new to compact\n",
        "",
    )
    assert run(str(tmp_path), f"--output-dir={lake}")[2].startswith(f"spark-compact: {tmp_path} is no store")
    assert "--output-dir is required" in run(store.url)[2]
