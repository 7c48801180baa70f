"""One spark-compact at a time adds files to a table: a mark in the directory of its files says which.

Each run writes a mark of its own and then lists the marks; if there is another one, it gives up. So of two that begin at once, at
least one sees the other, whatever the file system, also if it cannot create a file only if it is not there. A run writes its mark
again and again; one that was killed does not, and after a while its mark does not count any more. Times are those that the file
system gives to the marks, so clocks need not agree.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from nsq_spark.archive.storage import is_local
from nsq_spark.compact.tables import open_directory
from nsqd_py.settings.durations import SECOND_NS

# Readers of a directory pass over names that begin with an underscore.
PREFIX = "_spark_compact-"
_RENEW_S = 60.0
_STALE_S = 600.0


class Mark:
    """The mark of this run in a directory. Methods raise OSError."""

    def __init__(self, directory: str, settings: Mapping[str, str]) -> None:
        self._directory = directory
        self._store = open_directory(directory, settings)
        self._name = f"{PREFIX}{secrets.token_hex(8)}.json"
        began = datetime.now(UTC).isoformat(timespec="seconds")
        self._content = json.dumps({"owner": f"{socket.gethostname()}:{os.getpid()}", "began": began})

    @property
    def _files(self) -> Any:
        return self._store.files

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def write(self) -> None:
        if is_local(self._directory):
            os.makedirs(self._directory, exist_ok=True)
        with self._files.open_output_stream(self._store.inner(self._path(self._name))) as out:
            out.write(self._content.encode())

    def remove(self, name: str = "") -> None:
        with suppress(FileNotFoundError):
            self._files.delete_file(self._store.inner(self._path(name or self._name)))

    def check_alone(self) -> None:
        """Raise OSError if another run has a mark that counts, and if this one has none any more."""
        selector = pafs.FileSelector(self._store.inner(self._directory))
        there = self._files.get_file_info(selector)
        marks = {info.base_name: info for info in there if info.base_name.startswith(PREFIX)}
        own = marks.pop(self._name, None)
        if own is None:
            raise OSError(
                f"{self._directory}: the mark {self._name} of this run was removed, so another one may add to it: start it again"
            )
        for name, info in marks.items():
            if own.mtime_ns - info.mtime_ns > _STALE_S * SECOND_NS:
                self.remove(name)
                continue
            raise OSError(
                f"{self._directory}: another spark-compact adds to it{self._said(name)}: start again when it has ended; if it "
                f"was killed, remove {self._path(name)}, or wait for {_STALE_S / 60:g} minutes"
            )

    def _said(self, name: str) -> str:
        """Return whose a mark is, as far as it says so."""
        try:
            with self._files.open_input_stream(self._store.inner(self._path(name))) as file:
                mark = json.loads(file.read())
            return f" ({mark['owner']}, since {mark['began']})"
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
            return ""


@contextmanager
def alone_in(directory: str, settings: Mapping[str, str]) -> Iterator[Mark]:
    """Keep others from adding to a table with files in a directory, as long as the block runs. Raises OSError."""
    mark = Mark(directory, settings)
    ended = Event()

    def renew() -> None:
        while not ended.wait(_RENEW_S):
            with suppress(OSError):  # the next time, or else `check_alone` fails
                mark.write()

    renewer = Thread(target=renew, daemon=True)
    try:
        mark.write()
        mark.check_alone()
        renewer.start()
        yield mark
    finally:
        ended.set()
        if renewer.ident is not None:
            renewer.join()
        with suppress(OSError):  # after a while it does not count
            mark.remove()
