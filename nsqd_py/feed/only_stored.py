"""Counts the unfinished messages of a topic that only its store has: no file on the disk has them.

A data path lacks such messages after a restoration, which leaves sealed files in the store, and after a channel was moved back
into the history. A copy of the data path is then not all that its channels need.
"""

from __future__ import annotations

from nsqd_py.broker.services import Topic
from nsqd_py.diskqueue.compaction import holes
from nsqd_py.diskqueue.journals.ranges import common, count_of, union


def count_only_stored(topic: Topic) -> int:
    """Return the number of messages that only the store has, and that some channel, or the topic, has not finished."""
    log = topic.log
    if log is None or log.history is None or not log.files:
        return 0
    # Most topics: all that was published is in one file.
    if len(log.files) == 1 and not log.files[0].first_seq:
        return 0
    positions = [channel.position for channel in topic.channels.values() if channel.journal is not None]
    floors = [topic.released, *(position.settled_floor for position in positions)]
    if min(floors) >= log.files[-1].first_seq:  # nearly always: only the last file has unfinished messages
        return 0
    absent = holes(log.files, min(floors), log.next_seq)
    stored = common(absent, log.history.ranges())
    needed = [(max(low, topic.released), high) for low, high in stored if high > topic.released]
    for position in positions:
        for low, high in stored:
            needed += position.unsettled(low, min(high, topic.released))
    return count_of(union(needed))
