"""The file of the history, and small files of JSON next to it, such as `nsqadmin-history.db.audit`.

All are replaced: the history now and then, a small file soon after each change.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
from gevent.threadpool import ThreadPool

from nsqadmin_py.history.document import BadHistory, decode, encode, pack, unpack
from nsqadmin_py.history.series import History
from nsqd_py.diskqueue.files.log_file import replace_file
from nsqd_py.runtime import private_files
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.threads import in_thread

_MOST_BYTES = 2 << 30
_MOST_SMALL_BYTES = 64 << 20


class HistoryFile:
    """The file of the history. With an empty path, or if it cannot be written, nothing is saved."""

    def __init__(self, path: str, log: Log) -> None:
        self._path = os.path.realpath(path) if path else ""  # replacing the file must keep a symbolic link
        self._log = log
        self._lock: Any = None
        self._pool = ThreadPool(1)

    def open(self, history: History) -> Any:
        """Read the file into the history, and return the states of nsqds.

        If the file is damaged, rename it and log why.
        """
        if not self._path or not self._take_lock():
            return []
        data = self._read("", _MOST_BYTES)
        if data is None:
            return []
        try:
            return decode(unpack(data), history)
        except BadHistory as error:
            self._set_aside(error)
            return []

    def _take_lock(self) -> bool:
        """Lock the file, since two nsqadmins would overwrite each other's."""
        # /dev/null must not be renamed as damaged.
        if os.path.exists(self._path) and not os.path.isfile(self._path):
            self._log.warning(
                "HISTORY: %s: not a regular file; the history is kept in memory only", self._path
            )
            self._path = ""
            return False
        try:
            # Held until the end.
            self._lock = open(self._path + ".lock", "ab", opener=private_files.open_file)  # noqa: SIM115
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            reason = error.strerror
            if isinstance(error, BlockingIOError):
                reason = "another nsqadmin uses it"
            self._log.warning(
                "HISTORY: %s: %s; the history is kept in memory only (--history-file says where else)",
                self._path,
                reason,
            )
            self._path = ""
            return False
        return True

    def _set_aside(self, error: Exception, suffix: str = "") -> None:
        path = self._path + suffix
        aside = f"{path}.damaged-{time.strftime('%Y%m%dT%H%M%S')}"
        while os.path.lexists(aside):
            aside += "~"
        with suppress(OSError):
            os.replace(path, aside)
        self._log.error("HISTORY: %s is damaged (%s): set aside as %s; a new one begins", path, error, aside)

    def write(self, history: History, nodes: Any = ()) -> None:
        """Replace the file."""
        self._replace("", lambda: encode(history, nodes), pack)

    # ---- small files next to it

    def read_beside(self, suffix: str) -> Any:
        """Return the JSON of the file that has this suffix; None without one. Call it after `open`."""
        data = None
        if self._path:
            data = self._read(suffix, _MOST_SMALL_BYTES)
        if data is None:
            return None
        try:
            return orjson.loads(data)
        except ValueError as error:
            self._set_aside(error, suffix)
            return None

    def write_beside(self, suffix: str, document: Any) -> None:
        """Replace the file that has this suffix."""
        self._replace(suffix, lambda: orjson.dumps(document), bytes)

    # ---- both

    def _read(self, suffix: str, most_bytes: int) -> bytes | None:
        """Return the content of a file; None without one. Log why it cannot be read."""
        path = self._path + suffix
        try:
            with open(path, "rb", opener=private_files.open_file) as file:
                return file.read(most_bytes)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._log.warning("HISTORY: cannot read %s: %s; a new one begins", path, error.strerror)
            return None

    def _replace(self, suffix: str, make: Callable[[], bytes], pack: Callable[[bytes], bytes]) -> None:
        """Replace a file. A thread packs and writes what `make` returns; this greenlet waits for it."""
        if not self._path:
            return
        path = Path(self._path + suffix)
        try:
            in_thread(self._pool, lambda data: replace_file(path, pack(data)), make())
        except Exception as error:  # noqa: BLE001 - also after a bug, the next write must follow
            self._log.warning(
                "HISTORY: cannot write %s: %s", path, getattr(error, "strerror", None) or repr(error)
            )

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
        self._pool.kill()
