"""Which logs a data path has, by `nsqd.epochs`, when it is compared with a store: `LogsHere`.

The number of an epoch is given to one promotion of one nsqd, or to one new log. Copies of the same messages share numbers,
and two nsqds that never had one of each other's messages share none. A restoration on another machine, and a promotion,
begin a new epoch, which is in the store with the first base after it.

A log keeps the number of its first epoch until its topic is deleted, and a later log has a higher one. So two logs of one
topic that share no epoch are different logs, of which the one with the higher numbers was made after the other one was
deleted. What nsqd has deleted itself is in the list of ended logs.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from nsqd_py.broker.state_files import decode_checked, read_epochs
from nsqd_py.diskqueue.files.log_file import replace_file
from nsqd_py.diskqueue.journals.epochs import (
    EPOCHS_FILE,
    Epochs,
    SavedEpochs,
    decode_epochs_of_logs,
    encode_epoch_file,
    with_ended,
)
from nsqd_py.runtime.documents import BAD_CONTENT
from nsqd_py.store.image import StoreImage

_NOTHING = SavedEpochs(0, {}, {})


class LogsHere:
    """The epochs of the logs in a data path, next to those that a store has. Raises OSError, and StartError as `read_epochs`."""

    def __init__(self, directory: Path, image: StoreImage) -> None:
        self._directory = directory
        self._image = image
        self._saved = read_epochs(directory) or _NOTHING
        self._logs = dict(self._saved.logs)
        self._stored = _saved_in(image)

    # ---- whose messages the store has

    def is_related(self) -> bool:
        """True if this data path and the store have had messages in common, or if the store has none."""
        stored = _all_numbers(self._stored)
        return not stored or bool(_all_numbers(self._saved) & stored)

    def is_latest(self) -> bool:
        """True if no other nsqd has written the store since this one: it has begun no epoch that is not known here.

        Without epochs, a data path proves nothing, although it may have the log files of the store: a restored copy has, too.
        """
        if not _all_numbers(self._saved) & _all_numbers(self._stored):
            return False
        for topic, stored in self._stored.logs.items():
            here = self._logs.get(topic)
            if here and here[-1].number < stored[-1].number:
                return False
        return self._saved.node == self._stored.node

    # ---- the log of one topic

    def _here_and_stored(self, topic: str) -> tuple[set[int], set[int]]:
        return _numbers(self._logs.get(topic, ())), _numbers(self._image.topics[topic].epochs)

    def was_deleted(self, topic: str) -> bool:
        """True if nsqd has deleted the log here that the store has."""
        _, stored = self._here_and_stored(topic)
        return any(log.epoch in stored for log in self._saved.ended.get(topic, ()))

    def is_deleted_in_store(self, topic: str) -> bool:
        """True if the store has the deletion of the log that is here."""
        here = _numbers(self._logs.get(topic, ()))
        return any(log.epoch in here for log in self._stored.ended.get(topic, ()))

    def is_other(self, topic: str) -> bool:
        """True if the log that is here is not the store's; False if one of them has no known epochs."""
        here, stored = self._here_and_stored(topic)
        return bool(here and stored) and not here & stored

    def is_later(self, topic: str) -> bool:
        """True if the log that is here was made after the store's."""
        return self._logs[topic][0].number > self._image.topics[topic].epochs[0].number

    def common_end(self, topic: str) -> int | None:
        """Return the number up to which the messages that are here are those of the store; None if there is no limit.

        The two part where the first of them begins an epoch that the other one has not got. There is no limit if the
        log that is here goes on from the store's, or is another one.
        """
        here, stored = self._here_and_stored(topic)
        shared = here & stored
        if not shared or max(stored) in shared:
            return None
        epochs = (*self._logs[topic], *self._image.topics[topic].epochs)
        last_shared = max(shared)
        return min(epoch.first_seq for epoch in epochs if epoch.number > last_shared)

    def take(self, topic: str) -> None:
        """The data path has the store's log now: `save` notes its epochs, unless those that are here go on from them."""
        stored = self._image.topics[topic].epochs
        if stored and stored[-1] not in self._logs.get(topic, ()):
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
        for topic, logs in self._stored.ended.items():
            for log in logs:
                if log not in ended.get(topic, ()):
                    ended = with_ended(ended, topic, log)
        if self._logs != self._saved.logs or ended != self._saved.ended:
            content = encode_epoch_file(self._saved.node, self._logs, ended)
            replace_file(self._directory / EPOCHS_FILE, content)


def _saved_in(image: StoreImage) -> SavedEpochs:
    """Return the epochs that a store has: those of its `nsqd.epochs`, and of its topics as they were listed last."""
    saved = None
    content = bytes(image.small.get(EPOCHS_FILE, b""))
    with suppress(*BAD_CONTENT):
        saved = decode_checked(content, decode_epochs_of_logs)
    saved = saved or _NOTHING
    listed = {topic: listing.epochs for topic, listing in image.topics.items() if listing.epochs}
    return saved._replace(logs=saved.logs | listed)


def _numbers(epochs: Epochs) -> set[int]:
    return {epoch.number for epoch in epochs}


def _all_numbers(saved: SavedEpochs) -> set[int]:
    """Return the numbers of all epochs, also of logs that were deleted."""
    found: set[int] = set()
    for epochs in saved.logs.values():
        found |= _numbers(epochs)
    for logs in saved.ended.values():
        found |= {log.epoch for log in logs}
    if saved.node:
        found.add(saved.node)
    return found
