"""Partitions of archives, as tasks read them."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import pytest

from nsq_spark.archive.listing import list_files
from nsq_spark.archive.splits import ArchiveError, FileInfo, Format
from nsq_spark.archive.storage import Storage
from nsq_spark.source.batch_reader import (
    ArchivePartition,
    leave_out_of_collections,
    partitions_of,
    read_partition,
)
from nsq_spark.source.options import read_options


def test_the_modules_of_a_worker_are_left_out_of_garbage_collections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: what a later task leaves behind is collected."""
    frozen: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append("all objects"))
    leave_out_of_collections.cache_clear()
    partition = ArchivePartition(read_options({"path": str(tmp_path)}, 0), ("body",))
    for _ in range(2):
        assert list(read_partition(partition)) == []
    assert frozen == ["all objects"]


@pytest.mark.parametrize(
    ("form", "columns", "given", "tasks"),
    [
        (Format.PARQUET, ("body",), {}, 8),
        (Format.PARQUET, ("id", "body"), {"parallelism": "2"}, 4),
        (Format.PARQUET, ("position",), {}, 4),
        (Format.PARQUET, ("position",), {"parallelism": "2"}, 2),
        (Format.PARQUET, ("position",), {"splitBytes": "32MiB"}, 16),
        (Format.JSONL, ("position",), {"parallelism": "2"}, 4),
    ],
)
def test_tasks_read_as_much_of_a_file_as_their_columns_need(
    form: Format, columns: tuple[str, ...], given: dict[str, str], tasks: int
) -> None:
    files = [FileInfo(f"/a/{number}", 32 << 20, 0, form) for number in range(16)]
    assert len(partitions_of(files, read_options({"path": "/a", **given}, 0), columns)) == tasks


@pytest.mark.parametrize(
    ("count", "body_bytes", "batches"), [(3000, 10, 1), (10, 1 << 20, 3)], ids=["small", "large"]
)
def test_messages_of_topics_that_alternate_come_in_few_batches(
    tmp_path: Path, count: int, body_bytes: int, batches: int
) -> None:
    """A batch for each message took spark-replay 0.6 ms of processor time a message. Batches stay small in bytes."""
    topics = [f"orders{number % 2}" for number in range(count)]
    rows: list[tuple[int, str]] = []
    assert _read(tmp_path, _lines(topics, body_bytes), rows) == batches
    assert rows == list(enumerate(topics))


def test_what_is_in_front_of_damage_is_read(tmp_path: Path) -> None:
    topics = ["orders", "clicks", "orders"]
    rows: list[tuple[int, str]] = []
    with pytest.raises(ArchiveError, match="is damaged"):
        _read(tmp_path, [*_lines(topics, 10), "{no JSON", *_lines(topics, 10)], rows)
    assert rows == list(enumerate(topics))


def _lines(topics: list[str], body_bytes: int) -> list[str]:
    return [
        json.dumps({"timestamp": number, "topic": topic, "body": "x" * body_bytes})
        for number, topic in enumerate(topics)
    ]


def _read(directory: Path, lines: list[str], rows: list[tuple[int, str]]) -> int:
    """Return the number of batches; put the time and the topic of each message of a file into `rows`."""
    path = directory / "all.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    files = list_files([str(path)], Storage())
    (partition,) = partitions_of(
        files, read_options({"path": str(path)}, 0), ("timestamp_ns", "topic", "body")
    )
    batches = 0
    for batch in read_partition(partition):
        batches += 1
        times_ns, topics, _ = batch.columns
        rows += zip(times_ns.to_pylist(), topics.to_pylist(), strict=True)
    return batches
