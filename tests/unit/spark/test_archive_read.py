"""What each reader gives, where the property tests do not look: files that grow, what others wrote, odd lines."""

from __future__ import annotations

import base64
import errno
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyarrow")

from nsq_spark import schema
from nsq_spark.archive.chunk import Payload
from nsq_spark.archive.splits import ArchiveError, Damage, DamagedArchive, Requested, Skipped, Split
from nsqd_py.diskqueue.messages import encode_messages
from nsqd_py.diskqueue.records import FileHeader
from nsqd_py.runtime.documents import BYTE_ORDER_MARK
from nsqd_py.stores.files import LocalFile
from tests.support.archives import (
    BASE_NS,
    SALT,
    Message,
    Published,
    TopicLogFile,
    as_columns,
    chunks_of,
    compressed,
    framed,
    messages,
    mpub,
    read_messages,
    reported,
    splits_of,
)

ROOT = Path(__file__).parent.parent.parent.parent


def written(tmp_path: Path, name: str, data: bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


def bodies_of(splits: list[Split], damage: Damage | None = None) -> list[bytes]:
    return [message.body for message in read_messages(splits, damage=damage)]


# ---- the table


def test_the_table_has_the_declared_columns(tmp_path: Path) -> None:
    path = written(tmp_path, "x.framed", framed([messages(2)]))
    (chunk,) = chunks_of(splits_of(path))
    table = chunk.arrow()
    assert table.schema == schema.arrow_schema()
    assert schema.ddl() == (
        "topic STRING, channel STRING, timestamp TIMESTAMP, timestamp_ns BIGINT, id STRING, attempts INT, body BINARY, "
        "nsqd STRING, file STRING, position BIGINT"
    )
    row = table.to_pylist()[1]
    assert row.pop("timestamp").isoformat() == "2023-11-14T22:13:20+00:00"
    assert row == {
        "topic": "orders",
        "channel": "archive",
        "timestamp_ns": BASE_NS + 1,
        "id": "0000000000000001",
        "attempts": 2,
        "body": b"00000000000000000001",
        "nsqd": "127.0.0.1:4150",
        "file": str(path),
        "position": (64 << 20) + 1,
    }


def test_only_the_columns_that_are_named_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "x.framed", framed([messages(2)]))
    (chunk,) = chunks_of(splits_of(path))
    monkeypatch.setattr(Payload, "array", None)
    monkeypatch.setattr("nsq_spark.archive.chunk.stored_ids", None)
    table = chunk.arrow(["position", "topic"])
    assert table.schema.names == ["position", "topic"]
    assert table.to_pydict() == {"position": [64 << 20, (64 << 20) + 1], "topic": ["orders"] * 2}


def test_lines_know_only_their_bodies(tmp_path: Path) -> None:
    path = written(tmp_path, "orders.host.log", b"a\n\nbc\n")
    (chunk,) = chunks_of(splits_of(path))
    assert (
        chunk.timestamps_ns is None and chunk.ids is None and chunk.attempts is None and chunk.nsqds is None
    )
    assert reported(chunk) == [
        Message(body, "orders", None, None, None, None, None) for body in (b"a", b"bc")
    ]
    assert chunk.positions.tolist() == [0, 3 << 20]


