"""The in-sync set of a primary: whoever may take its lease has all that was answered, however late the store is."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd_py.standby.acks import InSyncSet, Members
from tests.support.examples import examples

STANDBYS = ("x", "y", "z")
STEPS = 300


class Primary:
    """A primary with its writes, standbys with what they have, and a store with a revision.

    has        the last write of each standby, which stays when its connection ends
    connected  the last acknowledged write of each connection that follows
    sent       requests that the store has not carried out yet: the revision that they expect, and the set
    """

    def __init__(self, chance: random.Random, acks: int, *, goes_on_alone: bool) -> None:
        self.set = InSyncSet("p", acks, goes_on_alone=goes_on_alone)
        self.chance = chance
        self.writes = self.recent = self.answered = self.late = 0
        self.has = dict.fromkeys(STANDBYS, 0)
        self.connected: dict[str, int] = {}
        self.stored: Members = frozenset("p")
        self.revision = self.known_revision = 0
        self.sent: list[tuple[int, Members]] = []

    def answer(self) -> None:
        answered = self.set.answerable(self.connected, self.writes)
        assert self.answered <= answered <= self.writes
        self.answered = answered
        self.late = self.late if self.late > answered else 0

    def step(self) -> None:
        standby = self.chance.choice(STANDBYS)
        action = self.chance.choice(
            [
                self.write,
                self.write,
                lambda: self.get(standby),
                lambda: self.acknowledge(standby),
                lambda: self.acknowledge(standby),
                lambda: self.disconnect(standby),
                self.change_set,
                self.change_set,
                self.carry_out_late,
                self.pass_second,
                self.lose_patience,
            ]
        )
        action()
        self.answer()

    def write(self) -> None:
        self.writes += 1

    def get(self, standby: str) -> None:
        """The standby gets some writes; it may acknowledge them later, or its connection may end before."""
        if standby in self.connected:
            self.has[standby] = self.chance.randint(self.has[standby], self.writes)

    def acknowledge(self, standby: str) -> None:
        if standby not in self.connected or self.chance.random() < 0.5:
            self.has[standby] = self.writes
        self.connected[standby] = self.has[standby]

    def disconnect(self, standby: str) -> None:
        self.connected.pop(standby, None)

    def pass_second(self) -> None:
        self.recent = self.writes

    def lose_patience(self) -> None:
        self.late = self.writes if self.answered < self.writes else 0

    def change_set(self, outcome: str = "") -> None:
        """Send the set that the store must get: that is done, lost, done late, or done without an answer."""
        target = self.set.next_set(
            self.connected,
            is_waited=self.answered < self.writes,
            late_write=self.late,
            recent_write=self.recent,
        )
        if target is None:
            return
        assert "p" in target
        outcome = outcome or self.chance.choice(["done", "done", "lost", "late", "no answer"])
        self.set.begin(target)
        if outcome != "lost":
            self.sent.append((self.known_revision, target))
        if outcome in ("done", "no answer") and self.carry_out(len(self.sent) - 1) and outcome == "done":
            self.set.end(target)
        self.known_revision = self.revision  # after a failure it reads the note before the next attempt

    def carry_out_late(self) -> None:
        if self.sent:
            self.carry_out(self.chance.randrange(len(self.sent)))

    def carry_out(self, which: int) -> bool:
        revision, target = self.sent.pop(which)
        if revision != self.revision:
            return False
        self.stored, self.revision = target, revision + 1
        return True

    def check(self) -> None:
        for standby in self.stored - {"p"}:
            assert self.has[standby] >= self.answered, f"{standby} lacks writes that were answered"

    def heal(self) -> None:
        for _ in range(2):
            self.write()
            for standby in STANDBYS:
                self.has[standby] = self.connected[standby] = self.writes
            self.recent, self.late = self.writes, 0
            for _ in range(3):
                self.change_set("done")
                self.answer()


@pytest.mark.parametrize(
    ("acks", "goes_on_alone"), [(1, False), (2, False), (3, False), (1, True), (2, True)]
)
@settings(max_examples=examples(100))
@given(seed=st.integers(0, 1 << 32))
def test_no_member_lacks_what_was_answered(acks: int, goes_on_alone: bool, seed: int) -> None:
    primary = Primary(random.Random(seed), acks, goes_on_alone=goes_on_alone)
    for _ in range(STEPS):
        before = primary.answered
        primary.step()
        primary.check()
        if primary.answered > before and not goes_on_alone:
            assert len(primary.stored - {"p"}) >= acks
    primary.heal()
    assert primary.answered == primary.writes
    assert primary.stored == {"p", *STANDBYS}
    assert not primary.set.is_alone
