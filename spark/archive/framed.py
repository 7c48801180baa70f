"""`framed`, as nsq-to-file writes it: records of kind `messages` (`nsqd_py.diskqueue.messages`), read by the column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from nsqd_py.diskqueue.messages import FLAG_DUE
from nsqd_py.diskqueue.records import FLAG_ZSTD, RECORD_HEADER_BYTES, Damaged
from spark.archive.chunk import Chunk, Origin
from spark.archive.columns import ID_BYTES, positions_in_record
from spark.archive.payload import Payload
from spark.archive.records import Records, Tail
from spark.archive.wanted import Wanted

_KNOWN_FLAGS = FLAG_ZSTD | FLAG_DUE
_NAMES_BYTES = 4


def is_end(tail: Tail) -> bool:
    """Only a file that is being written may end in the middle of a record."""
    header = tail.record_header()
    is_cut = tail.position + (RECORD_HEADER_BYTES if header is None else header.record_bytes) > tail.size
    return tail.is_live and is_cut


class FramedRecords:
    """Decodes records of one file."""

    def __init__(self, path: str, wanted: Wanted) -> None:
        self._path = path
        self._wanted = wanted
        self._origins: dict[bytes, tuple[Origin, str | None]] = {}

    def chunk(self, records: Records, index: int) -> Chunk | None:
        """The messages of one record, if its topic and its times may be wanted. Raises Damaged."""
        header = records.headers[index]
        first_ns, last_ns = int(header["timestamp_ns"]), int(header["base_id"])
        if not self._wanted.overlaps(first_ns, max(first_ns, last_ns)):
            return None
        if int(header["flags"]) & ~_KNOWN_FLAGS:
            raise Damaged("a record of a later version of nsq-to-file, which this one cannot read")
        place = records.places[index] + RECORD_HEADER_BYTES
        body = pa.py_buffer(records.data).slice(place, int(header["length"]))
        try:
            if header["flags"] & FLAG_ZSTD:
                body = pa.decompress(body, int(header["stride"]), codec="zstd")
            return self._decoded(body, header, records.offset + records.places[index])
        except (ValueError, OSError) as error:
            raise Damaged(f"the columns of a record do not fit its header: {error}") from error

    def _decoded(self, body: Any, header: Any, offset: int) -> Chunk | None:
        count = int(header["count"])
        octets = memoryview(body)
        names_end = _NAMES_BYTES + octets[0] + octets[1] + int.from_bytes(octets[2:4], "little")
        origin, nsqd = self._names(bytes(octets[:names_end]))
        if not self._wanted.has_topic(origin.topic):
            return None
        columns = _Columns(body, names_end, count)
        timestamps_ns = columns.take("<i8")
        if header["flags"] & FLAG_DUE:
            columns.take("<i8")
        sizes, attempts = columns.take("<u4"), columns.take("<u2")
        ids = columns.take("u1", ID_BYTES).reshape(count, ID_BYTES)
        payload = Payload.of_sized(columns.rest(), sizes)
        return Chunk(origin, positions_in_record(offset, count), payload, timestamps_ns, attempts, ids, nsqd)

    def _names(self, names: bytes) -> tuple[Origin, str | None]:
        """What a body begins with; mostly the same again. Raises ValueError."""
        found = self._origins.get(names)
        if found is None:
            channel_at = _NAMES_BYTES + names[0]
            nsqd_at = channel_at + names[1]
            topic, channel = names[_NAMES_BYTES:channel_at].decode(), names[channel_at:nsqd_at].decode()
            found = Origin(topic, channel or None, self._path), names[nsqd_at:].decode() or None
            self._origins[names] = found
        return found


class _Columns:
    """Takes columns of `count` values off a body. Raises ValueError where it is too short."""

    def __init__(self, body: Any, position: int, count: int) -> None:
        self._body = body
        self._position = position
        self._count = count

    def take(self, kind: str, width: int = 1) -> Any:
        values = np.frombuffer(self._body, kind, self._count * width, self._position)
        self._position += values.nbytes
        return values

    def rest(self) -> Any:
        return self._body.slice(self._position)