def test_any_part_of_several_records_as_an_mpub(tmp_path: Path) -> None:
    some = messages(50)
    bodies = [message.body for message in some]
    path = written(tmp_path, "x.framed", framed([some[start : start + 20] for start in range(0, 50, 20)]))
    (chunk,) = chunks_of(splits_of(path))
    starts = [len(framed([])), len(framed([some[:20]])), len(framed([some[:20], some[20:40]]))]
    assert chunk.positions.tolist() == [(starts[number // 20] << 20) + number % 20 for number in range(50)]
    odd = chunk.filter(np.arange(50) % 2 == 1)
    for low in range(0, 50, 7):
        for high in range(low, 51):
            sent = b"".join(chunk.payload.mpub_pieces(low, high))
            assert sent == (high - low).to_bytes(4, "big") + mpub(bodies[low:high])
            assert chunk.payload.bytes_of(low, high) == sum(map(len, bodies[low:high]))
        assert b"".join(odd.payload.mpub_pieces(low // 2, 25))[4:] == mpub(bodies[1::2][low // 2 :])


def test_ids_that_are_no_text(tmp_path: Path) -> None:
    record = encode_messages(as_columns(messages(1)), 0, SALT)
    raw = as_columns([Message(b"x")])
    record = encode_messages(
        type(raw)(raw.topic, "", "", [1], [0], [b"\xff" * 8 + b"12345678"], [b"x"]), 0, SALT
    )
    path = written(tmp_path, "x.framed", FileHeader(SALT, 0, 0).encode() + record)
    assert read_messages(splits_of(path)) == [
        Message(b"x", "orders", None, 1, 0, r"\xff" * 8 + "12345678", None)
    ]


# ---- what is wanted


def test_a_pattern_that_is_none(tmp_path: Path) -> None:
    path = written(tmp_path, "x.framed", framed([messages(1)]))
    with pytest.raises(ArchiveError, match=r"the topic pattern '\(' is no regular expression"):
        read_messages(splits_of(path), Requested(topic_pattern="("))


def test_bodies_outside_of_a_range_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = TopicLogFile()
    for hour in range(40):
        log.add(Published([b"x" * 100_000], BASE_NS + hour))
    read_bytes = 0
    read_at = LocalFile.read_at

    def counted(file: LocalFile, offset: int, size: int) -> bytes:
        nonlocal read_bytes
        data = read_at(file, offset, size)
        read_bytes += len(data)
        return data

    splits = splits_of(log.write(tmp_path))
    monkeypatch.setattr(LocalFile, "read_at", counted)
    found = read_messages(splits, Requested(start_ns=BASE_NS + 7, end_ns=BASE_NS + 9))
    assert [message.known_ns - BASE_NS for message in found] == [7, 8]
    assert read_bytes < 40 * 70_000 + 2 * 200_000


# ---- a log that nsqd writes to


@pytest.fixture
def log() -> TopicLogFile:
    log = TopicLogFile()
    log.add(Published([b"one", b"two"]))
    log.add(Published([b"three"]))
    return log


@pytest.mark.parametrize("missing_bytes", [1, 10, 60, 65])
def test_a_record_that_is_being_written(tmp_path: Path, log: TopicLogFile, missing_bytes: int) -> None:
    whole = bytes(log.data)
    log.add(Published([b"not yet!"]))
    cut = bytes(log.data[: len(log.data) - missing_bytes])
    path = written(tmp_path, log.name, cut.ljust(100_000, b"\0"))
    assert bodies_of(splits_of(path)) == [b"one", b"two", b"three"]
    # Without space behind it, it is no record in the making but one that lost its end.
    path.write_bytes(cut)
    with pytest.raises(DamagedArchive, match=f"at {len(whole)}: its last record is torn or damaged"):
        bodies_of(splits_of(path))


@pytest.mark.parametrize("place", [0, 30, 60])
def test_several_damaged_records_at_the_end_of_a_live_log(
    tmp_path: Path, log: TopicLogFile, place: int
) -> None:
    """The bytes behind the first of them show that it is not the record that is being written."""
    starts = [len(log.data)]
    log.add(Published([b"four"]))
    starts.append(len(log.data))
    log.add(Published([b"five"]))
    data = bytearray(log.data)
    for start in starts:
        data[start + place] ^= 1
    for space in (b"", bytes(1000)):
        damage = Damage("skip")
        splits = splits_of(written(tmp_path, log.name, data + space))
        assert bodies_of(splits, damage) == [b"one", b"two", b"three"]
        assert [one.records for one in damage.counts.values()] == [1]
        with pytest.raises(DamagedArchive, match=f"at {starts[0]}: its last record is torn or damaged"):
            bodies_of(splits)


def test_what_is_left_over_in_a_reused_file(tmp_path: Path) -> None:
    old = TopicLogFile(first_seq=0, salt=1)
    for _ in range(20):
        old.add(Published([b"an old message"] * 3))
    log = TopicLogFile(first_seq=500, salt=2, is_reused=True)
    log.add(Published([b"new"]))
    path = log.write(tmp_path, bytes(old.data[len(log.data) :]))
    assert read_messages(splits_of(path)) == log.messages
    assert read_messages(splits_of(path, 100)) == log.messages
    # In a file that is complete nothing is left over.
    TopicLogFile(first_seq=600).write(tmp_path)
    with pytest.raises(DamagedArchive):
        bodies_of(splits_of(path))


def test_what_is_written_after_the_plan_was_made_is_left(tmp_path: Path, log: TopicLogFile) -> None:
    path = log.write(tmp_path)
    splits = splits_of(path)
    log.add(Published([b"later"]))
    log.write(tmp_path)
    assert bodies_of(splits) == [b"one", b"two", b"three"]
    assert bodies_of(splits_of(path)) == [b"one", b"two", b"three", b"later"]


def test_records_with_due_times_beside_others(tmp_path: Path) -> None:
    some = messages(9)
    due_ns = [number + 1 for number in range(3)]
    data = FileHeader(SALT, 0, 0).encode() + encode_messages(as_columns(some[:3]), 0, SALT)
    for first in 3, 6:
        data += encode_messages(as_columns(some[first : first + 3], due_ns), first, SALT)
    assert read_messages(splits_of(written(tmp_path, "x.framed", data))) == some


def test_what_precedes_damage_is_given_on(tmp_path: Path) -> None:
    some = messages(40)
    batches = [some[start : start + 10] for start in range(0, 40, 10)]
    data = bytearray(framed(batches))
    data[len(framed(batches[:3])) + 100] ^= 1
    found: list[bytes] = []
    with pytest.raises(DamagedArchive):
        for chunk in chunks_of(splits_of(written(tmp_path, "x.framed", data))):
            found += chunk.bodies.to_pylist()
    assert found == [message.body for message in some[:30]]


# ---- files that grow


@pytest.mark.parametrize("name", ["x.log", "x.log.gz"])
def test_an_unfinished_line(tmp_path: Path, name: str) -> None:
    data = b"one\ntwo\nthr"
    path = written(tmp_path, name, compressed(data, "gzip") if name.endswith("gz") else data)
    os.utime(path, (0, 0))
    (split,) = splits_of(path)
    with pytest.raises(DamagedArchive, match="at 8: its last line has no newline, so it is torn"):
        bodies_of([split])
    damage = Damage("skip")
    assert bodies_of([split], damage) == [b"one", b"two"]
    assert damage.counts == {str(path): Skipped(1, 3)}
    assert bodies_of([replace(split, is_live=True)]) == [b"one", b"two"]
    os.truncate(path, split.end - 1)
    with pytest.raises(DamagedArchive, match="another size than when the reading was planned"):
        bodies_of([replace(split, is_live=True)])


@pytest.mark.parametrize("form", ["none", "gzip", "zstd"])
def test_the_last_object_needs_no_newline(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, form: str
) -> None:
    """Its last brace says that it is whole, whoever may still write to the file."""
    line = FIRST.encode()
    path = tmp_path / "x.jsonl"
    for number, end in enumerate((line, line + b" ", BYTE_ORDER_MARK + line, line + b"\n ")):
        whole = b"" if number == 2 else line + b"\n"
        written(tmp_path, path.name, compressed(whole + end, form))
        for modified_ns in time.time_ns(), 0:
            os.utime(path, ns=(modified_ns, modified_ns))
            assert bodies_of(splits_of(path)) == [b"b"] * (1 if number == 2 else 2)
    written(tmp_path, path.name, compressed(line + b"\n" + line[:-1], form))
    assert bodies_of(splits_of(path)) == [b"b"]
    assert f"{path}: the last {len(line) - 1} bytes are left out" in caplog.text
    os.utime(path, (0, 0))
    with pytest.raises(DamagedArchive, match="its last line has no newline, so it is torn"):
        bodies_of(splits_of(path))


@pytest.mark.parametrize("name", ["x.log", "x.jsonl", "x.log.gz", "x.jsonl.gz", "x.log.zst"])
def test_a_file_that_is_still_written_is_read_to_its_last_whole_part(tmp_path: Path, name: str) -> None:
    """Without a claim of nsq-to-file, that it was written to within the last hour is all that shows it."""
    line = FIRST.encode() + b"\n"
    form = {"gz": "gzip", "zst": "zstd"}.get(name.rpartition(".")[2], "none")
    whole = compressed(line, form) + compressed(line, form)
    path = written(tmp_path, name, whole + compressed(line * 9, form)[:-5])
    count = 2 if form != "none" else 10
    damage = Damage("fail")
    assert len(read_messages(splits_of(path), damage=damage)) == count
    assert damage.counts[str(path)].records == 1  # it is counted, and so it is reported
    settled_ns = time.time_ns() - 2 * 3600 * 10**9
    os.utime(path, ns=(settled_ns, settled_ns))
    with pytest.raises(DamagedArchive):
        read_messages(splits_of(path))


def test_no_lines_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nsq_spark.archive.formats import lines

    monkeypatch.setattr(lines, "LONGEST_LINE_BYTES", 1 << 20)
    data = b"a\n" + b"x" * (5 << 20) + b"\nb\n"
    for path in (written(tmp_path, "x.log", data), written(tmp_path, "y.log.gz", compressed(data, "gzip"))):
        damage = Damage("skip")
        assert bodies_of(splits_of(path), damage) == [b"a", b"b"]
        with pytest.raises(DamagedArchive, match="at 2: no newline in"):
            bodies_of(splits_of(path))


def test_lines_around_a_member_that_is_lost(tmp_path: Path) -> None:
    """A member that is cut between two lines; and one that is cut amid a line, which is never given on."""
    members = [compressed(part, "gzip") for part in (b"a\nb\n", b"c\nd\n", b"e\nhal", b"f\ng\n", b"f\nh\n")]
    broken = {1: [b"a", b"b", b"e", b"half", b"g", b"f", b"h"], 3: [b"a", b"b", b"c", b"d", b"e", b"h"]}
    for lost, expected in broken.items():
        parts = [
            member[:-9] + b"\xff" + member[-8:] if at == lost else member for at, member in enumerate(members)
        ]
        path = written(tmp_path, f"{lost}.log.gz", b"".join(parts))
        damage = Damage("skip")
        assert bodies_of(splits_of(path), damage) == expected
        assert damage.counts[str(path)].size_bytes >= len(members[lost])


def test_a_large_frame(tmp_path: Path) -> None:
    lines = [b"%d" % (number**5) for number in range(150_000)]
    data = compressed(b"".join(line + b"\n" for line in lines), "zstd")
    assert len(data) > 1 << 20
    assert bodies_of(splits_of(written(tmp_path, "x.log.zst", data))) == lines


# ---- jsonl


def lines(*objects: str) -> bytes:
    return "".join(line + "\n" for line in objects).encode()


FIRST = '{"timestamp":1,"id":"a","attempts":1,"topic":"t","channel":"c","nsqd":"n","body":"b"}'


def test_lines_of_json_by_others(tmp_path: Path) -> None:
    data = lines(
        FIRST,
        '{ "body" : "\\u00e9\\n\\"\\\\\\/\\ud83d\\ude00" , "more":[1,{"x":2}], "timestamp": 2, "id": "b" }',
        '{"body_base64":"' + base64.b64encode(b"\xff\n").decode() + '","topic":"other"}',
        "",
        '{"body":"","topic":null,"attempts":3}',
    )
    found = read_messages(splits_of(written(tmp_path, "x.jsonl", data)))
    assert found == [
        Message(b"b", "t", "c", 1, 1, "a", "n"),
        Message('é\n"\\/😀'.encode(), "x", None, 2, None, "b", None),
        Message(b"\xff\n", "other", None, None, None, None, None),
        Message(b"", "x", None, None, 3, None, None),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[1]",
        "7",
        "{}",
        '{"body":1}',
        '{"body":"a","body_base64":"YQ=="}',
        '{"body_base64":"Y"}',
        '{"body_base64":"é"}',
        '{"body":"a"',
        '{"body":"a"} {"body":"b"}',
        '{"body":"a","timestamp":"1"}',
        '{"body":"a","timestamp":1.5}',
        '{"body":"a","timestamp":9223372036854775808}',
        '{"body":"\\ud800"}',
        '{"body":"a","attempts":true}',
        '{"body":"a","attempts":3000000000}',
        '{"body":"a","topic":7}',
    ],
)
def test_a_line_that_is_no_message(tmp_path: Path, line: str) -> None:
    data = lines(FIRST, line, FIRST)
    path = written(tmp_path, "x.jsonl", data)
    damage = Damage("skip")
    assert bodies_of(splits_of(path), damage) == [b"b", b"b"]
    assert damage.counts == {str(path): Skipped(1, len(line.encode()) + 1)}
    with pytest.raises(DamagedArchive, match=f"at {len(FIRST) + 1}: a line is no message: "):
        bodies_of(splits_of(path))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = written(
        tmp_path, "x.jsonl", lines(FIRST) + b'{"body":"\xff"}\n{"body":"a","topic":"\xff"}\n' + lines(FIRST)
    )
    damage = Damage("skip")
    assert bodies_of(splits_of(path), damage) == [b"b", b"b"]
    assert damage.counts[str(path)].records == 2


# ---- parquet


def table_file(tmp_path: Path, columns: dict[str, Any], **options: Any) -> Path:
    path = tmp_path / "orders.parquet"
    pq.write_table(pa.table(columns), path, **options)
    return path


def test_tables_by_others(tmp_path: Path) -> None:
    """Other types, some columns only, some values only."""
    columns = {
        "body": pa.array(["a", "b", "c"], pa.large_string()),
        "timestamp": pa.array([1, None, 3], pa.timestamp("us", tz="UTC")),
        "topic": pa.array(["t", "t", None]).dictionary_encode(),
        "attempts": pa.array([1, 2, 3], pa.int64()),
        "other": [[1], [2], [3]],
    }
    assert read_messages(splits_of(table_file(tmp_path, columns))) == [
        Message(b"a", "t", None, 1000, 1, None, None),
        Message(b"b", "t", None, None, 2, None, None),
        Message(b"c", "orders", None, 3000, 3, None, None),
    ]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
def test_texts_of_others_that_are_no_utf_8(tmp_path: Path, kind: pa.DataType) -> None:
    """Their bytes are replaced: neither the rest of the row nor other rows are lost for them."""
    bad = pa.array([b"caf\xe9", b"t", None], pa.binary())
    texts = bad if kind == pa.binary() else pa.Array.from_buffers(kind, 3, _as_kind(bad, kind).buffers())
    path = table_file(tmp_path, {"body": [b"1", b"2", b"3"], "topic": texts, "nsqd": texts, "channel": texts})
    assert read_messages(splits_of(path)) == [
        Message(b"1", "caf\ufffd", "caf\ufffd", None, None, None, "caf\ufffd"),
        Message(b"2", "t", "t", None, None, None, "t"),
        Message(b"3", "orders", None, None, None, None, None),
    ]
    assert [one.body for one in read_messages(splits_of(path), Requested(topics=frozenset(["t"])))] == [b"2"]


def _as_kind(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column.cast(pa.large_binary()) if kind == pa.large_string() else column


def test_our_own_table_reads_back(tmp_path: Path) -> None:
    """What Spark makes of it when it writes the data source's rows."""
    path = written(tmp_path, "x.framed", framed([messages(5)]))
    (chunk,) = chunks_of(splits_of(path))
    again = tmp_path / "part-0.parquet"
    pq.write_table(pa.Table.from_batches([chunk.arrow()]), again)
    planned = splits_of(again)
    assert read_messages(planned) == messages(5)
    pq.write_table(pa.Table.from_batches([chunk.arrow()] * 9), again)
    with pytest.raises(DamagedArchive, match="another size than when the reading was planned"):
        read_messages(planned)


def test_rows_of_groups(tmp_path: Path) -> None:
    some = messages(1000)
    columns = {"body": [one.body for one in some], "timestamp": [one.known_ns for one in some]}
    path = table_file(tmp_path, columns, row_group_size=100)
    for split_bytes in (1000, 5000, 1 << 30):
        splits = splits_of(path, split_bytes)
        rows = [row for chunk in chunks_of(splits) for row in chunk.positions.tolist()]
        assert rows == list(range(1000))
    requested = Requested(start_ns=BASE_NS + 250, end_ns=BASE_NS + 330)
    assert [one.body for one in read_messages(splits_of(path, 5000), requested)] == columns["body"][250:330]


def unlike(count: int) -> list[Message]:
    """Messages of changing topics, channels and nsqds, some without them."""
    return [
        Message(
            b"%d" % number,
            ("t", "u")[number // 7 % 2],
            ("c", None)[number // 5 % 2],
            BASE_NS + number,
            number,
            f"{number:016x}",
            ("a:1", "b:2", None)[number % 3],
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("name", ["orders.parquet", "orders.jsonl"])
@pytest.mark.parametrize(
    "columns",
    [("body",), ("position",), ("nsqd", "file"), ("timestamp", "attempts"), ("id", "topic", "channel")],
)
@pytest.mark.parametrize(
    "requested",
    [Requested(), Requested(topics=frozenset("u")), Requested(start_ns=BASE_NS + 5, end_ns=BASE_NS + 80)],
)
def test_columns_are_the_same_without_others(
    tmp_path: Path, name: str, columns: tuple[str, ...], requested: Requested
) -> None:
    documents = [
        {**one._asdict(), "body": one.body.decode(), "timestamp": one.timestamp_ns} for one in unlike(100)
    ]
    if name.endswith(".jsonl"):
        path = written(tmp_path, name, b"".join(orjson.dumps(document) + b"\n" for document in documents))
    else:
        path = table_file(
            tmp_path, {"body": pa.array([one.body for one in unlike(100)])} | columns_of(documents)
        )
    rows = [
        row for chunk in chunks_of(splits_of(path), requested) for row in chunk.arrow(columns).to_pylist()
    ]
    few = replace(requested, columns=frozenset(columns))
    assert [
        row for chunk in chunks_of(splits_of(path), few) for row in chunk.arrow(columns).to_pylist()
    ] == rows
    assert len(rows) in (100, 49, 75)


def columns_of(documents: list[dict[str, Any]]) -> dict[str, pa.Array]:
    names = ("topic", "channel", "timestamp", "id", "attempts", "nsqd")
    return {name: pa.array([document[name] for document in documents]) for name in names}


def test_damage_in_a_column_that_is_not_needed_is_not_found(tmp_path: Path) -> None:
    bodies = pa.array([b"%064d" % number for number in range(3000)])
    whole = pa.schema([pa.field("body", pa.binary(), nullable=False), pa.field("attempts", pa.int32())])
    path = tmp_path / "orders.parquet"
    table = pa.table([bodies, pa.array([1] * 3000, pa.int32())], whole)
    pq.write_table(table, path, write_page_checksum=True, compression="none", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[data.index(b"%064d" % 1500)] ^= 1
    path.write_bytes(data)
    (chunk,) = chunks_of(splits_of(path), Requested(columns=frozenset(["position"])))
    assert chunk.positions.tolist() == list(range(3000))
    with pytest.raises(DamagedArchive, match="rows 0 to 2999 cannot be read"):
        list(chunks_of(splits_of(path), Requested(columns=frozenset(["body"]))))


def test_a_row_without_a_body_is_found_whatever_columns_are_needed(tmp_path: Path) -> None:
    path = table_file(tmp_path, {"body": [b"a", None, b"c"], "attempts": [1, 2, 3]})
    few = Requested(columns=frozenset(["attempts"]))
    with pytest.raises(DamagedArchive, match="there are rows without a body"):
        list(chunks_of(splits_of(path), few))
    (chunk,) = chunks_of(splits_of(path), few, Damage("skip"))
    assert chunk.arrow(["attempts"]).to_pylist() == [{"attempts": 1}, {"attempts": 3}]


def test_a_table_without_messages(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="has no column `body`, so there are no messages in it"):
        read_messages(splits_of(table_file(tmp_path, {"value": [1]})))


def test_rows_without_a_body(tmp_path: Path) -> None:
    path = table_file(tmp_path, {"body": [b"a", None, b"c"]})
    damage = Damage("skip")
    assert bodies_of(splits_of(path), damage) == [b"a", b"c"]
    assert damage.counts[str(path)].records == 1
    with pytest.raises(DamagedArchive, match="there are rows without a body"):
        bodies_of(splits_of(path))


def test_a_page_that_is_damaged(tmp_path: Path) -> None:
    some = {"body": [b"%064d" % number for number in range(3000)]}
    path = table_file(
        tmp_path,
        some,
        row_group_size=1000,
        write_page_checksum=True,
        compression="none",
        use_dictionary=False,
    )
    data = bytearray(path.read_bytes())
    data[data.index(b"%064d" % 1500)] ^= 1
    path.write_bytes(data)
    damage = Damage("skip")
    assert bodies_of(splits_of(path), damage) == some["body"][:1000] + some["body"][2000:]
    assert damage.counts[str(path)].records == 1
    with pytest.raises(DamagedArchive, match="rows 1000 to 1999 cannot be read"):
        bodies_of(splits_of(path))


def test_an_error_of_the_disk_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = table_file(tmp_path, {"body": [b"%064d" % number for number in range(3000)]}, row_group_size=1000)
    splits = splits_of(path)
    read_at = LocalFile.read_at

    def failing(file: LocalFile, offset: int, size: int) -> bytes:
        if offset < path.stat().st_size // 2:
            raise OSError(errno.EIO, "Input/output error")
        return read_at(file, offset, size)

    monkeypatch.setattr(LocalFile, "read_at", failing)
    damage = Damage("skip")
    with pytest.raises(ArchiveError, match=f"^{path} cannot be read: .*Input/output error"):
        bodies_of(splits, damage)
    assert damage.counts == {}


def test_metadata_that_end_the_process_of_pyarrow(tmp_path: Path) -> None:
    """A footer with a histogram of another size than the column's levels have."""
    found = Path(__file__).parents[2] / "fuzz/found/archive_parquet-a-histogram-of-another-size"
    path = written(tmp_path, "orders.parquet", found.read_bytes())
    damage = Damage("skip")
    assert bodies_of(splits_of(path), damage) == []
    assert damage.counts[str(path)].records == 1
    with pytest.raises(
        DamagedArchive, match="rows 0 to 1 cannot be read: Definition level histogram size mismatch"
    ):
        bodies_of(splits_of(path))


# ---- executors


def test_readers_need_neither_gevent_nor_spark() -> None:
    modules = sorted(
        f"nsq_spark.archive.{path.stem}" for path in (ROOT / "spark/nsq_spark/archive").glob("[a-z]*.py")
    )
    assert "nsq_spark.archive.read" in modules
    code = "\n".join(f"import {name}" for name in [*modules, "sys"])
    code += "\nprint(sorted({'gevent', 'greenlet', 'pyspark'} & set(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stdout.strip() == "[]"
