"""Rounds, the head and names of files: what was encoded is decoded; else a sentence that names the object."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd_py.feed.pieces import Part, TopicListing, Write
from nsqd_py.store import rounds
from nsqd_py.store.layout import (
    BadObject,
    Head,
    StoredFile,
    parse_file_epoch,
    parse_round_name,
    round_name,
    topic_prefix,
)
from nsqd_py.store.rounds import BASE, MARK, TAKEOVER, TAKEOVER_BYTES, FilesChanged, RoundObject

WRITER = "0123456789abcdef"
FILE = StoredFile("t.x", 5, 0xABC, 1000, 0xDEF, True, 9, 10, 11, 12, 13, 7)
PAYLOAD = (
    rounds.files_frame([FILE], ["files/t/gone.log"])
    + rounds.piece_frame(Write("t:c.cursor", 3, b"abc"))
    + rounds.piece_frame(TopicListing("gone"))
)
ROUND = RoundObject(18, 3, WRITER, 1_700_000_000_000_000_000, MARK | BASE, PAYLOAD)
DATA = ROUND.encode()


def refusal_of(data: bytes, number: int = 18) -> str:
    """Decode a round with all its messages, and return why it is refused; "" if it is not."""
    try:
        for _ in rounds.decode(number, data).content():
            pass
    except BadObject as error:
        return str(error)
    return ""


def test_a_round_is_decoded() -> None:
    found = rounds.decode(18, DATA)
    assert found == ROUND
    assert (found.is_mark, found.is_base, found.is_takeover) == (True, True, False)
    files, write, listing = found.content()
    assert files == FilesChanged((FILE,), ("files/t/gone.log",))
    assert isinstance(write, tuple)
    assert (write[1], write[2], bytes(write[3])) == ("t:c.cursor", 3, b"abc")
    assert listing == TopicListing("gone")


def test_a_takeover_is_as_long_as_the_shortest_round() -> None:
    assert len(RoundObject(1, 2, WRITER, 3, TAKEOVER).encode()) == TAKEOVER_BYTES


def test_a_round_that_is_cut_off_is_refused() -> None:
    texts = {refusal_of(DATA[:end]).partition(":")[0] for end in range(len(DATA))}
    assert texts == {"rounds/0000000000000012 is damaged"}


def test_a_round_with_a_flipped_bit_is_refused() -> None:
    for position in range(len(DATA)):
        for bit in range(8):
            flipped = bytearray(DATA)
            flipped[position] ^= 1 << bit
            assert refusal_of(bytes(flipped)).startswith("rounds/0000000000000012 is ")


def test_a_round_of_another_number_is_refused() -> None:
    assert refusal_of(DATA, 19) == "rounds/0000000000000013 is foreign: it has the number 18"


def test_a_round_of_a_later_version_is_refused() -> None:
    later = bytearray(DATA[:-4])
    later[4] = 2
    data = bytes(later) + rounds.extend(0, bytes(later)).to_bytes(4, "little")
    assert (
        refusal_of(data) == "rounds/0000000000000012 was written by a later version of nsqd-py, in format 2"
    )


@pytest.mark.parametrize("data", [b"", b"<html>", b"NSQr" * 40, bytes(100)])
def test_foreign_objects_are_refused(data: bytes) -> None:
    assert refusal_of(data).startswith("rounds/0000000000000012 is ")


@given(st.binary(max_size=80))
def test_a_payload_of_any_bytes_is_read_or_refused(payload: bytes) -> None:
    """The checksum is right: somebody has written it so."""
    text = refusal_of(ROUND._replace(payload=payload).encode())
    assert not text or text.startswith("rounds/0000000000000012 has ")


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"added": [], "removed": [1]},
        {"added": [[]], "removed": []},
        {"added": [[*FILE[:-1], -1]], "removed": []},
        {"added": [["../x", *FILE[1:]]], "removed": []},
        {"added": [["t#ephemeral", *FILE[1:]]], "removed": []},
        {"added": [[*FILE[:5], 1, *FILE[6:]]], "removed": []},
    ],
)
def test_other_lists_of_files_are_refused(document: Any) -> None:
    frame = bytes([rounds.FILES]) + json.dumps(document).encode()
    data = ROUND._replace(payload=len(frame).to_bytes(4, "little") + frame).encode()
    assert refusal_of(data).startswith("rounds/0000000000000012 has a list of files that is damaged")


def test_a_long_piece() -> None:
    piece = Part("nsqd.dat", 0, bytes(3_000_000))
    (found,) = ROUND._replace(payload=rounds.piece_frame(piece)).content()
    assert isinstance(found, tuple) and len(found[3]) == 3_000_000


# ---- names


def test_names() -> None:
    assert round_name(255) == "rounds/00000000000000ff"
    assert parse_round_name("rounds/00000000000000ff") == 255
    assert parse_round_name("rounds/ff") is None
    assert FILE.name == "files/t.x/00000000000000000005-00000abc-1000-00000def-7.log"
    assert FILE.local_name == "t.x.00000000000000000005.log"
    assert parse_file_epoch(FILE.name, 99) == 7
    assert parse_file_epoch("files/t/foreign.parquet", 99) == 99
    assert topic_prefix("..") == "files/=.."


# ---- the head

HEAD = Head("ab" * 8, 3, WRITER, "a:4150", 18, closed=True)


def test_a_head_is_decoded() -> None:
    assert Head.decode(HEAD.encode()) == HEAD


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": 2}, "head.json was written by a later version of nsqd-py"),
        ({"epoch": 0}, "head.json is damaged: it names no writer"),
        ({"writer": "me"}, "head.json is damaged: it names no writer"),
        ({"epoch": "3"}, "head.json is damaged or foreign: TypeError"),
        ({"base": -1}, "head.json is damaged or foreign: ValueError"),
        ({"more": 1}, "head.json is damaged or foreign: TypeError"),
    ],
)
def test_other_heads_are_refused(change: dict[str, Any], sentence: str) -> None:
    document = json.loads(HEAD.encode()) | change
    with pytest.raises(BadObject) as refused:
        Head.decode(json.dumps(document).encode())
    assert str(refused.value).startswith(sentence)


@given(st.binary(max_size=60))
def test_any_bytes_are_no_head(data: bytes) -> None:
    with pytest.raises(BadObject, match=r"^head\.json is damaged or foreign"):
        Head.decode(data)
