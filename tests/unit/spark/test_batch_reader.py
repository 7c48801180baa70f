"""Partitions of archives, as tasks read them."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from nsq_spark.archive.splits import FileInfo, Format
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
