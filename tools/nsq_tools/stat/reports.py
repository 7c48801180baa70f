"""One report after the other on standard output."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import gevent

from nsq_tools.cli import DONE, FAILED, ToolError
from nsq_tools.stat.export import FORMS, GoLines, Report, named_report
from nsq_tools.stat.figures import Name
from nsq_tools.stat.model import Model, Row
from nsq_tools.stat.options import GO, StatOptions
from nsq_tools.stat.poller import Poller, Round
from nsq_tools.stat.selection import Filter, Order, select
from nsqd_py.runtime.logs import Log

_SECOND_NS = 1e9


@dataclass(frozen=True)
class Reports:
    """Writes the reports that the options select."""

    options: StatOptions
    poller: Poller
    log: Log
    wall_clock: Callable[[], float] = time.time

    def run(self, form: str) -> int:
        """Write reports until --count is reached. Return the exit status. Raises ToolError without an answer."""
        if self.options.once:
            return self._once(form)
        if form == GO and self._is_of_one_channel:
            self._go()
        else:
            self._stream(form)
        return DONE

    @property
    def _is_of_one_channel(self) -> bool:
        options = self.options
        return bool(options.topic and options.channel) and not (options.per_node or options.filter)

    # --- kinds of reports

    def _once(self, form: str) -> int:
        model = Model(per_node=self.options.per_node)
        found = self.poller.round(None)
        _require_answer(found)
        found.apply_to(model)
        rows = model.end_round()
        if not rows and not found.failures and (self.options.topic or self.options.channel):
            raise ToolError("no nsqd has that topic and channel")
        _write(self._text(form, found, self._selected(rows), is_first=True))
        for who, reason in found.failures:
            self.log.error("%s: %s", who, reason)
        return FAILED if found.failures else DONE

    def _go(self) -> None:
        """Write lines as Go's nsq_stat. Any failure ends it, because the sum would lack an nsqd."""
        name = Name(self.options.topic, self.options.channel)
        lines = GoLines(self.options.interval_ns / _SECOND_NS)
        for found in self._rounds():
            if found.failures:
                raise ToolError(_joined("failed to get stats", found.failures))
            model = Model()
            found.apply_to(model)
            counts = {row.name: row.counts for row in model.end_round()}
            if name not in counts:
                raise ToolError(f"failed to find channel({name.channel}) in stats for topic({name.topic})")
            _write(lines.next_report(counts[name]))

    def _stream(self, form: str) -> None:
        """Write reports with rates. They need two rounds, so the first round has no report."""
        model = Model(per_node=self.options.per_node)
        known_failures: dict[str, str] = {}
        for number, found in enumerate(self._rounds()):
            if number == 0:
                _require_answer(found)
            known_failures = self._tell_failures(known_failures, found)
            found.apply_to(model)
            rows = self._selected(model.end_round())
            if number > 0:
                _write(self._text(form, found, rows, is_first=number == 1))

    def _rounds(self) -> Iterator[Round]:
        """Yield a first round, then one for each report, at a constant interval."""
        interval_s = self.options.interval_ns / _SECOND_NS
        left = self.options.count
        due_s = time.monotonic()
        while True:
            yield self.poller.round(None)
            if left == 0:
                return
            left = None if left is None else left - 1
            due_s = max(due_s + interval_s, time.monotonic())
            gevent.sleep(due_s - time.monotonic())

    # --- parts of reports

    def _selected(self, rows: list[Row]) -> list[Row]:
        return select(rows, Filter(self.options.filter), Order.parse(self.options.sort))

    def _text(self, form: str, found: Round, rows: list[Row], *, is_first: bool) -> str:
        if form == GO:
            return named_report(rows)
        failed = [*found.failed_lookups.items(), *found.failed.items()]
        return FORMS[form](Report(self.wall_clock(), rows, found.nodes, failed), is_first=is_first)

    def _tell_failures(self, known: dict[str, str], found: Round) -> dict[str, str]:
        """Log each failure and each recovery once."""
        now = dict(found.failures)
        for who in now.keys() - known.keys():
            self.log.warning("%s: %s", who, now[who])
        for who in known.keys() - now.keys():
            self.log.info("%s: answers again", who)
        return now


def _require_answer(found: Round) -> None:
    """Raise ToolError if no server answered."""
    if not found.readings and found.failures:
        raise ToolError(_joined("no nsqd answered", found.failures))


def _joined(what: str, failures: list[tuple[str, str]]) -> str:
    return f"{what} - {'; '.join(f'{who}: {reason}' for who, reason in failures)}"


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
