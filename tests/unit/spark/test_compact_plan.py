"""Which stored log files become which Parquet file."""

from __future__ import annotations

import pytest

from nsq_spark.archive.splits import FileInfo, Format
from nsq_spark.compact.plan import Log, SealedLog, file_name, parse_name, plan_groups

ORDERS, CLICKS = Log("feed", "orders", 7), Log("feed", "clicks", 8)


def sealed(log: Log, first_seq: int, end_seq: int, size_bytes: int = 100) -> SealedLog:
    return SealedLog(log, first_seq, end_seq, FileInfo(str(first_seq), size_bytes, 0, Format.TOPIC_LOG))


def test_neighbours_join_up_to_a_size() -> None:
    files = [sealed(ORDERS, low, low + 10) for low in range(0, 50, 10)]
    plan = plan_groups([*reversed(files), sealed(CLICKS, 0, 5, 1000)], {}, 250)
    assert [(group.log, group.span) for group in plan.groups] == [
        (CLICKS, (0, 5)),  # larger than wanted, and alone
        (ORDERS, (0, 20)),
        (ORDERS, (20, 40)),
        (ORDERS, (40, 50)),
    ]
    assert plan.lost == {}


def test_what_a_table_has_is_left_out_and_parts_its_neighbours() -> None:
    files = [sealed(ORDERS, low, low + 10) for low in range(0, 50, 10)]
    plan = plan_groups(files, {ORDERS: [(10, 20), (30, 40)]}, 1000)
    assert [group.span for group in plan.groups] == [(0, 10), (20, 30), (40, 50)]
    assert plan_groups(files, {ORDERS: [(0, 50)]}, 1000) == ([], {})


@pytest.mark.parametrize(
    ("first_seqs", "done", "lost"),
    [
        ([30, 40], [], {}),  # dropped before anyone asked for them
        ([30, 40], [(0, 30)], {}),
        ([30, 40], [(0, 20)], {ORDERS: 10}),
        ([30, 50], [(0, 20)], {ORDERS: 20}),
        ([0, 20], [], {ORDERS: 10}),
        ([0, 20], [(0, 30)], {}),
    ],
)
def test_what_neither_has_is_lost(
    first_seqs: list[int], done: list[tuple[int, int]], lost: dict[Log, int]
) -> None:
    files = [sealed(ORDERS, low, low + 10) for low in first_seqs]
    assert plan_groups(files, {ORDERS: done}, 1000).lost == lost


@pytest.mark.parametrize("topic", ["orders", "a-1-2", ".", "_hidden", "x.y"])
def test_names_of_files(topic: str) -> None:
    log = Log("feed", topic, 7)
    name = file_name(log, (5, 90))
    assert parse_name(name) == (log, (5, 90))
    assert not name.startswith((".", "_"))
    assert parse_name(file_name(log, (5, 90), "a1b2c3d4")) is None
    assert parse_name("orders.parquet") is None
