"""What one nsqlookupd was told of topics and channels, and what is new since.

A fact is a key `(topic, channel)`, with `""` for the topic itself. Changes are kept as facts and not as a queue
of commands: while an nsqlookupd hangs, they take no more room than what it knows and what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

Key = tuple[str, str]


class Changes:
    """What is new since `begin`. While there is no connection that is of no use: the next one begins again."""

    def __init__(self) -> None:
        self._told: set[Key] = set()
        self._pending: dict[Key, bool] = {}  # whether it was deleted since it was told

    def begin(self, existing: Iterable[Key]) -> None:
        """All of `existing` is about to be told; what changes from now on is new."""
        self._told = set(existing)
        self._pending.clear()

    def note(self, key: Key, was_deleted: bool) -> None:
        if not was_deleted:
            self._pending.setdefault(key, False)
        elif key in self._told:
            self._pending[key] = True
        else:
            self._pending.pop(key, None)  # it came and went unheard

    def __bool__(self) -> bool:
        return bool(self._pending)

    def __len__(self) -> int:
        return len(self._pending)

    def take(self, exists: Callable[[Key], bool]) -> list[bytes]:
        """The commands that tell what is new: deletions first, so what was made again counts as new."""
        pending, self._pending = self._pending, {}
        deleted = [key for key, was_deleted in pending.items() if was_deleted]
        made = [key for key in pending if exists(key)]
        self._told.difference_update(deleted)
        self._told.update(made)
        # A channel before its topic: nsqlookupd warns of topics that leave channels behind.
        deleted.sort(key=lambda key: not key[1])
        return [unregister(key) for key in deleted] + [register(key) for key in made]


def register_all(existing: Iterable[Key]) -> list[bytes]:
    """The commands that tell everything; a channel stands for its topic too."""
    keys = list(existing)
    with_channels = {topic for topic, channel in keys if channel}
    return [register(key) for key in keys if key[1] or key[0] not in with_channels]


def register(key: Key) -> bytes:
    return b"REGISTER " + _words(key)


def unregister(key: Key) -> bytes:
    return b"UNREGISTER " + _words(key)


def _words(key: Key) -> bytes:
    return " ".join(filter(None, key)).encode() + b"\n"
