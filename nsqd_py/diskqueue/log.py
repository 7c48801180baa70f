"""The log of one topic: its files in order of sequence numbers.

Writes go to the last file. Reads start at any sequence number and return whole batches in chunks of 1 MiB or more,
which readers at the same position share. A file that no channel needs is dropped; one of them becomes the space of the next
file. A file of which little is needed is replaced by a sparse one (`compaction`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from operator import attrgetter
from pathlib import Path

from nsqd_py.diskqueue.damage import DamageReport
from nsqd_py.diskqueue.files.log_file import (
    GONE_SUFFIX,
    LARGEST_STEP,
    LogFile,
    log_file_name,
    new_salt,
    run_to_end,
)
from nsqd_py.diskqueue.files.open_files import OPEN_FILES
from nsqd_py.diskqueue.files.spare import SpareFile
from nsqd_py.diskqueue.history import HistoryFile, LogHistory, has_message
from nsqd_py.diskqueue.journals.epochs import Epochs, raised
from nsqd_py.diskqueue.journals.ranges import Range, count_of, minus
from nsqd_py.diskqueue.memory_budget import MemoryBudget
from nsqd_py.diskqueue.reading import (
    RETAINED_PIECE_BYTES,
    ChunkReader,
    FileRange,
    Piece,
    ReadInThread,
    RetainedRecords,
    first_after_id,
    first_from,
    offset_before_id_time,
    read_retained_piece,
)
from nsqd_py.diskqueue.records import RECORD_HEADER_BYTES, FileHeader, encode_record
from nsqd_py.diskqueue.recovery import RecoveredFile
from nsqd_py.diskqueue.syncing import (
    Appending,
    Unsynced,
    UnsyncedFiles,
    encode_batches,
    last_id,
    sync_and_release,
    written_lately,
)
from nsqd_py.protocol.batch import Batch
from nsqd_py.protocol.message_ids import id_time_ns

_SMALL_BYTES = 8 * 1024  # a record that is copied into one piece
_first_seq_of = attrgetter("first_seq")


def _at_once(work: Callable[[], None]) -> bool:
    work()
    return True


def _always(_file: LogFile) -> bool:
    return True


class TopicLog:
    """The log of one topic.

    files          the files in order; writes go to the last one
    next_seq       number of the next message
    used_id        highest message id in it
    latest_due_ns  latest due time in it, or later
    damage         the damage found since the start
    epochs         see `nsqd_py.diskqueue.journals.epochs`
    busy_files     files that a thread reads or writes, and that must stay
    syncs          files that wait for a sync
    chunks         reads the files, and caches what was read
    history        the stored files of the log, where it goes on beyond the disk; None without a store
    may_drop       returns False for an unneeded file that must stay, since it is not stored yet
    writes_zeros   as of a `LogFile`; set it before there are files
    """

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
        self.files: list[LogFile] = []
        self._last: LogFile | None = None
        self.damage = DamageReport(on_damage)
        self.chunks = ChunkReader(self.damage)
        self.history: LogHistory | None = None
        self.may_drop: Callable[[LogFile], bool] = _always
        self._spare = SpareFile(directory, topic, max_file_bytes)
        self.syncs = UnsyncedFiles(directory)
        self._unsynced = self.syncs.unsynced
        self._most_ahead = LARGEST_STEP
        self.writes_zeros = False
        self._appending: Appending | None = None
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
        is_written_again = is_last or recovered.file.header.is_sparse
        # To free a little space takes 40 us and waits for the file system's journal: 20,000 topics started 200 s later.
        if is_written_again and not (recovered.has_clean_end and self._most_ahead):
            recovered.file.cut()
        recovered.file.writes_zeros = self.writes_zeros
        recovered.file.mark_clean()
        self.files.append(recovered.file)
        if is_last and not is_synced:
            self._unsynced.update(written_lately(self.files))
        self._last = recovered.file if recovered.file.is_whole or not recovered.file.message_count else None
        self.next_seq = max(self.next_seq, recovered.file.end_seq)
        self.used_id = max(self.used_id, recovered.used_id)
        dues_ns = [due_ns for _, _, due_ns, _ in recovered.deferred]
        self.latest_due_ns = max([self.latest_due_ns, *dues_ns])

    @property
    def first_seq(self) -> int:
        """The number of the first message in the log."""
        if self.files:
            return self.files[0].first_seq
        return self.next_seq

    @property
    def earliest_seq(self) -> int:
        """The number from which on the log has all published messages, without sparse files."""
        history = self.history
        earliest = self.next_seq
        for file in reversed(self.files):
            if not file.is_whole and (history is None or not history.has_all(file.first_seq, file.end_seq)):
                return earliest
            earliest = file.first_seq
        return history.earliest_before(earliest) if history is not None else earliest

    @property
    def earliest_id(self) -> int:
        """The highest id that a message before `earliest_seq` may have, in a log whose ids rise."""
        earliest_seq = self.earliest_seq
        for file in self.files:
            if file.first_seq == earliest_seq:
                return file.header.used_id
        stored = self.history.covering(earliest_seq) if self.history is not None else None
        if stored is not None:
            return stored.first_id - 1
        return self.used_id

    def _is_on_disk(self, low: int, high: int) -> bool:
        """True if a whole file on the disk has all of low..high (not included)."""
        file = next(self._reaching(low), None)
        return file is not None and file.is_whole and file.first_seq <= low and file.end_seq >= high

    def not_stored(self, ranges: Iterable[Range]) -> list[Range]:
        """Return the parts of these ranges that no stored file has."""
        if self.history is None:
            return list(ranges)
        return minus(ranges, self.history.ranges())

    def seq_at(self, timestamp_ns: int, low: int = 0) -> int:
        """Return the number of the first message from `low` on that was published then or later; else `next_seq`.

        Blocks this greenlet if stored files have older messages. Raises OSError.
        """
        found = self._seq_on_disk_at(timestamp_ns, low)
        if self.history is not None:
            return self.history.seq_at(timestamp_ns, low, found, self._is_on_disk)
        return found

    def _seq_on_disk_at(self, timestamp_ns: int, low: int) -> int:
        for file in self.files:
            if file.end_seq > low and file.newest_ns >= timestamp_ns:
                offset = max(file.offset_before_time(timestamp_ns), file.offset_before(low))
                found = first_from(file, offset, low, lambda record: record.timestamp_ns >= timestamp_ns)
                if found is not None:
                    return found
        return self.next_seq

    def seq_after_id(self, message_id: int) -> int:
        """Return the number of the first retained message with a greater id; `next_seq` if there is none.

        Ids must rise in this log: those of dead letters do not. Blocks this greenlet if stored files have older messages.
        Raises OSError.
        """
        earliest = self.earliest_seq
        found = self._seq_on_disk_after_id(message_id, earliest)
        if self.history is not None:
            return self.history.seq_after_id(message_id, earliest, found, self._is_on_disk)
        return found

    def hole_before(self, seq: int) -> int:
        """Return the number of the first message missing before `seq`, if the one before `seq` is missing; else `seq`."""
        end_seq = _end_before(self.files, seq)
        if self.history is not None:
            end_seq = max(end_seq, _end_before(self.history.segments, seq))
        return min(seq, end_seq or seq)

    def _seq_on_disk_after_id(self, message_id: int, earliest: int) -> int:
        retained = [file for file in self.files if file.first_seq >= earliest and file.is_whole]
        # A file's header has the highest id before it.
        at = bisect_right(retained, message_id, key=lambda file: file.header.used_id)
        for file in retained[max(0, at - 1) :]:
            found = first_after_id(file, message_id)
            if found is not None:
                return found
        return self.next_seq

    def first_published_since(self, steady_ns: int, low: int, *, by_timestamp: bool) -> int | None:
        """Return the number of the first message from `low` on whose id was generated at `steady_ns` or later, or None.

        Ids rise with the steady clock, whatever the wall clock does. Ids of dead letters do not: if the log may hold such
        (`by_timestamp`), the search starts where the timestamps lead to, if that is earlier. Of stored messages, it may be
        the number of an older one. Raises OSError.
        """
        found = self._published_on_disk_since(steady_ns, low, by_timestamp=by_timestamp)
        if self.history is not None:
            before = self.next_seq if found is None else found
            stored = self.history.published_since(steady_ns, low, before, self._is_on_disk)
            return stored if stored < before else found
        return found

    def _published_on_disk_since(self, steady_ns: int, low: int, *, by_timestamp: bool) -> int | None:
        for file, following in zip_longest(self.files, self.files[1:]):
            # A file's header has the highest id before it.
            newest_id = following.header.used_id if following is not None else 0
            if file.end_seq <= low or (newest_id and id_time_ns(newest_id) < steady_ns):
                continue
            offset = offset_before_id_time(file, steady_ns)
            if by_timestamp:
                offset = min(offset, file.offset_before_time(steady_ns))
            offset = max(offset, file.offset_before(low))
            found = first_from(file, offset, low, lambda record: id_time_ns(record.base_id) >= steady_ns)
            if found is not None:
                return found
        return None

    @property
    def size_bytes(self) -> int:
        """The bytes of all records; files on disk may be larger by preallocated space."""
        return sum(file.end_offset for file in self.files)

    # ---- writing

    def append_at_once(self, batches: list[Batch], size: int) -> bool:
        """Append with one system call and return True; if it takes more than one, do nothing and return False.

        `size` is that of the records, in bytes.
        """
        file = self._last
        if file is None or file.end_seq != self.next_seq:
            return False
        after = file.end_offset + size
        if after > self.max_file_bytes or (after > file.allocated and file.wants_space(size)):
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

    def waits_for_descriptor(self, size: int) -> bool:
        """True if appending records of `size` bytes opens a file, and all files that may be open are in use."""
        file = self._last
        opens = file is None or not file.is_open or file.end_offset + size > self.max_file_bytes
        return opens and not OPEN_FILES.has_room()

    def begin_append(self, batches: list[Batch]) -> Appending:
        """Begin an append in steps, which may run in a thread; call `end_append` after them.

        Nothing else may be appended in between. If a thread runs the steps, call `release` when it has ended, and `leave`
        instead of `end_append` if it failed.
        """
        size = sum(len(batch.body) + RECORD_HEADER_BYTES for batch in batches)
        file = self._last
        if file is not None:
            fits = file.end_offset + size <= self.max_file_bytes and file.end_seq == self.next_seq
            if not fits and not self._is_unused(file):
                file = None
        self._appending = Appending(batches, size, file, self._last, self._creating_file)
        return self._appending

    def end_append(self, appending: Appending) -> None:
        """Record what was written, and a new file even if the write to it failed."""
        self.release(appending)
        self._appending = None
        file = appending.file
        if file is None:
            return
        if file not in self.files:
            self._add_file(file)
        if appending.is_written:
            last = appending.batches[-1]
            file.note_put(appending.size, last.end_seq)
            self.next_seq = last.end_seq
            self.used_id = max(self.used_id, last_id(appending.batches))
            file.newest_ns = max(file.newest_ns, last.timestamp_ns)
            self._unsynced.add(file)
        if file.most_ahead != self._most_ahead:  # it was changed during the write
            self.allocate_ahead(enabled=self._most_ahead > 0)

    def leave(self, appending: Appending) -> None:
        """Continue in a new file, since a write in a thread failed. It is not known what it has written, or still writes.

        So nothing is written behind its end again: the file is left as it is, or set aside if it has no messages yet.
        `recover_file` passes over the remains.
        """
        appending.is_left = True
        self._appending = None
        self._last = None
        if appending.file is not None:
            self._set_aside_unused(appending.file)

    def release(self, appending: Appending) -> None:
        """Note that no thread does anything for this append any more."""
        while appending.pinned:
            appending.pinned.pop().unpin()
        if appending.is_left and appending.file is not None:  # the thread has created it since
            self._set_aside_unused(appending.file)

    def _set_aside_unused(self, file: LogFile) -> None:
        """Remove a file without messages, so that another one can have its name.

        If that fails, the next append fails too: a file of this name is not overwritten.
        """
        if not self._is_unused(file) or file.is_set_aside:
            return
        file.is_set_aside = True
        if file in self.files:
            self.let_go(file)
        with suppress(OSError):
            self._in_background(file.discard())

    def _is_unused(self, file: LogFile) -> bool:
        return file.end_seq == file.first_seq == self.next_seq

    def _creating_file(self) -> Generator[None, None, LogFile]:
        """Create the next file in steps. Raises OSError."""
        path = self.directory / log_file_name(self._topic, self.next_seq)
        spare = self._spare.take()
        header = FileHeader(new_salt(), self.next_seq, self.used_id, is_reused=spare is not None)
        file = yield from LogFile.creating(path, header, spare)
        file.most_ahead = self._most_ahead
        file.writes_zeros = self.writes_zeros
        file.most_bytes = self.max_file_bytes
        return file

    def _add_file(self, file: LogFile) -> None:
        self.syncs.directory_changed = True
        OPEN_FILES.add(file)
        self.files.append(file)
        self._last = file

    def allocate_ahead(self, *, enabled: bool) -> None:
        """Turn preallocation on or off; it is off while disk space is scarce."""
        self._most_ahead = LARGEST_STEP if enabled else 0
        if not enabled:
            self.free_spare()
        # A file that a thread writes to must not be truncated: its new data is behind the known end.
        if self._last is not None and self._appending is None:
            self._last.most_ahead = self._most_ahead
            if not enabled:
                self._last.cut()

    def free_spare(self) -> None:
        """Free the space that waits for the next file."""
        gone = self._spare.rename()
        if gone is not None:
            self._in_background(partial(gone.unlink, missing_ok=True))

    def use_budget(self, budget: MemoryBudget) -> None:
        """Count the cached bytes in this budget."""
        self.chunks.budget = budget
        if self.history is not None:
            self.history.chunks.budget = budget

    # ---- syncing

    def note_synced(self, taken: Sequence[Unsynced]) -> OSError | None:
        """Record the result of a sync. Return why some of the log is not on the disk, or None.

        After a failure, new messages go to another file.
        """
        for unsynced in taken:
            file = unsynced.file if unsynced.error is not None else None
            # A new file gets a second chance, so that a disk that takes nothing is not filled with files.
            if (
                file is not None
                and file is self._last
                and (file.synced_offset or file.sync_error is not None)
            ):
                self.leave_last_file()
        return self.syncs.note(taken, self.files)

    def leave_last_file(self) -> None:
        """Continue in a new file, since the disk does not take this one."""
        if self._last is not None and not self._is_unused(self._last):
            self._last = None

    def leave_removed(self, file: LogFile) -> None:
        """Write no more to a file that another program has removed or cut."""
        if file is self._last:
            self._last = None
            self._set_aside_unused(file)

    # ---- reading

    def read(self, seq: int) -> list[Batch]:
        """Return batches from the one that holds `seq`, or the next one, up to about 1 MiB. Empty at the end.

        Damaged records are skipped and reported. Raises OSError, also while a thread reads or a store does not answer.
        """
        if self.history is not None:
            return self._read_with(self.history, seq)
        return self._read_from_disk(seq)

    def _read_with(self, history: LogHistory, seq: int) -> list[Batch]:
        """Read from the disk, if that has the message, and else from a stored file."""
        chunk = history.remembered(seq)
        if chunk is not None:
            return chunk
        file = next(self._reaching(seq), None)
        stored = history.covering(seq)
        if stored is not None and (file is None or file.first_seq > seq):
            end_seq = stored.end_seq if file is None else min(stored.end_seq, file.first_seq)
            # If all from `seq` on is damaged, the next file follows.
            return history.read(seq, end_seq) or self._read_with(history, end_seq)
        chunk = self._read_from_disk(seq)
        if has_message(chunk, seq):
            return chunk
        return history.read(seq, _first_behind(chunk, seq, self.next_seq)) or chunk

    def _read_from_disk(self, seq: int) -> list[Batch]:
        chunk = self.chunks.remembered(seq)
        if chunk is not None:
            return chunk
        for file in self._reaching(seq):
            chunk = self.chunks.read(file, seq)
            if chunk:
                return chunk
        return []

    def read_each(self, seqs: Sequence[int]) -> Iterator[Batch | None]:
        """Yield for each of these ascending numbers the batch that holds it, without reading what lies between.

        Yield None if it cannot be found that way. No file may be removed before the last one is taken. Raises OSError.
        """
        at = 0
        while at < len(seqs):
            index = bisect_right(self.files, seqs[at], key=_first_seq_of) - 1
            is_last = index + 1 == len(self.files)
            after = len(seqs) if is_last else bisect_left(seqs, self.files[index + 1].first_seq, at)
            if index < 0:
                yield from (None for _ in seqs[at:after])
            else:
                yield from self.chunks.read_each(self.files[index], seqs[at:after])
            at = after

    def _reaching(self, seq: int) -> Iterator[LogFile]:
        """Yield the files with messages from `seq` on."""
        index = max(0, bisect_right(self.files, seq, key=_first_seq_of) - 1)
        return (file for file in self.files[index:] if file.end_seq > seq)

    def readable_from(self, seq: int) -> int:
        """Return a number from which on reading may work again if it fails at `seq`."""
        file = next(self._reaching(seq), None)
        if file is not None:
            return file.readable_from(seq)
        return self.next_seq

    def read_retained(self, seq: int, most_bytes: int, in_thread: ReadInThread) -> RetainedRecords:
        """Return records from the one that holds `seq`, or the next one, up to `most_bytes`; at least one.

        No message is missing in between, also if files are dropped or compacted in the meantime: the records end before a hole.
        Raises OSError. Blocks as `in_thread` does.
        """
        retained = RetainedRecords(max(seq, self.earliest_seq))
        while retained.size_bytes < most_bytes:
            file = self._file_for(retained.next_seq)
            if file is None:
                retained.end(self.next_seq, self.used_id)
                break
            end_seq = file.end_seq
            batches, _, damaged = self._read_retained_piece(file, retained.next_seq, in_thread)
            found_seq = batches[0].first_seq if batches else end_seq
            if not retained.pass_over(found_seq, count_of(damaged)):
                break
            if not all(retained.add(batch, most_bytes) for batch in batches):
                break
        return retained

    def files_with(self, low: int, high: int) -> Iterator[tuple[LogFile | HistoryFile, int, int]]:
        """Yield the files with messages low..high (not included), each with the range to read there, in rising order."""
        while low < high:
            file = self._file_for(low)
            if file is None or file.first_seq >= high:
                break
            until = min(high, file.end_seq)
            yield file, max(low, file.first_seq), until
            low = until

    def _file_for(self, seq: int) -> LogFile | HistoryFile | None:
        """Return the file with this message, or else the one with the next messages; a stored one if no whole one has it."""
        file = next(self._reaching(seq), None)
        if self.history is None or (file is not None and file.first_seq <= seq and file.is_whole):
            return file
        stored = next(self.history.reaching(seq), None)
        if stored is None:
            return file
        if file is not None and max(file.first_seq, seq) < stored.first_seq:
            return file
        return self.history.file_of(stored)

    def _read_retained_piece(self, file: LogFile | HistoryFile, seq: int, in_thread: ReadInThread) -> Piece:
        if isinstance(file, HistoryFile):
            assert self.history is not None
            stored_piece = self.history.read_now(file, seq, RETAINED_PIECE_BYTES)
            self.history.pass_over(file, stored_piece.damaged)
            return stored_piece
        piece = read_retained_piece(file, seq, in_thread)
        if file not in self.files:  # it was dropped, and the next file may have been written over it
            return piece._replace(damaged=[])
        self.chunks.pass_over(file, piece.damaged)
        return piece

    # ---- unneeded files

    def drop_unneeded(
        self,
        is_needed: Callable[[int, int], bool],
        retained_seq: int | None = None,
        attempt: Callable[[Callable[[], None]], bool] = _at_once,
    ) -> int:
        """Drop every closed file for whose range of messages `is_needed(low, high)` is False; return how many.

        All from `retained_seq` on stay. `attempt` drops one, or returns False, which ends the loop. Raises OSError
        if one could not be dropped; it can be retried.
        """
        dropped: set[LogFile] = set()
        try:
            for file in self.unneeded(is_needed, retained_seq):
                if not attempt(partial(self._drop, file)):
                    break
                dropped.add(file)
        finally:
            if dropped:
                self._set_files([file for file in self.files if file not in dropped])
        return len(dropped)

    def unneeded(
        self, is_needed: Callable[[int, int], bool], retained_seq: int | None = None
    ) -> Iterator[LogFile]:
        """Yield the closed files that `drop_unneeded` drops."""
        for file in self.files[:-1]:
            if retained_seq is not None and file.end_seq > retained_seq:
                break
            is_unneeded = not is_needed(file.first_seq, file.end_seq) and file not in self.busy_files
            if is_unneeded and self.may_drop(file):
                yield file

    def let_go(self, file: LogFile) -> None:
        """Take an unneeded file out of the log, so that it can be removed."""
        self._set_files([other for other in self.files if other is not file])
        self._let_go(file)

    def take_back(self, file: LogFile) -> None:
        """Undo `let_go`, since the file could not be removed."""
        files = sorted([*self.files, file], key=lambda each: each.first_seq)
        self._set_files(files)

    def _set_files(self, files: list[LogFile]) -> None:
        self.files = files
        self.chunks.forget()

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
        self.let_go(file)
        return finish

    def take_space(self, file: LogFile) -> bool:
        """Keep a dropped file as the space of the next one; False if it is not needed for that. Raises OSError.

        Call this only after its removal is durable: the file is overwritten, and must not return after a power cut.
        """
        file.path = file.path.with_name(file.path.name + GONE_SUFFIX)
        if not self.files or not self._wants_space_of(file):
            return False
        self._spare.keep(file)
        return True

    def _wants_space_of(self, file: LogFile) -> bool:
        return self._most_ahead > 0 and self._spare.wants(file)

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
            self._spare.keep(file)
        else:
            self._in_background(file.discard())
        self._let_go(file)

    def begin_epoch(self, number: int) -> None:
        """Begin another epoch, in a new file: other copies of this log may have a longer last file. Raises OSError."""
        self.epochs = raised(self.epochs, number, self.next_seq)
        if self.files and self._is_unused(self.files[-1]):
            unused = self.files[-1]
            unused.discard()()
            self.let_go(unused)
        self._last = None

    # ---- the end

    def sync_to_end(self, taken: Sequence[Unsynced]) -> None:
        """Sync what was taken, truncate preallocated space, and close all files. May run in a thread; then call `end`.

        Files that another program has removed are written back. They are searched here, too: on a slow disk, the event loop
        has not checked.

        In this order: a file with unsynced data takes 1.5 ms to truncate, since ext4 writes the data first.
        """
        sync_and_release([unsynced for unsynced in taken if unsynced.file is not None])
        for file in self.files:
            if file.is_open and file.is_cut():
                # Cut, and not removed; or the disk is full: the start reports what is missing.
                with suppress(OSError):
                    file.write_back().close()
            file.cut()
            file.close()

    def end(self, taken: Sequence[Unsynced]) -> None:
        """Forget the closed files. Raises OSError if something could not be synced."""
        error = self.note_synced(taken)
        self._spare.remove()
        self._forget()
        if error is not None:
            raise error

    def remove(self) -> None:
        """Delete all files."""
        for file in self.files:
            self._in_background(file.discard())
        self._spare.remove()
        self._forget()
        self.chunks.detach()
        self.history = None
        self.may_drop = _always

    def _forget(self) -> None:
        self._set_files([])
        self._last = None
        self._unsynced.clear()
        self.busy_files.clear()
        if self.history is not None:
            self.history.chunks.forget()


def _end_before(files: Sequence[FileRange], seq: int) -> int:
    """Return the number behind the last file that begins before `seq`; 0 if there is none."""
    index = bisect_left(files, seq, key=_first_seq_of)
    return files[index - 1].end_seq if index else 0


def _first_behind(chunk: Sequence[Batch], seq: int, otherwise: int) -> int:
    """Return the number of the first message behind `seq` in a chunk that does not have `seq`."""
    at = bisect_right(chunk, seq, key=_first_seq_of)
    return chunk[at].first_seq if at < len(chunk) else otherwise
