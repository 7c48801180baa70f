"""What a primary and its standby say to each other: what was encoded is decoded, and nothing else is accepted."""

from __future__ import annotations

import json

import pytest

from nsqd_py.diskqueue.ranges import Epoch
from nsqd_py.standby.messages import (
    BadStandbyMessage,
    Offer,
    OfferedFile,
    OfferedLog,
    TopicFiles,
    decode,
    decode_offer,
    encode_offer,
)

FILES = TopicFiles("t", (Epoch(100, 0), Epoch(200, 50)), 60, {"t.00000000000000000000.log": 0}, ["t:c.cursor"])
OFFER = Offer(200, "b:4151", {"t": OfferedLog(FILES.epochs, {"t.00000000000000000000.log": OfferedFile(7, 99, 3)})})


@pytest.mark.parametrize("data", [b"", b"\0", b"\x09", b"\x01", b"\x08\0", b"\x06{}", b"\x06["])
def test_what_is_no_message(data: bytes) -> None:
    with pytest.raises(BadStandbyMessage):
        decode(data)


def test_an_offer() -> None:
    assert decode_offer(encode_offer(OFFER, 1 << 20)) == OFFER


def test_logs_that_do_not_fit_are_left_out() -> None:
    assert decode_offer(encode_offer(OFFER, 150)) == Offer(200, "b:4151", {})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        [],
        {"format": 2, "epoch": 0, "http_address": "", "logs": {}},
        {"format": 1, "epoch": 0, "http_address": ""},
        {"format": 1, "epoch": 0, "http_address": "", "logs": {"t": {"epochs": [[1, 0]], "files": {"f": [1]}}}},
    ],
)
def test_what_is_no_offer(fields: object) -> None:
    with pytest.raises(BadStandbyMessage):
        decode_offer(json.dumps(fields).encode())
