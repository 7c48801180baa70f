"""The ends of logs that are too many for the memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsqd_py.store import spill
from nsqd_py.store.spill import Chunks, Spill


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "_MOST_IN_MEMORY", 10)
    monkeypatch.setattr(spill, "_PIECE_BYTES", 4)


def test_chunks_are_the_same_in_memory_and_on_the_disk(tmp_path: Path) -> None:
    file = Spill(tmp_path)
    first = Chunks(file)
    second = Chunks(file)
    for number in range(20):
        first.append(b"first %d," % number)
        if number % 3 == 0:
            second.append(b"second %d," % number)
    assert b"".join(first) == b"".join(b"first %d," % number for number in range(20))
    assert b"".join(second) == b"".join(b"second %d," % number for number in range(0, 20, 3))
    assert sum(len(part) for part in [*first._parts, *second._parts] if isinstance(part, bytes)) <= 10
    assert list(tmp_path.iterdir()) == []


def test_what_the_disk_does_not_take_stays_in_memory(tmp_path: Path) -> None:
    chunks = Chunks(Spill(tmp_path / "missing"))
    for number in range(20):
        chunks.append(b"%d," % number)
    assert b"".join(chunks) == b"".join(b"%d," % number for number in range(20))


def test_chunks_without_a_file_stay_in_memory() -> None:
    chunks = Chunks()
    assert not chunks
    chunks.append(bytes(100))
    assert list(chunks) == [bytes(100)]
    assert chunks
