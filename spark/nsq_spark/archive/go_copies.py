"""Which queues of a Go data directory are read, so that each message comes once. Pure.

Go's nsqd keeps a queue for the topic, whose messages it copies to the queues of all channels. Of each topic one channel
is read, the one that keeps most, and what the topic's queue has not handed out yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from nsq_spark.archive.formats import name_without_compression, parse_go_queue_name
from nsq_spark.archive.storage import Entry, directory_of, name_of

ALL_QUEUES = "all"

Topic = tuple[str, str]  # a directory, and a topic in it


def queue_of(path: str) -> tuple[Topic, str | None] | None:
    """The topic and the channel of a file of a disk queue; None for another file."""
    parsed = parse_go_queue_name(name_without_compression(name_of(path)))
    return None if parsed is None else ((directory_of(path), parsed[0]), parsed[1])


def channels_in(entries: Iterable[Entry]) -> dict[Topic, Counter[str]]:
    """By topic, how many bytes the files of each channel have."""
    found: dict[Topic, Counter[str]] = {}
    for entry in entries:
        queue = queue_of(entry.path)
        if queue is not None and queue[1] is not None:
            found.setdefault(queue[0], Counter())[queue[1]] += entry.size_bytes
    return found


def chosen_channels(entries: Iterable[Entry], wanted: str | None) -> dict[Topic, str]:
    """The channel of each topic that is read: the one that is wanted, or the largest; empty where all are."""
    if wanted == ALL_QUEUES:
        return {}
    channels = channels_in(entries)
    if wanted:
        return dict.fromkeys(channels, wanted)
    return {topic: min(sizes, key=lambda name: (-sizes[name], name)) for topic, sizes in channels.items()}


def copies_text(entries: Iterable[Entry], chosen: Mapping[Topic, str]) -> list[str]:
    """For people, of each topic with several channels: which one is read."""
    lines = []
    for topic, sizes in channels_in(entries).items():
        others = sorted(name for name in sizes if name != chosen.get(topic, name))
        if others:
            lines.append(
                f"topic {topic[1]}: read from the queue of channel {chosen[topic]} and from the topic's own; "
                f"left out, as copies: {', '.join(others)}"
            )
    return lines
