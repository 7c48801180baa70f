"""The formats and codecs of nsq-to-file: what is written, and what is found in a file that was torn anywhere."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nsq_tools.to_file.formats import FORMATS, NEWLINE_WARNING, FileFormat, json_lines
from nsqd_py.stores.compression import CODECS, GZIP_LEVELS, Codec
from tests.support.examples import examples
from tests.support.written_files import bodies, records
from tests.unit.to_file_fakes import FakeBatch

KINDS = [(form, CODECS[name]) for form in FORMATS.values() if form.convert is None for name in form.codecs]
EACH_KIND = pytest.mark.parametrize(("form", "codec"), KINDS, ids=[f"{f.name}-{c.name}" for f, c in KINDS])
BODY = st.binary(max_size=50).map(lambda body: body.replace(b"\n", b""))
BLOCKS = st.lists(st.lists(BODY, min_size=1), max_size=4)
LINES, JSONL, FRAMED = FORMATS["lines"], FORMATS["jsonl"], FORMATS["framed"]


def suffix(form: FileFormat, codec: Codec) -> str:
    return form.suffix + (codec.suffix if form.is_appendable else "")


def no_warning(text: str) -> None:
    raise AssertionError(text)


def write(form: FileFormat, codec: Codec, *blocks: list[bytes]) -> list[bytes]:
    """The header of a file and each block, as they are written one after the other."""
    encoder = form.encoder(codec, 3, no_warning)
    return [encoder.header, *(encoder.encode([FakeBatch(*block)]).data for block in blocks)]


@EACH_KIND
def test_others_can_read_it(form: FileFormat, codec: Codec, tmp_path: Path) -> None:
    path = tmp_path / f"file{suffix(form, codec)}"
    path.write_bytes(b"".join(write(form, codec, [b"one"], [b"two", b"", b"three" * 1000])))
    assert bodies(path) == [b"one", b"two", b"", b"three" * 1000]
    scan = form.scan(path.read_bytes(), codec, 0)
    assert (scan.end, scan.tally.messages) == (path.stat().st_size, 4)
    times = (scan.tally.first_timestamp_ns, scan.tally.last_timestamp_ns)
    assert times == ((None, None) if form is LINES else (1000, 1002))


@EACH_KIND
def test_an_empty_file_is_whole(form: FileFormat, codec: Codec, tmp_path: Path) -> None:
    encoder = form.encoder(codec, 3, no_warning)
    path = tmp_path / f"file{suffix(form, codec)}"
    path.write_bytes(encoder.header + encoder.encode([]).data)
    assert bodies(path) == []
    assert form.scan(path.read_bytes() or b"", codec, 0).end == path.stat().st_size


@EACH_KIND
@settings(
    max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(BLOCKS, st.data())
def test_torn_anywhere_it_is_whole_up_to_what_was_written_last(
    form: FileFormat, codec: Codec, blocks: list[list[bytes]], data: st.DataObject
) -> None:
    """A file ends anywhere after a kill: what was complete stays, and nothing that could be read is lost."""
    parts = write(form, codec, *blocks)
    whole = b"".join(parts)
    size = data.draw(st.integers(0, len(whole)), "size")
    scan = form.scan(whole[:size], codec, 0)
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part))
    expected = max(end for end in ends if end <= size)
    if form.is_appendable and codec.is_plain:
        expected = whole.rfind(b"\n", 0, size) + 1
        assert scan.tally.messages == whole.count(b"\n", 0, expected)
    else:
        complete = sum(end <= size for end in ends[2:])
        assert scan.tally.messages == sum(map(len, blocks[:complete]))
    assert scan.end == expected


@EACH_KIND
@given(st.binary(max_size=200))
def test_no_data_is_too_strange(form: FileFormat, codec: Codec, data: bytes) -> None:
    assert 0 <= form.scan(data, codec, 0).end <= len(data)


def test_zeros_at_the_end_are_torn_too() -> None:
    """What a power cut leaves of a file whose size was written, and its data not."""
    for form, codec in KINDS:
        whole = b"".join(write(form, codec, [b"one"], [b"two"]))
        assert form.scan(whole + bytes(5000), codec, 0).end == len(whole), (form.name, codec.name)


# --- lines


def test_newlines_in_bodies_are_written_and_said() -> None:
    said: list[str] = []
    encoder = LINES.encoder(CODECS["none"], 0, said.append)
    assert encoder.encode([FakeBatch(b"a")]).data == b"a\n"
    assert said == []
    assert encoder.encode([FakeBatch(b"a\nb")]).data == b"a\nb\n"
    assert said == [NEWLINE_WARNING]


# --- jsonl


def test_a_line_of_json() -> None:
    batch = FakeBatch(b'a "quoted" \xe2\x82\xac\n', nsqd="100%.example:4150")
    (line,) = json_lines(batch)
    assert line == (
        b'{"timestamp":1000,"id":"0000000000000000","attempts":1,"topic":"topic","channel":"channel",'
        b'"nsqd":"100%.example:4150","body":"a \\"quoted\\" \xe2\x82\xac\\n"}\n'
    )


@given(st.lists(st.binary(max_size=30), min_size=1), st.binary(min_size=16, max_size=16))
def test_any_body_and_any_id_make_one_line_of_json_each(given_bodies: list[bytes], message_id: bytes) -> None:
    batch = FakeBatch(*given_bodies)
    batch.ids = [message_id] * len(given_bodies)
    lines = list(json_lines(batch))
    assert all(line.count(b"\n") == 1 and json.loads(line)["timestamp"] >= 1000 for line in lines)


# --- framed


def test_a_record_for_each_nsqd(tmp_path: Path) -> None:
    encoder = FRAMED.encoder(CODECS["zstd"], 3, no_warning)
    batches = (FakeBatch(b"1", nsqd="a:1"), FakeBatch(b"2", nsqd="b:1"), FakeBatch(b"3", nsqd="a:1"))
    path = tmp_path / "x.framed"
    path.write_bytes(encoder.header + encoder.encode(batches).data)
    assert [(record.nsqd, record.bodies) for record in records(path)] == [
        ("a:1", [b"1", b"3"]),
        ("b:1", [b"2"]),
    ]


def test_damage_in_the_middle_is_not_cut_off() -> None:
    parts = write(FRAMED, CODECS["none"], [b"one"], [b"two"], [b"three"])
    data = bytearray(b"".join(parts))
    data[len(parts[0]) + len(parts[1]) + 60] ^= 1
    scan = FRAMED.scan(bytes(data), CODECS["none"], 0)
    assert (scan.end, scan.tally.messages) == (len(data), 2)


# --- codecs


@pytest.mark.parametrize("level", GZIP_LEVELS)
def test_gzip_at_every_level(level: int) -> None:
    data = b"some text " * 1000
    member = CODECS["gzip"].compress(data, level)
    assert gzip.decompress(member) == data
    assert len(member) < 300
