"""One nsqlookupd of a consumer, asked for nsqds again and again."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

import gevent
from gevent.event import Event

from nsqd_py.client.consuming.log import ClientLog
from nsqd_py.client.discovery import Schedule
from nsqd_py.client.lookup import LookupFailed
from nsqd_py.client.lookup_client import LookupClient
from nsqd_py.client.options import ClientOptions
from nsqd_py.runtime.outages import OutageLog


class Finder:
    """A greenlet of its own for each nsqlookupd: one that hangs holds up no other."""

    def __init__(
        self,
        address: str,
        topic: str,
        client: LookupClient,
        options: ClientOptions,
        chance: Callable[[], float],
        log: ClientLog,
        on_answer: Callable[[str, tuple[str, ...]], None],
    ) -> None:
        """`on_answer(address, nsqds)` is called with each answer."""
        self.address = address
        self._topic = topic
        self._client = client
        self._schedule = Schedule(
            monotonic(), options.lookupd_poll_interval_s, options.lookupd_poll_jitter, chance
        )  # fmt: skip
        outage_log: Any = log
        self._outage = OutageLog(outage_log, monotonic)
        self._on_answer = on_answer
        self._hurried = Event()
        self.greenlet = gevent.spawn(self._run)

    def hurry(self) -> None:
        """Ask soon: an nsqd was lost."""
        self._schedule.hurry(monotonic())
        self._hurried.set()

    def stop(self) -> None:
        self.greenlet.kill(block=False)

    def _run(self) -> None:
        while True:
            while (wait_s := self._schedule.due_s - monotonic()) > 0:
                self._hurried.wait(wait_s)
                self._hurried.clear()
            self._ask()
            self._schedule.asked(monotonic())

    def _ask(self) -> None:
        try:
            nsqds = self._client.lookup(self.address, self._topic)
        except LookupFailed as error:
            self._outage.report("nsqlookupd %s", error)
            return
        self._outage.end("nsqlookupd %s: answers again", self.address)
        self._on_answer(self.address, nsqds)
