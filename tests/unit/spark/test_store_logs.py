"""A store as Spark's tasks read it, without Spark: which numbers of which file, and where a stream is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadMaxRows

from nsq_spark.archive import store_logs
from nsq_spark.archive.listing import list_files, survey
from nsq_spark.archive.read import read
from nsq_spark.archive.splits import ArchiveError, Damage, Requested, Split, plan_splits
from nsq_spark.archive.storage import Storage
from nsq_spark.compact.command import Compaction
from nsq_spark.compact.options import CompactOptions
from nsq_spark.source.batch_reader import slice_name
from nsq_spark.source.live import LiveReader
from nsq_spark.source.live_options import has_stores, stream_of
from nsqd_py.store import image
from nsqd_py.store.layout import round_name
from tests.support.stored import NODE, PER_RECORD, GrowingLog, StoreOfFiles, a_compacted_log

# What the sparse file has, of what no other file has; and what those have.
CUT = [seq for low in (0, 6, 24, 30) for seq in range(low, low + PER_RECORD)]
WHOLE = [*range(12, 24), *range(36, 48)]


@pytest.fixture
def store(tmp_path: Path) -> StoreOfFiles:
    store = StoreOfFiles((tmp_path / "store").as_uri())
    a_compacted_log(store, tmp_path)
    return store


def stream(store: StoreOfFiles, **more: str) -> LiveReader:
    given = {"path": store.url, "topic": "orders", "failOnDataLoss": "false", **more}
    return LiveReader(stream_of(given, 0, needs_nsqds=False), ("position", "id"))


def positions(one: LiveReader, start: Any, end: Any) -> list[int]:
    found: list[int] = []
    for part in one.partitions(start, end):
        for batch in one.read(part):
            rows = batch.to_pydict()
            assert [int(text, 16) - 1000 for text in rows["id"]] == rows["position"]
            found += rows["position"]
    return found


def test_a_file_that_compaction_made_of_several(store: StoreOfFiles) -> None:
    splits = plan_splits(list_files([store.url], Storage()))
    found = [seq for split in splits for chunk in read(split, Storage()) for seq in chunk.positions.tolist()]
    assert found == sorted(CUT + WHOLE)
    assert len({slice_name(split) for split in splits}) == len(splits) == 4
    assert len({split.path for split in splits}) == 3


@pytest.mark.parametrize("most", [1, 4, 7, 100])
def test_a_stream_of_it(store: StoreOfFiles, most: int) -> None:
    one = stream(store)
    offset = one.initialOffset()
    found: list[int] = []
    while (end := one.latestOffset(offset, ReadMaxRows(most))) != offset:
        batch = positions(one, offset, end)
        assert len(batch) <= most
        (known,) = end["topics"]["orders"].values()
        found += batch
        last_id = 1000 + max(found, default=-1)
        assert int(known["id"], 16) == last_id
        by_id = stream(store, startingOffsets=json.dumps({NODE: f"{last_id:016x}"}))
        start = by_id.initialOffset()
        assert positions(by_id, start, by_id.latestOffset(start, ReadMaxRows(1000))) == sorted(
            seq for seq in CUT + WHOLE if seq > max(found)
        )
        offset = end
    assert sorted(found) == sorted(CUT + WHOLE)


def test_a_damaged_head_and_what_is_no_store(store: StoreOfFiles, tmp_path: Path) -> None:
    assert has_stores({"path": store.url})
    head = tmp_path / "store" / "head.json"
    head.write_bytes(head.read_bytes()[:-9])
    with pytest.raises(ArchiveError, match="head.json is damaged or foreign"):
        list_files([store.url], Storage())
    other = tmp_path / "other"
    other.mkdir()
    (other / "head.json").write_text('{"title": "something else"}')
    assert not has_stores({"path": str(other)})
    with pytest.raises(ArchiveError, match="there are no files with messages"):
        list_files([str(other)], Storage())
    with pytest.raises(ArchiveError, match="is no store of nsqd"):
        Compaction.of(CompactOptions(store=(str(other),), output_dir=str(tmp_path / "lake")))


def test_rounds_that_the_writer_has_removed(tmp_path: Path) -> None:
    store = StoreOfFiles((tmp_path / "store").as_uri())
    GrowingLog(tmp_path / "data").grow(4)
    store.base(tmp_path / "data")
    (split,) = plan_splits(list_files([store.url], Storage()), requested=Requested())
    store.base(tmp_path / "data")
    store.objects.delete(["rounds/0000000000000001"])
    with pytest.raises(ArchiveError, match="are not there any more: read the store again"):
        list(read(split, Storage()))
    assert len(list_files([store.url], Storage())) == 1


def grown(tmp_path: Path) -> StoreOfFiles:
    """Twelve messages in a base, and twelve in each of three rounds."""
    store = StoreOfFiles((tmp_path / "store").as_uri())
    log = GrowingLog(tmp_path / "data")
    log.grow(4)
    store.base(tmp_path / "data")
    for _ in range(3):
        log.grow(4)
        store.round(tmp_path / "data")
    return store


def test_a_round_that_is_lost_between_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = grown(tmp_path)
    complete = [
        seq for split in plan_splits(list_files([store.url], Storage())) for seq in positions_in(split)
    ]
    store.objects.delete([round_name(3)])
    with pytest.raises(ArchiveError, match=f"{round_name(3)} is missing: it was deleted or lost"):
        list_files([store.url], Storage())
    monkeypatch.setattr(store_logs, "_read", {})  # as another process, which has not read the round before
    left = survey([store.url], Storage(), skips_damaged=True).files
    found = [seq for split in plan_splits(left) for seq in positions_in(split)]
    assert found == [seq for seq in complete if seq not in range(24, 36)]


def positions_in(split: Split) -> list[int]:
    return [
        seq for chunk in read(split, Storage(), damage=Damage("skip")) for seq in chunk.positions.tolist()
    ]


def test_a_stream_finds_a_lost_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "_LOOK_AGAIN_S", 0.0)
    store = grown(tmp_path)
    one = stream(store, failOnDataLoss="true")
    start = one.initialOffset()
    store.objects.delete([round_name(3)])
    with pytest.raises(ArchiveError, match=f"{round_name(3)} is missing"):
        stream(store, failOnDataLoss="true").latestOffset(start, ReadMaxRows(1000))


def test_a_store_without_its_head(tmp_path: Path) -> None:
    store = grown(tmp_path)
    store.objects.delete(["head.json"])
    with pytest.raises(ArchiveError, match=r"this is a store of nsqd whose head\.json is missing"):
        list_files([store.url], Storage())
