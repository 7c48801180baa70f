"""Which messages of which nsqds the files of an archive have. Of most files the manifest of nsq-to-file says it, of stored logs
the list of the store; others are read, each once.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from nsq_spark.archive.chunk import Chunk, Chunks
from nsq_spark.archive.listing import base_of, entries, survey
from nsq_spark.archive.read import read
from nsq_spark.archive.sidecars import Manifests, NsqdPart
from nsq_spark.archive.splits import ArchiveError, FileInfo, Numbers, Requested, plan_splits
from nsq_spark.source.live_options import LogKey
from nsq_spark.source.options import ReadOptions
from nsq_spark.source.store_history import IDS_DO_NOT_RISE, ArchivedStores
from nsqd_py.runtime.private_files import open_file
from nsqd_py.stores.directories import MANIFESTS

_REPORT_EVERY_S = 10.0

_log = logging.getLogger("nsqd_py.spark")


# Parts of a file by topic and nsqd, as the archive names these.
Parts: TypeAlias = list[tuple[LogKey, NsqdPart]]
# A file, and parts of it by topic.
_File: TypeAlias = tuple[FileInfo, list[tuple[str, NsqdPart]]]


class ArchivedFiles:
    """The contents of the files of an archive, from the manifest or from reading each once.

    positions  after `files`: parts with the positions of their first messages, by topic, nsqd and id, of stores and from all
               lines of manifests, also about files that a table has rewritten
    """

    def __init__(self, options: ReadOptions, remembered_at: str) -> None:
        self._options = options
        self._path = Path(remembered_at or os.devnull)
        self._stores = ArchivedStores(options)
        self._manifests = Manifests(options.storage)
        self._read: dict[str, list[tuple[str, NsqdPart]]] = {}
        self.positions: dict[tuple[str, str, int], NsqdPart] = {}
        with suppress(OSError):
            for line in self._path.read_bytes().splitlines():
                with suppress(ValueError, TypeError):  # of a process that was killed
                    key, parts = json.loads(line)
                    self._read[key] = [(topic, NsqdPart(*part)) for topic, part in parts]

    def files(self) -> dict[FileInfo, Parts]:
        """Return the files with messages of requested topics. Raises ArchiveError."""
        has_topic = self._options.requested.has_topic
        found: dict[FileInfo, Parts] = {}
        for info, parts in self._all():
            requested = [(LogKey(topic, part.nsqd), part) for topic, part in parts if has_topic(topic)]
            if requested:
                found[info] = requested
        return found

    def _all(self) -> Iterator[_File]:
        options = self._options
        stored = list(self._stores.files())
        yield from stored
        manifests = self._manifests = Manifests(options.storage)
        others: list[str] = []
        for entry in entries(self._stores.others, options.storage, options.hints):
            parts = manifests.complete(entry)
            if parts and all(part.nsqds or part.is_empty for part in parts):
                first = parts[0]
                info = FileInfo(*entry, first.format, first.compression, first.topic)
                yield info, [(part.topic, nsqd) for part in parts for nsqd in part.nsqds]
            elif entry.size_bytes or manifests.parts(entry.path):
                others.append(entry.path)
        self.positions = manifests.positions()
        for _, of_store in stored:
            for topic, part in of_store:
                self.positions[topic, part.nsqd, part.first_id] = part
        if others:
            yield from self._others(others)

    def have_changed(self) -> bool:
        """True if a manifest is not as long as it was when `files` read it."""
        storage = self._options.storage
        known_bytes = {}
        for path in self._stores.others:
            base = base_of(storage.resolved(path)).rstrip("/")
            known_bytes[f"{base}/{MANIFESTS[-1]}"] = 0  # perhaps there is none
        known_bytes |= self._manifests.sizes_bytes
        with suppress(ArchiveError):  # the next listing reports it
            for path, known in known_bytes.items():
                entry = storage.find(path)
                size_bytes = entry.size_bytes if entry else 0
                if size_bytes != known:
                    return True
        return False

    def _others(self, paths: list[str]) -> Iterator[_File]:
        """Yield files that no manifest describes. What OPTIMIZE writes begins where a file did that it has rewritten."""
        options = self._options
        report_s = time.monotonic() + _REPORT_EVERY_S
        found = survey(
            paths, options.storage, options.hints, options.requested, skips_damaged=options.skip_damaged
        )
        infos = found.files
        for number, info in enumerate(infos):
            if not info.may_hold(options.requested):
                continue
            key = f"{info.size_bytes}:{info.modified_ns}:{info.path}"
            if key not in self._read:
                self._remember(key, info)
            if time.monotonic() >= report_s:
                _log.warning(
                    "nsq: reading files that no manifest describes, once: %d of %d", number + 1, len(infos)
                )
                report_s = time.monotonic() + _REPORT_EVERY_S
            placed = []
            for topic, part in self._read[key]:
                before = self.positions.get((topic, part.nsqd, part.first_id), part)
                placed.append((topic, part._replace(epoch=before.epoch, first_seq=before.first_seq)))
            yield info, placed

    def _remember(self, key: str, info: FileInfo) -> None:
        found = []
        # Of all topics: another query of the checkpoint may want other ones.
        for (topic, nsqd), ids in ids_in([info], self._options, Requested()).items():
            is_ordered = bool((np.diff(ids) > 0).all())
            part = NsqdPart(nsqd, int(ids.min()), int(ids.max()), len(ids), is_ordered)
            found.append((topic, part))
        self._read[key] = found
        with suppress(OSError):  # it is read again by the next process
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Not through a link that someone has left there.
            with open(self._path, "a", opener=open_file) as file:
                file.write(f"{json.dumps([key, found])}\n")


def chunks_in(infos: list[FileInfo], options: ReadOptions, requested: Requested) -> Chunks:
    """Read files here, on the driver. Raises ArchiveError."""
    damage = options.damage()
    for split in plan_splits(infos, requested=requested):
        yield from read(split, options.storage, requested, damage)


def ids_in(infos: list[FileInfo], options: ReadOptions, requested: Requested) -> dict[LogKey, Numbers]:
    """Return the ids in files by topic and nsqd, as the archive names this. Raises ArchiveError."""
    found: dict[LogKey, list[Numbers]] = defaultdict(list)
    for chunk in chunks_in(infos, options, requested):
        for nsqd, _, ids in by_nsqd(chunk):
            found[LogKey(chunk.topic, nsqd)].append(ids)
    return {name: np.concatenate(pieces) for name, pieces in found.items()}


def by_nsqd(chunk: Chunk) -> list[tuple[str, Any, Numbers]]:
    """Return nsqds, their rows, and the ids of these. Raises ArchiveError if the file does not say."""
    nsqds = chunk.nsqds
    texts = chunk.ids
    if nsqds is None or texts is None or (not isinstance(nsqds, str) and nsqds.null_count):
        raise ArchiveError(
            f"nsq: {chunk.file} does not say which message is of which nsqd, which a query on an archive and a log needs: "
            "nsq-to-file writes that with --format=jsonl, framed or parquet"
        )
    raw_ids = chunk.raw_ids
    if isinstance(nsqds, str) and isinstance(raw_ids, np.ndarray) and raw_ids.ndim == 1:  # of a store
        numbers = raw_ids.astype(np.int64)
        if (np.diff(numbers) <= 0).any():
            raise ArchiveError(IDS_DO_NOT_RISE.format(file=chunk.file, topic=chunk.topic))
        return [(nsqds, slice(None), numbers)]
    try:
        digits = "".join(texts.to_pylist())
        ids = np.frombuffer(bytes.fromhex(digits), ">u8").astype(np.int64)
        if len(ids) != chunk.count or ids.min() < 0:
            raise ValueError
    except (ValueError, TypeError):
        raise ArchiveError(f"nsq: {chunk.file} has messages whose ids are not 16 hex characters") from None
    if isinstance(nsqds, str):
        return [(nsqds, slice(None), ids)]
    codes = nsqds.indices.to_numpy(zero_copy_only=False)
    names = nsqds.dictionary.to_pylist()
    found = []
    for code in np.unique(codes):
        rows = codes == code
        found.append((names[int(code)], rows, ids[rows]))
    return found
