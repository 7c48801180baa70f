"""nsq-stat: one report after the other on standard output, or the live table, until it is done or a signal comes."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count

import gevent

from nsq_tools.stat import export
from nsq_tools.stat.checking import Checked
from nsq_tools.stat.failures import Failures, failures_of
from nsq_tools.stat.model import Model
from nsq_tools.stat.options import GO, LIVE, StatOptions, form_of
from nsq_tools.stat.rows import Filter, Name, Order, Row, select
from nsqd_py.cluster.counts import ChannelCounts
from nsqd_py.cluster.model import Cluster
from nsqd_py.cluster.poller import ClusterPoller
from nsqd_py.cluster.problems.kinds import ERROR, WARNING
from nsqd_py.cluster.upstream import Upstream
from nsqd_py.net.http.client import MAX_STATS_BYTES, http_client, http_url
from nsqd_py.runtime.command import is_terminal
from nsqd_py.runtime.logs.daemon_log import Log, one_line
from nsqd_py.runtime.process import StopSignals
from nsqd_py.settings.declaration import BadOptions, check_one_of
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.settings.program import DONE, FAILED, ToolError


def one_round(poller: ClusterPoller, *, waits_for_all: bool = True) -> Failures:
    """Update the model; return the failures."""
    poller.round(waits_for_all=waits_for_all)
    return failures_of(poller.cluster, time.monotonic())


def rounds(options: StatOptions, poller: ClusterPoller, *, waits_for_all: bool = True) -> Iterator[Failures]:
    """Yield the failures of a first round, then of one for each report, at a constant interval."""
    due_s = time.monotonic()
    for number in count():
        yield one_round(poller, waits_for_all=waits_for_all)
        if number == options.count:
            return
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
        options = self.options
        if options.check:
            return self._check(form)
        if options.once:
            return self._once(form)
        if form == GO and options.topic and options.channel and not (options.per_node or options.filter):
            self._go()
        else:
            self._stream(form)
        return DONE

    # --- kinds of reports

    def _once(self, form: str) -> int:
        failures = one_round(self.poller)
        self._require_answer(failures)
        failures = self._with_standbys(failures)
        if not self.model.rows and not failures and (self.options.topic or self.options.channel):
            raise ToolError("no nsqd has that topic and channel")
        _write(self._text(form, failures, is_first=True))
        problems = dict.fromkeys(text for _, text in self._problems(failures))
        for text in problems:
            self.log.error("%s", text)
        return FAILED if problems else DONE

    def _check(self, form: str) -> int:
        """Write a report and all problems. Return the exit status of a Nagios plugin."""
        failures = self._with_standbys(one_round(self.poller))
        self.poller.check_tcp_ports()
        listed = self.poller.listed_topics() - self.poller.cluster.topics.keys()
        gone = [name for name in listed if self.options.topic in ("", name)]
        _write(self._text(form, failures, is_first=True))
        checked = Checked(self.options, self.poller.cluster, gone)
        log_of = {ERROR: self.log.error, WARNING: self.log.warning}
        for severity, text in checked.findings(time.monotonic(), time.time()):
            log_of.get(severity, self.log.info)("%s", text)
        return checked.status

    def _with_standbys(self, failures: Failures) -> Failures:
        """Ask the standbys that the first round found; return the failures. The rows stay those of the first round."""
        if not self.poller.cluster.pairs():
            return failures
        rows = self.model.rows  # those of the next round would have rates, over a few milliseconds
        failures = one_round(self.poller)
        self.model.rows = rows
        return failures

    def _go(self) -> None:
        """Write lines as Go's nsq_stat. Any failure ends it, because the sum would lack an nsqd."""
        name = Name(self.options.topic, self.options.channel)
        before: ChannelCounts | None = None
        for number, failures in enumerate(rounds(self.options, self.poller)):
            if failures:
                raise ToolError(_joined("failed to get stats", failures))
            counts = next((row.counts for row in self.model.rows if row.name == name), None)
            if counts is None:
                raise ToolError(f"failed to find channel({name.channel}) in stats for topic({name.topic})")
            if before is None:
                line = ""
            else:
                line = export.go_line(before, counts, self.options.interval_ns / SECOND_NS)
            if number % export.REPORTS_PER_HEADER == 0:
                line = export.HEADER + line
            _write(line)
            before = counts

    def _stream(self, form: str) -> None:
        """Write reports with rates. They need two rounds, so the first round has no report."""
        known: dict[str, str] = {}
        for number, failures in enumerate(rounds(self.options, self.poller)):
            if number == 0:
                self._require_answer(failures)
            now = dict(self._problems(failures))
            for who in now.keys() - known.keys():
                self.log.warning("%s", now[who])
            for who in known.keys() - now.keys():
                self.log.info("resolved: %s", known[who])
            known = now
            if number > 0:
                _write(self._text(form, failures, is_first=number == 1))

    # --- parts of reports

    def _selected(self) -> list[Row]:
        order = Order.parse(self.options.sort)
        return select(self.model.rows, Filter(self.options.filter), order)

    def _text(self, form: str, failures: Failures, *, is_first: bool) -> str:
        if form == GO:
            return export.named_report(self._selected())
        only_standbys = self.options.standbys
        report = export.Report(
            time.time(),
            [] if only_standbys else self._selected(),
            list(map(one_line, self.poller.cluster.nodes)),
            [(address, reason) for _, address, reason in failures],
            self._standbys(),
            only_standbys,
            [] if only_standbys else self._stores(),
        )
        return export.FORMS[form](report, is_first=is_first)

    def _problems(self, failures: Failures) -> Iterator[tuple[str, str]]:
        """Yield each failure of a server, and each problem of a standby or store, behind the server and the kind."""
        for failure in failures:
            yield failure.who, str(failure)
        troubled: list[export.Standby | export.Stored] = [*self._standbys(), *self._stores()]
        for found in troubled:
            for problem in found.problems:
                yield f"{problem.node} {problem.kind}", f"nsqd {problem.node}: {problem.text}"

    def _standbys(self) -> list[export.Standby]:
        most_lag_s = self.options.max_standby_lag_ns / SECOND_NS
        return export.standbys_of(self.poller.cluster.pairs(), most_lag_s)

    def _stores(self) -> list[export.Stored]:
        return export.stores_of(self.poller.cluster.nodes.values())

    def _require_answer(self, failures: Failures) -> None:
        """Raise ToolError if no nsqd answered."""
        if failures and all(node.failure for node in self.poller.cluster.nodes.values()):
            raise ToolError(_joined("no nsqd answered", failures))


