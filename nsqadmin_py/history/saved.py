"""A small document that survives restarts: it is written soon after each change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gevent
from gevent.event import Event

from nsqadmin_py.history.file import HistoryFile

# Between two writes, so that many changes are one.
_PAUSE_S = 1.0


class SavedDocument:
    """Writes what `make` returns to a file next to the history, after `changed`.

    `close` writes the last change.
    """

    def __init__(self, file: HistoryFile, suffix: str, make: Callable[[], Any]) -> None:
        self._file = file
        self._suffix = suffix
        self._make = make
        self._has_changed = Event()
        self._greenlet: gevent.Greenlet[[], None] | None = None

    def open(self) -> Any:
        """Return the document of the last run, as JSON; None without one. Begin to write changes."""
        document = self._file.read_beside(self._suffix)
        self._greenlet = gevent.spawn(self._write_changes)
        return document

    def changed(self) -> None:
        self._has_changed.set()

    def close(self) -> None:
        """Call it before the history is closed."""
        if self._greenlet is not None:
            self._greenlet.kill()
            if self._has_changed.is_set():
                self._write()

    def _write_changes(self) -> None:
        while True:
            self._has_changed.wait()
            self._write()
            gevent.sleep(_PAUSE_S)

    def _write(self) -> None:
        self._has_changed.clear()
        self._file.write_beside(self._suffix, self._make())
