"""The layers of snappy and deflate: what goes in comes out, whatever the pieces; damage is an error, never more."""

from __future__ import annotations

import contextlib
import random
import tracemalloc
import zlib

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd_py.errors import LayerError
from nsqd_py.net.layers import STEP_BYTES, DeflateLayer, Layer, Stacked
from nsqd_py.net.snappy import SnappyLayer, masked_crc32c
from tests.support.examples import examples

IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
LAYERS = {"snappy": SnappyLayer, "deflate": lambda: DeflateLayer(6)}
layers = pytest.mark.parametrize("name", LAYERS)

DATA = random.Random(1).randbytes(200_000) + b"x" * 100_000
MESSAGES = st.lists(
    st.binary(max_size=300) | st.integers(0, 200_000).map(lambda size: b"abc" * (size // 3)),
    min_size=1,
    max_size=6,
)


def decode_all(layer: Layer, data: bytes, cuts: list[int]) -> bytes:
    """What comes out of `data`, cut into pieces."""
    out = []
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in zip(edges, edges[1:], strict=False):
        piece = layer.decode(data[start:end])
        assert len(piece) <= STEP_BYTES + 65536
        out.append(piece)
        while layer.has_more:
            out.append(layer.decode(b""))
    return b"".join(out)


@layers
@settings(max_examples=examples(60), deadline=None)
@given(messages=MESSAGES, cuts=st.lists(st.integers(0, 1 << 20), max_size=8))
def test_what_is_encoded_is_decoded(name: str, messages: list[bytes], cuts: list[int]) -> None:
    sender, receiver = LAYERS[name](), LAYERS[name]()
    sent = b"".join(sender.encode(message) for message in messages)
    assert decode_all(receiver, sent, cuts) == b"".join(messages)


@layers
def test_each_message_can_be_read_when_it_was_sent(name: str) -> None:
    """Nothing waits in the compressor."""
    sender, receiver = LAYERS[name](), LAYERS[name]()
    for number in range(20):
        assert decode_all(receiver, sender.encode(b"%d" % number), []) == b"%d" % number


@layers
def test_a_layer_on_a_layer(name: str) -> None:
    sender, receiver = (Stacked(LAYERS[name](), LAYERS[name]()) for _ in range(2))
    data = DATA + b"x" * 5_000_000
    sent = sender.encode(data)
    assert decode_all(receiver, sent, list(range(0, len(sent), 5000))) == data


def test_snappy_is_what_others_read_and_write() -> None:
    layer = SnappyLayer()
    assert bytes(cramjam.snappy.decompress(layer.encode(DATA) + layer.encode(b"more"))) == DATA + b"more"
    framed = bytes(cramjam.snappy.compress(DATA))
    assert decode_all(SnappyLayer(), framed + framed, [5, 11, 70_000]) == DATA * 2


def test_deflate_is_what_others_read() -> None:
    layer = DeflateLayer(9)
    sent = layer.encode(b"x" * 1000) + layer.encode(b"more")
    assert zlib.decompressobj(-15).decompress(sent) == b"x" * 1000 + b"more"


def chunk(kind: int, data: bytes) -> bytes:
    return bytes([kind]) + len(data).to_bytes(3, "little") + data


def good(data: bytes) -> bytes:
    return chunk(1, masked_crc32c(data) + data)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (good(b"x"), "no identifier"),
        (chunk(0xFF, b"sNaPpX"), "another identifier"),
        (b"\xff\xff\xff\xff", "another identifier"),
        (IDENTIFIER + chunk(1, b"\0\0\0\0x"), "checksum"),
        (IDENTIFIER + chunk(0, masked_crc32c(b"x") + b"\xff\xff\xff"), "snappy: "),
        (IDENTIFIER + chunk(0, b"crc"), "a chunk of 3 bytes"),
        (IDENTIFIER + b"\x00\xff\xff\xff", "a chunk of 16777215 bytes"),
        (IDENTIFIER + chunk(2, b""), "unknown type 2"),
        (IDENTIFIER + good(b"x" * 65537), "carries too much"),
        (
            IDENTIFIER + chunk(0, b"\0\0\0\0" + bytes(cramjam.snappy.compress_raw(b"x" * 65537))),
            "carries too much",
        ),
    ],
)
def test_what_is_no_snappy_is_refused(sent: bytes, why: str) -> None:
    with pytest.raises(LayerError, match=why):
        SnappyLayer().decode(sent)


def test_snappy_skips_what_may_be_skipped() -> None:
    sent = IDENTIFIER + chunk(0x80, b"?") + good(b"one") + chunk(0xFE, b"\0" * 9) + IDENTIFIER + good(b"two")
    for cuts in (list(range(len(sent))), []):
        assert decode_all(SnappyLayer(), sent, cuts) == b"onetwo"


def test_snappy_keeps_nothing_of_what_may_be_skipped() -> None:
    layer = SnappyLayer()
    size = 10_000_000
    layer.decode(IDENTIFIER + b"\x80" + size.to_bytes(3, "little"))
    tracemalloc.start()
    for _ in range(size // 100_000):
        assert layer.decode(b"?" * 100_000) == b""
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept_bytes < 500_000
    assert layer.decode(good(b"next")) == b"next"


@layers
def test_a_bomb_is_taken_in_steps(name: str) -> None:
    """However much a few bytes become, no more of it is in memory at once than a step."""
    sent = LAYERS[name]().encode(b"\0" * 50_000_000)
    layer = LAYERS[name]()
    total = 0
    for start in range(0, len(sent), 256 * 1024):
        piece = layer.decode(sent[start : start + 256 * 1024])
        while piece:
            assert len(piece) <= STEP_BYTES + 65536
            total += len(piece)
            piece = layer.decode(b"") if layer.has_more else b""
    assert total == 50_000_000


def test_deflate_that_ended_takes_no_more() -> None:
    layer = DeflateLayer(6)
    assert layer.decode(LAYERS["deflate"]().end()) == b""
    assert not layer.has_more
    with pytest.raises(LayerError, match="has ended"):
        layer.decode(b"x")


@layers
@settings(max_examples=examples(100), deadline=None)
@given(garbage=st.binary(min_size=1, max_size=200), message=st.binary(max_size=200))
def test_garbage_is_refused_or_waited_for(name: str, garbage: bytes, message: bytes) -> None:
    layer = LAYERS[name]()
    with contextlib.suppress(LayerError):
        decode_all(layer, LAYERS[name]().encode(message) + garbage, [1, 50])
