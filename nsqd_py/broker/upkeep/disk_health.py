"""The health of the disk: write errors that last, and free space."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from nsqd_py.broker.services import Topic
from nsqd_py.runtime.logs.daemon_log import Log

_CAUSES = _WRITE, _SYNC, _POSITION = "write", "sync", "position"
_UNLIMITED = 1 << 62  # bytes, where the free space is not known


class DiskHealth:
    """The write errors that last, by topic and by what could not be written.

    write_errors  number of failed writes to logs
    """

    def __init__(self, log: Log) -> None:
        self.write_errors = 0
        self._log = log
        self._errors: dict[tuple[str, Topic], OSError] = {}

    @property
    def problem(self) -> OSError | None:
        """Return the first error; None if there is none."""
        return next(iter(self._errors.values()), None)

    def errors(self) -> Iterator[tuple[Topic, OSError]]:
        """Yield each topic with an error that lasts, and the error."""
        for (_, topic), error in self._errors.items():
            yield topic, error

    def written(self, topic: Topic, error: OSError | None) -> None:
        """Record the result of a write to the topic's log."""
        self._note((_WRITE, topic), error)
        if error is not None:
            self.write_errors += 1

    def synced(self, topic: Topic, error: OSError | None) -> None:
        """Record the result of a sync of the topic's log."""
        # The same error is logged once.
        if error is not None and error is not self._errors.get((_SYNC, topic)):
            self._log.of_clients.error("TOPIC(%s): failed to sync - %s", topic.name, error)
        self._note((_SYNC, topic), error)

    def position_saved(self, topic: Topic, error: OSError | None) -> None:
        """Record the result of writing the position of one of its channels."""
        self._note((_POSITION, topic), error)

    def position_failed(self, topic: Topic, error: OSError) -> None:
        """Record that the topic's own position could not be written."""
        self._note((_POSITION, topic), error)
        self._log.of_clients.error("TOPIC(%s): failed to write its position - %s", topic.name, error)

    def forget(self, topic: Topic) -> None:
        for cause in _CAUSES:
            self._errors.pop((cause, topic), None)

    def _note(self, key: tuple[str, Topic], error: OSError | None) -> None:
        """Set or clear an error. A success also clears the write errors of topics without publishers now."""
        if error is not None:
            # Not the frames: they hold the messages of the write.
            self._errors[key] = error.with_traceback(None)
        elif self._errors:
            self._errors.pop(key, None)
            writes = [failed for failed in self._errors if failed[0] == _WRITE]
            for failed in writes:
                del self._errors[failed]


class FreeSpace:
    """The free space of the disk that holds a directory. `total_bytes` is its size, 0 until it is known."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.total_bytes = 0

    def free_bytes(self) -> int:
        """Return the free bytes. The file system has the number in memory, also while the disk is slow."""
        try:
            statistics = os.statvfs(self._directory)
        except OSError:  # the write itself will report it
            return _UNLIMITED
        self.total_bytes = statistics.f_blocks * statistics.f_frsize
        return statistics.f_bavail * statistics.f_frsize
