"""What of a log cannot be read: kept aside, reported once, counted."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

from nsqd_py.diskqueue.files import LogFile


class DamageBook:
    """Damage that was found since the start.

    bytes_found     bytes that could not be read
    missing_count   messages that were needed, and were in no file at the start
    removed_files   files that another program removed while they were in use; they were written anew
    """

    __slots__ = ("_on_damage", "_reported", "bytes_found", "missing_count", "removed_files")

    def __init__(self, on_damage: Callable[[str], None]) -> None:
        self.bytes_found = 0
        self.missing_count = 0
        self.removed_files = 0
        self._on_damage = on_damage
        self._reported: set[tuple[str, int]] = set()

    def report(self, file: LogFile, start: int, end: int) -> None:
        """These bytes are passed over; said once for each place. Raises OSError when they cannot be kept aside."""
        if (file.path.name, start) in self._reported:
            return
        aside = keep_aside(file, start, end)
        self._reported.add((file.path.name, start))
        self.bytes_found += end - start
        self._on_damage(f"{file.path.name}: {end - start} damaged bytes at {start} passed over, kept as {aside}")

    def report_torn(self, file: LogFile, start: int, end: int) -> None:
        """A record at the end is not whole. Raises OSError likewise."""
        keep_aside(file, start, end)
        self._on_damage(f"{file.path.name}: a torn record at {start} is cut off ({end - start} bytes)")


def keep_aside(file: LogFile, start: int, end: int) -> str:
    """Copy damaged bytes to a file of their own, once; its name. Raises OSError."""
    aside = file.path.with_name(f"{file.path.stem}.{start}.damaged")
    if not aside.exists():
        data = os.pread(file.fileno(), end - start, start)
        try:
            write_aside(aside, data)
        except OSError as error:
            text = f"{error.strerror}: {len(data)} damaged bytes of {file.path.name} could not be kept aside"
            raise OSError(error.errno, text) from error
    return aside.name


def write_aside(aside: Path, data: bytes) -> None:
    """Write a file that is there with all of `data`, or not at all. Raises OSError."""
    temporary = aside.with_name(aside.name + ".tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            if os.write(descriptor, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)
        os.rename(temporary, aside)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
