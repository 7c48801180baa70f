"""Which messages of a chunk match: by their bodies, and by chance. By column, and always the same ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google_crc32c import value as crc32c

from spark.archive.chunk import Chunk
from spark.archive.columns import ID_BYTES, Numbers
from spark.archive.storage import name_of
from spark.replay.filter import filter_of
from spark.replay.job import Selection

_HASHES = 1 << 64
_Hashes = np.ndarray[Any, np.dtype[np.uint64]]


class Matcher:
    """`mask` of a chunk; None where all match."""

    def __init__(self, selection: Selection) -> None:
        self._grep = selection.grep
        self._filter = filter_of(selection.where, selection.json_schema)
        self._sample = selection.sample

    def mask(self, chunk: Chunk) -> Any:
        mask = None
        if self._sample is not None and self._sample < 1:
            mask = sampled(chunk, self._sample)
        if self._grep is not None:
            found = pc.match_substring_regex(chunk.bodies, pattern=self._grep).to_numpy(zero_copy_only=False)
            mask = found if mask is None else mask & found
        if self._filter is not None:
            found = self._filter.mask(chunk)
            mask = found if mask is None else mask & found
        return mask


def sampled(chunk: Chunk, share: float) -> Any:
    """By the id: a message that is archived twice is taken twice or not at all. By its place where there is no id."""
    hashes = _of_places(chunk) if chunk.ids is None else _of_ids(chunk.ids)
    return hashes < np.uint64(min(_HASHES - 1, round(share * _HASHES)))


def _of_ids(ids: pa.Array) -> _Hashes:
    _, offsets, values = ids.buffers()
    bounds = np.frombuffer(offsets, np.int32)[ids.offset : ids.offset + len(ids) + 1]
    if len(ids) and (np.diff(bounds) == ID_BYTES).all():
        words = np.frombuffer(values, np.dtype("<u8"), 2 * len(ids), int(bounds[0])).reshape(-1, 2)
        return _mixed(_mixed(words[:, 0]) ^ words[:, 1])
    return _mixed(np.array([crc32c(text.encode()) for text in ids.to_pylist()], np.uint64))


def _of_places(chunk: Chunk) -> _Hashes:
    seed = np.uint64(crc32c(name_of(chunk.file).encode()) << 32)
    return _mixed(chunk.positions.astype(np.uint64) ^ seed)


def _mixed(numbers: Numbers) -> _Hashes:
    """The finalizer of SplitMix64 (Steele, Lea, Flood, 2014): every bit of the input changes half of the output."""
    mixed: _Hashes = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
