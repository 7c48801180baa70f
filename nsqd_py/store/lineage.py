"""Whose messages a store has, by the epochs of logs: `Lineage` compares those of a data path with those of a store.

The number of an epoch is given to one promotion of one nsqd, or to one new log. Copies of the same messages share numbers,
and two nsqds that never had one of each other's messages share none. A restoration on another machine, and a promotion,
begin a new epoch, which is in the store with the first base after it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Self

from nsqd_py.broker.state_files import read_epochs
from nsqd_py.diskqueue.journals.epochs import Epochs, SavedEpochs
from nsqd_py.store.image import StoreImage
from nsqd_py.store.logs_here import saved_in

_NOTHING = SavedEpochs(0, {}, {})


class Lineage(NamedTuple):
    """The epochs of one copy of the messages of an nsqd.

    node    in which its nsqd was promoted; 0 if it never was a standby
    logs    epochs of its logs, by topic
    others  first epochs of logs that were deleted
    """

    node: int
    logs: dict[str, Epochs]
    others: set[int]

    @classmethod
    def in_data_path(cls, directory: Path) -> Self:
        """Return that of a data path. Raises OSError, and StartError as `read_epochs` does."""
        return cls._of(read_epochs(directory) or _NOTHING)

    @classmethod
    def in_store(cls, image: StoreImage) -> Self:
        """Return that of the state of a store."""
        found = cls._of(saved_in(image))
        listed = {topic: listing.epochs for topic, listing in image.topics.items() if listing.epochs}
        return found._replace(logs=found.logs | listed)

    @classmethod
    def _of(cls, saved: SavedEpochs) -> Self:
        ended = {log.epoch for logs in saved.ended.values() for log in logs}
        return cls(saved.node, saved.logs, ended)

    @property
    def numbers(self) -> set[int]:
        """The numbers of all epochs."""
        found = {epoch.number for epochs in self.logs.values() for epoch in epochs} | self.others
        return found | {self.node} if self.node else found

    def is_related(self, store: Self) -> bool:
        """True if this data path and the store have had messages in common, or if the store has none."""
        return not store.numbers or bool(self.numbers & store.numbers)

    def is_latest(self, store: Self) -> bool:
        """True if no other nsqd has written the store since this one: it has begun no epoch that is not known here."""
        last = {topic: epochs[-1].number for topic, epochs in self.logs.items() if epochs}
        is_known = all(
            epochs[-1].number <= last.get(topic, epochs[-1].number) for topic, epochs in store.logs.items()
        )
        return bool(self.numbers & store.numbers) and self.node == store.node and is_known
