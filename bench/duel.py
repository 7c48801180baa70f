"""Runs of a scenario: the subject alone, or subject and peers in turn, and what comes of comparing them."""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import certificate
from bench.generator import generate
from bench.machine import cores, program_version
from bench.peers.setups import OURS, Setup
from bench.run import Amount, LoadError, Run
from bench.scenario import Scenario
from bench.server import Server
from bench.workload import Publishing

SUBJECT, PEER = "subject", "peer"


@dataclass(frozen=True, slots=True)
class Contender:
    """A server to be measured. `setup`: it is this one, in place of the scenario's daemon and flags."""

    role: str
    command: tuple[str, ...]
    setup: Setup | None = None

    @property
    def sets_queue_size(self) -> bool:
        """Whether the command itself says --mem-queue-size, which then holds for all scenarios."""
        return any(word.lstrip("-").startswith("mem-queue-size") for word in self.command)


@dataclass(slots=True)
class Result:
    """All runs of one scenario, by role. The n-th runs of all were neighbours in time."""

    scenario: Scenario
    runs: dict[str, list[Run]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    flags: dict[str, list[str]] = field(default_factory=dict)
    commands: dict[str, tuple[str, ...]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def peers(self) -> list[str]:
        return [role for role in self.runs if role != SUBJECT]

    def median(self, role: str) -> float | None:
        values = [run.value for run in self.runs.get(role, ())]
        return statistics.median(values) if values else None

    def ratios(self, peer: str = PEER) -> list[float]:
        """Of each pair, how many times better the subject was."""
        pairs = zip(self.runs.get(SUBJECT, ()), self.runs.get(peer, ()), strict=False)
        return [self.scenario.ratio(subject, other) for subject, other in pairs]

    def median_ratio(self, peer: str = PEER) -> float | None:
        ratios = self.ratios(peer)
        return statistics.median(ratios) if ratios else None

    @property
    def verdict(self) -> str:
        """met, missed, failed; or nothing, when there is no target or no peer to hold it against."""
        if SUBJECT in self.failures or PEER in self.failures:
            return "failed"
        verdicts = [met for met in (self._beats_the_peer(), self._is_within_limits()) if met is not None]
        return "" if not verdicts else "met" if all(verdicts) else "missed"

    def _beats_the_peer(self) -> bool | None:
        least, ratio = self.scenario.at_least, self.median_ratio()
        return None if least is None or ratio is None else ratio >= least

    def _is_within_limits(self) -> bool | None:
        below, above, value = self.scenario.below, self.scenario.above, self.median(SUBJECT)
        if value is None or (below is None and above is None):
            return None
        return (below is None or value < below) and (above is None or value >= above)


@dataclass(frozen=True, slots=True)
class Conditions:
    """What is the same for all runs.

    seconds, messages  the amount, in place of the row's
    generator          the command of the neutral load generator
    server             the command of the server on which tools and client libraries work
    """

    seconds: float | None = None
    messages: int | None = None
    scratch: Path | None = None
    generator: tuple[str, ...] = ()
    server: tuple[str, ...] = ()
    announce: Callable[[str], None] = lambda text: None


class Duel:
    """A scenario and its contenders, which run once each round, in an order that turns around each round.

    The contenders are servers; in a scenario with `work` they are tools. A contender that fails runs no more, and its
    text stands in `failures`; the subject's failure ends the scenario.
    """

    def __init__(
        self, scenario: Scenario, contenders: Sequence[Contender], rounds: int, conditions: Conditions | None = None
    ) -> None:
        self.result = Result(scenario)
        self.last_round_s = 0.0
        self._contenders = contenders
        self._rounds = rounds
        self._conditions = conditions or Conditions()
        self._done = 0

    @property
    def is_over(self) -> bool:
        return self._done >= self._rounds or SUBJECT in self.result.failures

    @property
    def progress(self) -> str:
        return f"round {self._done} of {self._rounds}, {self.last_round_s:.0f} s"

    def run_round(self) -> None:
        started_s = time.monotonic()
        result, scenario = self.result, self.result.scenario
        for contender in self._contenders if self._done % 2 == 0 else reversed(self._contenders):
            if contender.role in result.failures or SUBJECT in result.failures:
                continue
            self._conditions.announce(f"{scenario.section}, {scenario.label}: {contender.role}")
            try:
                self._run(contender)
            except LoadError as error:
                result.failures[contender.role] = " ".join(str(error).split())  # a line of the page
        self._done += 1
        self.last_round_s = time.monotonic() - started_s

    def _run(self, contender: Contender) -> None:
        scenario, setup, given = self.result.scenario, contender.setup, self._conditions
        side = scenario.subject if contender.role == SUBJECT else scenario.peer
        flags = list(setup.flags) if setup else [] if contender.sets_queue_size else list(side.flags)
        if scenario.with_tls:
            flags += certificate.flags()
        daemon = setup.daemon if setup else scenario.daemon
        command = given.server if scenario.work else contender.command
        tool = contender.command if scenario.work else ()
        if scenario.generator:
            tool = (*given.generator, *scenario.generator)
        publishing = Publishing((setup or OURS).name, scenario.workload) if scenario.workload else None
        os.sync()  # Each run starts without the write-back of the one before.
        with (
            cores(1 if scenario.one_core else None),
            (daemon.server or Server)(daemon, command, flags, given.scratch) as server,
        ):
            run = generate(scenario.load, server.endpoint, self._amount(side.amount), tool, publishing)
            version = program_version(contender.command) if scenario.work else server.version
        self.result.runs.setdefault(contender.role, []).append(run)
        self.result.versions[contender.role] = version
        self.result.flags[contender.role] = flags
        self.result.commands[contender.role] = contender.command

    def _amount(self, amount: Amount) -> Amount:
        scenario, given = self.result.scenario, self._conditions
        seconds = max(given.seconds or amount.seconds, scenario.least_s)
        # On an axis, the amount is the row's.
        most = None if scenario.place is not None else given.messages
        messages = min(most or amount.messages, amount.messages)
        return Amount(seconds, messages)
