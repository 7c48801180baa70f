"""Go's disk queue (`nsqd_py/go_import/go_files.py`), by the column.

It has no checksums and no magic numbers: behind a wrong size, the next message cannot be found. Bytes are a message if
their size fits into the file and they have an id.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

import numpy as np
import pyarrow as pa

from nsq_spark.archive.chunk import Chunk, Origin
from nsq_spark.archive.columns import ID_BYTES, heads_at, positions_of
from nsq_spark.archive.damage import Damage
from nsq_spark.archive.files import File
from nsq_spark.archive.payload import Payload
from nsq_spark.archive.splits import Split
from nsq_spark.archive.wanted import Wanted
from nsqd_py.batch import SIZE_BYTES
from nsqd_py.go_import.go_files import BLOCK_BYTES, OVERHEAD_BYTES, go_message_places

_HEAD = np.dtype([("size", ">u4"), ("timestamp_ns", ">i8"), ("attempts", ">u2"), ("id", "u1", (ID_BYTES,))])
_read_size = Struct(">I").unpack_from
_IS_HEX = np.isin(np.arange(256), np.frombuffer(b"0123456789abcdef", dtype=np.uint8))


def read(file: File, split: Split, wanted: Wanted, damage: Damage) -> Iterator[Chunk]:
    """Raises OSError and DamagedArchive."""
    if not wanted.has_topic(split.topic):
        return
    origin = Origin(split.topic, split.channel, split.path)
    size = file.size_bytes
    position = split.start
    while position < size:
        data = _block(file, position, size)
        places, after = go_message_places(data)
        chunk = _chunk(origin, data, places, position)
        yield chunk
        if chunk.count < len(places):
            after = places[chunk.count]
        elif places:
            position += after
            continue
        position += after
        if not _is_cut(file, split, position, size):
            damage.found(split.path, position, size, "no message here, and no way to find the next")
        return


def _block(file: File, position: int, size: int) -> bytes:
    """Return a block that begins with a whole message, if the file has one there."""
    data = file.read_at(position, BLOCK_BYTES)
    if len(data) >= SIZE_BYTES:
        needed = SIZE_BYTES + _read_size(data, 0)[0]
        if len(data) < needed <= size - position:
            return file.read_at(position, needed)
    return data


def _chunk(origin: Origin, data: bytes, places: list[int], offset: int) -> Chunk:
    """Return the messages at these places, up to the first place without one."""
    starts = np.array(places, dtype=np.int64)
    heads = heads_at(data, starts, _HEAD)
    is_message = _IS_HEX[heads["id"]].all(axis=1)
    if not is_message.all():
        starts, heads = starts[: is_message.argmin()], heads[: is_message.argmin()]
    sizes = heads["size"].astype(np.int64) - OVERHEAD_BYTES
    return Chunk(
        origin,
        positions_of(starts + offset),
        Payload(pa.py_buffer(data), starts + _HEAD.itemsize, sizes),
        heads["timestamp_ns"].astype(np.int64),
        heads["attempts"].astype(np.uint16),
        np.ascontiguousarray(heads["id"]),
    )


def _is_cut(file: File, split: Split, position: int, size: int) -> bool:
    """True if nsqd is writing a message here, behind all that it knew to be written."""
    if not split.is_live or position < split.settled_bytes:
        return False
    head = file.read_at(position, SIZE_BYTES)
    return len(head) < SIZE_BYTES or position + SIZE_BYTES + _read_size(head, 0)[0] > size
