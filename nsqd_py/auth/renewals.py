"""Asks the auth servers again about consumers whose authorization has expired."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import gevent

from nsqd_py.auth.permissions import Authorization
from nsqd_py.auth.servers import AuthServers, NoAuthorization, Question
from nsqd_py.runtime.logs import Log
from nsqd_py.runtime.pacing import Pace

if TYPE_CHECKING:
    from nsqd_py.auth.guard import Guard

MOST_AT_A_TIME = 8
PAUSE_AFTER_FAILURE_S = 1.0


class Renewals:
    """The guards that wait for a new authorization. Guards with the same question share one answer.

    At most MOST_AT_A_TIME questions are asked at once. While the auth servers do not answer, each of these greenlets
    asks once a second, however many consumers there are.
    """

    def __init__(self, servers: AuthServers, log: Log) -> None:
        self._servers = servers
        self._log = log
        self._waiting: OrderedDict[Question, list[Guard]] = OrderedDict()
        self._greenlets = 0

    def add(self, guard: Guard, question: Question) -> None:
        """Ask for the guard, then call its `renewed`."""
        self._waiting.setdefault(question, []).append(guard)
        if self._greenlets < MOST_AT_A_TIME:
            self._greenlets += 1
            gevent.spawn(self._run)

    def _run(self) -> None:
        try:
            while self._waiting:
                question, guards = self._waiting.popitem(last=False)
                answer = self._ask(question)
                pace = Pace()
                for guard in guards:
                    guard.renewed(answer)
                    pace.rest_if_due()
                if isinstance(answer, NoAuthorization) and not answer.is_refusal:
                    gevent.sleep(PAUSE_AFTER_FAILURE_S)
        finally:
            self._greenlets -= 1

    def _ask(self, question: Question) -> Authorization | NoAuthorization:
        try:
            return self._servers.ask(question)
        except NoAuthorization as error:
            return error
        except Exception as error:  # noqa: BLE001 - the guards end their subscriptions if the bug stays
            self._log.exception("AUTH error %r", error)
            return NoAuthorization("internal error")
