"""nsq-stat, from its options until it is done or a signal comes."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace

import gevent

from nsq_tools.cli import DONE, is_terminal
from nsq_tools.options import http_client
from nsq_tools.stat.model import Model
from nsq_tools.stat.options import LIVE, StatOptions, form_of
from nsq_tools.stat.reports import Reports
from nsqd_py.cluster.model import Cluster
from nsqd_py.cluster.poller import Poller
from nsqd_py.cluster.upstream import Upstream
from nsqd_py.net.http.client import MAX_STATS_BYTES
from nsqd_py.runtime.logs import Log
from nsqd_py.runtime.process import StopSignals
from nsqd_py.settings.durations import SECOND_NS


def run(options: StatOptions, log: Log) -> int:
    """Show the table or write the reports. Return the exit status. Raises ToolError if nothing can be shown."""
    client = replace(http_client(options), max_answer_bytes=MAX_STATS_BYTES)
    cluster = Cluster()
    model = Model(cluster, channel=options.channel, per_node=options.per_node)
    poller = Poller(
        cluster,
        Upstream(client),
        options.lookupd_http_address,
        options.nsqd_http_address,
        options.interval_ns / SECOND_NS,
        model.end_round,
        lambda error: log.exception("%r", error),
        topic=options.topic,
        channel=options.channel,
    )
    form = form_of(options, on_terminal=_can_show_tables())
    with StopSignals() as signals:
        _stop_on_hangup(signals)
        try:
            return _until_stopped(signals, _work(options, poller, model, log, form, signals.stop))
        finally:
            poller.close()


def _can_show_tables() -> bool:
    return is_terminal(sys.stdout) and os.environ.get("TERM") not in ("dumb", "unknown")


def _stop_on_hangup(signals: StopSignals) -> None:
    """Stop on SIGHUP, as Go's nsq_stat, but not under nohup."""
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        gevent.signal_handler(signal.SIGHUP, signals.stop)


def _work(options: StatOptions, poller: Poller, model: Model, log: Log, form: str, stop: Callable[[], None]) -> Callable[[], int]:
    if form != LIVE:
        return lambda: Reports(options, poller, model, log).run(form)

    def show() -> int:
        from nsq_tools.stat.live import LiveTable  # only for the live table, because rich is slow to import

        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # an ellipsis on a terminal without Unicode
        LiveTable(options, poller, model, stop).run()
        return DONE

    return show


def _until_stopped(signals: StopSignals, work: Callable[[], int]) -> int:
    """Return or raise the result of `work`, or return DONE if a signal ends it before."""
    greenlet = gevent.spawn(_caught, work)
    greenlet.link(lambda done: signals.stop())
    signals.wait()
    greenlet.kill()  # waits until it has restored the terminal
    outcome = greenlet.value
    if isinstance(outcome, Exception):
        raise outcome
    return outcome if isinstance(outcome, int) else DONE


def _caught(work: Callable[[], int]) -> int | Exception:
    """Return an exception as a value, because gevent prints exceptions of greenlets."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - raised again by `_until_stopped`
        return error
