"""Read parts of files for one task: the messages that match, with their marks; and the times that they have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google_crc32c import value as crc32c

from nsq_spark.archive.chunk import Chunk
from nsq_spark.archive.columns import ID_BYTES, Numbers
from nsq_spark.archive.damage import Damage
from nsq_spark.archive.read import read
from nsq_spark.archive.storage import Storage, name_of
from nsq_spark.archive.wanted import Wanted
from nsq_spark.replay.errors import BadJob
from nsq_spark.replay.filter import filter_of
from nsq_spark.replay.job import Job
from nsq_spark.replay.planning import OFFSET_BITS, Part, Source
from nsq_spark.replay.positions import Block, Marks, overlapping
from nsq_spark.replay.progress import ReplayCounts

_HASHES = 1 << 64
_Hashes = np.ndarray[Any, np.dtype[np.uint64]]


class Reader:
    """Reads, selects and counts. `damage` is what it passed over. Raises ArchiveError and BadJob."""

    def __init__(self, job: Job, counts: ReplayCounts, look: Callable[[], None]) -> None:
        """`look` is called with every chunk, and may raise."""
        self._storage = Storage(job.storage)
        self._selection = job.selection
        self._filter = filter_of(job.selection.where, job.selection.json_schema)
        self._wanted = job.selection.wanted
        self._counts = counts
        self._look = look
        self.damage = Damage("skip" if job.safety.skip_damaged else "fail")

    def by_file(self, part: Part) -> Iterator[Block]:
        """Yield the messages of a part in the order of the file, without those that are done."""
        for chunk in self._matching(part, self._wanted):
            block = Block(chunk, Marks(0, part.file, chunk.positions))
            first, last = block.marks.at(0), block.last
            block = block.without(overlapping(part.done, (*first[:2], first[2] - 1), last))
            if block.count:
                yield block

    def by_time(self, part: Part, topic: str) -> Iterator[Block]:
        """Yield the messages of one topic, with their times in their marks. Raises BadJob if times are not known."""
        for chunk in self._matching(part, replace(self._wanted, topics=frozenset((topic,)), topic_pattern=None)):
            yield Block(chunk, Marks(_known_times(chunk), part.file, chunk.positions))

    def time_index(self, parts: Iterable[Part]) -> list[Source]:
        """Return which topics are in which part, and when. Messages count whether or not they match."""
        found: list[Source] = []
        for part in parts:
            topics: dict[str, Source] = {}
            for chunk in self._read(part, self._wanted):
                times_ns = _known_times(chunk)
                first_ns = int(times_ns[0])
                topics.setdefault(chunk.topic, Source(part, chunk.topic, first_ns, first_ns)).add(times_ns)
            found += topics.values()
        return found

    def _matching(self, part: Part, wanted: Wanted) -> Iterator[Chunk]:
        for chunk in self._read(part, wanted):
            mask = self._mask(chunk)
            found = chunk if mask is None else chunk.filter(mask)
            if found.count:
                yield found

    def _mask(self, chunk: Chunk) -> Any:
        """Return the mask of the messages that match; None if all do."""
        mask, sample, grep = None, self._selection.sample, self._selection.grep
        if sample is not None and sample < 1:
            mask = _hashes(chunk) < np.uint64(min(_HASHES - 1, round(sample * _HASHES)))
        if grep is not None:
            found = pc.match_substring_regex(chunk.bodies, pattern=grep).to_numpy(zero_copy_only=False)
            mask = found if mask is None else mask & found
        if self._filter is not None:
            found = self._filter.mask(chunk)
            mask = found if mask is None else mask & found
        return mask

    def _read(self, part: Part, wanted: Wanted) -> Iterator[Chunk]:
        split, counts = part.split, self._counts
        before = 0
        for chunk in read(split, self._storage, wanted, self.damage):
            self._look()
            counts.read += chunk.count
            if part.has_offsets:
                offset = min(split.end, int(chunk.positions[-1]) >> OFFSET_BITS)
                counts.read_bytes += max(0, offset - split.start - before)
                before = max(before, offset - split.start)
            yield chunk
        counts.read_bytes += split.size_bytes - before


def _known_times(chunk: Chunk) -> Numbers:
    if chunk.timestamps_ns is None:
        raise BadJob(f"{chunk.file} keeps no times, so its messages cannot be sent in order of time")
    return chunk.timestamps_ns.astype(np.int64, copy=False)


# ---- samples


def _hashes(chunk: Chunk) -> _Hashes:
    """Return a hash of each message: of its id, so that all copies are sampled or none; else of its position."""
    if chunk.ids is None:
        seed = np.uint64(crc32c(name_of(chunk.file).encode()) << 32)
        return _mixed(chunk.positions.astype(np.uint64) ^ seed)
    ids: pa.Array = chunk.ids
    _, offsets, values = ids.buffers()
    bounds = np.frombuffer(offsets, np.int32)[ids.offset : ids.offset + len(ids) + 1]
    if len(ids) and (np.diff(bounds) == ID_BYTES).all():
        words = np.frombuffer(values, np.dtype("<u8"), 2 * len(ids), int(bounds[0])).reshape(-1, 2)
        return _mixed(_mixed(words[:, 0]) ^ words[:, 1])
    return _mixed(np.array([crc32c(text.encode()) for text in ids.to_pylist()], np.uint64))


def _mixed(numbers: Numbers) -> _Hashes:
    """Apply the finalizer of SplitMix64 (Steele, Lea, Flood, 2014): each bit changes half of the output."""
    mixed: _Hashes = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
