"""Whose messages a store has, by the epochs of logs in a data path and in the store.

The number of an epoch is given to one promotion of one nsqd, or to one new log. Copies of the same messages share numbers,
and two nsqds that never had one of each other's messages share none. A restoration on another machine, and a promotion,
begin a new epoch, which is in the store with the first base after it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from nsqd_py.broker.state_files import decode_checked, read_epochs
from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE, SavedEpochs, decode_epochs_of_logs
from nsqd_py.runtime.documents import BAD_CONTENT
from nsqd_py.store.image import StoreImage

_NOTHING = SavedEpochs(0, {}, {})


def epochs_here(directory: Path) -> SavedEpochs:
    """Return the epochs of a data path; none without a valid file. Raises OSError, and StartError as `read_epochs` does."""
    return read_epochs(directory) or _NOTHING


def epochs_in(image: StoreImage) -> SavedEpochs:
    """Return the epochs that a store has: those of its `nsqd.epochs`, and of its topics as they were listed last."""
    saved = None
    with suppress(*BAD_CONTENT):
        saved = decode_checked(bytes(image.small.get(EPOCHS_FILE, b"")), decode_epochs_of_logs)
    saved = saved or _NOTHING
    listed = {topic: listing.epochs for topic, listing in image.topics.items() if listing.epochs}
    return saved._replace(logs=saved.logs | listed)


def is_related(here: SavedEpochs, store: SavedEpochs) -> bool:
    """True if a data path and a store have had messages in common, or if the store has none."""
    stored = _numbers(store)
    return not stored or bool(_numbers(here) & stored)


def is_latest(here: SavedEpochs, store: SavedEpochs) -> bool:
    """True if no other nsqd has written the store since that of a data path: it has begun no epoch that is not known here.

    A data path without epochs proves nothing, although its log files may be those of the store: a restored copy has them, too.
    """
    last = {topic: epochs[-1].number for topic, epochs in here.logs.items() if epochs}
    is_known = all(
        epochs[-1].number <= last.get(topic, epochs[-1].number) for topic, epochs in store.logs.items()
    )
    return bool(_numbers(here) & _numbers(store)) and here.node == store.node and is_known


def _numbers(saved: SavedEpochs) -> set[int]:
    """Return the numbers of all epochs, also of logs that were deleted."""
    found = {epoch.number for epochs in saved.logs.values() for epoch in epochs}
    found |= {log.epoch for logs in saved.ended.values() for log in logs}
    return found | {saved.node} if saved.node else found
