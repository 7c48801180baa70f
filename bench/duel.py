"""Runs of a scenario: the subject alone, or subject and peers in turn, and what comes of comparing them."""

import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench import certificate
from bench.generator import generate
from bench.loads.publish import Publishing
from bench.machine import cores
from bench.peers.setups import Setup
from bench.run import Amount, LoadError, Run
from bench.scenario import Scenario
from bench.server import Server

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


def compare(
    scenario: Scenario,
    contenders: Sequence[Contender],
    rounds: int,
    *,
    seconds: float | None = None,
    messages: int | None = None,
    scratch: Path | None = None,
    announce: Callable[[str], None] = lambda text: None,
    server_command: Sequence[str] = (),
    generator: Sequence[str] = (),
) -> Result:
    """Run every contender once a round, in an order that turns around each round.

    `generator` is the command of the neutral load generator.

    The contenders are servers; with `server_command` they are tools, and that is the server for all. A contender that
    fails runs no more, and its text stands in `failures`; the subject's failure ends the scenario.
    """
    result = Result(scenario)
    for number in range(rounds):
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            if contender.role in result.failures:
                continue
            announce(f"{scenario.section}, {scenario.label}: round {number + 1} of {rounds}, {contender.role}")
            side = scenario.subject if contender.role == SUBJECT else scenario.peer
            amount = Amount(seconds or side.amount.seconds, messages or side.amount.messages)
            if scenario.place is not None:  # The amount is the row's.
                amount = replace(amount, messages=side.amount.messages)
            setup = contender.setup
            flags = list(setup.flags) if setup else [] if contender.sets_queue_size else list(side.flags)
            if scenario.with_tls:
                flags += certificate.flags()
            daemon = setup.daemon if setup else scenario.daemon
            start = daemon.server or Server
            os.sync()  # Each run starts without the write-back of the one before.
            try:
                with (
                    cores(1 if scenario.one_core else None),
                    start(daemon, server_command or contender.command, flags, scratch) as server,
                ):
                    tool = contender.command if server_command else ()
                    if scenario.generator:
                        tool = (*generator, *scenario.generator)
                    publishing = Publishing(setup.name, scenario.workload) if setup and scenario.workload else None
                    run, version = generate(scenario.load, server.endpoint, amount, tool, publishing), server.version
            except LoadError as error:
                result.failures[contender.role] = str(error)
                if contender.role == SUBJECT:
                    return result
                continue
            result.runs.setdefault(contender.role, []).append(run)
            result.versions[contender.role] = version
            result.flags[contender.role] = flags
            result.commands[contender.role] = contender.command
    return result
