"""nsq-stat: one report after the other on standard output, or the live table, until it is done or a signal comes."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import gevent

from nsq_tools.stat import export
from nsq_tools.stat.checking import Checked
from nsq_tools.stat.model import Failure, Model, failures_of
from nsq_tools.stat.options import GO, LIVE, StatOptions, form_of
from nsq_tools.stat.rows import Filter, Name, Order, Row, select
from nsqd_py.cluster.model import Cluster
from nsqd_py.cluster.poller import ClusterPoller
from nsqd_py.cluster.problems.kinds import ERROR, WARNING
from nsqd_py.cluster.statistics import ChannelCounts
from nsqd_py.cluster.upstream import Upstream
from nsqd_py.net.http.client import MAX_STATS_BYTES, http_client, http_url
from nsqd_py.runtime.command import is_terminal
from nsqd_py.runtime.logs import Log, one_line
from nsqd_py.runtime.process import StopSignals
from nsqd_py.settings.declaration import BadOptions, check_one_of
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.settings.program import DONE, FAILED, ToolError


def one_round(poller: ClusterPoller, *, waits_for_all: bool = True) -> list[Failure]:
    """Update the model; return the failures."""
    poller.round(waits_for_all=waits_for_all)
    return failures_of(poller.cluster, time.monotonic())


def rounds(options: StatOptions, poller: ClusterPoller, *, waits_for_all: bool = True) -> Iterator[list[Failure]]:
    """Yield the failures of a first round, then of one for each report, at a constant interval."""
    left = options.count
    due_s = time.monotonic()
    while True:
        yield one_round(poller, waits_for_all=waits_for_all)
        if left == 0:
            return
        left = None if left is None else left - 1
        due_s = max(due_s + options.interval_ns / SECOND_NS, time.monotonic())
        gevent.sleep(due_s - time.monotonic())


@dataclass(frozen=True)
class Reports:
    """Writes the reports that the options select."""

    options: StatOptions
    poller: ClusterPoller
    model: Model
    log: Log

    def run(self, form: str) -> int:
        """Write reports until --count is reached. Return the exit status. Raises ToolError without an answer."""
        if self.options.check:
            return self._check(form)
        if self.options.once:
            return self._once(form)
        options = self.options
        if form == GO and options.topic and options.channel and not (options.per_node or options.filter):
            self._go()
        else:
            self._stream(form)
        return DONE

    # --- kinds of reports

    def _once(self, form: str) -> int:
        failures = one_round(self.poller)
        self._require_answer(failures)
        if self.poller.cluster.pairs():
            rows = self.model.rows  # those of the next round would have rates, over a few milliseconds
            failures = one_round(self.poller)  # asks the standbys that the first one found
            self.model.rows = rows
        self._require_rows(failures)
        _write(self._text(form, failures, is_first=True))
        problems = [*map(str, failures), *export.all_troubles(self._standbys())]
        for problem in problems:
            self.log.error("%s", problem)
        return FAILED if problems else DONE

    def _check(self, form: str) -> int:
        """Write a report and all problems. Return the exit status of a Nagios plugin."""
        failures = one_round(self.poller)
        rows = self.model.rows
        if self.poller.cluster.pairs():
            failures = one_round(self.poller)  # asks the standbys that the first one found
            self.model.rows = rows
        self.poller.check_tcp_ports()
        listed = self.poller.listed_topics() - self.poller.cluster.topics.keys()
        gone = [name for name in listed if self.options.topic in ("", name)]
        _write(self._text(form, failures, is_first=True))
        checked = Checked(self.options, self.poller.cluster, gone)
        for severity, text in checked.findings(time.monotonic(), time.time()):
            self._log_of(severity)("%s", text)
        return checked.status

    def _log_of(self, severity: str) -> Callable[..., None]:
        return {ERROR: self.log.error, WARNING: self.log.warning}.get(severity, self.log.info)

    def _require_rows(self, failures: Sequence[Failure]) -> None:
        if not self.model.rows and not failures and (self.options.topic or self.options.channel):
            raise ToolError("no nsqd has that topic and channel")

    def _go(self) -> None:
        """Write lines as Go's nsq_stat. Any failure ends it, because the sum would lack an nsqd."""
        name = Name(self.options.topic, self.options.channel)
        before: ChannelCounts | None = None
        for number, failures in enumerate(rounds(self.options, self.poller)):
            if failures:
                raise ToolError(_joined("failed to get stats", failures))
            counts = {row.name: row.counts for row in self.model.rows}.get(name)
            if counts is None:
                raise ToolError(f"failed to find channel({name.channel}) in stats for topic({name.topic})")
            line = "" if before is None else export.go_line(before, counts, self.options.interval_ns / SECOND_NS)
            _write((export.HEADER if number % export.REPORTS_PER_HEADER == 0 else "") + line)
            before = counts

    def _stream(self, form: str) -> None:
        """Write reports with rates. They need two rounds, so the first round has no report."""
        known: dict[str, str] = {}
        for number, failures in enumerate(rounds(self.options, self.poller)):
            if number == 0:
                self._require_answer(failures)
            known = self._report_changes(known, failures)
            if number > 0:
                _write(self._text(form, failures, is_first=number == 1))

    # --- parts of reports

    def _selected(self) -> list[Row]:
        return select(self.model.rows, Filter(self.options.filter), Order.parse(self.options.sort))

    def _text(self, form: str, failures: Sequence[Failure], *, is_first: bool) -> str:
        if form == GO:
            return export.named_report(self._selected())
        failed = [(failure.address, failure.reason) for failure in failures]
        only_standbys = self.options.standbys
        nodes = list(map(one_line, self.poller.cluster.nodes))
        report = export.Report(
            time.time(), [] if only_standbys else self._selected(), nodes, failed, self._standbys(), only_standbys
        )
        return export.FORMS[form](report, is_first=is_first)

    def _report_changes(self, known: Mapping[str, str], failures: Sequence[Failure]) -> dict[str, str]:
        """Log each failure of a server, each trouble of a standby, and their ends, once. Return the present ones."""
        now = {failure.who: str(failure) for failure in failures}
        for _, troubles in self._standbys():
            now |= {f"{trouble.node} {trouble.kind}": f"nsqd {trouble.node}: {trouble.text}" for trouble in troubles}
        for who in now.keys() - known.keys():
            self.log.warning("%s", now[who])
        for who in known.keys() - now.keys():
            self.log.info("resolved: %s", known[who])
        return now

    def _standbys(self) -> export.Standbys:
        return export.with_troubles(self.poller.cluster.pairs(), self.options.max_standby_lag_ns / SECOND_NS)

    def _require_answer(self, failures: Sequence[Failure]) -> None:
        """Raise ToolError if no nsqd answered."""
        if failures and all(node.failure for node in self.poller.cluster.nodes.values()):
            raise ToolError(_joined("no nsqd answered", failures))


