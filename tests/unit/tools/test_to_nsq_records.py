"""The pure parts of to-nsq: records, the delimiter, the rate, limits of nsqd, what is notified."""

from __future__ import annotations

import gevent
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsq_tools.to_nsq.destination import PublishTarget
from nsq_tools.to_nsq.records import RecordBatch, RecordReader, parse_delimiter
from nsqd_py.client.options import ClientOptions
from nsqd_py.protocol import frames
from nsqd_py.runtime.logs.daemon_log import Log
from tests.support.fake_nsqd import agree_then, listening

Numbered = list[tuple[bytes, int]]


def numbered(*batches: RecordBatch) -> Numbered:
    return [pair for batch in batches for pair in zip(batch.records, batch.lines, strict=True)]


# --- records


def read(delimiter: bytes, *chunks: bytes) -> Numbered:
    reader = RecordReader(delimiter)
    return numbered(*map(reader.feed, chunks), reader.finish())


def test_a_record_is_there_as_soon_as_its_delimiter_is() -> None:
    reader = RecordReader(b"\n")
    assert numbered(reader.feed(b"one\ntw")) == [(b"one", 1)]
    assert reader.unended_bytes == 2
    assert numbered(reader.feed(b"o\n")) == [(b"two", 2)]
    assert reader.unended_bytes == 0


def test_the_end_of_a_line_is_no_part_of_the_last_of_other_records() -> None:
    assert read(b",", b"one,two,three\n") == [(b"one", 1), (b"two", 2), (b"three", 3)]
    assert read(b",", b"one,\n") == [(b"one", 1)]
    assert read(b",", b"a\nb,c\n\n") == [(b"a\nb", 1), (b"c\n", 2)]


@given(st.lists(st.binary(max_size=4), max_size=20), st.data())
def test_chunks_make_no_difference(records: list[bytes], data: st.DataObject) -> None:
    whole = b";".join(records)
    if whole.endswith(b"\n"):
        whole += b"x"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    chunks = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    expected = [(record, line) for line, record in enumerate(whole.split(b";"), 1) if record]
    assert read(b";", *chunks) == expected


def test_a_record_that_no_nsqd_takes_is_an_error_before_it_is_read_whole() -> None:
    reader = RecordReader(b"\n", max_record_bytes=10)
    assert numbered(reader.feed(b"small\n12345")) == [(b"small", 1)]
    with pytest.raises(ValueError, match="record 2 is larger than 10 bytes"):
        reader.feed(b"678901")


# --- the delimiter


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("\n", b"\n"),
        (",", b","),
        ("\\", b"\\"),
        (r"\n", b"\n"),
        (r"\t", b"\t"),
        (r"\0", b"\0"),
        (r"\\", b"\\"),
        (r"\x1e", b"\x1e"),
        ("\udcff", b"\xff"),
    ],
)
def test_a_delimiter_is_a_byte_or_an_escape(text: str, delimiter: bytes) -> None:
    assert parse_delimiter(text) == delimiter


@pytest.mark.parametrize("text", ["", ",,", "é", r"\x1", r"\x1ee", r"\q"])
def test_a_delimiter_is_a_single_byte(text: str) -> None:
    with pytest.raises(ValueError, match="--delimiter must be a single byte"):
        parse_delimiter(text)


# --- after a bug


def test_it_does_not_wait_for_ever_for_a_record_whose_refusal_fails() -> None:
    def fail(*_: object) -> None:
        raise KeyError("a bug")

    with listening(agree_then(frames.error(b"E_BAD_MESSAGE PUB message too big 10 > 5"))) as address:
        target = PublishTarget(address, "t", ClientOptions(), 0.1, Log("[test] "), fail)
        target.is_waited_for = False  # as after `connect`
        target.send(RecordBatch([b"0123456789"], [1]))
        with gevent.Timeout(40):
            target.finish()
        target.close()
    assert target.failure is not None
