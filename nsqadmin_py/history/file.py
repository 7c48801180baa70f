"""The file of the history: a header line, then one compressed document with a checksum.

    nsqadmin-history 2 <crc32c of the rest, 8 hex digits>\\n
    zstd of: length of the head (4 bytes), head (JSON), values (4 bytes each)

The head has for each ring its offset, its first and last step, and the size of its values in bytes. It also
has the last known states of nsqds.

Next to it are small files of JSON, such as `nsqadmin-history.db.audit`, which are replaced soon after each
change.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import cramjam
import google_crc32c
import orjson
from gevent.threadpool import ThreadPool

from nsqadmin_py.history.ring import Ring
from nsqadmin_py.history.series import History, Key, Rings, Series
from nsqd_py.diskqueue.files.log_file import replace_file
from nsqd_py.runtime import private_files
from nsqd_py.runtime.documents import BAD_CONTENT
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.threads import in_slices, in_thread

_MAGIC = b"nsqadmin-history 2 "
_LEVEL = 1
_MOST_BYTES = 2 << 30
_MOST_SMALL_BYTES = 64 << 20
_LENGTH = struct.Struct(">I")
_BAD = (*BAD_CONTENT, struct.error)


class BadHistory(Exception):
    """The file is damaged; str(error) says how."""


def encode(history: History, nodes: Any = ()) -> bytes:
    """Return the document of a history and of the last known states of nsqds, not compressed."""
    parts = []
    rows = []
    for key, series in in_slices(list(history.series.items())):
        rings = {}
        for name, rings_of_metric in series.rings.items():
            dumps = [ring.dump() for ring in rings_of_metric]
            parts += [data for _, _, data in dumps]
            rings[name] = [(first, last, len(data)) for first, last, data in dumps]
        rows.append([*key, series.quantiles, rings])
    document = {"fine_step_s": history.fine_step_s, "series": rows, "nodes": nodes}
    head = orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS)
    return b"".join([_LENGTH.pack(len(head)), head, *parts])


def decode(document: bytes, history: History) -> Any:
    """Fill an empty history, and return the states of nsqds. Raises BadHistory."""
    try:
        (length,) = _LENGTH.unpack_from(document)
        head = orjson.loads(document[4 : 4 + length])
        if head["fine_step_s"] != history.fine_step_s:
            head["series"] = []  # another poll interval: its steps have another length
        at = 4 + length
        for topic, channel, node, quantiles, rings in head["series"]:
            series = Series()
            series.quantiles = tuple(map(float, quantiles))
            for name, dumps in rings.items():
                found = list(history.new_rings())
                for index, (first, last, size) in enumerate(dumps):
                    # An empty ring has no last step. Further rings, with extremes, were written by earlier
                    # versions.
                    if last >= 0 and index < len(found):
                        found[index] = Ring.load(found[index].capacity, first, last, document[at : at + size])
                    at += size
                series.rings[name] = Rings(*found)
            history.series[Key(topic, channel, node)] = series
        return head.get("nodes", [])
    except _BAD as error:
        history.series.clear()
        raise BadHistory(f"{type(error).__name__}: {error}") from error


def pack(document: bytes) -> bytes:
    packed = bytes(cramjam.zstd.compress(document, level=_LEVEL))
    return b"%s%08x\n%s" % (_MAGIC, google_crc32c.value(packed), packed)


def unpack(data: bytes) -> bytes:
    """Return the document of a file's content. Raises BadHistory."""
    line, _, packed = data.partition(b"\n")
    if not line.startswith(_MAGIC):
        raise BadHistory("it is no history of nsqadmin")
    if line[len(_MAGIC) :] != b"%08x" % google_crc32c.value(packed):
        raise BadHistory("its checksum is wrong")
    try:
        return bytes(cramjam.zstd.decompress(packed))
    except cramjam.DecompressionError as error:
        raise BadHistory(str(error)) from error


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
            reason = "another nsqadmin uses it" if isinstance(error, BlockingIOError) else error.strerror
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
        data = self._read(suffix, _MOST_SMALL_BYTES) if self._path else None
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
