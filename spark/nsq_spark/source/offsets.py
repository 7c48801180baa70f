"""The offset of a stream of files: which files are done, and what its last batch read. Pure.

An offset has to say exactly what its batch reads, since Spark reads it again after a crash, when there may be other
files; and what is done, without a list that grows for ever. So it holds

batch    the portions of files that the batch ending here reads
marks    up to which position each file is done; by the hash of its path, for files modified at the horizon or later
horizon  files that were modified before it are done, if they have no mark

The horizon follows the newest file at a distance (`maxFileAge`): older files that appear later are not read. 10,000
files in `marks` take 110 kB of JSON; with more, the horizon moves closer.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import orjson

from nsq_spark.archive.storage import Entry

VERSION = 1
FINISHED = 2**63 - 1  # the mark of a file that nothing is ever appended to
NOTHING = -1
MOST_MARKS = 10_000
_INDEX_BITS = 20


class Portion(NamedTuple):
    """A part of a file: messages at positions above `after`, up to `until`, which becomes its mark. `size_bytes` is the
    size that the file had.
    """

    path: str
    size_bytes: int
    after: int
    until: int


Moment = tuple[int, str]  # when a file was modified, and its path: no two files have the same


class BadOffset(ValueError):
    """A checkpoint that another version wrote."""


@dataclass(frozen=True)
class Offset:
    """As above. `marks` are by `key_of` the path."""

    batch: tuple[Portion, ...] = ()
    marks: Mapping[int, int] = field(default_factory=dict)
    horizon: Moment = (NOTHING, "")

    def mark_of(self, entry: Entry) -> int | None:
        """Return up to which position a file is done; None if it must be read from its beginning."""
        mark = self.marks.get(key_of(entry.path))
        return FINISHED if mark is None and moment_of(entry) < self.horizon else mark

    def advanced(self, batch: Iterable[Portion], there: Iterable[Entry], waiting: Iterable[Entry], max_age_ns: int) -> Offset:
        """Return the offset after a batch. `there` are all files, `waiting` those with something not read yet."""
        portions = tuple(batch)
        entries = {key_of(entry.path): entry for entry in there}
        marks = {key: mark for key, mark in self.marks.items() if key in entries}
        marks.update((key_of(portion.path), portion.until) for portion in portions)
        moments = sorted((moment_of(entries[key]) for key in marks if key in entries), reverse=True)
        newest_ns = max((entry.modified_ns for entry in entries.values()), default=0)
        proposed: Moment = (newest_ns - max_age_ns, "")
        if len(moments) > MOST_MARKS:
            proposed = max(proposed, moments[MOST_MARKS - 1])
        horizon = max(self.horizon, min([proposed, *map(moment_of, waiting)]))
        kept = {key: mark for key, mark in marks.items() if key in entries and moment_of(entries[key]) >= horizon}
        return Offset(portions, kept, horizon)

    # ---- as JSON, which Spark keeps

    def to_json(self) -> dict[str, Any]:
        """Return texts and numbers only, always the same for the same offset."""
        return {
            "version": VERSION,
            "files": len(self.batch),
            "horizon": list(self.horizon),
            "marks": _packed_marks(self.marks),
            "batch": _packed(orjson.dumps([list(portion) for portion in self.batch])) if self.batch else "",
        }

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> Offset:
        """Raises BadOffset."""
        if document.get("version") != VERSION:
            raise BadOffset(f"nsq: the checkpoint has offsets of version {document.get('version')}, not {VERSION}")
        try:
            batch = orjson.loads(_unpacked(document["batch"])) if document["batch"] else []
            horizon_ns, path = document["horizon"]
            portions = tuple(Portion(*fields) for fields in batch)
            return cls(portions, _unpacked_marks(document["marks"]), (horizon_ns, path))
        except (KeyError, ValueError, TypeError, zlib.error) as error:
            raise BadOffset(f"nsq: the checkpoint has an offset that cannot be read: {error}") from error


def key_of(path: str) -> int:
    return int.from_bytes(blake2b(path.encode("utf-8", "surrogateescape"), digest_size=8).digest(), "little")


def moment_of(entry: Entry) -> Moment:
    return entry.modified_ns, entry.path


# ---- marks of bytes, as opposed to those of messages


def byte_mark(size_bytes: int) -> int:
    """Return the mark of a file in which all is done that begins before this byte."""
    return (size_bytes << _INDEX_BITS) - 1


def is_byte_mark(mark: int) -> bool:
    return (mark + 1) % (1 << _INDEX_BITS) == 0


def next_byte(mark: int) -> int:
    """Return where reading goes on: at that byte, or with the record that the marked message is in."""
    return (mark + 1) >> _INDEX_BITS


# ---- packing


def _packed(data: bytes) -> str:
    return b64encode(zlib.compress(data, 6)).decode()


def _unpacked(text: str) -> bytes:
    return zlib.decompress(b64decode(text))


def _packed_marks(marks: Mapping[int, int]) -> str:
    """Pack by columns, and each number's bytes by their rank: most marks are alike."""
    if not marks:
        return ""
    keys = sorted(marks)
    columns = np.array(keys, np.uint64), np.array([marks[key] for key in keys], np.int64)
    return _packed(b"".join(column.view(np.uint8).reshape(-1, 8).T.tobytes() for column in columns))


def _unpacked_marks(text: str) -> dict[int, int]:
    if not text:
        return {}
    columns = np.frombuffer(_unpacked(text), np.uint8).reshape(2, 8, -1).transpose(0, 2, 1).copy()
    keys, marks = columns[0].view(np.uint64), columns[1].view(np.int64)
    return dict(zip(keys[:, 0].tolist(), marks[:, 0].tolist(), strict=True))