def _joined(what: str, failures: Failures) -> str:
    return f"{what} - {'; '.join(map(str, failures))}"


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def check(options: StatOptions) -> None:
    """Raise BadOptions if the options contradict each other."""
    check_one_of(options, "nsqd_http_address", "lookupd_http_address")
    _check_addresses("nsqd-http-address", options.nsqd_http_address)
    _check_addresses("lookupd-http-address", options.lookupd_http_address)
    if options.count is not None and (options.once or options.check):
        raise BadOptions(f"use --{'once' if options.once else 'check'} or --count not both")
    if options.standbys and options.format == GO:
        raise BadOptions("--standbys needs --format=table, csv or json")
    http_client(options)  # its files have to be there


def _check_addresses(flag: str, addresses: Sequence[str]) -> None:
    if any(address.startswith("http://") for address in addresses):
        raise BadOptions(f"--{flag} error - address should not contain scheme")
    for address in addresses:
        http_url(address)


def run(options: StatOptions, log: Log) -> int:
    """Show the table or write the reports. Return the exit status. Raises ToolError if nothing can be shown."""
    form = form_of(
        options, on_terminal=is_terminal(sys.stdout) and os.environ.get("TERM") not in ("dumb", "unknown")
    )
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

    status = DONE
    with StopSignals() as signals:
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # not under nohup
            gevent.signal_handler(signal.SIGHUP, signals.stop)
        with closing(poller), signals.cutting():
            if form != LIVE:
                status = Reports(options, poller, model, log).run(form)
            else:
                from nsq_tools.stat.screen.live import LiveTable  # rich takes 70 ms to import

                if isinstance(sys.stdout, io.TextIOWrapper):
                    sys.stdout.reconfigure(errors="replace")  # an ellipsis on a terminal without Unicode
                polled = rounds(options, poller, waits_for_all=False)
                LiveTable(options, cluster, model, polled, signals.stop, upstream).run()
    return status
