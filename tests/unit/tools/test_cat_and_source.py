"""nsq-cat and the data source of Spark find the same messages in a file, and the same damage."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow
from pyarrow import parquet

from nsq_spark.archive.splits import Damage
from nsq_tools.cat.reading import messages_in
from tests.support.archives import BASE_NS, compressed, framed, messages, read_messages, splits_of

Found = list[tuple[str, int, bytes]]

DOCUMENT = {
    "timestamp": BASE_NS,
    "id": "0123456789abcdef",
    "attempts": 1,
    "topic": "t",
    "channel": "c",
    "nsqd": "n:1",
    "body": "b",
}
PLAIN = json.dumps(DOCUMENT, separators=(",", ":")).encode() + b"\n"
SPACED = json.dumps(DOCUMENT).encode() + b"\n"
SORTED = json.dumps(DOCUMENT, sort_keys=True).encode() + b"\n"
MARK = b"\xef\xbb\xbf"
ONE = ("t", BASE_NS, b"b")


def by_cat(path: Path) -> tuple[Found, int]:
    """Return the topics, times and bodies, and how many parts were not read."""
    damaged: list[str] = []
    with path.open("rb") as file:
        batches = list(messages_in(file, str(path), damaged.append))
    found = [
        (batch.topic, time_ns, body)
        for batch in batches
        for time_ns, body in zip(batch.timestamps_ns, batch.bodies, strict=True)
    ]
    return found, len(damaged)


def by_source(path: Path) -> tuple[Found, int]:
    damage = Damage("skip")
    found = [
        (message.topic, message.timestamp_ns or 0, message.body)
        for message in read_messages(splits_of(path), damage=damage)
    ]
    return found, sum(part.records for part in damage.counts.values())


def both(path: Path) -> tuple[Found, int]:
    shown = by_cat(path)
    assert by_source(path) == shown
    return shown


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("name", ["t.web1.log", "t.web1.jsonl"])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (PLAIN * 2, 2),
        (SPACED * 2, 2),
        (SORTED * 2, 2),
        (b"\n" + PLAIN, 1),
        (b"\r\n \t\n" + SORTED + b"\r\n", 1),
        (MARK + SPACED + PLAIN, 2),
        (MARK + b"\n" + SORTED, 1),
        (PLAIN + b"  \n\n" + SORTED.replace(b"\n", b"\r\n"), 2),
        (b"  " + PLAIN, 1),
        (json.dumps(DOCUMENT, sort_keys=True).replace('"b"', '"b","body_base64":null').encode() + b"\n", 1),
        (PLAIN.replace(b'"body":"b"', b'"body":null,"body_base64":"Yg=="'), 1),
        (PLAIN.replace(b'"topic"', b'"timestamp_ns":7,"topic"'), 1),
    ],
)
def test_the_same_jsonl(tmp_path: Path, data: bytes, expected: int, name: str, compression: str) -> None:
    suffix = {"gzip": ".gz", "zstd": ".zst"}.get(compression, "")
    path = tmp_path / f"{name}{suffix}"
    path.write_bytes(compressed(data, compression))
    assert both(path) == ([ONE] * expected, 0)


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b"no object",
        b"[1]",
        b'{"timestamp":1,"id":"i"}',
        b'{"timestamp":1,"id":"i","body":"a","body_base64":"Yg=="}',
        b'{"timestamp":"1","id":"i","body":"a"}',
        b'{"timestamp":1,"id":7,"body":"a"}',
        b'{"timestamp":1,"id":"i","body":"\xff"}',
        b'{"timestamp":1,"id":"i","body":"a"} {"timestamp":1,"id":"i","body":"a"}',
    ],
)
def test_the_same_lines_are_no_messages(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(PLAIN + line + b"\n" + SORTED)
    assert both(path) == ([ONE] * 2, 1)


def test_a_long_first_line_with_sorted_keys(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(SORTED.replace(b'"b"', b'"%b"' % (b"y" * 300_000)) + SORTED)
    found, damaged = both(path)
    assert ([len(body) for _, _, body in found], damaged) == ([300_000, 1], 0)


def test_a_byte_order_mark_of_lines_is_of_the_first_body(tmp_path: Path) -> None:
    path = tmp_path / "lines.log"
    path.write_bytes(MARK + b"one\n\ntwo\n")
    assert (
        [body for _, _, body in by_cat(path)[0]]
        == [body for _, _, body in by_source(path)[0]]
        == [MARK + b"one", b"two"]
    )


@pytest.mark.parametrize("first", [b"", b"\n", SORTED[:20]])
def test_a_first_member_that_does_not_hold_a_line(tmp_path: Path, first: bytes) -> None:
    path = tmp_path / "t.log.gz"
    rest = SORTED[20:] if first == SORTED[:20] else SORTED
    path.write_bytes(gzip.compress(first) + gzip.compress(rest))
    assert both(path) == ([ONE], 0)


@pytest.mark.parametrize("zeros", [1, 511, 300_000])
def test_zero_bytes_behind_a_gzip_member_are_passed_over(tmp_path: Path, zeros: int) -> None:
    """As by gzip -d: a tape, and a file system that lost power, may have filled a block."""
    path = tmp_path / "t.log.gz"
    members = gzip.compress(PLAIN) + gzip.compress(SORTED)
    path.write_bytes(members + b"\0" * zeros)
    assert both(path) == ([ONE] * 2, 0)
    path.write_bytes(members + b"\0" * zeros + b"x")
    assert both(path) == ([ONE] * 2, 1)


def test_a_topic_that_only_the_directory_has(tmp_path: Path) -> None:
    path = tmp_path / "topic=orders.eu" / "date=2026-11-28" / "web1.parquet"
    path.parent.mkdir(parents=True)
    parquet.write_table(pyarrow.table({"timestamp_ns": [BASE_NS], "body": [b"b"]}), path)
    assert both(path) == ([("orders.eu", BASE_NS, b"b")], 0)


@pytest.mark.parametrize("skippable", [b"\x50\x2a\x4d\x18\4\0\0\0size", b"\x5e\x2a\x4d\x18\0\0\0\0" * 2])
def test_skippable_frames_of_zstd_are_passed_over(tmp_path: Path, skippable: bytes) -> None:
    """pzstd writes one before each frame, and the seekable format one at the end."""
    path = tmp_path / "t.jsonl.zst"
    frame = compressed(PLAIN, "zstd")
    path.write_bytes(skippable + frame + skippable + frame + skippable)
    assert both(path) == ([ONE] * 2, 0)
    path.write_bytes(frame + skippable[:-1])
    assert both(path) == ([ONE], 1)


# ---- damage


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
@pytest.mark.parametrize("lost", [0, 1, 2])
def test_reading_goes_on_behind_a_damaged_member(tmp_path: Path, compression: str, lost: int) -> None:
    """The body is long enough for a member that has something to be damaged."""
    lines = [PLAIN.replace(b'"b"', b'"%d"' % number**99) for number in (7, 8, 9)]
    members = [compressed(line, compression) for line in lines]
    members[lost] = members[lost][:40] + b"\xff\xff" + members[lost][42:]
    path = tmp_path / f"t.jsonl.{'gz' if compression == 'gzip' else 'zst'}"
    path.write_bytes(b"".join(members))
    found, damaged = both(path)
    bodies = [b"%d" % number**99 for number in (7, 8, 9)]
    assert ([body for _, _, body in found], damaged) == (bodies[:lost] + bodies[lost + 1 :], 1)


def test_a_first_message_that_begins_as_a_compressed_file(tmp_path: Path) -> None:
    path = tmp_path / "t.log"
    for magic in (b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"):
        path.write_bytes(magic + b" and more\nsecond\n")
        assert [body for _, _, body in by_cat(path)[0]] == [magic + b" and more", b"second"]
        assert [body for _, _, body in by_source(path)[0]] == [magic + b" and more", b"second"]


@pytest.mark.parametrize("name", ["t.log.gz", "t.log.zst"])
def test_a_compressed_file_without_its_beginning(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"\0\1" + PLAIN)
    assert both(path) == ([], 1)


@pytest.mark.parametrize("name", ["t.framed", "t"])
def test_records_behind_a_damaged_file_header(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"NSQx" + framed([messages(3)])[4:])
    assert both(path) == ([], 1)


def test_records_in_a_file_with_the_name_of_a_compression(tmp_path: Path) -> None:
    path = tmp_path / "t.framed.zst"
    path.write_bytes(framed([messages(3)], zstd_level=3))
    found, damaged = both(path)
    assert (len(found), damaged) == (3, 0)


def test_a_damaged_row_group(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    bodies = [b"%064d" % number for number in range(300)]
    table = pyarrow.table({"timestamp_ns": [BASE_NS] * 300, "topic": ["t"] * 300, "body": bodies})
    parquet.write_table(
        table, path, row_group_size=100, write_page_checksum=True, compression="none", use_dictionary=False
    )
    data = path.read_bytes()
    path.write_bytes(data.replace(bodies[150], bytes(64), 1))
    found, damaged = both(path)
    assert ([body for _, _, body in found], damaged) == (bodies[:100] + bodies[200:], 1)


def test_rows_without_a_body(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table = pyarrow.table(
        {"timestamp_ns": [BASE_NS] * 4, "topic": ["t"] * 4, "body": [b"a", None, None, b"d"]}
    )
    parquet.write_table(table, path)
    assert both(path) == ([("t", BASE_NS, b"a"), ("t", BASE_NS, b"d")], 1)
