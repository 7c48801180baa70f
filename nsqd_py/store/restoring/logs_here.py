"""Which logs a data path has, by `nsqd.epochs`, when it is compared with a store: `LogsHere`.

A log keeps the number of its first epoch until its topic is deleted, and a later log has a higher one. So two logs of one
topic that share no epoch are different logs, of which the one with the higher numbers was made after the other one was
deleted. What nsqd has deleted itself is in the list of ended logs.
"""

from __future__ import annotations

from pathlib import Path

from nsqd_py.diskqueue.files.log_file import replace_file
from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE, Epochs, encode_epoch_file, with_ended
from nsqd_py.store.image import StoreImage
from nsqd_py.store.lineage import epochs_here, epochs_in


class LogsHere:
    """The epochs of the logs in a data path, next to those that a store has. Raises OSError."""

    def __init__(self, directory: Path, image: StoreImage) -> None:
        self._directory = directory
        self._image = image
        self._saved = epochs_here(directory)
        self._logs = dict(self._saved.logs)
        self._ended_in_store = epochs_in(image).ended

    def was_deleted(self, topic: str) -> bool:
        """True if nsqd has deleted the log here that the store has."""
        stored = _numbers(self._image.topics[topic].epochs)
        return any(log.epoch in stored for log in self._saved.ended.get(topic, ()))

    def is_deleted_in_store(self, topic: str) -> bool:
        """True if the store has the deletion of the log that is here."""
        here = _numbers(self._logs.get(topic, ()))
        return any(log.epoch in here for log in self._ended_in_store.get(topic, ()))

    def is_other(self, topic: str) -> bool:
        """True if the log that is here is not the store's; False if one of them has no known epochs."""
        here = _numbers(self._logs.get(topic, ()))
        stored = _numbers(self._image.topics[topic].epochs)
        return bool(here and stored) and not here & stored

    def is_later(self, topic: str) -> bool:
        """True if the log that is here was made after the store's."""
        return self._logs[topic][0].number > self._image.topics[topic].epochs[0].number

    def common_end(self, topic: str) -> int | None:
        """Return the number up to which the messages that are here are those of the store; None if there is no limit.

        The two part where the first of them begins an epoch that the other one has not got. There is no limit if the
        log that is here goes on from the store's, or is another one.
        """
        here = self._logs.get(topic, ())
        stored = self._image.topics[topic].epochs
        shared = _numbers(here) & _numbers(stored)
        if not shared or stored[-1].number in shared:
            return None
        last = max(shared)
        return min(epoch.first_seq for epoch in (*here, *stored) if epoch.number > last)

    def take(self, topic: str) -> None:
        """The data path has the store's log now: `save` notes its epochs, unless those that are here go on from them."""
        stored = self._image.topics[topic].epochs
        here = self._logs.get(topic, ())
        goes_on = bool(stored) and bool(here) and stored[-1] in here
        if stored and not goes_on:
            self._logs[topic] = stored

    def keep(self, topic: str) -> None:
        """The log that is here stays. If the store has its deletion, it is a later one, of which the epoch was not written."""
        if self.is_deleted_in_store(topic):
            self.forget(topic)

    def forget(self, topic: str) -> None:
        """The log of this topic is gone, or begins a new epoch at this start."""
        self._logs.pop(topic, None)

    def save(self) -> None:
        """Write `nsqd.epochs` if something is new in it; it gets the deletions that the store has. Raises OSError."""
        ended = self._saved.ended
        for topic, logs in self._ended_in_store.items():
            for log in logs:
                if log not in ended.get(topic, ()):
                    ended = with_ended(ended, topic, log)
        if self._logs != self._saved.logs or ended != self._saved.ended:
            content = encode_epoch_file(self._saved.node, self._logs, ended)
            replace_file(self._directory / EPOCHS_FILE, content)


def _numbers(epochs: Epochs) -> set[int]:
    return {epoch.number for epoch in epochs}
