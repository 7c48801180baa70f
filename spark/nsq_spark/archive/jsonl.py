"""`jsonl`: an object a line, as tools/nsq_tools/to_file/formats/jsonl.py writes them.

{"timestamp":1700000000123456789,"id":"0123456789abcdef","attempts":1,"topic":"t","channel":"c",
 "nsqd":"127.0.0.1:4150","body":"hello"}

`body_base64` stands in place of `body` where a body is not UTF-8. Other keys are passed over, the order does not
matter, and all but the body may be missing. A block is parsed as a whole; line by line only where that fails.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from nsq_spark.archive.chunk import Chunk
from nsq_spark.archive.columns import Numbers, positions_of
from nsq_spark.archive.damage import Damage
from nsq_spark.archive.lines import LineBlock, LineReader
from nsq_spark.archive.splits import Split
from nsq_spark.archive.storage import File
from nsq_spark.archive.tables import Rows, chunks_of
from nsq_spark.archive.wanted import Wanted

_TEXTS = ("id", "topic", "channel", "nsqd", "body", "body_base64")
_SCHEMA = pa.schema(
    [("timestamp", pa.int64()), ("attempts", pa.int32()), *((name, pa.string()) for name in _TEXTS)]
)  # fmt: skip
_PARSING = pajson.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="ignore")
_INT32, _INT64 = range(-(2**31), 2**31), range(-(2**63), 2**63)
_NUMBERS = {"timestamp": _INT64, "attempts": _INT32}


class NotAMessage(ValueError):
    """A line is JSON, but no message."""


def read(file: File, split: Split, wanted: Wanted, damage: Damage) -> Iterator[Chunk]:
    """Raises OSError and DamagedArchive."""
    for block in LineReader(file, split, damage).blocks():
        rows = _at_once(block) or _by_line(block, split.path, damage)
        yield from chunks_of(rows, split.topic, split.path, wanted)


# ---- a block as a whole


def _at_once(block: LineBlock) -> Rows | None:
    """None where not each line is a message: then nobody knows which is not."""
    starts, _ = block.lines()
    if not len(starts):
        return Rows({"body": pa.array([], pa.binary())}, positions_of(starts))
    options = pajson.ReadOptions(use_threads=False, block_size=len(block.data) + 1)
    try:
        table = pajson.read_json(pa.BufferReader(block.data), options, _PARSING)
        if table.num_rows != len(starts):
            return None
        table.validate(full=True)  # it does not look at UTF-8 by itself
        columns = {name: table.column(name).combine_chunks() for name in _SCHEMA.names}
        body = _bodies(columns.pop("body"), columns.pop("body_base64"))
    except (pa.ArrowException, OSError, ValueError):
        return None
    return None if body is None else Rows({**columns, "body": body}, positions_of(starts + block.offset))


def _bodies(texts: pa.Array, encoded: pa.Array) -> pa.Array | None:
    """None where a row has no body, or two."""
    if texts.null_count + encoded.null_count != len(texts):
        return None
    bodies = texts.view(pa.binary())
    if encoded.null_count < len(encoded):
        decoded = pa.array([None if text is None else _decoded(text) for text in encoded.to_pylist()], pa.binary())
        bodies = pc.coalesce(bodies, decoded)
    return bodies if bodies.null_count == 0 else None


def _decoded(text: str) -> bytes:
    """Raises ValueError."""
    return b64decode(text, validate=True)


# ---- line by line


def _by_line(block: LineBlock, path: str, damage: Damage) -> Rows:
    starts, ends = block.lines()
    found: list[dict[str, Any]] = []
    places = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        try:
            found.append(_message(block.data[start:end]))
        except ValueError as error:
            damage.found(path, block.offset + start, block.offset + end + 1, f"a line is no message: {error}")
            continue
        places.append(start)
    columns = {name: pa.array([one.get(name) for one in found], _SCHEMA.field(name).type) for name in _SCHEMA.names}
    del columns["body_base64"]
    columns["body"] = pa.array([one["body"] for one in found], pa.binary())
    return Rows(columns, positions_of(_numbers(places) + block.offset))


def _numbers(values: list[int]) -> Numbers:
    return np.array(values, dtype=np.int64)


def _message(line: bytes) -> dict[str, Any]:
    """Raises ValueError."""
    found = orjson.loads(line)
    if not isinstance(found, dict):
        raise NotAMessage("it is no object")
    text, encoded = found.get("body"), found.get("body_base64")
    if (text is None) == (encoded is None):
        raise NotAMessage("it has no body, or two")
    for name, values in _NUMBERS.items():
        number = found.get(name)
        if number is not None and (type(number) is not int or number not in values):
            raise NotAMessage(f"{name} is no number of its size")
    for name in _TEXTS:
        if not isinstance(found.get(name), str | None):
            raise NotAMessage(f"{name} is no text")
    try:
        found["body"] = text.encode() if text is not None else _decoded(str(encoded))
    except binascii.Error as error:
        raise NotAMessage("body_base64 is not base64") from error
    return found
