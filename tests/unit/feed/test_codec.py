"""The pieces of a feed as bytes: what was encoded is decoded, and nothing else is accepted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd_py.diskqueue.journals.epochs import Epoch
from nsqd_py.feed import codec
from nsqd_py.feed.pieces import Begin, Commit, Part, Remove, TopicListing, TopicsListed, Write

LOG = "t.00000000000000000000.log"
LISTING = TopicListing("t", (Epoch(100, 0), Epoch(200, 50)), 60, {LOG: 0}, ["t:c.cursor"])
PIECES: list[Any] = [
    Write(LOG, 1 << 40, b"bytes"),
    Begin("nsqd.dat"),
    Part("nsqd.dat", 0, b""),
    Commit("nsqd.dat"),
    Remove(LOG),
    LISTING,
    replace(LISTING, only_stored=7, store="file:///store"),
    TopicListing("gone"),
    TopicsListed(),
]


def encoded(piece: Any) -> bytes:
    return b"".join(codec.encode(piece))


@pytest.mark.parametrize("piece", PIECES)
def test_pieces_are_decoded(piece: Any) -> None:
    found = codec.decode(encoded(piece))
    if isinstance(found, codec.FileMessage):
        assert (
            type(piece).__name__.upper()
            == {
                codec.WRITE: "WRITE",
                codec.BEGIN: "BEGIN",
                codec.PART: "PART",
                codec.COMMIT: "COMMIT",
                codec.REMOVE: "REMOVE",
            }[found.kind]
        )
        assert found.name == piece.name
        if isinstance(piece, Write | Part):
            assert (found.offset, bytes(found.data)) == (piece.offset, piece.data)
    else:
        assert found == piece


@pytest.mark.parametrize("piece", PIECES)
def test_a_part_of_a_buffer_is_decoded_as_bytes_are(piece: Any) -> None:
    data = encoded(piece)
    assert codec.decode(memoryview(b"x" + data + b"y")[1:-1]) == codec.decode(data)


@pytest.mark.parametrize("piece", PIECES)
def test_pieces_that_are_cut_off_are_refused_with_a_sentence(piece: Any) -> None:
    data = encoded(piece)
    needed = len(data) - (len(piece.data) if isinstance(piece, Write | Part) else 0)
    if isinstance(piece, Write | Part | Begin | Commit | Remove):
        needed -= len(piece.name)  # a shorter name is a name
    for end in range(needed):
        with pytest.raises(codec.BadPiece, match=r"^a message of (the unknown )?kind \d+"):
            codec.decode(data[:end])


@given(st.binary(max_size=60))
def test_any_bytes_are_a_piece_or_refused(data: bytes) -> None:
    try:
        codec.decode(data)
    except codec.BadPiece as error:
        assert str(error).startswith("a message of ")


@given(st.sampled_from([codec.TOPIC]), st.text(max_size=60))
def test_any_text_is_a_listing_or_refused(kind: int, text: str) -> None:
    with pytest.raises(codec.BadPiece):
        codec.decode(bytes([kind]) + text.encode())


def test_a_list_without_messages_that_only_a_store_has_is_that_of_earlier_versions() -> None:
    assert b"store" not in encoded(LISTING)
