"""Operations that move a channel: emptying it, deleting and making it again, and seeking. Each is a *cut*.

All say "what was published before this is finished"; a seek says in addition "what was published from there on comes
again". A cut that was not answered, since nsqd was killed, may have happened or not; and a message that was published
while it was under way may be on either side of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from tests.support.ledger.history import FOREVER_NS


class Fate(Enum):
    """What has to become of a message in a channel, before what consumers did."""

    MUST_COME = "must come"
    MAY_COME = "may come"
    GONE = "gone"


class Sent(Protocol):
    """When a publish was sent, and when it was answered with OK: None while it was not.

    answered_number  of the operation that is this answer
    """

    sent_ns: int
    answered_ns: int | None
    answered_number: int | None


@dataclass(slots=True)
class Cut:
    """An operation that moves a channel: what was published before `before_ns` is finished by it.

    spares_until_ns  what was answered before that is not touched
    takes_from_ns    what was sent before that may be spared
    revives          what was published from `before_ns` on comes again
    life             the life of the nsqd that got it
    """

    number: int
    life: int
    start_ns: int
    before_ns: int = FOREVER_NS
    spares_until_ns: int = 0
    takes_from_ns: int = 0
    revives: bool = False
    end_ns: int = FOREVER_NS
    is_answered: bool = False

    def fate_after(self, message: Sent, fate: Fate) -> Fate:
        """Return the fate of a message that had `fate` before this cut."""
        answered_ns = message.answered_ns
        if message.sent_ns >= self.end_ns or (answered_ns is not None and answered_ns < self.spares_until_ns):
            return fate
        was_there = self._began_after(message) and self.is_answered
        if message.sent_ns >= self.before_ns:
            if not self.revives or fate is Fate.MUST_COME:
                return fate
            return Fate.MUST_COME if was_there else Fate.MAY_COME
        if was_there and answered_ns is not None and answered_ns < self.before_ns:
            # A seek keeps what was deferred, requeued or in flight.
            return Fate.GONE if message.sent_ns >= self.takes_from_ns and not self.revives else Fate.MAY_COME
        return fate if fate is Fate.GONE and not self.revives else Fate.MAY_COME

    def _began_after(self, message: Sent) -> bool:
        """True if the message was answered before this cut. Numbers count too: a wall clock may be set back."""
        if message.answered_ns is None or message.answered_number is None:
            return False
        return message.answered_ns < self.start_ns and message.answered_number < self.number


def first_fate(message: Sent) -> Fate:
    """Return the fate of a message without any cut."""
    return Fate.MAY_COME if message.answered_ns is None else Fate.MUST_COME
