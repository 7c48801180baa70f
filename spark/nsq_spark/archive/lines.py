"""`lines`, byte for byte what Go's nsq_to_file writes: a message a line. Nothing else of it is known, but the hour in
the name of the file (`hours`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from nsq_spark.archive.chunk import Chunk, Origin
from nsq_spark.archive.columns import positions_of
from nsq_spark.archive.damage import Damage
from nsq_spark.archive.line_blocks import blocks
from nsq_spark.archive.payload import Payload
from nsq_spark.archive.splits import Split
from nsq_spark.archive.storage import File
from nsq_spark.archive.wanted import Wanted


def read(file: File, split: Split, wanted: Wanted, damage: Damage) -> Iterator[Chunk]:
    """Raises OSError and DamagedArchive."""
    if not wanted.has_topic(split.topic):
        return
    origin = Origin(split.topic, None, split.path)
    for block in blocks(file, split, damage):
        starts, ends = block.lines()
        payload = Payload(pa.py_buffer(block.data), starts, ends - starts, is_sized=False)
        yield Chunk(origin, positions_of(starts + block.offset), payload)
