"""Writes and syncs the files of a standby's copy."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from contextlib import suppress
from pathlib import Path

from nsqd_py.diskqueue.files.log_file import sync_directory
from nsqd_py.runtime.private_files import opened

_REWRITTEN_BYTES = 1024 * 1024


def sync_paths(paths: Iterable[Path], directory: Path | None, to_rewrite: Container[str] = ()) -> None:
    """Sync these files, and the names in the directory if given. Raises OSError. May run in a thread.

    Files in `to_rewrite` are written again first: after a sync that failed, the kernel takes their pages for written.
    """
    for path in paths:
        with suppress(FileNotFoundError), opened(path, os.O_RDWR) as descriptor:  # it may be removed by now
            if path.name in to_rewrite:
                _rewrite(descriptor)
            os.fdatasync(descriptor)
    if directory is not None:
        sync_directory(directory)


def _rewrite(descriptor: int) -> None:
    offset = 0
    while piece := os.pread(descriptor, _REWRITTEN_BYTES, offset):
        write_at(descriptor, offset, memoryview(piece))
        offset += len(piece)


def write_at(descriptor: int, offset: int, data: memoryview) -> None:
    """Write all of `data`. Raises OSError."""
    while data:
        written = os.pwrite(descriptor, data, offset)
        data = data[written:]
        offset += written
