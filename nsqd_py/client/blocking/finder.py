"""One nsqlookupd of a blocking consumer: when it is asked, and the question that is open."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from nsqd_py.client.blocking.lookup import Question
from nsqd_py.client.consuming.log import ClientLog
from nsqd_py.client.discovery import Schedule
from nsqd_py.client.lookup import LookupFailed, lookup_url
from nsqd_py.client.options import ClientOptions
from nsqd_py.runtime.outages import OutageLog


class Finder:
    """Never waits; `question` is to be polled while there is one."""

    def __init__(
        self,
        address: str,
        topic: str,
        options: ClientOptions,
        chance: Callable[[], float],
        log: ClientLog,
        on_answer: Callable[[str, tuple[str, ...]], None],
    ) -> None:
        """`on_answer(address, nsqds)` is called with each answer. Raises BadClientOption."""
        self.address = address
        self.question: Question | None = None
        self._url = lookup_url(address, topic)
        self._options = options
        self._schedule = Schedule(monotonic(), options.lookupd_poll_interval_s, options.lookupd_poll_jitter, chance)
        outage_log: Any = log
        self._outage = OutageLog(outage_log, monotonic)
        self._on_answer = on_answer

    def hurry(self) -> None:
        """Ask soon: an nsqd was lost."""
        self._schedule.hurry(monotonic())

    def stop(self) -> None:
        if self.question is not None:
            self.question.close()
            self.question = None

    def step(self, *, is_ready: bool) -> None:
        """Ask when it is time, and go on with the question when its socket is ready."""
        now_s = monotonic()
        try:
            if self.question is None and now_s >= self._schedule.due_s:
                self._schedule.asked(now_s)
                self.question = Question(self.address, self._url, self._options, now_s)
            elif self.question is not None and (is_ready or now_s >= self.question.deadline_s):
                self.question.step(now_s)
                self._take_answer(self.question)
        except LookupFailed as error:
            self._outage.report("nsqlookupd %s", error)
            self.stop()

    def _take_answer(self, question: Question) -> None:
        if question.answer is not None:
            self.stop()
            self._outage.end("nsqlookupd %s: answers again", self.address)
            self._on_answer(self.address, question.answer)