def _joined(what: str, failures: Sequence[Failure]) -> str:
    return f"{what} - {'; '.join(map(str, failures))}"


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def check(options: StatOptions) -> None:
    """Raise BadOptions if the options contradict each other."""
    _check_addresses(options)
    if options.count is not None and (options.once or options.check):
        raise BadOptions(f"use --{'once' if options.once else 'check'} or --count not both")
    if options.standbys and options.format == GO:
        raise BadOptions("--standbys needs --format=table, csv or json")
    http_client(options)  # its files have to be there


def _check_addresses(options: StatOptions) -> None:
    nsqd, lookupd = options.nsqd_http_address, options.lookupd_http_address
    check_one_of(options, "nsqd_http_address", "lookupd_http_address")
    for flag, addresses in (("nsqd-http-address", nsqd), ("lookupd-http-address", lookupd)):
        if any(address.startswith("http://") for address in addresses):
            raise BadOptions(f"--{flag} error - address should not contain scheme")
        for address in addresses:
            http_url(address)


def run(options: StatOptions, log: Log) -> int:
    """Show the table or write the reports. Return the exit status. Raises ToolError if nothing can be shown."""
    form = form_of(options, on_terminal=is_terminal(sys.stdout) and os.environ.get("TERM") not in ("dumb", "unknown"))
    upstream = Upstream(replace(http_client(options), max_answer_bytes=MAX_STATS_BYTES))
    cluster = Cluster()
    model = Model(cluster, channel=options.channel, per_node=options.per_node)
    poller = ClusterPoller(
        cluster,
        upstream,
        options.lookupd_http_address,
        options.nsqd_http_address,
        options.interval_ns / SECOND_NS,
        model.end_round,
        lambda error: log.exception("%r", error),
        topic=options.topic,
        channel=options.channel,
        asks_info=options.check or form == LIVE,
        checks_tcp=form == LIVE,
    )

    def work() -> int:
        if form != LIVE:
            return Reports(options, poller, model, log).run(form)
        from nsq_tools.stat.live import LiveTable  # rich takes 70 ms to import

        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # an ellipsis on a terminal without Unicode
        LiveTable(options, cluster, model, rounds(options, poller, waits_for_all=False), signals.stop, upstream).run()
        return DONE

    status = DONE
    with StopSignals() as signals:
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # not under nohup
            gevent.signal_handler(signal.SIGHUP, signals.stop)
        with closing(poller), signals.cutting():
            status = work()
    return status
