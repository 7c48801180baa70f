"""The figures of docs/sizing.md are those of a running nsqd, and its arithmetic is right."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator

import pytest

from tests.docs.blocks import read_page
from tests.support.nsqd_process import REPOSITORY

pytestmark = pytest.mark.ours

PAGE = (REPOSITORY / "docs/sizing.md").read_text("utf-8")


def on_disk(body_bytes: int, batch: int) -> float:
    """What the script of the page says a message takes."""
    (script,) = (
        block.code for block in read_page(REPOSITORY, "docs/sizing.md") if block.language == "python"
    )
    (formula,) = re.findall(r"^on_disk = (.*)$", script, re.MULTILINE)
    return float(eval(formula, {"body_bytes": body_bytes, "batch": batch}))


def table() -> Iterator[tuple[int, int, float]]:
    """Yield messages of a batch, bytes of a body and bytes on disk of each cell of the table."""
    rows = re.findall(
        r"^\| (?:PUB|MPUB of (\d+))[^|]*\| ([\d.,]+)(?: bytes)? \| ([\d.,]+)(?: bytes)? \|$",
        PAGE,
        re.MULTILINE,
    )
    for batch, *cells in rows:
        for body_bytes, cell in zip((200, 1000), cells, strict=True):
            yield int(batch or 1), body_bytes, float(cell.replace(",", ""))


def test_the_table_has_all_cells():
    assert [(batch, body) for batch, body, _ in table()] == [
        (batch, body) for batch in (1, 10, 200) for body in (200, 1000)
    ]


@pytest.mark.parametrize(("batch", "body_bytes", "printed"), list(table()))
def test_a_message_takes_what_the_page_says(nsqd, batch, body_bytes, printed):
    with nsqd.connect() as client:
        for _ in range(200 // batch):
            client.mpub("sized", [b"x" * body_bytes] * batch)
    size = (nsqd.stats()["topics"][0]["log_bytes"] - 64) / 200  # a file has a header of 64 bytes
    assert size == on_disk(body_bytes, batch)
    assert round(size, 1) == printed


def test_bytes_on_the_network(make_nsqd):
    nsqd = make_nsqd()
    nsqd.create("sized", "c")
    nsqd.post("/pub?topic=sized", b"x" * 500)
    with (
        socket.create_connection(("127.0.0.1", nsqd.tcp_port), timeout=40) as sock,
        sock.makefile("rb") as stream,
    ):
        sock.sendall(b"  V2SUB sized c\nRDY 1\n")
        frames = [stream.read(struct.unpack(">I", stream.read(4))[0]) for _ in range(2)]
    assert frames[0][4:] == b"OK"
    received = 4 + len(frames[1])
    (overhead,) = re.findall(r"\| nsqd \| consumer, for each channel \| body \+ (\d+) \|", PAGE)
    assert received == 500 + int(overhead)
    (answer,) = re.findall(r"\| consumer \| nsqd, for each channel \| (\d+) \(`FIN`\) \|", PAGE)
    assert len(b"FIN " + frames[1][14:30] + b"\n") == int(answer)


_NUMBER = r"\d[\d,.]*(?: [GM]B)?"
_EQUATION = re.compile(rf"({_NUMBER}(?: [×/-] {_NUMBER})+) = ({_NUMBER})")


def value(text: str) -> float:
    """Return the value of "50 × 2 × 105 MB"."""
    plain = text.replace(",", "").replace("×", "*").replace(" GB", "e9").replace(" MB", "e6")
    return float(eval(plain))


def test_the_arithmetic_by_hand():
    text = " ".join(PAGE.partition("By hand:")[2].split())
    found = _EQUATION.findall(text)
    assert len(found) == text.count("=") == 6
    for left, right in found:
        assert value(left) == pytest.approx(value(right), rel=0.05), left
