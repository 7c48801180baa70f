"""POSTs problems to --attention-http-endpoint: when they begin, and when they end."""

from __future__ import annotations

import socket
from time import time
from typing import Any
from urllib.parse import quote

import gevent
from gevent.event import Event

from nsqadmin_py.cluster.findings import Findings
from nsqadmin_py.cluster.reports import ENDED, THE_OTHERS, ProblemReports, Report
from nsqadmin_py.history.file import HistoryFile
from nsqadmin_py.history.saved import SavedDocument
from nsqadmin_py.options import NsqadminOptions
from nsqadmin_py.webhook import Webhook, WebhookError
from nsqd_py.cluster.model import Cluster
from nsqd_py.cluster.problems.kinds import LOOKUP_KINDS, Problem
from nsqd_py.cluster.values import fields_of
from nsqd_py.net.addresses import split_address
from nsqd_py.runtime.logs.daemon_log import Log

# After a failure, the next attempt waits for this long, and for twice as long after each further one.
_FIRST_PAUSE_S = 5.0
_LONGEST_PAUSE_S = 60.0


class ProblemWebhook:
    """Sends reports one after the other, and again until the receiver takes them, from `open` to `close`.

    What the receiver knows is saved next to the history, so that a restart repeats nothing and forgets no end.
    """

    def __init__(self, options: NsqadminOptions, log: Log, file: HistoryFile) -> None:
        self._options = options
        self._log = log
        self._webhook = Webhook(options.attention_http_endpoint, options)
        self._reports = ProblemReports(options.attention_quiet_time_ns / 1e9)
        self._saved = SavedDocument(file, ".problems", self._reports.dump)
        self._has_news = Event()
        self._is_failing = False
        self._greenlet: gevent.Greenlet[[], None] | None = None

    def open(self) -> None:
        if self._webhook:
            self._reports.load(self._saved.open(), time())
            self._greenlet = gevent.spawn(self._send_again_and_again)

    def note_round(self, cluster: Cluster, findings: Findings) -> None:
        """Take the problems of a round."""
        if self._greenlet is None:
            return
        self._reports.note_round(findings.attention, cluster, findings.memory, findings.time_s)
        if self._reports.due():
            self._has_news.set()

    def close(self) -> None:
        """Reports that the receiver has not got are sent after the next start."""
        if self._greenlet is not None:
            self._greenlet.kill()
            self._saved.close()

    # ---- sending

    def _send_again_and_again(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            self._has_news.wait()
            self._has_news.clear()
            try:
                has_failed = self._send_due()
            except Exception as error:  # noqa: BLE001 - also after a bug, the next reports must follow
                self._log.of_clients.exception("PROBLEMS: a report was not sent: %r", error)
                has_failed = True
            if has_failed:
                gevent.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            else:
                pause_s = _FIRST_PAUSE_S

    def _send_due(self) -> bool:
        """Send what the receiver has not got. True if it did not take all of it."""
        failure: WebhookError | None = None
        for report in self._reports.due():
            if not self._reports.is_due(report):  # it took a while to send those before it
                continue
            try:
                self._webhook.post(self._document(report))
            except WebhookError as error:
                failure = error
                if error.is_unclear:
                    self._reports.note_unclear(report)
                    self._saved.changed()
                if not error.status:  # the others would wait for the same receiver
                    break
            else:
                self._reports.note_delivered(report)
                self._saved.changed()
                self._log.of_clients.info("PROBLEMS: reported %s of %s", report.event, report.key)
        self._note_state(failure)
        return failure is not None

    def _note_state(self, failure: WebhookError | None) -> None:
        """Log the first failure, and that it is over."""
        if failure is not None and not self._is_failing:
            text = (
                "PROBLEMS: cannot POST to --attention-http-endpoint: %s; it is tried again until it succeeds"
            )
            self._log.error(text, failure)
        elif failure is None and self._is_failing:
            self._log.info("PROBLEMS: --attention-http-endpoint takes reports again")
        self._is_failing = failure is not None

    def _document(self, report: Report) -> dict[str, Any]:
        known = report.known
        problem = known.problem
        document: dict[str, Any] = {
            "event": report.event,
            "dedup_key": report.dedup_key,
            **fields_of(problem, "severity", "kind", "text"),
            **fields_of(problem.about, "word", "advice"),
            "topic": "" if problem.topic == THE_OTHERS else problem.topic,
            **fields_of(problem, "channel", "node"),
            "began_s": known.since_s,
            "ended_s": known.seen_s,
            "timestamp": int(time()),
            "runbook_url": f"{self._options.runbooks_url}#{problem.kind}",
            "url": self._page_of(problem),
            "source": page_url(self._options),
            "via": socket.gethostname(),
        }
        if report.event != ENDED:
            del document["ended_s"]
        return document

    def _page_of(self, problem: Problem) -> str:
        """Return the address of the page that shows what a problem is about."""
        words: list[str] = []
        if problem.topic and problem.topic != THE_OTHERS:
            words = ["topics", problem.topic, problem.channel]
        elif problem.node and problem.kind not in LOOKUP_KINDS:
            words = ["nodes", problem.node]
        return f"{page_url(self._options)}/{'/'.join(_escaped(word) for word in words if word)}"


def page_url(options: NsqadminOptions) -> str:
    """Return --page-url, or what it is without a proxy; without a slash at its end."""
    if options.page_url:
        return options.page_url.rstrip("/")
    scheme = "https" if options.tls_cert else "http"
    address = split_address(options.http_address)
    port = f":{address[1]}" if address else ""
    return f"{scheme}://{socket.gethostname()}{port}{options.base_path}".rstrip("/")


def _escaped(name: str) -> str:
    # Browsers resolve `.` and `..`, also if escaped once: see `enc` in static/lib/api.js.
    if name in (".", ".."):
        return name.replace(".", "%252E")
    return quote(name, safe="")
