"""The log of one topic: its files in order of sequence numbers.

Writing goes to the last file. Reading starts at any sequence number and gives whole batches in chunks of
1 MiB or more, which readers at the same place share. A file that nobody needs is dropped, or kept once as the
space for the next one.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from nsqd_py.batch import Batch
from nsqd_py.diskqueue.files import SPARE_SUFFIX, LogFile, log_file_name
from nsqd_py.diskqueue.records import RECORD_HEADER_BYTES, Damaged, Incomplete, decode, encode_header, encode_record
from nsqd_py.diskqueue.recovery import RecoveredFile, find_record

READ_BYTES = 1024 * 1024
_SHARED_CHUNKS = 4


def _at_once(work: Callable[[], None]) -> None:
    work()


class TopicLog:
    """What is on disk of one topic.

    next_seq       the number of the next message
    used_id        the highest message id in it
    damaged_bytes  how many bytes of it could not be read since the start
    """

    __slots__ = (
        "_chunks", "_directory", "_directory_changed", "_files", "_first_seqs", "_in_background", "_last",
        "_max_file_bytes", "_on_damage", "_reported", "_small_until", "_spare", "_topic", "_unsynced",
        "damaged_bytes", "next_seq", "used_id",
    )  # fmt: skip

    def __init__(
        self,
        directory: Path,
        topic: str,
        max_file_bytes: int,
        on_damage: Callable[[str], None],
        in_background: Callable[[Callable[[], None]], object] = _at_once,
    ) -> None:
        self._directory = directory
        self._topic = topic
        self._max_file_bytes = max_file_bytes
        self._on_damage = on_damage
        self._in_background = in_background
        self._small_until = max_file_bytes - RECORD_HEADER_BYTES
        self._files: list[LogFile] = []
        self._last: LogFile | None = None
        self._first_seqs: list[int] = []
        self._chunks: OrderedDict[int, list[Batch]] = OrderedDict()
        self._reported: set[tuple[str, int]] = set()
        self._spare: Path | None = None
        self._unsynced: set[LogFile] = set()
        self._directory_changed = False
        self.next_seq = 0
        self.used_id = 0
        self.damaged_bytes = 0

    # ---- the start

    def adopt(self, recovered: RecoveredFile, *, is_last: bool) -> None:
        """Take over a file that recovery read; they come in order. Raises OSError."""
        for start, end in recovered.damaged:
            self._report_damage(recovered.file, start, end)
        if recovered.torn is not None:
            start, end = recovered.torn
            keep_aside(recovered.file, start, end)
            self._on_damage(f"{recovered.file.path.name}: a torn record at {start} is cut off ({end - start} bytes)")
        if is_last:
            recovered.file.cut()
        self._files.append(recovered.file)
        self._last = recovered.file
        self._first_seqs.append(recovered.file.first_seq)
        self.next_seq = max(self.next_seq, recovered.file.end_seq)
        self.used_id = max(self.used_id, recovered.used_id)

    def start_at(self, seq: int) -> None:
        """Go on with numbers from `seq` when the log ends before it: a number that was finished never comes twice."""
        if seq > self.next_seq:
            self.next_seq = seq

    @property
    def first_seq(self) -> int:
        """The first message that is kept."""
        return self._first_seqs[0] if self._first_seqs else self.next_seq

    @property
    def file_count(self) -> int:
        return len(self._files)

    @property
    def size_bytes(self) -> int:
        """Of all records that are kept; a file on disk may be larger, by what is allocated ahead."""
        return sum(file.end_offset for file in self._files)

    # ---- writing

    def append(self, batches: list[Batch]) -> None:
        """Write batches, whose numbers go on from `next_seq`. Raises OSError: then none of them is in the log."""
        size = 0
        for batch in batches:
            size += len(batch.body) + RECORD_HEADER_BYTES
        file = self._last
        if file is None or file.end_offset + size > self._max_file_bytes or file.end_seq != self.next_seq:
            file = self._file_for(size)
        salt = file.salt
        buffers = []
        for batch in batches:
            buffers.append(encode_header(batch, salt))
            buffers.append(batch.body)
        end_seq = batch.first_seq + batch.count
        file.append(buffers, size, end_seq)
        self.next_seq = end_seq
        self.used_id = batch.base_id + batch.count - 1
        self._unsynced.add(file)

    def append_small(self, batch: Batch) -> None:
        """As `append`, for one batch that is not worth a list of buffers. Raises OSError."""
        file = self._last
        if file is None or file.end_offset + len(batch.body) > self._small_until or file.end_seq != batch.first_seq:
            self.append([batch])
            return
        end_seq = batch.first_seq + batch.count
        file.append_record(encode_record(batch, file.salt), end_seq)
        self.next_seq = end_seq
        self.used_id = batch.base_id + batch.count - 1
        self._unsynced.add(file)

    def _file_for(self, size: int) -> LogFile:
        """The file that takes the next `size` bytes: the last when it is empty, or a new one."""
        file = self._last
        if file is not None:
            if file.end_seq == file.first_seq == self.next_seq:
                return file
            file.cut()
        return self._new_file()

    def _new_file(self) -> LogFile:
        path = self._directory / log_file_name(self._topic, self.next_seq)
        spare, self._spare = self._spare, None
        file = LogFile.create(path, self.next_seq, self.used_id, spare)
        self._directory_changed = True
        self._files.append(file)
        self._last = file
        self._first_seqs.append(self.next_seq)
        return file

    def take_unsynced(self) -> list[int]:
        """File descriptors, to be closed by the caller, of all that no sync has covered.

        The directory is among them when files appeared in it. Raises OSError.
        """
        descriptors: list[int] = []
        try:
            for file in self._unsynced:
                descriptors.append(os.dup(file.fileno()))
            if self._directory_changed:
                descriptors.append(os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY))
        except OSError:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        self._unsynced.clear()
        self._directory_changed = False
        return descriptors

    def sync_failed(self) -> None:
        """What was taken to be synced is not on the disk."""
        self._unsynced.update(self._files[-2:])
        self._directory_changed = True

    # ---- reading

    def read(self, seq: int) -> list[Batch]:
        """Batches from the one that holds `seq`, or the first behind it, up to about 1 MiB. Empty at the end.

        Damaged records are passed over and reported. Raises OSError.
        """
        for chunk in reversed(self._chunks.values()):
            if chunk[0].first_seq <= seq < chunk[-1].end_seq:
                return chunk
        place = max(0, bisect_right(self._first_seqs, seq) - 1)
        for file in self._files[place:]:
            if file.end_seq > seq:
                chunk = self._read_chunk(file, seq)
                if chunk:
                    self._share(chunk)
                    return chunk
        return []

    def _share(self, chunk: list[Batch]) -> None:
        self._chunks[chunk[0].first_seq] = chunk
        while len(self._chunks) > _SHARED_CHUNKS:
            self._chunks.popitem(last=False)

    def _read_chunk(self, file: LogFile, seq: int) -> list[Batch]:
        offset = file.offset_before(seq)
        wanted = READ_BYTES
        chunk: list[Batch] = []
        while offset < file.end_offset and not chunk:
            data = file.read(offset, wanted)
            if not data:  # somebody cut the file
                self._report_damage(file, offset, file.end_offset)
                break
            position = 0
            try:
                while position < len(data):
                    batch, position = decode(data, position, file.header.salt)
                    if batch.end_seq > seq:
                        chunk.append(batch)
            except Incomplete as incomplete:
                if offset + position + incomplete.needed > file.end_offset:  # its length is what is damaged
                    if not chunk:
                        position = self._pass_damage(file, offset, position)
                elif position == 0:
                    wanted = incomplete.needed
            except Damaged:
                if not chunk:
                    position = self._pass_damage(file, offset, position)
            offset += position
        if chunk:
            file.note(chunk[-1].end_seq, offset)
        return chunk

    def _pass_damage(self, file: LogFile, offset: int, position: int) -> int:
        """Where the next good record begins behind a damaged one, relative to `offset`."""
        data = file.read(offset, file.end_offset - offset)
        found = find_record(data, position + 1, file.header.salt)
        after = found if found is not None else len(data)
        self._report_damage(file, offset + position, offset + after)
        return after

    def _report_damage(self, file: LogFile, start: int, end: int) -> None:
        """Once for each place."""
        if (file.path.name, start) in self._reported:
            return
        self._reported.add((file.path.name, start))
        aside = keep_aside(file, start, end)
        self.damaged_bytes += end - start
        self._on_damage(f"{file.path.name}: {end - start} damaged bytes at {start} passed over, kept as {aside}")

    # ---- files that nobody needs

    def drop_unneeded(self, is_needed: Callable[[int, int], bool]) -> int:
        """Drop every closed file for whose range of messages `is_needed(low, high)` is False; how many.

        Raises OSError when one could not be dropped; it can be tried again.
        """
        dropped: set[LogFile] = set()
        try:
            for file in self._files[:-1]:
                if not is_needed(file.first_seq, file.end_seq):
                    self._drop(file)
                    dropped.add(file)
        finally:
            if dropped:
                self._files = [file for file in self._files if file not in dropped]
                self._first_seqs = [file.first_seq for file in self._files]
                self._chunks.clear()
        return len(dropped)

    def roll(self) -> None:
        """Close the last file so that it can be dropped; the next append makes a new one."""
        if self._files and self._files[-1].end_seq > self._files[-1].first_seq:
            self._files[-1].cut()
            self._new_file()

    def _drop(self, file: LogFile) -> None:
        if self._spare is None and file.end_offset >= self._max_file_bytes // 2:
            spare = self._directory / f"{self._topic}{SPARE_SUFFIX}"
            file.retire(spare)
            self._spare = spare
        else:
            self._in_background(file.discard())
        self._unsynced.discard(file)

    # ---- the end

    def close(self) -> None:
        """Give back what is allocated ahead, sync and close. Raises OSError."""
        for file in self._files:
            file.cut()
            os.fsync(file.fileno())
            file.close()
        self._remove_spare()
        self._forget()

    def remove(self) -> None:
        """Delete all files."""
        for file in self._files:
            self._in_background(file.discard())
        self._remove_spare()
        self._forget()

    def _remove_spare(self) -> None:
        if self._spare is not None:
            self._spare.unlink(missing_ok=True)
            self._spare = None

    def _forget(self) -> None:
        self._files.clear()
        self._last = None
        self._first_seqs.clear()
        self._chunks.clear()
        self._unsynced.clear()


def keep_aside(file: LogFile, start: int, end: int) -> str:
    """Copy damaged bytes to a file of their own, once; its name. Raises OSError."""
    aside = file.path.with_name(f"{file.path.stem}.{start}.damaged")
    if not aside.exists():
        aside.write_bytes(os.pread(file.fileno(), end - start, start))
    return aside.name
