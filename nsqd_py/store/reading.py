"""Reads the state of a store at one moment: from the base that the head names, or from the one before if that is damaged.

A claim reads it so, a restoration without a claim, and who must know whose messages a store has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from nsqd_py.errors import NsqdError
from nsqd_py.objects.calls import Missing, Objects, StoreError
from nsqd_py.store.image import FAR, OnDamage, StoreImage, head_of, read_rounds, round_sizes, take_round
from nsqd_py.store.layout import (
    HEAD_NAME,
    ROUNDS,
    BadObject,
    Head,
    missing_rounds_text,
    round_name,
    unreadable_round_text,
)
from nsqd_py.store.rounds import HEADER_BYTES, begins_base, decode
from nsqd_py.store.spill import Spill


@dataclass(eq=False, repr=False)
class StateReader:
    """Reads the state of a store that has this head. Blocks.

    _check_head  called where something was missing; it raises an error if the head was moved
    _on_damage   called with each damaged round, which is left out; None raises the error
    _directory   gets a file without a name with what is too much for the memory; None keeps all in memory
    image        the state, as far as it was read
    """

    _objects: Objects
    _head: Head
    _check_head: Callable[[], None]
    _on_damage: OnDamage | None
    _directory: Path | None
    image: StoreImage = field(default_factory=StoreImage)
    _reported: set[str] = field(default_factory=set)
    _foreign: set[int] = field(default_factory=set)

    def read(self) -> None:
        """Read the newest base that is complete, and the rounds after it. Raises BadObject and the errors of `Objects`."""
        self._read_from(max(1, self._head.base))
        if self._head.base and not self.image.base:
            self._fall_back()

    def read_on(self) -> None:
        """Read all rounds from here on, also those behind others that are missing."""
        while True:
            listed = self._listed()
            self._read_to_gap()
            number = self.image.next_number
            later = next((each for each in listed if each >= number), None)
            if later is None and number > self._head.base:
                return
            missing = self._head.base + 1
            if later is not None:
                missing = later
            self._miss(missing)

    def _read_from(self, number: int) -> None:
        spill = None
        if self._directory is not None:
            spill = Spill(self._directory)
        self.image = StoreImage(number, spill)
        self.read_on()

    def _fall_back(self) -> None:
        """Read from the last base that is complete, since the one of the head is damaged: its rounds stay for an hour."""
        latest = self.image
        for number in reversed([number for number in self._listed() if number < self._head.base]):
            if is_base(self._objects, number):
                self._read_from(number)
                if self.image.base:
                    return
        self.image = latest

    def _listed(self) -> list[int]:
        """Return the numbers in the list of rounds, which may lag, in order."""
        return sorted(round_sizes(self._objects).keys() - self._foreign)

    def _read_to_gap(self) -> None:
        """Read up to the first number that is free."""
        for number, data in read_rounds(self._objects, self.image.next_number):
            if self._on_damage is None:
                take_round(self.image, number, data, None)
            else:
                take_round(self.image, number, data, partial(self._note_damaged, number, data))

        if not self._is_known(self.image.epoch):
            self._check_head()
            self._note_unknown()

    def _is_known(self, epoch: int) -> bool:
        """True if the head knows this epoch of a round."""
        return epoch <= self._head.epoch

    def _note_unknown(self) -> None:
        """Report that the head was rolled back: the rounds count."""
        self.report(
            HEAD_NAME,
            f"{ROUNDS}/ has rounds of the epoch {self.image.epoch}, which {HEAD_NAME} does not know: an earlier version of it "
            "was put back",
        )

    def _note_damaged(self, number: int, data: bytes, error: BadObject) -> None:
        """Leave out a round that is damaged."""
        self.report(round_name(number), str(error))

    def report(self, name: str, text: str) -> None:
        """Report damage of an object once. Raises BadObject if the caller accepts none."""
        error = BadObject(text, name)
        if self._on_damage is None:
            raise error
        if text not in self._reported:
            self._reported.add(text)
            self._on_damage(error)

    def _miss(self, later: int) -> None:
        """Leave out the rounds before `later`, which were there. Raises BadObject if the caller accepts no damage."""
        self._check_head()  # else a later owner has deleted them
        number = self.image.next_number
        if later == number:
            raise StoreError(unreadable_round_text(number))
        if later - number > FAR and self._is_foreign(later):
            return
        self.report(round_name(number), missing_rounds_text(number, later))
        self.image.skip(later)

    def _is_foreign(self, number: int) -> bool:
        """True if an object far behind all rounds is none."""
        try:
            data, _ = self._objects.get(round_name(number))
        except Missing:
            return False
        try:
            decode(number, data)
        except BadObject as error:
            self._foreign.add(number)
            self._note_foreign(number, data, error)
            return True
        return False

    def _note_foreign(self, number: int, data: bytes, error: BadObject) -> None:
        """Handle an object that has the name of a round, and is none."""
        self._note_damaged(number, data, error)


def not_complete_text(head: Head) -> str:
    """Return what to say of a store in which no base was ever complete."""
    return f"has no complete state yet: its nsqd {head.node} was still copying"


def is_base(objects: Objects, number: int) -> bool:
    """True if this round is there, and begins a base. Raises StoreError and StoreRefused."""
    try:
        return begins_base(objects.get_range(round_name(number), 0, HEADER_BYTES))
    except Missing:
        return False


# ---- without a claim


class State(NamedTuple):
    """The state of a store, and the head that it has been read with."""

    head: Head
    image: StoreImage


class HeadMoved(NsqdError):
    """The owner of the store has begun a new base, or there is a new owner: what was read may be gone."""


def read_state(objects: Objects, on_damage: OnDamage | None, directory: Path | None = None) -> State:
    """Return the present state of a store, which may have an owner that writes it. Blocks.

    The arguments are those of `StateReader`. Raises Missing if there is no store, BadObject and the errors of `Objects`.
    """
    while True:
        head = head_of(objects)
        reader = StateReader(objects, head, partial(_check_same, objects, head), on_damage, directory)
        try:
            reader.read()
        except HeadMoved:
            continue
        return State(head, reader.image)


def _check_same(objects: Objects, head: Head) -> None:
    if head_of(objects) != head:
        raise HeadMoved(f"the head of {objects!r} was moved")
