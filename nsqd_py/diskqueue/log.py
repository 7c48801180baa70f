"""The log of one topic: its files in order of sequence numbers.

Writes go to the last file. Reads start at any sequence number and return whole batches in chunks of 1 MiB or more,
which readers at the same place share. A file that no channel needs is dropped; one of them is kept as the space of the next
file. A file of which little is needed is replaced by a sparse one (`compaction`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from pathlib import Path

from nsqd_py.batch import Batch
from nsqd_py.diskqueue.files import GONE_SUFFIX, LARGEST_STEP, SPARE_SUFFIX, LogFile, log_file_name, run_to_end
from nsqd_py.diskqueue.open_files import OPEN_FILES
from nsqd_py.diskqueue.ranges import Epochs, raised
from nsqd_py.diskqueue.reading import ChunkReader, KeptRecords, first_published_since, first_since, read_kept_piece
from nsqd_py.diskqueue.records import RECORD_HEADER_BYTES, encode_record
from nsqd_py.diskqueue.recovery import DamageReport, RecoveredFile
from nsqd_py.diskqueue.syncing import (
    Appending,
    Unsynced,
    UnsyncedFiles,
    encode_batches,
    last_id,
    sync_and_release,
    sync_directories,
    written_lately,
)
from nsqd_py.memory_budget import MemoryBudget

_SMALL_BYTES = 8 * 1024  # a record that is copied into one piece


def _at_once(work: Callable[[], None]) -> bool:
    work()
    return True


class TopicLog:
    """The log of one topic.

    next_seq       number of the next message
    used_id        highest message id in it
    latest_due_ns  latest due time in it, or later
    damage         the damage found since the start
    epochs         see `nsqd_py.diskqueue.ranges`
    busy_files     files that a thread reads or writes, and that must stay
    syncs          files that wait for a sync
    """

    __slots__ = (
        "_chunks",
        "_file_list",
        "_held",
        "_in_background",
        "_is_appending",
        "_last",
        "_most_ahead",
        "_spare",
        "_topic",
        "_unsynced",
        "busy_files",
        "damage",
        "directory",
        "epochs",
        "latest_due_ns",
        "max_file_bytes",
        "next_seq",
        "syncs",
        "used_id",
    )

    def __init__(
        self,
        directory: Path,
        topic: str,
        max_file_bytes: int,
        on_damage: Callable[[str], None],
        in_background: Callable[[Callable[[], None]], object] = _at_once,
    ) -> None:
        self.directory = directory
        self._topic = topic
        self.max_file_bytes = max_file_bytes
        self._in_background = in_background
        self._file_list = FileList()
        self._last: LogFile | None = None
        self.damage = DamageReport(on_damage)
        self._chunks = ChunkReader(self.damage)
        self._spare: Path | None = None
        self.syncs = UnsyncedFiles(directory)
        self._unsynced = self.syncs.unsynced
        self._most_ahead = LARGEST_STEP
        self._is_appending = False
        self._held: list[LogFile] = []
        self.busy_files: set[LogFile] = set()
        self.epochs: Epochs = ()
        self.latest_due_ns = 0
        self.next_seq = 0
        self.used_id = 0

    # ---- the start

    def adopt(self, recovered: RecoveredFile, *, is_last: bool, is_synced: bool = False) -> None:
        """Add a recovered file; files must be added in order. Raises OSError.

        `is_synced` is True after a clean stop, which has synced them all.
        """
        for start, end in recovered.damaged:
            self.damage.report(recovered.file, start, end)
        if recovered.torn is not None:
            self.damage.report_torn(recovered.file, *recovered.torn)
        if is_last or recovered.file.header.is_sparse:  # these are written to again
            recovered.file.cut()
        recovered.file.mark_clean()
        self._file_list.add(recovered.file)
        if is_last and not is_synced:
            self._unsynced.update(written_lately(self.files))
        self._last = recovered.file if recovered.file.is_whole or not recovered.file.message_count else None
        self.next_seq = max(self.next_seq, recovered.file.end_seq)
        self.used_id = max(self.used_id, recovered.used_id)
        self.latest_due_ns = max([self.latest_due_ns, *(span.due_ns for span in recovered.deferred)])

    def start_at(self, seq: int) -> None:
        """Continue with numbers from `seq` if the log ends before it, so that no number is used twice."""
        self.next_seq = max(self.next_seq, seq)

    @property
    def first_seq(self) -> int:
        """The number of the first message in the log."""
        first_seq = self._file_list.first_seq
        return first_seq if first_seq is not None else self.next_seq

    @property
    def earliest_seq(self) -> int:
        """The number from which on the log has all published messages, without sparse files."""
        return self._file_list.earliest_whole_seq(self.next_seq)

    def seq_at(self, timestamp_ns: int, low: int = 0) -> int:
        """Return the number of the first message from `low` on that was published then or later; else `next_seq`.

        Raises OSError.
        """
        found = first_since(self.files, timestamp_ns, low)
        return self.next_seq if found is None else found

    @property
    def files(self) -> Sequence[LogFile]:
        """The files in order; writes go to the last one."""
        return self._file_list.files

    @property
    def size_bytes(self) -> int:
        """The bytes of all records; files on disk may be larger by preallocated space."""
        return sum(file.end_offset for file in self.files)

    # ---- writing

    def append(self, batches: list[Batch]) -> None:
        """Append batches, whose numbers continue from `next_seq`. Raises OSError; then none of them is in the log."""
        if not self.append_at_once(batches, sum(len(batch.body) + RECORD_HEADER_BYTES for batch in batches)):
            appending = self.begin_append(batches)
            try:
                appending.write()
            finally:
                self.end_append(appending)

    def append_at_once(self, batches: list[Batch], size: int) -> bool:
        """Append with one system call and return True; if it takes more than one, do nothing and return False.

        `size` is that of the records, in bytes.
        """
        file = self._last
        if file is None or file.end_offset + size > self.max_file_bytes or file.end_seq != self.next_seq:
            return False
        if file.end_offset + size > file.allocated and file.wants_space(size):
            return False
        batch = batches[-1]
        end_seq = batch.first_seq + batch.count
        if size < _SMALL_BYTES and len(batches) == 1:  # 0.4 us less than a list of buffers
            file.append_record(encode_record(batch, file.salt), end_seq)
            used_id = batch.base_id + batch.count - 1
        else:
            file.append(encode_batches(batches, file.salt), size, end_seq)
            used_id = last_id(batches)
        if batch.timestamp_ns > file.newest_ns:
            file.newest_ns = batch.timestamp_ns
        self.next_seq = end_seq
        if used_id > self.used_id:
            self.used_id = used_id
        self._unsynced.add(file)
        return True

    def opens_file(self, size: int) -> bool:
        """True if appending records of `size` bytes opens or creates a file."""
        file = self._last
        return file is None or not file.is_open or file.end_offset + size > self.max_file_bytes

    def begin_append(self, batches: list[Batch]) -> Appending:
        """Begin an append in steps, which may run in a thread; call `end_append` after them.

        Nothing else may be appended in between.
        """
        size = sum(len(batch.body) + RECORD_HEADER_BYTES for batch in batches)
        file = self._last
        fits = file is not None and file.end_offset + size <= self.max_file_bytes and file.end_seq == self.next_seq
        if not fits and (file is None or not self._is_unused(file)):
            file = None
        self._is_appending = True
        self._held = [written for written in {file, self._last} if written is not None]
        for written in self._held:
            written.hold()
        return Appending(batches, size, file, self._last, self._creating_file)

    def end_append(self, appending: Appending) -> None:
        """Record what was written, and a new file even if the write to it failed."""
        self._is_appending = False
        while self._held:  # the files that a thread wrote to
            self._held.pop().release()
        file = appending.file
        if file is None:
            return
        if file not in self.files:
            self._add_file(file)
        if appending.is_written:
            last = appending.batches[-1]
            self.next_seq = last.end_seq
            self.used_id = max(self.used_id, last_id(appending.batches))
            file.newest_ns = max(file.newest_ns, last.timestamp_ns)
            self._unsynced.add(file)
        if file.most_ahead != self._most_ahead:  # it was changed during the write
            self.allocate_ahead(wanted=self._most_ahead > 0)

    def _is_unused(self, file: LogFile) -> bool:
        return file.end_seq == file.first_seq == self.next_seq

    def _creating_file(self) -> Generator[None, None, LogFile]:
        """Create the next file in steps. Raises OSError."""
        path = self.directory / log_file_name(self._topic, self.next_seq)
        spare, self._spare = self._spare, None
        file = yield from LogFile.creating(path, self.next_seq, self.used_id, spare)
        file.most_ahead = self._most_ahead
        file.most_bytes = self.max_file_bytes
        return file

    def _add_file(self, file: LogFile) -> None:
        self.syncs.directory_changed = True
        OPEN_FILES.add(file)
        self._file_list.add(file)
        self._last = file

    def allocate_ahead(self, *, wanted: bool) -> None:
        """Turn preallocation on or off; it is off while disk space is scarce."""
        self._most_ahead = LARGEST_STEP if wanted else 0
        if not wanted:
            self.free_spare()
        # A file that a thread writes to must not be truncated: its new data is behind the known end.
        if self._last is not None and not self._is_appending:
            self._last.most_ahead = self._most_ahead
            if not wanted:
                self._last.cut()

    def free_spare(self) -> None:
        """Free the space that is kept for the next file."""
        if self._spare is not None:
            spare, self._spare = self._spare, None
            self._in_background(partial(spare.unlink, missing_ok=True))

    # ---- syncing

    def take_unsynced(self, *, with_failed: bool = True) -> list[Unsynced]:
        """Return what must be synced now, see `UnsyncedFiles.take`."""
        return self.syncs.take(with_failed=with_failed)

    def note_synced(self, taken: Sequence[Unsynced]) -> OSError | None:
        """Record the result of a sync. Return why some of the log is not on the disk, or None.

        After a failure, new messages go to another file.
        """
        for unsynced in taken:
            file = unsynced.file if unsynced.error is not None else None
            # A new file gets a second chance, so that a disk that takes nothing is not filled with files.
            if file is not None and file is self._last and (file.synced_offset or file.sync_error is not None):
                self.leave_last_file()
        return self.syncs.note(taken, self.files)

    def leave_last_file(self) -> None:
        """Continue in a new file, since the disk does not take this one."""
        if self._last is not None and not self._is_unused(self._last):
            self._last = None

    # ---- reading

    def use_budget(self, budget: MemoryBudget) -> None:
        """Count the cached chunks in this budget."""
        self._chunks.budget = budget

    @property
    def read_bytes(self) -> int:
        """The memory of the cached chunks."""
        return self._chunks.held_bytes

    def read(self, seq: int) -> list[Batch]:
        """Return batches from the one that holds `seq`, or the next one, up to about 1 MiB. Empty at the end.

        Damaged records are skipped and reported. Raises OSError.
        """
        chunk = self._chunks.remembered(seq)
        if chunk is not None:
            return chunk
        for file in self._file_list.reaching(seq):
            chunk = self._chunks.read(file, seq)
            if chunk:
                return chunk
        return []

    def read_each(self, seqs: Sequence[int]) -> Iterator[Batch | None]:
        """Yield for each of these ascending numbers the batch that holds it, without reading what lies between.

        Yield None if it cannot be found that way. No file may be removed before the last one is taken. Raises OSError.
        """
        for file, numbers in self._file_list.by_file(seqs):
            if file is None:
                yield from (None for _ in numbers)
            else:
                yield from self._chunks.read_each(file, numbers)

    def read_files_by(self, read: Callable[[LogFile, int, int], bytes]) -> None:
        """Let `read` replace `LogFile.read`. It may raise BlockingIOError, and then so do the reads of this log."""
        self._chunks.read_file = read

    def first_published_since(self, steady_ns: int, low: int, *, by_timestamp: bool) -> int | None:
        """Return the number of the first message from `low` on that was published since that time. Raises OSError."""
        return first_published_since(self.files, steady_ns, low, by_timestamp=by_timestamp)

    def readable_from(self, seq: int) -> int:
        """Return a number from which on reading may work again if it fails at `seq`."""
        file = next(self._file_list.reaching(seq), None)
        return file.readable_from(seq) if file is not None else self.next_seq

    def read_kept(self, seq: int, most_bytes: int, in_thread: Callable[[Callable[[], None]], None]) -> KeptRecords:
        """Return records from the one that holds `seq`, or the next one, up to `most_bytes`; at least one.

        Raises OSError. Blocks as `in_thread` does.
        """
        kept = KeptRecords(max(seq, self.earliest_seq))
        while kept.size_bytes < most_bytes:
            file = next(self._file_list.reaching(kept.next_seq), None)
            if file is None:
                kept.next_seq = max(kept.next_seq, self.next_seq)
                break
            end_seq = file.end_seq
            batches, _, damaged = read_kept_piece(file, kept.next_seq, in_thread)
            for start, end in damaged:
                if file in self.files:
                    self.damage.report(file, start, end)
            if not all(kept.add(batch, most_bytes) for batch in batches):
                break
            if not batches:
                kept.next_seq = max(kept.next_seq, end_seq)
        return kept

    # ---- unneeded files

    def drop_unneeded(
        self,
        is_needed: Callable[[int, int], bool],
        retained_seq: int | None = None,
        attempt: Callable[[Callable[[], None]], bool] = _at_once,
    ) -> int:
        """Drop every closed file for whose range of messages `is_needed(low, high)` is False; return how many.

        All from `retained_seq` on are kept. `attempt` drops one, or returns False, which ends the loop. Raises OSError
        if one could not be dropped; it can be tried again.
        """
        dropped: set[LogFile] = set()
        try:
            for file in self.files[:-1]:
                if retained_seq is not None and file.end_seq > retained_seq:
                    break
                if not is_needed(file.first_seq, file.end_seq) and file not in self.busy_files:
                    if not attempt(partial(self._drop, file)):
                        break
                    dropped.add(file)
        finally:
            if dropped:
                self._set_files([file for file in self.files if file not in dropped])
        return len(dropped)

    def _set_files(self, files: list[LogFile]) -> None:
        self._file_list.set(files)
        self._chunks.forget()

    def replace(self, old: LogFile, new: LogFile) -> None:
        """Replace `old` by `new`, which has its name and its needed messages; the caller closes `old`."""
        self._set_files([new if file is old else file for file in self.files])
        OPEN_FILES.add(new)
        if self._last is old:
            self._last = new
        self._let_go(old)

    def drop_moved(self, file: LogFile) -> Callable[[], None]:
        """Drop a file whose needed messages are in another one; return the slow rest of the work. Raises OSError."""
        finish = file.discard()
        self._set_files([other for other in self.files if other is not file])
        self._let_go(file)
        return finish

    def take_space(self, file: LogFile) -> bool:
        """Keep a dropped file as the space of the next one; False if it is not needed for that. Raises OSError.

        Call this only after its removal is durable: the file is overwritten, and must not return after a power cut.
        """
        file.path = file.path.with_name(file.path.name + GONE_SUFFIX)
        if not self.files or not self._wants_space_of(file):
            return False
        self._keep_as_spare(file)
        return True

    def _wants_space_of(self, file: LogFile) -> bool:
        is_wanted = bool(self._most_ahead) and self._spare is None and file.end_offset >= self.max_file_bytes // 2
        return is_wanted and file.has_one_name

    def _keep_as_spare(self, file: LogFile) -> None:
        spare = self.directory / f"{self._topic}{SPARE_SUFFIX}"
        file.retire(spare)
        self._spare = spare

    def _let_go(self, file: LogFile) -> None:
        self.busy_files.discard(file)
        self.syncs.forget(file)

    def roll(self) -> None:
        """Close the last file so that it can be dropped, and create a new one. Raises OSError.

        It is not truncated, which takes 2 ms: it is about to be dropped or compacted.
        """
        if self.files and self.files[-1].end_seq > self.files[-1].first_seq:
            self._add_file(run_to_end(self._creating_file()))

    def _drop(self, file: LogFile) -> None:
        if self._wants_space_of(file):
            self._keep_as_spare(file)
        else:
            self._in_background(file.discard())
        self._let_go(file)

    def begin_epoch(self, number: int) -> None:
        """Begin another epoch, in a new file: other copies of this log may have a longer last file. Raises OSError."""
        self.epochs = raised(self.epochs, number, self.next_seq)
        if self.files and self._is_unused(self.files[-1]):
            unused = self.files[-1]
            unused.discard()()
            self._set_files(list(self.files[:-1]))
            self._let_go(unused)
        self._last = None

    # ---- the end

    def sync_to_end(self, taken: Sequence[Unsynced]) -> None:
        """Sync what was taken, truncate preallocated space, and close all files. May run in a thread; then call `end`.

        In this order: a file with unsynced data takes 1.5 ms to truncate, since ext4 writes the data first.
        """
        sync_and_release([unsynced for unsynced in taken if unsynced.file is not None])
        for file in self.files:
            file.cut()
            file.close()

    def end(self, taken: Sequence[Unsynced]) -> None:
        """Forget the closed files. Raises OSError if something could not be synced."""
        error = self.note_synced(taken)
        self._remove_spare()
        self._forget()
        if error is not None:
            raise error

    def close(self) -> None:
        """Sync, truncate preallocated space and close. Raises OSError."""
        taken = self.take_unsynced()
        self.sync_to_end(taken)
        sync_directories([unsynced for unsynced in taken if unsynced.file is None])
        self.end(taken)

    def remove(self) -> None:
        """Delete all files."""
        for file in self.files:
            self._in_background(file.discard())
        self._remove_spare()
        self._forget()
        self.read_files_by(LogFile.read)

    def _remove_spare(self) -> None:
        if self._spare is not None:
            self._spare.unlink(missing_ok=True)
            self._spare = None

    def _forget(self) -> None:
        self._set_files([])
        self._last = None
        self._unsynced.clear()
        self.busy_files.clear()


class FileList:
    """The files in order. They change only through these methods, which keep the list of their first numbers."""

    __slots__ = ("_first_seqs", "files")

    def __init__(self) -> None:
        self.files: list[LogFile] = []
        self._first_seqs: list[int] = []

    def add(self, file: LogFile) -> None:
        """Add a file behind all others."""
        self.files.append(file)
        self._first_seqs.append(file.first_seq)

    def set(self, files: list[LogFile]) -> None:
        """Replace the list."""
        self.files = files
        self._first_seqs = [file.first_seq for file in files]

    @property
    def first_seq(self) -> int | None:
        """The number of the first message; None without files."""
        return self._first_seqs[0] if self._first_seqs else None

    def earliest_whole_seq(self, next_seq: int) -> int:
        """Return the number from which on, up to `next_seq`, no file is sparse."""
        earliest = next_seq
        for file in reversed(self.files):
            if not file.is_whole:
                break
            earliest = file.first_seq
        return earliest

    def reaching(self, seq: int) -> Iterator[LogFile]:
        """Yield the files with messages from `seq` on."""
        place = max(0, bisect_right(self._first_seqs, seq) - 1)
        return (file for file in self.files[place:] if file.end_seq > seq)

    def by_file(self, seqs: Sequence[int]) -> Iterator[tuple[LogFile | None, Sequence[int]]]:
        """Yield ascending numbers grouped by the file that begins at or before them; None: before all files."""
        at = 0
        while at < len(seqs):
            place = bisect_right(self._first_seqs, seqs[at]) - 1
            is_last = place + 1 == len(self.files)
            after = len(seqs) if is_last else bisect_left(seqs, self._first_seqs[place + 1], at)
            yield (self.files[place] if place >= 0 else None), seqs[at:after]
            at = after
