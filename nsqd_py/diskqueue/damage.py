"""What of a log cannot be read: kept aside, reported once, counted."""

from __future__ import annotations

import os
from collections.abc import Callable

from nsqd_py import private_files
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
        self._reported.add((file.path.name, start))
        aside = keep_aside(file, start, end)
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
        private_files.write_bytes(aside, os.pread(file.fileno(), end - start, start))
    return aside.name
