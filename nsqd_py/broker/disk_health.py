"""What the disk does not take, for `/ping`, `/health` and `/stats`."""

from __future__ import annotations

from collections.abc import Iterator

from nsqd_py.queue.topic import Topic
from nsqd_py.runtime.logs import Log

_CAUSES = _WRITE, _SYNC, _POSITION = "write", "sync", "position"


class DiskHealth:
    """The errors that last, by what was to be written.

    write_errors  how many writes to logs have failed
    """

    def __init__(self, log: Log) -> None:
        self.write_errors = 0
        self._log = log
        self._errors: dict[tuple[str, Topic], OSError] = {}

    @property
    def trouble(self) -> OSError | None:
        """The first of them; None when all is well."""
        return next(iter(self._errors.values()), None)

    def errors(self) -> Iterator[tuple[Topic, OSError]]:
        """Yield each topic with an error that lasts, and the error."""
        for (_, topic), error in self._errors.items():
            yield topic, error

    def written(self, topic: Topic, error: OSError | None) -> None:
        """How a write to its log went."""
        self._note((_WRITE, topic), error)
        if error is not None:
            self.write_errors += 1

    def synced(self, topic: Topic, error: OSError | None) -> None:
        """How a sync of its log went."""
        if error is not None and error is not self._errors.get((_SYNC, topic)):  # else it is still the same
            self._log.error("TOPIC(%s): failed to sync - %s", topic.name, error)
        self._note((_SYNC, topic), error)

    def position_saved(self, topic: Topic, error: OSError | None) -> None:
        """How writing the position of one of its channels went."""
        self._note((_POSITION, topic), error)

    def position_failed(self, topic: Topic, error: OSError) -> None:
        """Its own position could not be written."""
        self._note((_POSITION, topic), error)
        self._log.error("TOPIC(%s): failed to write its position - %s", topic.name, error)

    def forget(self, topic: Topic) -> None:
        """It is deleted."""
        for cause in _CAUSES:
            self._errors.pop((cause, topic), None)

    def _note(self, place: tuple[str, Topic], error: OSError | None) -> None:
        """A topic that nobody publishes to any more is well when the disk takes something else."""
        if error is not None:
            self._errors[place] = error
        elif self._errors:
            self._errors.pop(place, None)
            for failed in [failed for failed in self._errors if failed[0] == _WRITE]:
                del self._errors[failed]
