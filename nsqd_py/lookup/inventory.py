"""What there is to tell an nsqlookupd: the broker's topics and channels, as keys."""

from __future__ import annotations

from collections.abc import Mapping

from nsqd_py.lookup.changes import Key
from nsqd_py.queue.topic import Topic


class Inventory:
    """A view of the topics, as they are at the time of asking."""

    def __init__(self, topics: Mapping[str, Topic]) -> None:
        self._topics = topics

    def keys(self) -> list[Key]:
        """Every topic and every channel."""
        topics = self._topics
        return [
            *((name, "") for name in topics),
            *((name, channel) for name, topic in topics.items() for channel in topic.channels),
        ]

    def has(self, key: Key) -> bool:
        topic_name, channel = key
        topic = self._topics.get(topic_name)
        return topic is not None and (not channel or channel in topic.channels)
