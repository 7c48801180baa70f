"""Files that are opened when they are used, and closed when too many are open.

A log has a file for each segment, and nsqd has a log for each topic: more than a process may have open. So files that
were opened first are closed when there are many, and reopened when they are used. A file stays open while a
thread works with it, and while data written through its descriptor waits for a sync: the kernel reports a late write
error only to descriptors that were open.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from nsqd_py.runtime.private_files import open_file

# Files may use a half of the descriptors of the process; a sixteenth is always left free.
_PART_FOR_FILES = 2
_PART_LEFT_FREE = 16
_LEAST_LEFT_FREE = 32  # 16 threads open directories to sync them, others open a file to read it
_MOST_OPEN = 1 << 16
_MOST_CHECKED = 64
_CLOSED_AT_ONCE = 8
T = TypeVar("T")
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


class LazyFile:
    """A file that is opened when it is used, with these `flags`."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.flags = os.O_RDWR
        self._fd = fd
        self._pin_count = 0
        self._wants_close = False

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def fileno(self) -> int:
        """Return the descriptor; a thread must `pin` the file while it uses it. Raises OSError."""
        return self._fd if self._fd >= 0 else OPEN_FILES.reopen(self)

    def duplicate(self) -> int:
        """Return a duplicate of the descriptor, which the caller closes. Raises OSError."""
        return OPEN_FILES.with_room(lambda: os.dup(self.fileno()))

    def pin(self) -> None:
        """Keep the descriptor open until `unpin`, even if the file is closed before that."""
        with OPEN_FILES.lock:
            self._pin_count += 1

    def unpin(self) -> None:
        """End a `pin`."""
        with OPEN_FILES.lock:
            self._pin_count -= 1
            fd = self._take_descriptor() if self._wants_close else -1
        if fd >= 0:
            os.close(fd)

    def close(self) -> None:
        """Close the file for good, now or at the end of the last `pin`."""
        with OPEN_FILES.lock:
            self._wants_close = self._pin_count > 0
            fd = self._take_descriptor()
        if fd >= 0:
            os.close(fd)  # without the lock, since the last close of a removed file frees all of it

    def _take_descriptor(self) -> int:
        """Return the descriptor for the caller to close; -1 if there is none or it is pinned. The caller has the lock."""
        if self._pin_count:
            return -1
        OPEN_FILES.forget(self)
        fd, self._fd = self._fd, -1
        return fd

    def close_for_now(self) -> bool:
        """Close the file until it is reused; False if it must stay open. Only `OpenFiles` calls this."""
        # The content of a removed file is nowhere else.
        if self._pin_count or not self._may_close() or not os.fstat(self._fd).st_nlink:
            return False
        fd, self._fd = self._fd, -1
        os.close(fd)
        return True

    def check(self, fd: int) -> None:
        """Raise OSError if this descriptor belongs to another file. May block. Only `OpenFiles` calls this."""

    def reopen_with(self, fd: int) -> None:
        """Use this descriptor, which `check` has accepted. Only `OpenFiles` calls this."""
        self._fd = fd

    def _may_close(self) -> bool:
        return True


class OpenFiles:
    """All `LazyFile` files of the process.

    They are closed only in the thread of the event loop, which uses them without a pin. Another thread that opens one too
    many has the loop close some: a sixteenth of the descriptors is left for what threads open until then.

    most        most files that may stay open
    is_full     True if more are open and none of them can be closed before it is synced
    on_full     called when that happens, in the thread of the event loop
    on_crowded  called in another thread that has opened one too many; must have the event loop call `make_room`
    lock        guards which files are open. The event loop takes it, so no thread opens, reads or closes a file while it
                has the lock; only the event loop does, to make room
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.is_full = False
        self.on_full: Callable[[], object] = do_nothing
        self.on_crowded: Callable[[], object] = do_nothing
        self._is_asked = False
        self._files: OrderedDict[LazyFile, None] = OrderedDict()
        self._home = threading.get_ident()
        self.most = 0
        self._highest = 0
        self.use_limit()

    def use_limit(self) -> None:
        """Read the descriptor limit of the process; the calling thread must be that of the event loop."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit == resource.RLIM_INFINITY:
            limit = 1 << 30
        self.most = min(limit // _PART_FOR_FILES, _MOST_OPEN)
        # The kernel assigns the lowest free number: a high one means that few are left, whoever uses them.
        self._highest = limit - max(
            limit // _PART_LEFT_FREE, min(_LEAST_LEFT_FREE, limit // _PART_LEFT_FREE * 4)
        )
        self._home = threading.get_ident()

    def __len__(self) -> int:
        return len(self._files)

    def add(self, file: LazyFile) -> None:
        """Register an open file. Close it, or another one, if there are too many."""
        with self.lock:
            if file.is_open:
                self._files[file] = None
                if len(self._files) > self.most or file.fileno() >= self._highest:
                    self.make_room()

    def forget(self, file: LazyFile) -> None:
        """Unregister a file that is about to be closed."""
        self._files.pop(file, None)

    def reopen(self, file: LazyFile) -> int:
        """Open a file that was closed for lack of use, and return its descriptor. Raises OSError.

        Two threads may open it at the same time; the second one that has it open uses the descriptor of the first one.
        """
        file.pin()  # so that `add` does not close this very file
        try:
            fd = self._opened(file)
            with self.lock:
                is_first = not file.is_open
                if is_first:
                    file.reopen_with(fd)
                    self.add(file)
            if not is_first:
                os.close(fd)
            return file.fileno()
        finally:
            file.unpin()

    def _opened(self, file: LazyFile) -> int:
        """Return a new descriptor of the file. Raises OSError."""
        fd = self.with_room(lambda: open_file(file.path, file.flags))
        try:
            file.check(fd)
        except OSError:
            os.close(fd)
            raise
        return fd

    def with_room(self, open_one: Callable[[], T]) -> T:
        """Return what `open_one` returns; if no descriptor is left, close some files and try again."""
        try:
            return open_one()
        except OSError as error:
            if error.errno not in _OUT_OF_DESCRIPTORS or not self.make_room():
                raise
        return open_one()

    def has_room(self) -> bool:
        """True if one more file may be opened; close some others if necessary."""
        while not self._is_roomy():
            if not self.make_room():
                return False
        return True

    def _is_roomy(self) -> bool:
        if len(self._files) >= self.most:
            return False
        try:
            probe = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return False
        os.close(probe)
        return probe < self._highest

    def make_room(self) -> int:
        """Close the files above the limit, at least eight, and return how many were closed; in a thread, none."""
        with self.lock:
            if threading.get_ident() != self._home:
                if not self._is_asked:
                    self._is_asked = True
                    self.on_crowded()
                return 0
            self._is_asked = False
            closed = 0
            needed = max(len(self._files) - self.most, _CLOSED_AT_ONCE)
            for _ in range(min(len(self._files), max(_MOST_CHECKED, 2 * needed))):
                file, _ = self._files.popitem(last=False)  # the one that was opened first
                if not file.close_for_now():
                    self._files[file] = None
                    continue
                closed += 1
                if closed == needed:
                    break
            self.is_full = not closed
        if self.is_full:
            self.on_full()
        return closed


def do_nothing() -> None:
    """Stand in for a callback that is not set."""


OPEN_FILES = OpenFiles()
