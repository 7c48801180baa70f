"""Portions of files become pieces for tasks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from nsq_spark.archive.formats import Format
from nsq_spark.archive.splits import FileInfo, pack, plan_splits
from nsq_spark.source.admission import begin_of, end_of, has_byte_positions
from nsq_spark.source.offsets import FINISHED, NOTHING, Portion, is_byte_mark, next_byte
from nsq_spark.source.partition import Piece


def pieces_of(portion: Portion, info: FileInfo, target_bytes: int) -> list[Piece]:
    """The same whenever it is asked, as long as the file has what it had, or more."""
    begin, end = begin_of(portion, info), end_of(portion, info)
    if info.format is Format.GO_QUEUE and portion.after != NOTHING:
        begin = next_byte(portion.after)  # it can only be read from where a message begins; this is such a place
    has_bytes = has_byte_positions(info)
    until = None if portion.until == FINISHED or (has_bytes and is_byte_mark(portion.until)) else portion.until
    splits = plan_splits([replace(info, start=begin, size_bytes=end)], target_bytes)
    # Where reading ends with a message, what follows is looked at when reading goes on; else now.
    file_bytes = end if has_bytes and until is not None else portion.size_bytes
    return [Piece(replace(split, file_bytes=file_bytes, after=portion.after), until) for split in splits]


def packed(portions: Sequence[Portion], infos: Mapping[str, FileInfo], target_bytes: int) -> Iterator[list[Piece]]:
    """For each task its pieces."""
    pieces = [piece for portion in portions for piece in pieces_of(portion, infos[portion.path], target_bytes)]
    splits = [replace(piece.split, index=index) for index, piece in enumerate(pieces)]
    for group in pack(splits, target_bytes=target_bytes):
        yield [pieces[split.index] for split in group]
