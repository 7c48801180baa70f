"""Tables and object stores, after a kill between any two steps."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from nsq_tools.to_file.destinations import check_table, commit, upload
from nsq_tools.to_file.finishing import FinishedFile, repair
from nsq_tools.to_file.formats import parquet_schema
from nsq_tools.to_file.output import Claim, ManifestEntry, left_behind
from tests.support.s3 import environment_of, make_bucket
from tests.support.tables import TABLE, Table, make_table
from tests.unit.to_file_fakes import FakeBatch
from tests.unit.tools.test_to_file_archive import ArchiveHarness

pytestmark = pytest.mark.ours


@pytest.fixture(params=["delta", f"iceberg:{TABLE}", "delta in a store"])
def table(
    request: pytest.FixtureRequest, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Table:
    for name, value in environment_of(endpoint).items():
        monkeypatch.setenv(name, value)
    flag, _, in_store = request.param.partition(" ")
    return make_table(
        tmp_path, flag, f"{make_bucket(endpoint)}/archive" if in_store else f"{tmp_path}/archive", monkeypatch
    )


def closed(table: Table, directory: Path) -> FinishedFile:
    """A file of two messages that is synced, and not finished."""
    store = table.root if "://" in table.root else ""
    work, output = directory / "work", directory / "work" if store else Path(table.root)
    archive = ArchiveHarness(directory).archive(
        "parquet",
        "zstd",
        template="topic=topic/a b<REV>.parquet" if not store else "topic=topic/a<REV>.parquet",
        datetime_format="",
        work_dir=work,
        output_dir=output,
        skips_empty=True,
        store=store,
        table=table.flag,
    )
    archive.waiting.extend([FakeBatch(b"one", b"two")])
    archive.store(is_sync_due=True)
    archive.close()
    (file,) = archive.finished
    return file


def next_start(directory: Path) -> list[str]:
    files = [repair(claim) for claim in left_behind(directory / "work")]
    return [file.finish().path for file in files if file is not None]


def test_a_file_that_is_finished_again_is_in_the_table_once(table: Table, tmp_path: Path) -> None:
    """Killed after the commit, before the claim is released: the claim is there, and a file that was uploaded is not."""
    file = closed(table, tmp_path)
    name = file.finish().path
    Claim.make(tmp_path / "work", file.claim.token, file.claim.details).drop()
    assert next_start(tmp_path) == [name]
    assert table.files() == table.stored() == [name]
    assert table.arrow()["body"].to_pylist() == [b"one", b"two"]
    assert table.arrow()["timestamp_ns"].to_pylist() == [1000, 1001]
    assert not list((tmp_path / "work").rglob("*.parquet" if "://" in table.root else ".nsq*"))


@pytest.mark.parametrize("is_uploaded", [False, True])
def test_a_file_that_is_placed_is_committed_later(table: Table, tmp_path: Path, is_uploaded: bool) -> None:
    file = closed(table, tmp_path)
    details = file.claim.details
    file.claim.update(replace(details, store="", table=""))
    placed = file.finish().path
    entry = file.claim.details.entry
    Claim.make(tmp_path / "work", file.claim.token, replace(details, entry=entry)).drop()
    if is_uploaded and details.store:
        upload(
            tmp_path / "work" / placed, details.store, details.name.replace("<REV>", f"-{file.claim.token}")
        )
    (name,) = next_start(tmp_path)
    assert table.files() == table.stored() == [name]
    assert table.arrow().num_rows == 2


def test_a_file_whose_snapshot_has_expired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(tmp_path, f"iceberg:{TABLE}", f"{tmp_path}/archive", monkeypatch)
    file = closed(table, tmp_path)
    names = [file.finish().path, closed(table, tmp_path).finish().path]
    first = table.catalog.load_table(TABLE).snapshots()[0].snapshot_id
    table.catalog.load_table(TABLE).maintenance.expire_snapshots().by_id(first).commit()
    Claim.make(tmp_path / "work", file.claim.token, file.claim.details).drop()
    assert next_start(tmp_path) == names[:1]
    assert table.files() == names


@pytest.mark.parametrize(
    ("schema", "parts"), [(parquet_schema(), ["topic"]), (parquet_schema().remove(6), [])]
)
def test_a_table_that_cannot_have_our_files(schema: pa.Schema, parts: list[str], tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path), schema, partition_by=parts)
    with pytest.raises(OSError, match="is partitioned, or its columns are not those of nsq-to-file"):
        check_table("delta", str(tmp_path))


def test_a_file_that_is_neither_here_nor_in_the_store(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment_of(endpoint).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(OSError, match="neither .*gone nor the object gone is there"):
        upload(tmp_path / "gone", make_bucket(endpoint), "gone")


def test_readers_skip_files_by_their_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(tmp_path, "delta", f"{tmp_path}/archive", monkeypatch)
    entry = closed(table, tmp_path).finish()
    lines = (tmp_path / "archive/_delta_log/00000000000000000001.json").read_text().splitlines()
    (added,) = (line["add"] for line in map(json.loads, lines) if "add" in line)
    assert (added["path"], added["size"]) == ("topic=topic/a%20b-000000.parquet", asdict(entry)["bytes"])
    time = "1970-01-01T00:00:00.000001Z"
    assert json.loads(added["stats"]) == {
        "numRecords": 2,
        "minValues": {"topic": "topic", "timestamp": time, "timestamp_ns": 1000},
        "maxValues": {"topic": "topic", "timestamp": time, "timestamp_ns": 1001},
    }


# --- many small commits


def commit_small_files(table: Table, numbers: range) -> None:
    for number in numbers:
        name = f"{number}.parquet"
        pq.write_table(parquet_schema().empty_table(), Path(table.root) / name)
        size_bytes = (Path(table.root) / name).stat().st_size
        entry = ManifestEntry(
            name, "t", "c", "parquet", "none", 1, None, None, 0, size_bytes, "", False, 0, time.time_ns()
        )
        commit(table.flag, table.root, entry, f"token {number}", is_repeated=False)


def test_metadata_of_iceberg_do_not_grow_with_the_square_of_the_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(tmp_path, f"iceberg:{TABLE}", f"{tmp_path}/archive", monkeypatch)
    Path(table.root).mkdir()
    commit_small_files(table, range(25))
    found = table.catalog.load_table(TABLE)
    metadata = Path(found.location().removeprefix("file://")) / "metadata"
    assert len(list(metadata.glob("*.metadata.json"))) == 11, "the current one, and ten before it"
    snapshot = found.current_snapshot()
    assert snapshot is not None and len(snapshot.manifests(found.io)) < 10
    assert len(table.files()) == 25


def test_delta_forgets_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(tmp_path, "delta", f"{tmp_path}/archive", monkeypatch)
    Path(table.root).mkdir()
    now_ns = time.time_ns()
    with monkeypatch.context() as month_ago:
        month_ago.setattr(time, "time_ns", lambda: now_ns - 31 * 86_400 * 10**9)
        commit_small_files(table, range(1))
    commit_small_files(table, range(1, 2))
    delta = DeltaTable(table.root)
    assert delta.metadata().configuration == {"delta.setTransactionRetentionDuration": "interval 30 days"}
    delta.create_checkpoint()
    (checkpoint,) = Path(table.root, "_delta_log").glob("*.checkpoint.parquet")
    kept = [row["appId"] for row in pq.read_table(checkpoint)["txn"].to_pylist() if row]
    assert kept == ["token 1"]


def test_a_file_whose_transaction_delta_has_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(tmp_path, "delta", f"{tmp_path}/archive", monkeypatch)
    now = time.time_ns()
    with monkeypatch.context() as month_ago:
        month_ago.setattr(time, "time_ns", lambda: now - 31 * 86_400 * 10**9)
        file = closed(table, tmp_path)
        name = file.finish().path
    assert DeltaTable(table.root).transaction_version(file.claim.token) is None
    Claim.make(tmp_path / "work", file.claim.token, file.claim.details).drop()
    assert next_start(tmp_path) == [name]
    assert table.files() == [name]
