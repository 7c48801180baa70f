"""Tokens, which stand for the next occurrence of each schedule, and the decision which of them runs. No I/O, and no clock.

A token is a message of the topic `<app>.schedules`. It waits on nsqd until its occurrence is due, in the one channel that the
schedulers of all processes share. Who gets it then publishes the job, then the token of the next occurrence, and then
finishes it: a crash in between repeats an occurrence and loses none. Each scheduler also hears every token when it is
published, in an ephemeral channel of the topic. What it hears is its `TokenBook`.

There may be several tokens of one occurrence: each scheduler publishes its own when it starts, since it does not know
what waits on nsqd. The newest one runs, the others are dropped. This is why exactly one runs unless something fails:
- A scheduler runs only a token that it has heard, and that is the newest of its occurrence which it has heard. If two of them
  ran two tokens, the one with the older token would not have heard the newer one, although it was published later.
- A token that a scheduler has not heard is older than the scheduler, or than its connection. It is not run but *renewed*:
  published again, and run `SETTLE_S` later, when everybody has heard the new one. Who knows that the occurrence has run
  publishes a *notice* in this time.
- The token of the next occurrence says which one has run (`after_s`). If there is a token of the next occurrence
  already, a notice says it: a token without an occurrence.
- A scheduler decides nothing in its first `LISTEN_S`. It publishes its own tokens after that, for occurrences that are at least
  `SETTLE_S` away: they are newer than all that it has not heard, although the clocks of nsqds differ.

A token may be lost: its topic was deleted or emptied, its nsqd is away or gone. So every scheduler publishes a new one when
one that it has heard is overdue by `OVERDUE_S`, and when it knows none for the next occurrence.

Clocks of processes and of nsqds differ by a second at most; if they differ by more, an occurrence may run twice when a scheduler
starts. A crash, or a publish that takes longer than `SETTLE_S`, may repeat one too.

An occurrence that is late runs once. If others of its schedule are due by then, only the last of them runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple, TypeAlias

from nsqd_py.work.timed.occurrences import Occurrences

# Until everybody has heard a token: more than clocks differ (1 s) and than a published token is on its way.
SETTLE_S = 2.0
# A scheduler only listens for this long, and does not note what it hears in the first part of this time.
LISTEN_S = 3.0
_DEAF_S = 1.5
# An occurrence that is late by this much does not count as the next one: it may have no follower in time.
STALLED_S = 10.0
OVERDUE_S = 60.0
# A schedule of another version of the program: its token waits for a process that has it. Then it was removed.
FOREIGN_S = 3600.0
LONGEST_FOREIGN_WAIT_S = 60.0
SHORTEST_FOREIGN_WAIT_S = 1.0
# Tokens that come more often are published again: an nsqd with --max-attempts would take them for dead letters.
MOST_ATTEMPTS = 4
# A report of an occurrence that has run is not believed if it is further ahead: its clock was wrong.
MOST_AHEAD_S = 60.0
_LATEST_S = 2**36  # the year 4147

Rank: TypeAlias = tuple[int, str]  # the timestamp of a token, in ns, and its nonce: greater is newer


class BadToken(ValueError):
    """A message that is not a token."""


@dataclass(frozen=True, slots=True)
class Token:
    """The next occurrence of a schedule; or a notice, which has none.

    due_s         when the occurrence is due, in seconds since the epoch; None in a notice
    after_s       the occurrence of this schedule that has run; None if none is known
    not_before_s  the token is not run earlier, so that everybody has heard it
    nonce         makes the token different from all others
    """

    schedule: str
    due_s: int | None
    after_s: int | None
    nonce: str
    not_before_s: float = 0.0

    def to_body(self) -> bytes:
        fields = {
            "schedule": self.schedule,
            "due": self.due_s,
            "after": self.after_s,
            "nonce": self.nonce,
            "not_before": self.not_before_s,
        }
        return json.dumps(fields).encode()

    @classmethod
    def from_body(cls, body: bytes) -> Token:
        """Raises BadToken."""
        try:
            fields = json.loads(body)
            return cls(
                schedule=str(fields["schedule"]),
                due_s=_time(fields["due"]),
                after_s=_time(fields["after"]),
                nonce=str(fields["nonce"]),
                not_before_s=float(fields["not_before"]),
            )
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise BadToken(f"{body[:200]!r} is no token of a schedule: {error!r}") from error


def _time(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or not 0 <= value <= _LATEST_S:
        raise ValueError(f"{value!r} is no time")
    return value


# ---- what becomes of a token


class Wait(NamedTuple):
    """Requeue it."""

    delay_s: float


class Drop(NamedTuple):
    """Finish it. `warning` is empty where this is usual."""

    warning: str = ""


class Renew(NamedTuple):
    """Publish this token, then finish the one that came."""

    token: Token


class Run(NamedTuple):
    """Publish the job of the occurrence, then this token, then finish the one that came."""

    schedule: str
    due_s: int
    late_s: float
    follower: Token


Decision: TypeAlias = Wait | Drop | Renew | Run


# ---- what one scheduler knows


@dataclass(slots=True)
class _Known:
    """One schedule.

    after_s     the last occurrence that is known to have run
    newest      the newest token of each later occurrence
    upcoming_s  the next occurrence, of which there must be a token
    published   when the last token of each of these was published, by the clock of this scheduler
    """

    occurrences: Occurrences
    after_s: int = -1
    newest: dict[int, Rank] = field(default_factory=dict)
    upcoming_s: int = 0
    published: dict[int, float] = field(default_factory=dict)

    def ran(self, due_s: int) -> None:
        if due_s > self.after_s:
            self.after_s = due_s
            self.newest = {later_s: rank for later_s, rank in self.newest.items() if later_s > due_s}
            self.published = {
                later_s: when_s for later_s, when_s in self.published.items() if later_s > due_s
            }

    def missing(self, now_s: float) -> list[int]:
        """Return the occurrences of which a token must be published, and note that it is."""
        soon_s = now_s + SETTLE_S
        if self.upcoming_s <= soon_s:
            self.upcoming_s = self.occurrences.next_after(soon_s)
        dues = [due_s for due_s in self.newest if now_s - due_s > OVERDUE_S]
        has_next = any(now_s - STALLED_S <= due_s <= self.upcoming_s for due_s in self.newest)
        if not has_next and self.upcoming_s > self.after_s:
            dues.append(self.upcoming_s)
        dues = [due_s for due_s in dues if now_s - self.published.get(due_s, -inf) > OVERDUE_S]
        self.published.update(dict.fromkeys(dues, now_s))
        return dues


class TokenBook:
    """The tokens that one scheduler has heard, and what it does with those that it gets. One thread uses it."""

    def __init__(
        self, schedules: Mapping[str, Occurrences], longest_wait_s: float, make_nonce: Callable[[], str]
    ) -> None:
        self._known = {name: _Known(occurrences) for name, occurrences in schedules.items()}
        self._longest_wait_s = longest_wait_s
        self._make_nonce = make_nonce
        self._settled_s = inf
        self._hears_all_s = inf

    # ---- what it hears

    def begin(self, now_s: float, nsqd_count: int) -> None:
        """Forget which tokens there are: the scheduler has connected to one of its nsqds, and may have missed some.

        Of two tokens that are published on two nsqds at that moment, it may hear one only, which need not be the newer one by
        the clocks of the nsqds. So it does not note the first of them.
        """
        self._settled_s = now_s + LISTEN_S
        self._hears_all_s = now_s if nsqd_count == 1 else now_s + _DEAF_S
        for known in self._known.values():
            known.newest.clear()
            known.published.clear()

    def hear(self, token: Token, rank: Rank, now_s: float) -> Token | None:
        """Note a token that was just published. Return a notice to publish if its occurrence has run already."""
        known = self._known.get(token.schedule)
        if known is None:
            return None
        if token.after_s is not None and token.after_s <= now_s + MOST_AHEAD_S:
            known.ran(token.after_s)
        due_s = token.due_s
        if due_s is None:
            return None
        if due_s <= known.after_s:
            return Token(token.schedule, None, known.after_s, self._make_nonce())
        if now_s >= self._hears_all_s and known.occurrences.includes(due_s):
            known.newest[due_s] = max(rank, known.newest.get(due_s, rank))
            known.published[due_s] = now_s
        return None

    def ran(self, schedule: str, due_s: int) -> None:
        """Note that this scheduler has published the job of an occurrence, and its follower."""
        self._known[schedule].ran(due_s)

    # ---- what it gets

    def decide(self, token: Token, rank: Rank, attempts: int, now_s: float) -> Decision:
        """Return what to do with a token that came from the shared channel."""
        due_s = token.due_s
        if due_s is None:
            return Drop()
        known = self._known.get(token.schedule)
        wait_s = max(due_s, token.not_before_s) - now_s
        if known is not None and due_s <= known.after_s:
            return Drop()
        if known is None or not known.occurrences.includes(due_s):
            return self._decide_foreign(token, wait_s, attempts, now_s)
        newest = known.newest.get(due_s)
        if newest is not None and newest > rank:
            return Drop()
        if wait_s > 0:
            return self._wait(token, wait_s, attempts, now_s)
        if now_s < self._settled_s:
            return self._wait(token, min(SETTLE_S, self._settled_s - now_s), attempts, now_s)
        if newest != rank:
            return self._renew(token, now_s + SETTLE_S)
        if any(due_s < later_s <= now_s for later_s in known.newest):
            late_s = now_s - due_s
            return Drop(
                f"schedule {token.schedule}: late by {late_s:.0f} s, skipped since the next occurrence is due"
            )
        follower = self._follower(token.schedule, known, due_s, now_s)
        return Run(token.schedule, due_s, now_s - due_s, follower)

    def _decide_foreign(self, token: Token, wait_s: float, attempts: int, now_s: float) -> Decision:
        """Decide about an occurrence that this process does not have, but perhaps a newer or older one."""
        assert token.due_s is not None
        late_s = now_s - token.due_s
        if late_s > FOREIGN_S:
            return Drop(f"schedule {token.schedule}: no process has had its occurrence for {late_s:.0f} s")
        if attempts >= MOST_ATTEMPTS:
            return self._renew(token, token.not_before_s)
        if wait_s <= 0:
            wait_s = min(max(late_s / 8, SHORTEST_FOREIGN_WAIT_S), LONGEST_FOREIGN_WAIT_S)
        return Wait(min(wait_s, self._longest_wait_s))

    def _wait(self, token: Token, wait_s: float, attempts: int, now_s: float) -> Decision:
        delay_s = min(wait_s, self._longest_wait_s)
        if attempts >= MOST_ATTEMPTS and delay_s >= SETTLE_S:
            return self._renew(token, now_s + delay_s)
        return Wait(delay_s)

    def _renew(self, token: Token, not_before_s: float) -> Renew:
        return Renew(replace(token, nonce=self._make_nonce(), not_before_s=not_before_s))

    def _follower(self, schedule: str, known: _Known, due_s: int, now_s: float) -> Token:
        """Return the token of the next occurrence; a notice if there is one already. Missed occurrences are skipped."""
        next_s: int | None = known.occurrences.next_after(max(due_s, now_s))
        if next_s in known.newest:
            next_s = None
        return Token(schedule, next_s, due_s, self._make_nonce())

    # ---- what is missing

    def missing(self, now_s: float) -> Iterator[Token]:
        """Yield the tokens to publish: of schedules without one, and in the place of those that are overdue."""
        if now_s < self._settled_s:
            return
        for schedule, known in self._known.items():
            for due_s in known.missing(now_s):
                after_s = None if known.after_s < 0 else known.after_s
                yield Token(schedule, due_s, after_s, self._make_nonce(), now_s + SETTLE_S)
