"""What an nsqlookupd is told: facts, not a history."""

from __future__ import annotations

import pytest

from nsqd_py.lookup.peer import Changes, Key, register_all

TOPIC: Key = ("orders", "")
CHANNEL: Key = ("orders", "ch")


class Told:
    """Changes, and what exists."""

    def __init__(self, *existing: Key) -> None:
        self.existing = set(existing)
        self.changes = Changes()
        self.changes.begin(existing)

    def make(self, *keys: Key) -> None:
        for key in keys:
            self.existing.add(key)
            self.changes.note(key, was_deleted=False)

    def delete(self, *keys: Key) -> None:
        for key in keys:
            self.existing.discard(key)
            self.changes.note(key, was_deleted=True)

    def take(self) -> list[bytes]:
        return self.changes.take(self.existing.__contains__)


def test_everything_at_first() -> None:
    """A channel says that there is its topic."""
    assert register_all([TOPIC, ("empty", ""), CHANNEL, ("orders", "b")]) == [
        b"REGISTER empty\n",
        b"REGISTER orders ch\n",
        b"REGISTER orders b\n",
    ]


def test_what_is_made_is_told_once() -> None:
    told = Told()
    told.make(TOPIC, CHANNEL)
    assert told.changes
    assert told.take() == [b"REGISTER orders\n", b"REGISTER orders ch\n"]
    assert not told.changes
    assert told.take() == []


def test_a_channel_is_taken_back_before_its_topic() -> None:
    told = Told(TOPIC, CHANNEL)
    told.delete(TOPIC, CHANNEL)
    assert told.take() == [b"UNREGISTER orders ch\n", b"UNREGISTER orders\n"]


def test_deleted_and_made_again() -> None:
    told = Told(TOPIC, CHANNEL)
    told.delete(CHANNEL, TOPIC)
    told.make(TOPIC)
    assert told.take() == [b"UNREGISTER orders ch\n", b"UNREGISTER orders\n", b"REGISTER orders\n"]
    told.delete(TOPIC)
    assert told.take() == [b"UNREGISTER orders\n"]


def test_made_and_deleted_unheard_is_nothing() -> None:
    """So a hanging nsqlookupd costs no memory for ephemeral channels that come and go."""
    told = Told(TOPIC)
    for number in range(1000):
        told.make(("orders", f"tail{number}#ephemeral"))
        told.delete(("orders", f"tail{number}#ephemeral"))
    assert len(told.changes) == 0
    assert told.take() == []


def test_deleted_made_and_deleted_again() -> None:
    told = Told(TOPIC, CHANNEL)
    told.delete(CHANNEL)
    told.make(CHANNEL)
    told.delete(CHANNEL)
    assert told.take() == [b"UNREGISTER orders ch\n"]


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_deletion_while_everything_is_being_told(is_made_again: bool) -> None:
    """What `begin` was given may be on its way already."""
    told = Told(TOPIC)
    told.delete(TOPIC)
    if is_made_again:
        told.make(TOPIC)
    assert told.take() == [b"UNREGISTER orders\n"] + [b"REGISTER orders\n"] * is_made_again


def test_a_new_connection_begins_anew() -> None:
    told = Told(TOPIC, CHANNEL)
    told.delete(CHANNEL)
    told.make(("new", ""))
    told.changes.begin([TOPIC, ("new", "")])
    assert not told.changes
    told.delete(CHANNEL, ("new", ""))
    assert told.take() == [b"UNREGISTER new\n"]
