"""A byte that flipped, an end that is missing: reported with file and place, or passed over and counted. Never a message
that nobody published, where there are checksums; never an error of another kind, anywhere.
"""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from nsq_spark.archive.splits import Damage, DamagedArchive
from tests.support.archives import (
    Message,
    Published,
    TopicLogFile,
    compressed,
    framed,
    messages,
    read_messages,
    splits_of,
)
from tests.support.examples import examples

SOME = settings(max_examples=examples(50), deadline=None)
PLACES = st.floats(0, 1, exclude_max=True)
FLIPS = st.integers(1, 255)
SPLIT_BYTES = st.sampled_from([1, 60, 150, 400, 1000, 1 << 30])


@contextmanager
def file_of(name: str, data: bytes) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, name)
        path.write_bytes(data)
        os.utime(path, (0, 0))  # it is finished
        yield path


def found_and_damage(path: Path, split_bytes: int = 1 << 30) -> tuple[list[Message], list[tuple[int, int]]]:
    """The messages of a file, and for each damaged file how many records and bytes were passed over."""
    damage = Damage("skip")
    found = read_messages(splits_of(path, split_bytes), damage=damage)
    assert damage.counts.keys() <= {str(path)}
    return found, [(one.records, one.size_bytes) for one in damage.counts.values()]


def flipped(data: bytes, place: int, flip: int) -> bytes:
    return data[:place] + bytes([data[place] ^ flip]) + data[place + 1 :]


# ---- files of records: what they say is exact


class RecordFile(NamedTuple):
    """A file, where each of its records begins, and what is in each."""

    name: str
    data: bytes
    starts: list[int]
    batches: list[list[Message]]

    @property
    def everything(self) -> list[Message]:
        return [message for batch in self.batches for message in batch]


def framed_file(zstd_level: int | None) -> RecordFile:
    shapes = [(3, 10, "a"), (1, 500, "b"), (40, 3, "a"), (2, 9, "a"), (5, 8, "c")]
    batches = [messages(*shape) for shape in shapes]
    starts = [len(framed(batches[:number], zstd_level)) for number in range(len(batches))]
    return RecordFile("any.framed", framed(batches, zstd_level), starts, batches)


def topic_log_file() -> RecordFile:
    log = TopicLogFile()
    starts, batches = [], []
    for bodies in ([b"one"], [b"two", b"three", b"NSQr"], [b"x" * 700], [b"NSQr" * 30], [b"y", b"z"]):
        known = len(log.messages)
        starts.append(log.add(Published(bodies)))
        batches.append(log.messages[known:])
    return RecordFile(log.name, bytes(log.data), starts, batches)


FILES = {"plain": framed_file(None), "zstd": framed_file(3), "log": topic_log_file()}
KINDS = st.sampled_from(sorted(FILES))
FILE_HEADER_CHECKED_BYTES = 32


@SOME
@given(KINDS, PLACES, FLIPS, SPLIT_BYTES)
def test_a_flipped_byte_in_a_record(kind: str, share: float, flip: int, split_bytes: int) -> None:
    name, data, starts, batches = FILES[kind]
    place = starts[0] + int(share * (len(data) - starts[0]))
    hit = bisect_right(starts, place) - 1
    with file_of(name, flipped(data, place, flip)) as path:
        with pytest.raises(DamagedArchive) as reported:
            read_messages(splits_of(path, split_bytes))
        found, damage = found_and_damage(path, split_bytes)
    assert (reported.value.path, reported.value.position) == (str(path), starts[hit])
    assert str(path) in str(reported.value) and str(starts[hit]) in str(reported.value)
    assert found == [message for number, batch in enumerate(batches) if number != hit for message in batch]
    end = [*starts, len(data)][hit + 1]
    assert damage == [(1, end - starts[hit])]


@SOME
@given(KINDS, st.integers(0, FILE_HEADER_CHECKED_BYTES - 1), FLIPS, SPLIT_BYTES)
def test_a_flipped_byte_in_the_header(kind: str, place: int, flip: int, split_bytes: int) -> None:
    """Without its salt no record of a file can be trusted."""
    name, data, _, _ = FILES[kind]
    with file_of(name, flipped(data, place, flip)) as path:
        found, damage = found_and_damage(path, split_bytes)
        if found:  # a flag in which nobody sees that it is wrong
            assert found == FILES[kind].everything
            return
        with pytest.raises(DamagedArchive) as reported:
            read_messages(splits_of(path, split_bytes))
    assert reported.value.position == 0
    assert [records for records, _ in damage] == [1]


@SOME
@given(KINDS, PLACES, SPLIT_BYTES)
def test_an_end_that_is_missing(kind: str, share: float, split_bytes: int) -> None:
    name, data, starts, batches = FILES[kind]
    length = starts[0] + int(share * (len(data) - starts[0]))
    whole = bisect_right([*starts[1:], len(data)], length)
    with file_of(name, data[:length]) as path:
        found, damage = found_and_damage(path, split_bytes)
        torn = length - [*starts, len(data)][whole]
        if torn:
            with pytest.raises(DamagedArchive, match=f"at {starts[whole]}:"):
                read_messages(splits_of(path, split_bytes))
    assert found == [message for batch in batches[:whole] for message in batch]
    assert damage == ([(1, torn)] if torn else [])


