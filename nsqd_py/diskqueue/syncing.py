"""Writing to a log in steps, syncing its files, and recovering from a failed fsync.

After an fsync fails, the kernel marks the pages clean, or may have dropped them: a second fsync that succeeds says
nothing about them. So everything that no sync has covered and that can be read back is rewritten, and then synced.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Container, Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from time import monotonic_ns

from nsqd_py.diskqueue.files.log_file import LogFile, sync_directory
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, decode_header, encode_header, next_record
from nsqd_py.errors import InternalError
from nsqd_py.protocol.batch import Batch

# The kernel has flushed what was written longer ago.
_LATELY_S = 600.0
# File systems that syncfs(2) leaves as a sync of each of their files would.
_SYNCED_WHOLE = ("ext4", "tmpfs", "xfs")
# Arguments of sync_file_range(2): its flag SYNC_FILE_RANGE_WAIT_BEFORE, and an offset behind the end of any file.
_WAIT_BEFORE = 1
_BEHIND_ALL = 1 << 40


# ---- writing in steps


class CallTimer:
    """Measures calls in the thread that makes them: `with timer: call()`.

    slowest_ns  duration of the slowest call
    """

    __slots__ = ("_began_ns", "slowest_ns")

    def __init__(self) -> None:
        self.slowest_ns = 0
        self._began_ns = 0

    def __enter__(self) -> None:
        self._began_ns = monotonic_ns()

    def __exit__(self, *_: object) -> None:
        self.slowest_ns = max(self.slowest_ns, monotonic_ns() - self._began_ns)


@dataclass(slots=True, eq=False)
class Appending:
    """A write of batches to a log, in steps of one system call each. A thread can do all of them, or the last ones.

    size        the bytes of their records
    file        the file that takes the batches; None until the new one is created
    last        the last file of the log, which is cut before a new one is created
    create      creates the new file, in steps
    is_written  True when the batches are in the file
    is_left     True if it failed in a thread, so that the log continues in another file
    pinned      the files that stay open until it is over, also if their log closes them before
    timer       the duration of the slowest step of `write`
    """

    batches: list[Batch]
    size: int
    file: LogFile | None
    last: LogFile | None
    create: Callable[[], Generator[None, None, LogFile]]
    is_written: bool = False
    is_left: bool = False
    pinned: list[LogFile] = field(default_factory=list)
    timer: CallTimer = field(default_factory=CallTimer)
    _steps: Generator[None, None, None] = field(init=False)

    def __post_init__(self) -> None:
        self._steps = self._make_steps()
        for file in {self.file, self.last}:
            if file is not None:
                self._pin(file)

    def _pin(self, file: LogFile) -> None:
        file.pin()
        self.pinned.append(file)

    @property
    def opens_file(self) -> bool:
        """True if the write creates or opens a file."""
        return self.file is None or not self.file.is_open

    def step(self) -> None:
        """Do the next step, one system call. Raises OSError, which ends the write."""
        next(self._steps, None)

    def write(self) -> None:
        """Do the remaining steps; may run in a thread. Raises OSError."""
        while not self.is_written:
            with self.timer:
                self.step()

    def _make_steps(self) -> Generator[None, None, None]:
        if self.file is None:
            if self.last is not None:
                self.last.cut()
                yield
            self.file = yield from self.create()
            self._pin(self.file)
            yield
        if self.file.wants_space(self.size):
            self.file.allocate(self.size)
            yield
        self.file.put(encode_batches(self.batches, self.file.salt), self.size)
        self.is_written = True


def encode_batches(batches: list[Batch], salt: int) -> list[bytes]:
    """Return the records of the batches: a header and a body each."""
    buffers = []
    for batch in batches:
        buffers.append(encode_header(batch, salt))
        buffers.append(batch.body)
    return buffers


def last_id(batches: list[Batch]) -> int:
    """Return the highest message id. It is that of the last batch, unless dead letters with old ids are among them."""
    last = batches[-1]
    if len(batches) == 1:
        return last.base_id + last.count - 1
    return max(batch.base_id + batch.count for batch in batches) - 1


# ---- syncing


@dataclass(slots=True)
class Unsynced:
    """Something that waits for a sync: a file up to an offset, pinned until it is synced, or the directory (no file).

    error     the error of the sync, if it failed
    is_whole  True if no other program has removed or cut the file before the end of the sync; False if that is not known
    """

    file: LogFile | None
    directory: Path
    end_offset: int = 0
    end_seq: int = 0
    error: OSError | None = None
    is_whole: bool = False
    is_pinned: bool = True

    def release(self) -> None:
        """Unpin the file. Idempotent; one thread at a time has it."""
        if self.is_pinned and self.file is not None:
            self.file.unpin()
        self.is_pinned = False


def give_up(taken: Iterable[Unsynced], error: OSError) -> None:
    """Give this error to all that no sync has come to, and release them: after a bug, or if no thread could begin."""
    for unsynced in taken:
        if unsynced.is_pinned:
            unsynced.error = error
            unsynced.release()


def sync_and_release(taken: Iterable[Unsynced]) -> None:
    """Sync each one, unpin it, and set its `error`. May run in a thread.

    Files whose last sync failed are first rewritten, see `rewrite_unsynced`.
    """
    for unsynced in taken:
        file = unsynced.file
        try:
            if file is None:
                sync_directory(unsynced.directory)
                unsynced.is_whole = True
                continue
            if file.sync_error is not None:
                rewrite_unsynced(file, unsynced.end_offset)
            os.fdatasync(file.fileno())
            unsynced.is_whole = file.is_surely_whole()
        except OSError as error:
            unsynced.error = error.with_traceback(None)  # it lasts, and its frames refer to `unsynced`
        except BaseException as bug:
            unsynced.error = InternalError(bug)
            raise
        finally:
            unsynced.release()


def sync_together(taken: Sequence[Unsynced]) -> None:
    """Sync files and directories of one file system as `sync_and_release` does, if possible with one call.

    So 10,000 small files take 0.2 s instead of 1.4 s. May run in a thread. Their last syncs must not have failed.
    """
    of_files = [unsynced for unsynced in taken if unsynced.file is not None]
    calls = _kernel_calls()
    descriptor = next(
        (each.file.fileno() for each in of_files if each.file is not None and each.file.is_open), -1
    )
    if calls is None or file_system_of(descriptor) not in _SYNCED_WHOLE or calls.syncfs(descriptor):
        sync_and_release(of_files)
        sync_directories([unsynced for unsynced in taken if unsynced.file is None])
        return
    # So that the disk's own cache is flushed, even if the file system had nothing to write.
    sync_and_release(of_files[:1])
    for unsynced in of_files[1:]:
        assert unsynced.file is not None
        if unsynced.file.is_open and (error := calls.late_error(unsynced.file.fileno())):
            path = str(unsynced.file.path)
            unsynced.error = OSError(error, os.strerror(error), path)
        unsynced.release()


class _KernelCalls:
    """Calls that Python has not. Raises ImportError, OSError or AttributeError where there are none."""

    def __init__(self) -> None:
        import ctypes

        self.syncfs = ctypes.CDLL(None).syncfs
        self._sync_range = ctypes.PyDLL(None, use_errno=True).sync_file_range  # it keeps the interpreter lock
        self._sync_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
        self._errno = ctypes.get_errno

    def late_error(self, descriptor: int) -> int:
        """Return the number of an error of writing to the disk that this descriptor has not reported yet, or 0."""
        # It waits for pages that a file never has, so it returns at once.
        if self._sync_range(descriptor, _BEHIND_ALL, 1, _WAIT_BEFORE):
            return self._errno()
        return 0


@cache
def _kernel_calls() -> _KernelCalls | None:
    with suppress(ImportError, OSError, AttributeError):
        return _KernelCalls()
    return None


def file_system_of(path_or_descriptor: Path | int) -> str:
    """Return the type of the file system that holds a path or descriptor, as `ext4`; empty if it is unknown."""
    with suppress(OSError):
        device = os.stat(path_or_descriptor).st_dev
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            fields = line.split()
            if fields[2] == f"{os.major(device)}:{os.minor(device)}":
                return fields[fields.index("-") + 1]
    return ""


def sync_directories(taken: Iterable[Unsynced]) -> None:
    """Sync the directories of these, each once, and set their `error`. May run in a thread."""
    errors = {}
    for unsynced in taken:
        if unsynced.directory not in errors:
            sync_and_release([unsynced])
            errors[unsynced.directory] = unsynced.error
        unsynced.error = errors[unsynced.directory]
        unsynced.release()


def rewrite_unsynced(file: LogFile, end_offset: int) -> None:
    """Write all records again that no sync has covered, as far as they can be read back. May run in a thread.

    Readers report the others as damaged. Raises OSError.
    """
    if not file.synced_offset:
        _write(file, file.header.encode(), 0)
    start = max(file.synced_offset, FILE_HEADER_BYTES)
    data = os.pread(file.fileno(), end_offset - start, start)
    position = next_record(data, 0, file.salt)
    while position is not None:
        end = position + decode_header(data, position).record_bytes
        _write(file, data[position:end], start + position)
        position = next_record(data, end, file.salt)


def _write(file: LogFile, data: bytes, offset: int) -> None:
    if os.pwrite(file.fileno(), data, offset) != len(data):
        raise OSError(errno.ENOSPC, "short write while records were rewritten after a failed sync")


def written_lately(files: Sequence[LogFile]) -> list[LogFile]:
    """Return the files written less than 10 minutes before the last one: the kernel has flushed the others."""
    if len(files) == 1:
        return list(files)
    times = [file.modified_s for file in files]
    return [file for file, time in zip(files, times, strict=True) if time > times[-1] - _LATELY_S]


# ---- what waits for a sync


class UnsyncedFiles:
    """The unsynced files of one log, and the errors of failed syncs.

    unsynced           files with data that no sync has covered
    directory_changed  True if files were added since the directory was synced
    directory_error    the error because of which their names may not be on the disk
    """

    __slots__ = ("_directory", "_failed", "directory_changed", "directory_error", "unsynced")

    def __init__(self, directory: Path) -> None:
        self.unsynced: set[LogFile] = set()
        self.directory_changed = False
        self.directory_error: OSError | None = None
        self._directory = directory
        self._failed: frozenset[LogFile] = frozenset()

    def take(self, *, with_failed: bool = True) -> list[Unsynced]:
        """Take everything that no sync has covered, pinned until `sync_and_release`; the directory comes last.

        Without `with_failed`, files whose last sync failed are left for later.
        """
        taken = []
        for file in list(self.unsynced):
            if with_failed or file.sync_error is None:
                file.pin()
                taken.append(Unsynced(file, self._directory, file.end_offset, file.end_seq))
                self.unsynced.discard(file)
        if self.directory_changed:
            taken.append(Unsynced(None, self._directory))
        self.directory_changed = False
        return taken

    def note(self, taken: Iterable[Unsynced], files: Container[LogFile]) -> OSError | None:
        """Record the result of a sync. Return why some of the log is not on the disk, also because of earlier failures.

        Files that failed wait for the next sync if they are in `files`, those of the log.
        """
        self.directory_error = None
        for unsynced in taken:
            file = unsynced.file
            if file is None:
                self.directory_error = unsynced.error
                self.directory_changed |= unsynced.error is not None
            elif unsynced.error is not None:
                file.sync_error = unsynced.error
                if file in files:
                    self.unsynced.add(file)
                    self._failed |= {file}
            else:
                file.synced_offset = unsynced.end_offset
                file.synced_seq = unsynced.end_seq
                file.sync_error = None
                if self._failed:
                    self._failed -= {file}
        if self.directory_error is not None or not self._failed:
            return self.directory_error
        return next(file.sync_error for file in self._failed)

    def error_of(self, seq: int) -> OSError | None:
        """Return why the message with this number may not be on the disk; None if it is, or if no sync was tried."""
        of_its_file = (file.sync_error for file in self._failed if file.first_seq <= seq < file.end_seq)
        return self.directory_error or next(of_its_file, None)

    def forget(self, file: LogFile) -> None:
        self.unsynced.discard(file)
        self._failed -= {file}
