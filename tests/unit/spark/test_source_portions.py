"""How much of an archive a batch of a stream reads."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxFiles, ReadMaxRows

from nsq_spark.archive.damage import Damage
from nsq_spark.archive.formats import Compression, Format
from nsq_spark.archive.listing import list_files
from nsq_spark.archive.splits import FileInfo
from nsq_spark.archive.storage import Storage
from nsq_spark.archive.wanted import Wanted
from nsq_spark.source.batch_reader import read_piece
from nsq_spark.source.offsets import FINISHED, NOTHING, Portion, byte_mark
from nsq_spark.source.options import StreamOptions
from nsq_spark.source.portions import Room, can_grow, default_limit, packed, pieces_of, readable_until
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES
from tests.support.archives import Published, TopicLogFile, framed, messages

FREE = StreamOptions(None, None, None, 0)
LAST_OF_FIRST = (FILE_HEADER_BYTES << 20) + 19  # of a record of 20 messages, the first of its file


def info(size_bytes: int, form: Format = Format.LINES, compression: Compression = Compression.NONE) -> FileInfo:
    return FileInfo("/a", size_bytes, 0, form, compression, "orders")


def portion(size_bytes: int, after: int = NOTHING, until: int | None = None) -> Portion:
    return Portion("/a", size_bytes, after, byte_mark(size_bytes) if until is None else until)


def no_count(portion: Portion, most: int) -> tuple[int, int]:
    raise AssertionError("nobody is to count")


# ---- limits


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        (FREE, ReadAllAvailable()),
        (StreamOptions(5, None, None, 0), ReadMaxFiles(5)),
        (StreamOptions(5, 6, None, 0), ReadMaxBytes(6)),
        (StreamOptions(5, 6, 7, 0), ReadMaxRows(7)),
    ],
)
def test_the_limit_that_spark_is_told(options: StreamOptions, limit: ReadLimit) -> None:
    assert default_limit(options) == limit


def test_all_available_goes_before_the_options() -> None:
    room = Room.of(ReadAllAvailable(), StreamOptions(1, 1, 1, 0))
    assert room.admit(portion(1000), info(1000), no_count) == portion(1000) and not room.is_full


def test_a_file_is_cut_at_the_last_byte_there_is_room_for() -> None:
    room = Room.of(ReadMaxBytes(1500), FREE)
    assert room.admit(portion(1000), info(1000), no_count) == portion(1000)
    assert room.admit(portion(1000), info(1000), no_count) == portion(1000, until=byte_mark(500))
    assert room.is_full


def test_what_goes_on_in_the_middle_counts_what_is_left() -> None:
    room = Room.of(ReadMaxBytes(300), FREE)
    going_on = portion(1000, after=byte_mark(800))
    assert room.admit(going_on, info(1000), no_count) == going_on
    assert not room.is_full


def test_what_cannot_be_cut_is_let_in_if_it_is_the_first() -> None:
    packed_info, whole = info(1000, compression=Compression.GZIP), portion(1000, until=FINISHED)
    room = Room.of(ReadMaxBytes(10), FREE)
    assert room.admit(whole, packed_info, no_count) == whole and room.is_full
    room = Room.of(ReadMaxBytes(500), FREE)
    room.admit(portion(1), info(1), no_count)
    assert room.admit(whole, packed_info, no_count) is None and room.is_full


def test_messages_are_counted_up_to_the_limit() -> None:
    asked = []

    def count(portion: Portion, most: int) -> tuple[int, int]:
        asked.append(most)
        return (60, 0) if len(asked) == 1 else (most, 777)

    room = Room.of(ReadMaxRows(100), FREE)
    assert room.admit(portion(1000), info(1000), count) == portion(1000)
    assert room.admit(portion(1000), info(1000), count) == portion(1000, until=777)
    assert asked == [100, 40] and room.is_full


def test_files_are_counted() -> None:
    room = Room.of(ReadMaxFiles(2), FREE)
    room.admit(portion(1), info(1), no_count)
    assert not room.is_full
    room.admit(portion(1), info(1), no_count)
    assert room.is_full


# ---- pieces


def test_small_portions_share_a_task_and_large_ones_are_split() -> None:
    infos = {name: FileInfo(name, size, 0, Format.LINES) for name, size in (("/a", 10), ("/b", 20), ("/c", 4 << 20))}
    portions = [Portion(name, one.size_bytes, NOTHING, byte_mark(one.size_bytes)) for name, one in infos.items()]
    groups = [[piece.split.path for piece in group] for group in packed(portions, infos, 1 << 20)]
    assert groups == [["/a", "/b"], ["/c"], ["/c"], ["/c"], ["/c"]]


def test_damage_between_two_portions_is_told_once(tmp_path: Path) -> None:
    """Wherever the first one ends: with a message, or at a byte."""
    some = messages(40)
    data = bytearray(framed([some[:20], some[20:30], some[30:]]))
    second = data.index(b"NSQr", data.index(b"NSQr") + 1)
    data[data.index(some[25].body)] ^= 1
    path = tmp_path / "a.framed"
    path.write_bytes(data)
    (found,) = list_files([str(path)], Storage())
    whole = Portion(str(path), len(data), NOTHING, byte_mark(len(data)))
    for cut in (LAST_OF_FIRST, byte_mark(second - 5), byte_mark(second), byte_mark(second + 5)):
        damage = Damage("skip")
        bodies: list[bytes] = []
        for part in (whole._replace(until=cut), whole._replace(after=cut)):
            for piece in pieces_of(part, found, 1 << 20):
                for chunk in read_piece(piece, Storage(), Wanted(), damage):
                    bodies += chunk.bodies.to_pylist()
        assert bodies == [message.body for message in some[:20] + some[30:]], cut
        assert len(damage.findings) == 1, cut


# ---- files that grow


def until_of(path: Path, after: int = NOTHING) -> int | None:
    (found,) = list_files([str(path)], Storage())
    assert can_grow(found)
    return readable_until(found, after, Storage())


def test_lines_are_read_up_to_the_last_newline(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\ntwo\nthr")
    assert until_of(path) == 4 << 20
    assert until_of(path, after=4 << 20) is None
    path.write_bytes(b"one\ntwo\nthree\n")
    assert until_of(path, after=4 << 20) == byte_mark(14)
    assert until_of(path, after=byte_mark(14)) is None
    path.write_bytes(b"one")
    assert until_of(path) is None


def test_a_last_line_that_is_no_message_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"timestamp":1,"id":"0","body":"x"}\nnot JSON\n')
    assert until_of(path) == byte_mark(45)


def test_records_are_read_up_to_the_last_whole_one(tmp_path: Path) -> None:
    some = messages(30)
    data = framed([some[:20], some[20:]])
    path = tmp_path / "a.framed"
    path.write_bytes(data[:-1])
    assert until_of(path) == LAST_OF_FIRST
    path.write_bytes(data)
    assert until_of(path, after=LAST_OF_FIRST) == byte_mark(len(data))


def test_a_log_of_nsqd_is_read_up_to_its_last_record(tmp_path: Path) -> None:
    """Behind it there is space, and the file is not longer when there is a record more."""
    log = TopicLogFile()
    log.add(Published([b"one", b"two"]))
    start = log.add(Published([b"three"]))
    path = log.write(tmp_path, tail=bytes(1000))
    assert until_of(path) == start << 20
    assert until_of(path, after=start << 20) is None
    added = log.add(Published([b"four"]))
    log.write(tmp_path, tail=bytes(500))
    assert until_of(path, after=start << 20) == added << 20


def test_a_large_file_is_looked_at_from_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.log"
    path.write_bytes((b"x" * 999 + b"\n") * 20_000 + b"y")
    starts = []

    def spy(*arguments: object, **named: object) -> object:
        starts.append(arguments[0].start)  # type: ignore[attr-defined]
        return real(*arguments, **named)  # type: ignore[arg-type]

    import nsq_spark.source.portions as tails

    real = tails.read  # type: ignore[attr-defined]
    monkeypatch.setattr(tails, "read", spy)
    assert until_of(path) == 19_999_000 << 20
    assert min(starts) > 18_000_000


def test_compressed_files_do_not_grow() -> None:
    assert not can_grow(info(10, compression=Compression.ZSTD))
    assert not can_grow(info(10, Format.PARQUET))
