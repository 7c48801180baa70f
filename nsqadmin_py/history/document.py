"""The content of the file of the history: a header line, then one compressed document with a checksum.

    nsqadmin-history 2 <crc32c of the rest, 8 hex digits>\\n
    zstd of: length of the head (4 bytes), head (JSON), values (4 bytes each)

The head has for each ring its offset, its first and last step, and the size of its values in bytes. It also
has the last known states of nsqds.
"""

from __future__ import annotations

import struct
from typing import Any

import cramjam
import google_crc32c
import orjson

from nsqadmin_py.history.ring import Ring
from nsqadmin_py.history.series import History, Key, Rings, Series
from nsqd_py.runtime.documents import BAD_CONTENT
from nsqd_py.runtime.threads import in_slices

_MAGIC = b"nsqadmin-history 2 "
_LEVEL = 1
_LENGTH = struct.Struct(">I")
_BAD = (*BAD_CONTENT, struct.error)


class BadHistory(Exception):
    """The file is damaged; str(error) says how."""


def encode(history: History, nodes: Any = ()) -> bytes:
    """Return the document of a history and of the last known states of nsqds, not compressed."""
    parts = []
    rows = []
    for key, series in in_slices(list(history.series.items())):
        rings = {}
        for name, rings_of_metric in series.rings.items():
            dumps = [ring.dump() for ring in rings_of_metric]
            parts += [data for _, _, data in dumps]
            rings[name] = [(first, last, len(data)) for first, last, data in dumps]
        rows.append([*key, series.quantiles, rings])
    document = {"fine_step_s": history.fine_step_s, "series": rows, "nodes": nodes}
    head = orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS)
    return b"".join([_LENGTH.pack(len(head)), head, *parts])


def decode(document: bytes, history: History) -> Any:
    """Fill an empty history, and return the states of nsqds. Raises BadHistory."""
    try:
        (length,) = _LENGTH.unpack_from(document)
        head = orjson.loads(document[4 : 4 + length])
        if head["fine_step_s"] != history.fine_step_s:
            head["series"] = []  # another poll interval: its steps have another length
        at = 4 + length
        for topic, channel, node, quantiles, rings in head["series"]:
            series = Series()
            series.quantiles = tuple(map(float, quantiles))
            for name, dumps in rings.items():
                found = list(history.new_rings())
                for index, (first, last, size) in enumerate(dumps):
                    # An empty ring has no last step. Further rings, with extremes, were written by earlier
                    # versions.
                    if last >= 0 and index < len(found):
                        found[index] = Ring.load(found[index].capacity, first, last, document[at : at + size])
                    at += size
                series.rings[name] = Rings(*found)
            history.series[Key(topic, channel, node)] = series
        return head.get("nodes", [])
    except _BAD as error:
        history.series.clear()
        raise BadHistory(f"{type(error).__name__}: {error}") from error


def pack(document: bytes) -> bytes:
    packed = bytes(cramjam.zstd.compress(document, level=_LEVEL))
    return b"%s%08x\n%s" % (_MAGIC, google_crc32c.value(packed), packed)


def unpack(data: bytes) -> bytes:
    """Return the document of a file's content. Raises BadHistory."""
    line, _, packed = data.partition(b"\n")
    if not line.startswith(_MAGIC):
        raise BadHistory("it is no history of nsqadmin")
    if line[len(_MAGIC) :] != b"%08x" % google_crc32c.value(packed):
        raise BadHistory("its checksum is wrong")
    try:
        return bytes(cramjam.zstd.decompress(packed))
    except cramjam.DecompressionError as error:
        raise BadHistory(str(error)) from error
