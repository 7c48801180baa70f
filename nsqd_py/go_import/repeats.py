"""Removing messages that Go's nsqd left twice.

After a kill, Go's queues continue where they were last synced, and messages that moved since then exist twice: a
requeued message behind itself; one that went from the topic to a channel, in both queues. Each is imported once, since
a client cannot tell two messages with one id apart.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from operator import itemgetter, lt

from nsqd_py.diskqueue.go_files import GoMessage

NO_ID = 1 << 64

_id_of = itemgetter(2)

Blocks = Iterator[list[GoMessage]]


@dataclass(slots=True)
class QueueScan:
    """The result of reading a queue once.

    lowest   the lowest id
    repeats  ids that were not in rising order, each with the index of its last message; all repeated ids are among them
    shared   the ids at or above the lowest id of another queue
    """

    count: int = 0
    lowest: int = NO_ID
    repeats: dict[int, int] = field(default_factory=dict)
    shared: set[int] = field(default_factory=set)


def scan(blocks: Blocks, shared_from: int = NO_ID) -> QueueScan:
    """Read all messages. Ids in rising order are remembered only from `shared_from` on."""
    found = QueueScan()
    highest = -1
    for messages in blocks:
        ids = list(map(_id_of, messages))
        if ids[0] <= highest or not all(map(lt, ids, ids[1:])):
            _note_repeats(found, ids, highest)
        found.lowest = min(found.lowest, *ids)
        highest = max(highest, *ids)
        if highest >= shared_from:
            found.shared.update(message_id for message_id in ids if message_id >= shared_from)
        found.count += len(ids)
    return found


def _note_repeats(found: QueueScan, ids: list[int], highest: int) -> None:
    for place, message_id in enumerate(ids, found.count):
        if message_id > highest:
            highest = message_id
        else:
            found.repeats[message_id] = place


def once(blocks: Blocks, scanned: QueueScan) -> Blocks:
    """Yield the messages without those that are repeated later in the queue."""
    repeats = scanned.repeats
    place = 0
    for messages in blocks:
        first = place
        place += len(messages)
        if repeats:
            last_place = repeats.get
            messages = [message for at, message in enumerate(messages, first) if last_place(message[2], at) <= at]
        yield messages


def only(blocks: Blocks, ids: Container[int]) -> Blocks:
    for messages in blocks:
        yield [message for message in messages if message[2] in ids]


def without(blocks: Blocks, ids: Container[int]) -> Blocks:
    for messages in blocks:
        yield [message for message in messages if message[2] not in ids] if ids else messages
