"""Directories that Delta or Iceberg tables are in: readers read the rows of the table, and nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from deltalake import DeltaTable, write_deltalake
from pyarrow import fs

from nsq_spark.archive.listing import list_files
from nsq_spark.archive.read import read
from nsq_spark.archive.splits import ArchiveError, Requested, plan_splits
from nsq_spark.archive.storage import Storage
from nsq_tools.cat.files import NoMessages, files_of
from nsq_tools.to_file.destinations import check_table, commit
from nsq_tools.to_file.formats import parquet_schema
from nsq_tools.to_file.output import ManifestEntry
from tests.support.s3 import environment_of, make_bucket
from tests.support.tables import TABLE, Table, make_table

pytestmark = pytest.mark.ours

KINDS = ["delta", f"iceberg:{TABLE}"]
MakeTable = Callable[..., Table]


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeTable:
    """A table with a file for each topic, of three messages each."""

    def make(flag: str, root: str = "") -> Table:
        table = make_table(tmp_path, flag, root or f"{tmp_path}/archive", monkeypatch)
        if not root:
            Path(table.root).mkdir(exist_ok=True)
        check_table(flag, table.root)
        for topic in "orders", "payments":
            add(table, f"topic={topic}/a b.parquet", topic)
        return table

    return make


def rows_of(topic: str, count: int = 3) -> pa.Table:
    rows = [
        {
            "topic": topic,
            "channel": "c",
            "timestamp": datetime.fromisoformat("2026-11-28T10:00:00Z"),
            "timestamp_ns": 1,
            "id": f"{number:016x}",
            "attempts": 1,
            "body": f"{topic}{number}".encode(),
            "nsqd": "n",
        }
        for number in range(count)
    ]
    return pa.Table.from_pylist(rows, parquet_schema())


def add(table: Table, name: str, topic: str) -> None:
    """Write a file and commit it as nsq-to-file does."""
    files, root = fs.FileSystem.from_uri(table.root)
    files.create_dir(f"{root}/{name}".rpartition("/")[0])
    with files.open_output_stream(f"{root}/{name}") as file:
        pq.write_table(rows_of(topic), file)
        size_bytes = file.tell()
    entry = ManifestEntry(name, topic, "c", "parquet", "none", 3, 1, 1, 0, size_bytes, "", False, 0, 1)
    commit(table.flag, table.root, entry, name, is_repeated=False)


ALL = [f"{topic}{number}".encode() for topic in ("orders", "payments") for number in range(3)]


def by_spark_readers(
    *paths: str, storage: Storage | None = None, requested: Requested | None = None
) -> list[bytes]:
    storage = storage or Storage()
    splits = plan_splits(list_files(paths, storage, requested=requested), requested=requested)
    return sorted(
        body
        for split in splits
        for chunk in read(split, storage, requested)
        for body in chunk.bodies.to_pylist()
    )


def by_nsq_cat(*paths: str) -> list[bytes]:
    found = []
    for path, failure in files_of(paths):
        if failure is not None:
            raise failure
        found += pq.read_table(path, partitioning=None)["body"].to_pylist()
    return sorted(found)


def rewrite(table: Table) -> None:
    """Delete two of six rows, and what Delta has as OPTIMIZE. The old files stay where they are."""
    if table.flag == "delta":
        DeltaTable(table.root).delete("id = '0000000000000001'")
        DeltaTable(table.root).optimize.compact()
    else:
        table.catalog.load_table(TABLE).delete("id = '0000000000000001'")


LEFT = [body for body in ALL if not body.endswith(b"1")]


# ---- what is read


@pytest.mark.parametrize("flag", KINDS)
def test_rewritten_rows_are_read_once(flag: str, archive: MakeTable) -> None:
    table = archive(flag)
    assert by_spark_readers(table.root) == by_nsq_cat(table.root) == ALL
    rewrite(table)
    assert sorted(table.arrow()["body"].to_pylist()) == LEFT
    for path in table.root, f"{table.root}/", str(Path(table.root).parent):
        assert by_spark_readers(path) == by_nsq_cat(path) == LEFT
    assert by_spark_readers(table.root, requested=Requested(topics=frozenset(["orders"]))) == [
        b"orders0",
        b"orders2",
    ]


@pytest.mark.parametrize("flag", KINDS)
def test_tables_in_a_store(
    flag: str, endpoint: str, archive: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment_of(endpoint).items():
        monkeypatch.setenv(name, value)
    table = archive(flag, f"{make_bucket(endpoint)}/archive")
    rewrite(table)
    for name in environment_of(endpoint):
        monkeypatch.delenv(name)
    settings = {
        "endpoint": endpoint,
        "access.key": "key",
        "secret.key": "secret",
        "endpoint.region": "us-east-1",
    }
    storage = Storage({f"fs.s3a.{name}": value for name, value in settings.items()})
    for path in table.root, table.root.replace("s3:", "s3a:"):
        assert by_spark_readers(path, storage=storage) == LEFT
    with pytest.raises(ArchiveError, match="is a part of the .* table in s3://"):
        by_spark_readers(f"{table.root}/topic=orders", storage=storage)


def test_a_table_that_nsq_to_file_did_not_make(tmp_path: Path) -> None:
    """With the log of Delta as Spark leaves it: the directory of checkpoints, and old files."""
    write_deltalake(tmp_path, rows_of("orders"))
    DeltaTable(tmp_path).update(updates={"body": "X'58'"}, predicate="id = '0000000000000001'")
    DeltaTable(tmp_path).create_checkpoint()
    assert by_spark_readers(str(tmp_path)) == by_nsq_cat(str(tmp_path)) == [b"X", b"orders0", b"orders2"]


def test_a_delta_table_without_rows(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path / "new", parquet_schema())
    write_deltalake(tmp_path / "emptied", rows_of("orders"))
    DeltaTable(tmp_path / "emptied").delete()
    requested = Requested(frozenset(("orders",)))
    for name in "new", "emptied":
        root = str(tmp_path / name)
        assert list_files([root], Storage()) == list_files([root], Storage(), None, requested) == []
        assert list(files_of([root])) == []
    with pytest.raises(ArchiveError, match="no files with messages"):
        list_files([str(tmp_path / "new" / "_delta_log")], Storage())


def test_an_iceberg_table_by_its_own_directory(tmp_path: Path, archive: MakeTable) -> None:
    table = archive(KINDS[1])
    rewrite(table)
    location = table.catalog.load_table(TABLE).location().removeprefix("file://")
    assert by_spark_readers(location) == by_nsq_cat(location) == LEFT
    assert by_spark_readers(location, table.root) == LEFT


def test_other_files_of_the_directory_are_read_as_before(archive: MakeTable) -> None:
    table = archive("delta")
    rewrite(table)
    Path(table.root, "old.log").write_bytes(b"a line\n")
    assert by_spark_readers(table.root) == sorted([*LEFT, b"a line"])
    assert [Path(path).name for path, _ in files_of([table.root])].count("old.log") == 1


@pytest.mark.parametrize("flag", KINDS)
def test_a_name_of_a_file_is_always_read(flag: str, archive: MakeTable) -> None:
    table = archive(flag)
    rewrite(table)
    path = f"{table.root}/topic=orders/a b.parquet"
    assert by_spark_readers(path) == by_nsq_cat(path) == [b"orders0", b"orders1", b"orders2"]


@pytest.mark.parametrize("flag", KINDS)
def test_patterns_that_match_a_whole_table(flag: str, archive: MakeTable) -> None:
    table = archive(flag)
    for pattern in "*", "**/*.parquet", "../arch*":
        assert by_spark_readers(f"{table.root}/{pattern}") == ALL
    rewrite(table)
    for pattern in "*", "../arch*":
        assert by_spark_readers(f"{table.root}/{pattern}") == LEFT


@pytest.mark.parametrize("flag", KINDS)
def test_names_that_a_shell_makes_of_a_pattern(flag: str, archive: MakeTable) -> None:
    table = archive(flag)
    add(table, "refunds.parquet", "refunds")
    rewrite(table)
    names = [f"{table.root}/{name}" for name in sorted(os.listdir(table.root))]
    with pytest.raises(NoMessages, match="is a part of the"):
        by_nsq_cat(*names)
    expected = sorted([*LEFT, b"refunds0", b"refunds2"])
    assert by_nsq_cat(*(name for name in names if "topic=" not in name)) == expected


def test_a_link_to_a_table(archive: MakeTable, tmp_path: Path) -> None:
    table = archive("delta")
    rewrite(table)
    (tmp_path / "linked").symlink_to(table.root)
    assert by_spark_readers(f"{tmp_path}/linked") == by_nsq_cat(f"{tmp_path}/linked") == LEFT


# ---- what is refused


@pytest.mark.parametrize("flag", KINDS)
def test_a_part_of_a_table(flag: str, archive: MakeTable) -> None:
    """What OPTIMIZE or DELETE wrote may be anywhere in the table."""
    table = archive(flag)
    rewrite(table)
    sentence = f"topic=orders is a part of the (Delta|Iceberg) table in {table.root}: read {table.root}, "
    with pytest.raises(ArchiveError, match=sentence):
        by_spark_readers(f"{table.root}/topic=orders")
    with pytest.raises(ArchiveError, match="is a part of the"):
        by_spark_readers(f"{table.root}/topic=*/*.parquet")
    with pytest.raises(Exception, match=sentence):
        by_nsq_cat(f"{table.root}/topic=orders")


def add_to_log(root: str, *actions: dict[str, Any]) -> None:
    log = Path(root, "_delta_log")
    (log / f"{len(list(log.glob('*.json'))):020d}.json").write_text(
        "".join(f"{json.dumps(action)}\n" for action in actions)
    )


def protocol(*features: str) -> dict[str, Any]:
    names = list(features)
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": names,
            "writerFeatures": names,
        }
    }


def test_deletion_vectors(archive: MakeTable) -> None:
    table = archive("delta")
    add_to_log(table.root, protocol("deletionVectors"))
    assert by_spark_readers(table.root) == ALL, "it may have them, and has none"
    lines = Path(table.root, "_delta_log/00000000000000000001.json").read_text().splitlines()
    (added,) = (line["add"] for line in map(json.loads, lines) if "add" in line)
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 4,
        "sizeInBytes": 40,
        "cardinality": 1,
    }
    gone = {"path": added["path"], "deletionTimestamp": 1, "dataChange": True}
    add_to_log(table.root, {"remove": gone}, {"add": {**added, "deletionVector": vector}})
    for read_all in by_spark_readers, by_nsq_cat:
        with pytest.raises(
            Exception,
            match=r"Delta table in .* has deletion vectors.*REORG TABLE delta\.`.*` APPLY \(PURGE\)",
        ):
            read_all(table.root)


@pytest.mark.parametrize("feature", ["columnMapping", "variantType", "ofNextYear"])
def test_features_that_readers_of_files_do_not_know(feature: str, archive: MakeTable) -> None:
    table = archive("delta")
    lines = Path(table.root, "_delta_log/00000000000000000000.json").read_text().splitlines()
    (metadata,) = (line["metaData"] for line in map(json.loads, lines) if "metaData" in line)
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"], 1):
        field["metadata"] = {
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": f"col-{number}",
        }
    if feature == "columnMapping":
        metadata["schemaString"] = json.dumps(schema)
        metadata["configuration"] = {"delta.columnMapping.mode": "name"}
    add_to_log(table.root, protocol(feature), {"metaData": metadata})
    with pytest.raises(ArchiveError, match=f"the Delta table in {table.root} .*{feature}"):
        by_spark_readers(table.root)


def test_a_table_whose_columns_are_in_the_names_of_directories(tmp_path: Path) -> None:
    write_deltalake(tmp_path, rows_of("orders"), partition_by=["topic"])
    with pytest.raises(ArchiveError, match=r"is partitioned by topic, .*not in its files"):
        by_spark_readers(str(tmp_path))


def test_deletes_of_iceberg_in_files_of_their_own(
    archive: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = archive(KINDS[1])
    from pyiceberg.table import StaticTable

    real = StaticTable.scan

    def scan(self: StaticTable) -> Any:
        (scan := real(self)).plan_files = lambda: [type("Task", (), {"file": None, "delete_files": {"x"}})()]
        return scan

    monkeypatch.setattr(StaticTable, "scan", scan)  # pyiceberg does not write them
    with pytest.raises(ArchiveError, match=r"the Iceberg table in .* has delete files.*rewrite_data_files"):
        by_spark_readers(table.root)


def test_two_versions_of_which_one_was_not_committed(archive: MakeTable) -> None:
    table = archive(KINDS[1])
    location = Path(table.catalog.load_table(TABLE).metadata_location.removeprefix("file://"))
    (location.parent / f"{location.name.partition('-')[0]}-other.metadata.json").write_bytes(
        location.read_bytes()
    )
    with pytest.raises(ArchiveError, match="two files of version"):
        by_spark_readers(table.root)


def test_a_file_of_the_table_that_is_gone(archive: MakeTable) -> None:
    table = archive("delta")
    Path(table.root, "topic=orders/a b.parquet").unlink()
    for read_all in by_spark_readers, by_nsq_cat:
        with pytest.raises(
            Exception, match=r"table in .* lists .*topic=orders/a b\.parquet, which is not there"
        ):
            read_all(table.root)


def test_without_the_package(archive: MakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table = archive("delta")
    monkeypatch.setitem(__import__("sys").modules, "deltalake", None)
    for read_all in by_spark_readers, by_nsq_cat:
        with pytest.raises(Exception, match=r"Delta table in .*: pip install 'nsqd-py\[delta\]'"):
            read_all(table.root)
