"""Reads parts for one task: the messages that match, with their marks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from nsq_spark.archive.chunk import Chunk
from nsq_spark.archive.damage import Damage
from nsq_spark.archive.read import read
from nsq_spark.archive.storage import Storage
from nsq_spark.archive.wanted import Wanted
from nsq_spark.replay.blocks import Block
from nsq_spark.replay.errors import BadJob
from nsq_spark.replay.marks import Marks, overlapping
from nsq_spark.replay.planning import Part
from nsq_spark.replay.progress import Counts
from nsq_spark.replay.selection import Matcher
from nsq_spark.replay.work import Setup

_OFFSET_BITS = 20


class Reader:
    """Counts what it reads. `damage` is what was passed over. All that it raises is an ArchiveError, or a BadJob."""

    def __init__(self, setup: Setup, counts: Counts, look: Callable[[], None]) -> None:
        """`look` is called with every chunk, and may raise."""
        self._storage = Storage(setup.job.storage)
        self._wanted = setup.job.selection.wanted
        self._matcher = Matcher(setup.job.selection)
        self._cut = setup.cut
        self._counts = counts
        self._look = look
        self.damage = Damage("skip" if setup.job.safety.skip_damaged else "fail")

    def by_file(self, part: Part) -> Iterator[Block]:
        """In the order of the file, without what is done."""
        for chunk in self._chunks(part, self._wanted):
            block = self._left(Block(chunk, Marks(0, part.file, chunk.positions)), part)
            if block.count:
                yield block
            if self._cut is not None and self._cut < (0, part.file, int(chunk.positions[-1])):
                return

    def by_time(self, part: Part, topic: str) -> Iterator[Block]:
        """The same of one topic, each with a mark of its time. Raises BadJob where times are not known."""
        for chunk in self._chunks(part, replace(self._wanted, topics=frozenset((topic,)), topic_pattern=None)):
            times_ns = known_times(chunk)
            yield Block(chunk, Marks(times_ns, part.file, chunk.positions))

    def everything(self, part: Part) -> Iterator[Chunk]:
        """All that is wanted, whether it matches or not, and nothing is counted as matched."""
        yield from self._read(part, self._wanted)

    def _left(self, block: Block, part: Part) -> Block:
        first, last = block.marks.at(0), block.last
        done = overlapping(part.done, (*first[:2], first[2] - 1), last)
        if done:
            block = block.filter(~block.marks.among(done))
        if self._cut is not None and last > self._cut:
            block = block.filter(block.marks.up_to(self._cut))
        return block

    def _chunks(self, part: Part, wanted: Wanted) -> Iterator[Chunk]:
        for chunk in self._read(part, wanted):
            mask = self._matcher.mask(chunk)
            found = chunk if mask is None else chunk.filter(mask)
            if found.count:
                yield found

    def _read(self, part: Part, wanted: Wanted) -> Iterator[Chunk]:
        split, counts = part.split, self._counts
        before = 0
        for chunk in read(split, self._storage, wanted, self.damage):
            self._look()
            counts.read += chunk.count
            if part.has_offsets:
                offset = min(split.end, int(chunk.positions[-1]) >> _OFFSET_BITS)
                counts.read_bytes += max(0, offset - split.start - before)
                before = max(before, offset - split.start)
            yield chunk
        counts.read_bytes += split.size_bytes - before


def known_times(chunk: Chunk) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    if chunk.timestamps_ns is None:
        raise BadJob(f"{chunk.file} keeps no times, so its messages cannot be sent in their order")
    return chunk.timestamps_ns.astype(np.int64, copy=False)