@SOME
@given(KINDS, st.data(), SPLIT_BYTES)
def test_much_that_flipped(kind: str, data: st.DataObject, split_bytes: int) -> None:
    name, whole, _, _ = FILES[kind]
    broken = whole
    for place in data.draw(st.lists(st.integers(64, len(whole) - 1), min_size=1, max_size=6)):
        broken = flipped(broken, place, data.draw(FLIPS))
    with file_of(name, broken) as path:
        found, damage = found_and_damage(path, split_bytes)
        everything = FILES[kind].everything
        rest = iter(everything)
        assert all(message in rest for message in found), "in order"
        assert bool(damage) == (found != everything)


# ---- gzip: its checksums cover each member


def bodies(some: Sequence[Message]) -> list[bytes]:
    return [one.body for one in some]


def lines_of(lines: Sequence[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


LINES = [b"%d" % number * 9 for number in range(60)]
MEMBERS = [compressed(lines_of(LINES[low : low + 20]), "gzip") for low in (0, 20, 40)]
STARTS = [0, len(MEMBERS[0]), len(MEMBERS[0] + MEMBERS[1])]


@SOME
@given(PLACES, FLIPS)
def test_a_flipped_byte_in_a_gzip_member(share: float, flip: int) -> None:
    data = b"".join(MEMBERS)
    place = int(share * len(data))
    hit = bisect_right(STARTS, place) - 1
    with file_of("orders.log.gz", flipped(data, place, flip)) as path:
        found, damage = found_and_damage(path)
        if not damage:
            assert bodies(found) == LINES  # it hit a time, or what system it was made on
            return
        with pytest.raises(DamagedArchive, match=f"at {len(b' '.join(LINES[: 20 * hit])) + bool(hit)}: "):
            read_messages(splits_of(path))
    assert bodies(found) == LINES[: 20 * hit] + LINES[20 * hit + 20 :]
    assert damage == [(1, len(MEMBERS[hit]))]


@SOME
@given(PLACES)
def test_a_gzip_member_without_its_end(kept: float) -> None:
    data = b"".join(MEMBERS)[: int(kept * sum(map(len, MEMBERS)))]
    whole = bisect_right(STARTS, len(data)) - 1
    torn = len(data) - STARTS[whole]
    with file_of("orders.log.gz", data) as path:
        found, damage = found_and_damage(path)
    assert bodies(found) == LINES[: 20 * whole]
    assert damage == ([(1, torn)] if torn else [])


# ---- formats without checksums: no other kind of error


def jsonl(some: Sequence[Message]) -> bytes:
    line = b'{"timestamp":%d,"id":"%s","attempts":1,"topic":"t","channel":"c","nsqd":"n","body":"%s\\u00e9\\n"}\n'
    return b"".join(line % (one.timestamp_ns, one.known_id, one.body) for one in some)


def parquet(some: Sequence[Message]) -> bytes:
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    names = ("topic", "channel", "id", "attempts", "body", "nsqd")
    columns = {name: [getattr(one, name) for one in some] for name in names}
    table = pa.table({**columns, "timestamp": [one.timestamp_ns for one in some]})
    pq.write_table(table, out, row_group_size=20, compression="zstd", write_page_checksum=True)
    return out.getvalue()


WITHOUT_CHECKSUMS: dict[str, Callable[[Sequence[Message]], bytes]] = {
    "orders.log": lambda some: lines_of(bodies(some)),
    "orders.jsonl": jsonl,
    "orders.parquet": parquet,
    "orders.log.zst": lambda some: compressed(lines_of(bodies(some)), "zstd", 3),
    "orders.jsonl.gz": lambda some: compressed(jsonl(some), "gzip", 2),
    "orders.parquet.zst": lambda some: compressed(parquet(some), "zstd", 2),
}


@settings(max_examples=examples(150), deadline=None)
@given(
    st.sampled_from(sorted(WITHOUT_CHECKSUMS)),
    st.lists(st.tuples(PLACES, FLIPS), max_size=3),
    PLACES,
    SPLIT_BYTES,
)
def test_nothing_else_goes_wrong(
    name: str, flips: list[tuple[float, int]], kept: float, split_bytes: int
) -> None:
    data = WITHOUT_CHECKSUMS[name](messages(50))
    for share, flip in flips:
        data = flipped(data, int(share * len(data)), flip)
    if not flips:
        data = data[: int(kept * len(data))]
    with file_of(name, data) as path:
        split_bytes = max(split_bytes, len(data) // 20)
        _, damage = found_and_damage(path, split_bytes)
        try:
            read_messages(splits_of(path, split_bytes))
            assert not damage
        except DamagedArchive as error:
            assert error.path == str(path) and damage


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(["orders.log", "orders.jsonl"]), PLACES)
def test_what_is_before_a_missing_end_is_read(name: str, kept: float) -> None:
    data = WITHOUT_CHECKSUMS[name](messages(50))
    line_bytes = len(data) // 50
    left_bytes = int(kept * len(data))
    with file_of(name, data[:left_bytes]) as path:
        found, _ = found_and_damage(path)
    assert [body.removesuffix("é\n".encode()) for body in bodies(found)] == bodies(messages(50))[: len(found)]
    newline_bytes = name.endswith(".jsonl")  # which a whole object does not need
    assert len(found) == (left_bytes + newline_bytes) // line_bytes
