"""`jsonl`: each message is a JSON object on one line.

{"timestamp":1700000000123456789,"id":"0123456789abcdef","attempts":1,"topic":"t","channel":"c",
 "nsqd":"127.0.0.1:4150","body":"hello"}

`timestamp` is in ns since the epoch. A body that is not UTF-8 is in `body_base64` instead of `body`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from itertools import chain

import orjson

from nsq_tools.columns import Columns
from nsq_tools.to_file.compression import GZIP, NONE, ZSTD, Codec, Data
from nsq_tools.to_file.formats.format import Encoded, FileScan, Format, Warn
from nsq_tools.to_file.formats.lines import scan_lines
from nsq_tools.to_file.portions import Portion, Tally

# Anchored to the start of a line, so that it never matches inside a body.
_TIMESTAMP = re.compile(rb'^\{"timestamp":(-?\d+),', re.MULTILINE)


class JsonlEncoder:
    """The encoder of one file of JSON lines."""

    header = b""

    def __init__(self, codec: Codec, level: int, warn: Warn) -> None:
        self._codec = codec
        self._level = level

    def encode(self, portions: Sequence[Portion]) -> Encoded:
        data = b"".join(chain.from_iterable(map(json_lines, portions)))
        return Encoded(self._codec.compress(data, self._level), len(data))

    def empty(self) -> bytes:
        return self._codec.compress(b"", self._level)


def json_lines(portion: Columns) -> Iterator[bytes]:
    """Return a line for each message. orjson checks and escapes text; `%` inserts the rest, in 0.6 us a line."""
    names = (orjson.dumps(name) for name in (portion.topic, portion.channel, portion.nsqd))
    topic, channel, nsqd = (name.replace(b"%", b"%%") for name in names)
    line = b'{"timestamp":%%d,"id":%%b,"attempts":%%d,"topic":%b,"channel":%b,"nsqd":%b,%%b}\n' % (topic, channel, nsqd)
    ids = map(orjson.dumps, map(_id_text, portion.ids))
    bodies = body_members(portion.bodies)
    return map(line.__mod__, zip(portion.timestamps_ns, ids, portion.attempts, bodies, strict=True))


def _id_text(message_id: bytes) -> str:
    return message_id.decode("ascii", "backslashreplace")


def body_members(bodies: Sequence[bytes]) -> Iterator[bytes]:
    """Return `"body":"..."` or `"body_base64":"..."` for each body."""
    try:
        texts = list(map(bytes.decode, bodies))
    except UnicodeDecodeError:
        return map(_body_member, bodies)
    return map(b'"body":%b'.__mod__, map(orjson.dumps, texts))


def _body_member(body: bytes) -> bytes:
    try:
        return b'"body":' + orjson.dumps(body.decode())
    except UnicodeDecodeError:
        return b'"body_base64":"%b"' % base64.b64encode(body)


def _count_objects(tally: Tally, block: bytes) -> None:
    timestamps_ns = list(map(int, _TIMESTAMP.findall(block)))
    if timestamps_ns:
        tally.add_all(block.count(b"\n"), min(timestamps_ns), max(timestamps_ns))


def scan_objects(data: Data, codec: Codec, start: int) -> FileScan:
    return scan_lines(data, codec, start, _count_objects)


JSONL = Format(
    name="jsonl",
    suffix=".jsonl",
    codecs=(NONE, GZIP, ZSTD),
    overhead_bytes=150,
    encoder=JsonlEncoder,
    scan=scan_objects,
    is_appendable=True,
)
