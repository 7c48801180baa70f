"""Partitions of archives, as tasks read them."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from nsq_spark.source.batch_reader import ArchivePartition, leave_out_of_collections, read_partition
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
