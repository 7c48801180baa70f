"""The nsqds that have every acknowledged message. With a lease, only they may take it when the primary is gone.

The note of the lease has this set. A publish is answered when every standby in the set has it, and the set has at least
`--standby-acks` standbys. So the set changes in the store before it changes here, where publishers are concerned:

    a standby joins     publishers wait for it first; once it has all that was answered, the store gets it
    a standby is late   the store gets the set without it; then publishers are answered

A request to the store without an answer may be carried out or not, so publishers wait for the members of each set that
the store may have.
"""

from __future__ import annotations

from collections.abc import Mapping

Members = frozenset[str]


class InSyncSet:
    """The set of one primary, whose own id is a member of it for good.

    is_alone  True while publishers are answered although the set has too few standbys
    """

    def __init__(self, own: str, acks: int, *, goes_on_alone: bool) -> None:
        self._own: Members = frozenset({own})
        self._acks = acks
        self._goes_on_alone = goes_on_alone
        # In the store for certain at the last write; in each set that the store may have by now; and in any of these.
        self._stored = self._certain = self._possible = self._own
        self._joining: Members = frozenset()
        self._answered = 0
        self._is_giving_up = False
        self.is_alone = False

    @property
    def stored(self) -> Members:
        """The standbys that may take the lease for certain."""
        return self._certain - self._own

    @property
    def required(self) -> Members:
        """The standbys that must have a publish before it is answered."""
        return (self._possible | self._joining) - self._own

    def answerable(self, acknowledged: Mapping[str, int], last_write: int) -> int:
        """Return the number of the last write whose publishers may be answered.

        acknowledged  the last write of each connected standby
        """
        if self._has_enough(self._certain) or self.is_alone:
            reached = min((acknowledged.get(member, 0) for member in self.required), default=last_write)
            self._answered = max(self._answered, reached)
        return self._answered

    def next_set(
        self, acknowledged: Mapping[str, int], *, is_waited: bool, late_write: int, recent_write: int
    ) -> Members | None:
        """Return the set that the store must get next; None if it has it.

        is_waited     True if publishers wait
        late_write    the last write whose publishers have waited too long; 0 if there are none
        recent_write  a standby that has this write is about to have all
        """
        punctual = frozenset(member for member, write in acknowledged.items() if write >= late_write)
        near = {member for member in punctual - self._possible if acknowledged[member] >= recent_write}
        self._joining = (self._joining | near) & punctual
        joined = {member for member in self._joining if acknowledged[member] >= self._answered}
        target = self._stored | joined
        staying = (target & punctual) | self._own
        self._is_giving_up = bool(self._goes_on_alone and late_write) and not self._has_enough(staying)
        if (is_waited and self._has_enough(staying)) or self._is_giving_up:
            target = staying
        if target == self._certain == self._possible:
            self.is_alone = self.is_alone or self._is_giving_up
            return None
        return target

    def begin(self, target: Members) -> None:
        """A request that the store may carry out is sent."""
        self._certain &= target
        self._possible |= target

    def end(self, target: Members) -> None:
        """The store has this set, and carries out no earlier request any more."""
        self._stored = target
        self._certain = target
        self._possible = target
        self._joining -= target
        self.is_alone = not self._has_enough(target) and (self.is_alone or self._is_giving_up)

    def _has_enough(self, members: Members) -> bool:
        return len(members - self._own) >= self._acks
