"""Who reads what: splits, groups of them, patterns of paths. Plain arithmetic."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from nsq_spark.archive.listing import base_of, compiled_glob, is_glob
from nsq_spark.archive.splits import Compression, FileInfo, Format, Requested, Split, pack, plan_splits

MIB = 1 << 20


def info(path: str, size_bytes: int, form: Format = Format.FRAMED, **more: object) -> FileInfo:
    return FileInfo(path, size_bytes, 0, form, **more)  # type: ignore[arg-type]


def ranges(splits: list[Split]) -> list[tuple[str, int, int]]:
    return [(split.path, split.start, split.end) for split in splits]


def test_a_large_file_is_split_evenly() -> None:
    assert ranges(plan_splits([info("a", 100)], 30)) == [("a", 0, 33), ("a", 33, 66), ("a", 66, 100)]
    assert ranges(plan_splits([info("a", 40)], 30)) == [("a", 0, 40)]


@pytest.mark.parametrize(
    "whole",
    [
        info("a", 100, compression=Compression.GZIP),
        info("a", 100, Format.LINES, compression=Compression.ZSTD),
    ],
)
def test_some_files_cannot_be_split(whole: FileInfo) -> None:
    assert ranges(plan_splits([whole], 10)) == [("a", 0, 100)]


def test_files_of_other_topics_are_not_read() -> None:
    files = [
        info("log", 9, Format.TOPIC_LOG, topic="orders"),
        info("lines", 9, Format.LINES, topic="clicks"),
        info("framed", 9, topic="clicks"),  # that is only its name
    ]
    requested = Requested(topics=frozenset({"orders"}))
    assert [split.path for split in plan_splits(files, MIB, requested)] == ["log", "framed"]
    assert [split.path for split in plan_splits(files, MIB, Requested(topic_pattern="^cl"))] == [
        "lines",
        "framed",
    ]


def test_a_group_holds_what_it_may() -> None:
    splits = plan_splits([info(str(number), MIB) for number in range(8)])
    assert [len(group) for group in pack(splits, target_bytes=4 * MIB)] == [3, 3, 2]  # opening costs, too
    assert [len(group) for group in pack(splits, target_bytes=1)] == [1] * 8


def test_a_group_ends_where_it_is_nearest_to_its_size() -> None:
    splits = plan_splits([info(str(number), 11 * MIB) for number in range(8)])
    assert [len(group) for group in pack(splits, target_bytes=22 * MIB)] == [2] * 4
    assert [len(group) for group in pack(splits, target_bytes=16 * MIB)] == [1] * 8


@given(st.lists(st.integers(1, 300 * MIB), max_size=30), st.integers(1, 100 * MIB))
def test_every_byte_is_in_one_group(sizes: list[int], target_bytes: int) -> None:
    files = [info(str(number), size) for number, size in enumerate(sizes)]
    splits = plan_splits(files, max(target_bytes, MIB))
    assert [split.index for split in splits] == list(range(len(splits)))
    assert [split for group in pack(splits, target_bytes=target_bytes) for split in group] == splits
    for one in files:
        of_one = [split for split in splits if split.path == one.path]
        assert of_one[0].is_first and of_one[-1].end == one.size_bytes
        assert [split.end for split in of_one[:-1]] == [split.start for split in of_one[1:]]
        assert sum(split.size_bytes for split in of_one) == one.size_bytes


def test_splits_travel() -> None:
    split = plan_splits([info("a", 100)])[0]
    assert pickle.loads(pickle.dumps(split)) == split


# ---- patterns


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("/a/*.log", ["/a/b.log", "/a/.log"], ["/a/b/c.log", "/a/b.log2"]),
        ("/a/**/c.log", ["/a/c.log", "/a/x/y/c.log"], ["/a/xc.log"]),
        ("/a/**", ["/a/b", "/a/b/c"], ["/ab"]),
        ("/a/2024-*", ["/a/2024-01", "/a/2024-01/b/c.log"], ["/a/2025-01/c"]),
        ("/a/?.log", ["/a/b.log"], ["/a/bc.log", "/a//.log"]),
        ("/a/[0-9!].log", ["/a/7.log", "/a/!.log"], ["/a/b.log"]),
        ("/a/[!0-9].log", ["/a/b.log"], ["/a/7.log", "/a//.log"]),
        ("/a/{x,y*}/b", ["/a/x/b", "/a/yz/b", "/a/x/b/c"], ["/a/z/b"]),
        ("/a+(b)/*", ["/a+(b)/c"], ["/aab/c"]),
        ("s3a://bucket/a/*/b", ["s3a://bucket/a/x/b"], ["s3a://bucket/a/b"]),
    ],
)
def test_patterns(pattern: str, matching: list[str], other: list[str]) -> None:
    assert is_glob(pattern)
    compiled = compiled_glob(pattern)
    assert all(compiled.fullmatch(path) for path in matching)
    assert not any(compiled.fullmatch(path) for path in other)
    assert all(path.startswith(base_of(pattern)) for path in matching)


def test_the_base_of_a_pattern_is_a_directory() -> None:
    assert base_of("/a/b*/c") == "/a/"
    assert base_of("/a/b/{c,d}") == "/a/b/"
    assert not is_glob("/a/b")
