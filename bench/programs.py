"""The programs that take part: ours, and the peers that are installed."""

import sys
from collections.abc import Sequence
from pathlib import Path

from bench.duel import PEER, SUBJECT, Contender
from bench.peers.setups import OURS, find_command, find_program
from bench.scenario import Scenario, Work
from bench.server import NSQD, NSQLOOKUPD, Daemon

_PYTHON = (sys.executable, "-m")


class Programs:
    """Finds the contenders of a row.

    nsqd, nsqlookupd  commands in place of ours
    folders           where peers are, before PATH; None: no peers
    """

    def __init__(
        self, nsqd: tuple[str, ...] | None, nsqlookupd: tuple[str, ...] | None, folders: Sequence[Path] | None
    ) -> None:
        self._given = {NSQD.name: nsqd, NSQLOOKUPD.name: nsqlookupd}
        self._folders = folders

    def find(self, name: str) -> tuple[str, ...] | None:
        """Return the command of a peer's program; None if it is not there, or if there shall be no peers."""
        path = None if self._folders is None else find_program(name, self._folders)
        return (path,) if path else None

    def command(self, daemon: Daemon) -> tuple[str, ...]:
        return self._given.get(daemon.name) or (*_PYTHON, daemon.module)

    def can_run(self, scenario: Scenario) -> bool:
        """False for the second row of a load whose only difference is a peer that is not there."""
        has_subject = scenario.work or scenario.setups or scenario.generator or scenario.beside_itself
        return bool(has_subject) or scenario.label == scenario.load or self.find(scenario.daemon.name) is not None

    def contenders(self, scenario: Scenario) -> list[Contender]:
        """Return the subject, then its peers."""
        if scenario.setups:
            return self._setups(scenario)
        if scenario.work is not None:
            work = scenario.work
            subject: tuple[str, ...] = (*_PYTHON, *work.subject)
            peer = self._peer_of(work)
        else:
            subject = self.command(scenario.daemon)
            peer = subject if scenario.beside_itself else self.find(scenario.daemon.name)
        return [Contender(SUBJECT, subject), *([Contender(PEER, peer)] if peer else [])]

    def _peer_of(self, work: Work) -> tuple[str, ...] | None:
        if work.peer is None:
            return None
        return self.find(work.peer) if isinstance(work.peer, str) else (*_PYTHON, *work.peer)

    def _setups(self, scenario: Scenario) -> list[Contender]:
        found: list[Contender] = []
        for setup in scenario.setups:
            command = self._given[NSQD.name] if setup.program == OURS.program else None
            if command is None and setup.is_ours:
                command = find_command(setup)
            command = command or self.find(setup.program)
            if command is not None:
                found.append(Contender(setup.name if found else SUBJECT, command, setup))
        return found
