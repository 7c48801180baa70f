"""What one nsqlookupd knows of this nsqd's topics and channels, and the changes that it has not been told yet.

A key is `(topic, channel)`; the channel of the topic itself is `""`. Changes are kept as a set of keys and not as a
queue of commands: while an nsqlookupd hangs, they take no more room than the topics and channels themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from nsqd_py.queue.topic import Topic

Key = tuple[str, str]


class Inventory:
    """A live view of the topics and channels of a broker."""

    def __init__(self, topics: Mapping[str, Topic]) -> None:
        self._topics = topics

    def keys(self) -> list[Key]:
        """Return the keys of all topics and channels."""
        topics = self._topics
        return [
            *((name, "") for name in topics),
            *((name, channel) for name, topic in topics.items() for channel in topic.channels),
        ]

    def has(self, key: Key) -> bool:
        topic_name, channel = key
        topic = self._topics.get(topic_name)
        return topic is not None and (not channel or channel in topic.channels)


class Changes:
    """The changes since `begin`, which each new connection calls first."""

    def __init__(self) -> None:
        self._told: set[Key] = set()
        self._pending: dict[Key, bool] = {}  # True if the key was deleted since the nsqlookupd was told of it

    def begin(self, existing: Iterable[Key]) -> None:
        """Start with an nsqlookupd that is about to be told all of `existing`."""
        self._told = set(existing)
        self._pending.clear()

    def note(self, key: Key, was_deleted: bool) -> None:
        if not was_deleted:
            self._pending.setdefault(key, False)
        elif key in self._told:
            self._pending[key] = True
        else:
            self._pending.pop(key, None)  # made and deleted before the nsqlookupd was told

    def __bool__(self) -> bool:
        return bool(self._pending)

    def __len__(self) -> int:
        return len(self._pending)

    def take(self, exists: Callable[[Key], bool]) -> list[bytes]:
        """Return the commands that report the changes. Deletions come first, so that a key made again counts as new."""
        pending, self._pending = self._pending, {}
        deleted = [key for key, was_deleted in pending.items() if was_deleted]
        made = [key for key in pending if exists(key)]
        self._told.difference_update(deleted)
        self._told.update(made)
        # A channel before its topic: nsqlookupd warns of topics that leave channels behind.
        deleted.sort(key=lambda key: not key[1])
        return [unregister(key) for key in deleted] + [register(key) for key in made]


def register_all(existing: Iterable[Key]) -> list[bytes]:
    """Return the commands that register everything. Registering a channel registers its topic too."""
    keys = list(existing)
    with_channels = {topic for topic, channel in keys if channel}
    return [register(key) for key in keys if key[1] or key[0] not in with_channels]


def register(key: Key) -> bytes:
    return b"REGISTER " + _words(key)


def unregister(key: Key) -> bytes:
    return b"UNREGISTER " + _words(key)


def _words(key: Key) -> bytes:
    return " ".join(filter(None, key)).encode() + b"\n"
