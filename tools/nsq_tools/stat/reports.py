"""One report after the other on standard output."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import gevent

from nsq_tools.cli import DONE, FAILED, ToolError, wants_colour
from nsq_tools.stat.checks import problems_of
from nsq_tools.stat.export import FORMS, GoLines, Report, named_report
from nsq_tools.stat.model import Failure, Model, Name, Row, failures_of
from nsq_tools.stat.options import GO, StatOptions
from nsq_tools.stat.selection import Filter, Order, select
from nsq_tools.stat.standbys import Standbys, all_troubles, with_troubles
from nsqd_py.cluster.poller import Poller
from nsqd_py.runtime.logs import Log, one_line

_SECOND_NS = 1e9


@dataclass(frozen=True)
class Reports:
    """Writes the reports that the options select."""

    options: StatOptions
    poller: Poller
    model: Model
    log: Log
    wall_clock: Callable[[], float] = time.time

    def run(self, form: str) -> int:
        """Write reports until --count is reached. Return the exit status. Raises ToolError without an answer."""
        if self.options.once or self.options.check:
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
        failures = self._round()
        self._require_answer(failures)
        if self.poller.cluster.pairs():
            rows = self.model.rows  # those of the next round would have rates, over a few milliseconds
            failures = self._round()  # asks the standbys that the first one found
            self.model.rows = rows
        gone = self._gone() if self.options.check else []
        if not self.model.rows and not failures and not gone and (self.options.topic or self.options.channel):
            raise ToolError("no nsqd has that topic and channel")
        _write(self._text(form, failures, is_first=True))
        for failure in failures:
            self.log.error("%s", failure)
        troubles = all_troubles(self._standbys())
        for trouble in troubles:
            self.log.error("%s", trouble)
        checked = self.model.rows if self.options.check else []
        problems = list(problems_of(checked, gone, Filter(self.options.filter)))
        for problem in problems:
            self.log.error("%s", problem)
        return FAILED if failures or troubles or problems else DONE

    def _gone(self) -> list[Name]:
        """Return the topics that nsqlookupds list, and that no nsqd has."""
        listed = self.poller.listed_topics() - self.poller.cluster.topics.keys()
        return [Name(one_line(name)) for name in listed if self.options.topic in ("", name)]

    def _go(self) -> None:
        """Write lines as Go's nsq_stat. Any failure ends it, because the sum would lack an nsqd."""
        name = Name(self.options.topic, self.options.channel)
        lines = GoLines(self.options.interval_ns / _SECOND_NS)
        troubles: dict[tuple[str, str], str] = {}
        for failures in self._rounds():
            if failures:
                raise ToolError(_joined("failed to get stats", failures))
            counts = {row.name: row.counts for row in self.model.rows}
            if name not in counts:
                raise ToolError(f"failed to find channel({name.channel}) in stats for topic({name.topic})")
            troubles = self._tell_troubles(troubles)
            _write(lines.next_report(counts[name]))

    def _stream(self, form: str) -> None:
        """Write reports with rates. They need two rounds, so the first round has no report."""
        known_failures: dict[str, Failure] = {}
        known_troubles: dict[tuple[str, str], str] = {}
        for number, failures in enumerate(self._rounds()):
            if number == 0:
                self._require_answer(failures)
            known_failures = self._tell_failures(known_failures, failures)
            known_troubles = self._tell_troubles(known_troubles)
            if number > 0:
                _write(self._text(form, failures, is_first=number == 1))

    def _round(self) -> list[Failure]:
        """Update the model; return the failures."""
        self.poller.round(waits_for_all=True)
        return failures_of(self.poller.cluster, time.monotonic())

    def _rounds(self) -> Iterator[list[Failure]]:
        """Yield the failures of a first round, then of one for each report, at a constant interval."""
        interval_s = self.options.interval_ns / _SECOND_NS
        left = self.options.count
        due_s = time.monotonic()
        while True:
            yield self._round()
            if left == 0:
                return
            left = None if left is None else left - 1
            due_s = max(due_s + interval_s, time.monotonic())
            gevent.sleep(due_s - time.monotonic())

    # --- parts of reports

    def _selected(self) -> list[Row]:
        return select(self.model.rows, Filter(self.options.filter), Order.parse(self.options.sort))

    def _text(self, form: str, failures: Sequence[Failure], *, is_first: bool) -> str:
        if form == GO:
            return named_report(self._selected())
        failed = [(failure.address, failure.reason) for failure in failures]
        only_standbys = self.options.standbys
        nodes = list(map(one_line, self.poller.cluster.nodes))
        report = Report(
            self.wall_clock(),
            [] if only_standbys else self._selected(),
            nodes,
            failed,
            self._standbys(),
            only_standbys,
            wants_colour(),
        )
        return FORMS[form](report, is_first=is_first)

    def _tell_failures(self, known: dict[str, Failure], failures: Sequence[Failure]) -> dict[str, Failure]:
        """Log each failure and each recovery once."""
        now = {failure.who: failure for failure in failures}
        for who in now.keys() - known.keys():
            self.log.warning("%s", now[who])
        for who in known.keys() - now.keys():
            self.log.info("%s: answers again", who)
        return now

    def _standbys(self) -> Standbys:
        return with_troubles(self.poller.cluster.pairs(), self.options.max_standby_lag_ns / _SECOND_NS)

    def _tell_troubles(self, known: dict[tuple[str, str], str]) -> dict[tuple[str, str], str]:
        """Log each trouble of standbys, and its end, once."""
        found = [trouble for _, troubles in self._standbys() for trouble in troubles]
        now = {(trouble.node, trouble.kind): trouble.text for trouble in found}
        for node, kind in now.keys() - known.keys():
            self.log.warning("nsqd %s: %s", node, now[node, kind])
        for node, kind in known.keys() - now.keys():
            self.log.info("nsqd %s: over: %s", node, known[node, kind])
        return now

    def _require_answer(self, failures: Sequence[Failure]) -> None:
        """Raise ToolError if no nsqd answered."""
        if failures and all(node.failure for node in self.poller.cluster.nodes.values()):
            raise ToolError(_joined("no nsqd answered", failures))


def _joined(what: str, failures: Sequence[Failure]) -> str:
    return f"{what} - {'; '.join(map(str, failures))}"


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
