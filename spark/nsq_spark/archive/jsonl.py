"""`jsonl`: an object a line, as tools/nsq_tools/to_file/formats/jsonl.py writes them.

{"timestamp":1700000000123456789,"id":"0123456789abcdef","attempts":1,"topic":"t","channel":"c",
 "nsqd":"127.0.0.1:4150","body":"hello"}

`body_base64` replaces `body` if a body is not UTF-8. Other keys are ignored, the order does not matter, and all but
the body may be missing.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from nsq_spark.archive.chunk import Chunk
from nsq_spark.archive.columns import Numbers, positions_of
from nsq_spark.archive.damage import Damage
from nsq_spark.archive.files import File
from nsq_spark.archive.lines import LineBlock, LineReader
from nsq_spark.archive.splits import Split
from nsq_spark.archive.tables import STORED_TYPES, chunks_of
from nsq_spark.archive.wanted import Wanted

_TYPES = {**STORED_TYPES, "body": pa.string(), "body_base64": pa.string()}
_PARSING = pajson.ParseOptions(explicit_schema=pa.schema(_TYPES), unexpected_field_behavior="ignore")


def read(file: File, split: Split, wanted: Wanted, damage: Damage) -> Iterator[Chunk]:
    """Raises OSError and DamagedArchive."""
    for block in LineReader(file, split, damage).blocks():
        starts, ends = block.lines()
        yield from _chunks(block, starts, ends, split, wanted, damage)


def _chunks(block: LineBlock, starts: Numbers, ends: Numbers, split: Split, wanted: Wanted, damage: Damage) -> Iterator[Chunk]:
    """Parse lines of a block together. If that fails, halve them to find the ones that are no messages."""
    count = len(starts)
    if not count:
        return
    first, last = int(starts[0]), int(ends[-1])
    try:
        columns = _parsed(pa.py_buffer(block.data).slice(first, last + 1 - first), count)
    except (ValueError, pa.ArrowException) as error:
        if count == 1:
            what = f"a line is no message: {str(error).partition(chr(10))[0]}"
            damage.found(split.path, block.offset + first, block.offset + last + 1, what)
            return
        for part in (slice(0, count // 2), slice(count // 2, count)):
            yield from _chunks(block, starts[part], ends[part], split, wanted, damage)
        return
    yield from chunks_of(columns, positions_of(starts + block.offset), split, wanted)


def _parsed(lines: pa.Buffer, count: int) -> dict[str, pa.Array]:
    """Return the columns of so many lines. Raises ValueError and pyarrow's errors if one is no message."""
    options = pajson.ReadOptions(use_threads=False, block_size=lines.size + 1)
    table = pajson.read_json(pa.BufferReader(lines), options, _PARSING)
    if table.num_rows != count:
        raise ValueError("it is not one object")
    table.validate(full=True)  # the parser does not check UTF-8
    columns = {name: table.column(name).combine_chunks() for name in _TYPES}
    columns["body"] = _bodies(columns["body"], columns.pop("body_base64"))
    return columns


def _bodies(texts: pa.Array, encoded: pa.Array) -> pa.Array:
    """Raises ValueError."""
    bodies = texts.view(pa.binary())
    if encoded.null_count < len(encoded):
        decoded = [None if text is None else b64decode(text, validate=True) for text in encoded.to_pylist()]
        bodies = pc.coalesce(bodies, pa.array(decoded, pa.binary()))
    if bodies.null_count or texts.null_count + encoded.null_count != len(texts):
        raise ValueError("it has no body, or two")
    return bodies
