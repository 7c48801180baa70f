"""Counting objects by type."""

from __future__ import annotations

import gc

from nsqd_py.debug.census import Census, TypeRow


class Holder:
    def __init__(self, *held: object) -> None:
        self.held = held


class Unsized:
    def __sizeof__(self) -> int:
        raise RuntimeError("no size")


def count(*roots: object) -> dict[str, TypeRow]:
    census = Census(roots)
    while census.count_some():
        pass
    return {row.name: row for row in census.rows()}


def test_bytes_are_counted_once_each_with_their_size() -> None:
    message = bytes(1000)
    rows = count([message, message, bytes(2000)])
    assert rows["bytes"] == TypeRow("bytes", 2, len(message) + 2000 + 2 * b"".__sizeof__())


def test_the_largest_come_first() -> None:
    census = Census([[bytes(10_000_000)]])
    while census.count_some():
        pass
    assert census.rows()[0].name == "bytes"


def test_instances_are_counted() -> None:
    """Cycles end, a type may have no size, and what the collector was told to forget is there too.

    One walk for all: an instance leads to its class, its module, and from there to all that this process has.
    """
    first, second = Holder(), Holder()
    first.held, second.held = (second,), (first, Unsized(), Unsized())
    gc.freeze()
    try:
        rows = count([first])
    finally:
        gc.unfreeze()
    assert rows[f"{__name__}.Holder"].objects == 2
    row = rows[f"{__name__}.Unsized"]
    assert (row.objects, row.size_bytes) == (2, 0)


def test_it_is_done_in_small_parts() -> None:
    census = Census([list(range(1000, 5000))])
    parts = 1
    while census.count_some():
        parts += 1
    assert parts > 10
    assert {row.name: row.objects for row in census.rows()}["int"] >= 4000


def test_it_lets_go_of_its_memory_in_parts() -> None:
    census = Census([1])
    parts = 1
    while census.forget_some():
        parts += 1
    assert parts > 100
