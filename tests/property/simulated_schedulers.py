"""Schedulers, nsqds and their clocks, without sockets: each decision is `TokenBook`'s, and time is a number.

A turn of a scheduler is what the real one does: it hears what has arrived, takes tokens that are due, decides, publishes jobs and
then followers, and finishes. It may be killed between any two of these.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count

from nsqd_py.work.timed.occurrences import Occurrences
from nsqd_py.work.timed.tokens import LISTEN_S, Drop, Rank, Renew, Run, Token, TokenBook, Wait

TURN_S = 0.1
MISSING_S = 10.0
LONGEST_WAIT_S = 60.0
MOST_LATENCY_S = 0.4
MOST_SKEW_S = 0.5  # of one clock, so that two differ by a second at most


class Killed(IntEnum):
    """Where a scheduler is killed."""

    BEFORE_JOB = 1
    AFTER_JOB = 2
    AFTER_FOLLOWER = 3


@dataclass(eq=False)
class Stored:
    """A token on an nsqd, and when it is delivered next."""

    token: Token
    rank: Rank
    due_s: float
    attempts: int = 0


@dataclass(eq=False)
class SimulatedNsqd:
    skew_s: float
    is_up: bool = True
    channel: list[Stored] = field(default_factory=list)
    hearers: list[Scheduler] = field(default_factory=list)


@dataclass(eq=False)
class Scheduler:
    name: int
    skew_s: float
    book: TokenBook
    heard: list[tuple[float, Token, Rank]] = field(default_factory=list)
    next_missing_s: float = 0.0
    is_paused_until_s: float = 0.0
    dies_at: Killed | None = None


@dataclass
class Cluster:
    """All of it. `jobs` are the jobs that were published: schedule, due, and when."""

    seed: int
    nsqd_count: int = 1
    now_s: float = 1_000_000.0
    jobs: list[tuple[str, int, float]] = field(default_factory=list)
    schedulers: list[Scheduler] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.nsqds = [SimulatedNsqd(self._skew()) for _ in range(self.nsqd_count)]
        self._numbers = count()

    def _skew(self) -> float:
        return self.random.uniform(-MOST_SKEW_S, MOST_SKEW_S)

    # ---- what happens to it

    def start(self, schedules: Mapping[str, Occurrences]) -> Scheduler:
        book = TokenBook(schedules, LONGEST_WAIT_S, lambda: f"{self.random.getrandbits(64):016x}")
        scheduler = Scheduler(next(self._numbers), self._skew(), book)
        self.schedulers.append(scheduler)
        for nsqd in self.nsqds:
            if nsqd.is_up:
                self._connect(scheduler, nsqd)
        return scheduler

    def _connect(self, scheduler: Scheduler, nsqd: SimulatedNsqd) -> None:
        nsqd.hearers.append(scheduler)
        own_s = self.now_s + scheduler.skew_s
        scheduler.book.begin(own_s, sum(scheduler in each.hearers for each in self.nsqds))
        scheduler.next_missing_s = scheduler.is_paused_until_s = own_s + LISTEN_S

    def end(self, scheduler: Scheduler) -> None:
        """Stop it, or kill it: the difference is in the middle of a turn."""
        self.schedulers.remove(scheduler)
        for nsqd in self.nsqds:
            nsqd.hearers = [each for each in nsqd.hearers if each is not scheduler]

    def lose_tokens(self) -> None:
        for nsqd in self.nsqds:
            nsqd.channel.clear()

    def nsqd_down(self, nsqd: SimulatedNsqd) -> None:
        nsqd.is_up = False
        nsqd.hearers.clear()

    def nsqd_up(self, nsqd: SimulatedNsqd) -> None:
        nsqd.is_up = True
        for scheduler in self.schedulers:
            self._connect(scheduler, nsqd)

    def run(self, duration_s: float) -> None:
        until_s = self.now_s + duration_s
        while self.now_s < until_s:
            self.now_s += TURN_S
            for scheduler in self.random.sample(self.schedulers, len(self.schedulers)):
                self._turn(scheduler)

    # ---- a turn

    def publish(self, token: Token) -> None:
        up = [nsqd for nsqd in self.nsqds if nsqd.is_up]
        if not up:
            return
        nsqd = self.random.choice(up)
        rank = (int((self.now_s + nsqd.skew_s) * 1e9), token.nonce)
        nsqd.channel.append(Stored(token, rank, self.now_s + self.random.uniform(0, MOST_LATENCY_S)))
        for hearer in nsqd.hearers:
            # One connection delivers in order.
            arrives_s = self.now_s + self.random.uniform(0, MOST_LATENCY_S)
            if hearer.heard:
                arrives_s = max(arrives_s, hearer.heard[-1][0])
            hearer.heard.append((arrives_s, token, rank))

    def _turn(self, scheduler: Scheduler) -> None:
        own_s = self.now_s + scheduler.skew_s
        while scheduler.heard and scheduler.heard[0][0] <= self.now_s:
            _, token, rank = scheduler.heard.pop(0)
            notice = scheduler.book.hear(token, rank, own_s)
            if notice is not None:
                self.publish(notice)
        if own_s >= scheduler.next_missing_s:
            scheduler.next_missing_s = own_s + MISSING_S
            for token in list(scheduler.book.missing(own_s)):
                self.publish(token)
        if own_s < scheduler.is_paused_until_s:
            return
        for nsqd in self.nsqds:
            due = [stored for stored in nsqd.channel if nsqd.is_up and stored.due_s <= self.now_s]
            for stored in self.random.sample(due, self.random.randint(0, len(due))):
                if not self._take(scheduler, nsqd, stored, own_s):
                    self.end(scheduler)
                    return

    def _take(self, scheduler: Scheduler, nsqd: SimulatedNsqd, stored: Stored, own_s: float) -> bool:
        """Handle one token. Return False if the scheduler was killed: nsqd delivers the token again."""
        stored.attempts += 1
        decision = scheduler.book.decide(stored.token, stored.rank, stored.attempts, own_s)
        dies_at = scheduler.dies_at
        if isinstance(decision, Wait):
            stored.due_s = self.now_s + max(decision.delay_s, 0.001)
            return True
        if isinstance(decision, Run):
            if dies_at == Killed.BEFORE_JOB:
                return False
            self.jobs.append((decision.schedule, decision.due_s, self.now_s))
            if dies_at == Killed.AFTER_JOB:
                return False
            self.publish(decision.follower)
            if dies_at == Killed.AFTER_FOLLOWER:
                return False
            scheduler.book.ran(decision.schedule, decision.due_s)
        if isinstance(decision, Renew):
            self.publish(decision.token)
            if dies_at == Killed.AFTER_FOLLOWER:
                return False
        assert isinstance(decision, Run | Renew | Drop)
        nsqd.channel.remove(stored)
        return True
