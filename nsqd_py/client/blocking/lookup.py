"""Asks nsqlookupds for nsqds. A request blocks only the thread or greenlet that asks."""

from __future__ import annotations

from functools import partial
from time import monotonic
from urllib.parse import urlsplit, urlunsplit

from nsqd_py.client.blocking.backend import THREADS, Backend, WorkerThread
from nsqd_py.client.blocking.connection import ClientContext
from nsqd_py.client.blocking.http_requests import Answer, NoAnswer, login_header, request
from nsqd_py.client.lookup import LookupFailed, lookup_headers, lookup_url, nodes_url, nsqds_in, poll_after_s
from nsqd_py.client.options import ClientOptions
from nsqd_py.protocol.wrong_port import not_lookupd_http
from nsqd_py.runtime.documents import MOST_NSQDS, TOO_MANY_NSQDS, load_foreign_json
from nsqd_py.runtime.logs.hidden import hidden_url
from nsqd_py.runtime.logs.outages import OutageLog

_MAX_ANSWER_BYTES = 16 << 20
# Go's servers send chunks of 2 KiB or more; 16 MiB in chunks of one byte would take 2 s to read.
_MAX_LINES = 20_000
_OK = 200
_NOT_FOUND = 404


def find_nsqds(
    address: str, topic: str, options: ClientOptions, backend: Backend = THREADS
) -> tuple[str, ...]:
    """Return the nsqds that have the topic according to this nsqlookupd; without a topic, all that it knows.

    Uses the time limit and secret of the options. Raises LookupFailed.
    """
    parts = urlsplit(lookup_url(address, topic) if topic else nodes_url(address))
    login, _, host_port = parts.netloc.rpartition("@")
    headers = lookup_headers(options) | login_header(login)
    limits = options.lookupd_poll_timeout_s, _MAX_ANSWER_BYTES
    try:
        url = urlunsplit(parts._replace(netloc=host_port))
        answer = request("GET", url, headers, options, *limits, most_lines=_MAX_LINES, backend=backend)
        return _nsqds_of(answer)
    except (NoAnswer, ValueError) as error:
        raise LookupFailed(f"{hidden_url(address)}: {error}") from error


def _nsqds_of(answer: Answer) -> tuple[str, ...]:
    """Return the nsqds of an answer. Raises ValueError."""
    if answer.status == _NOT_FOUND:
        wrong_port = not_lookupd_http(answer.body)
        if wrong_port:
            raise ValueError(wrong_port)
        return ()
    if answer.status != _OK:
        raise ValueError(
            f"got response {answer.status} {answer.reason} {answer.body[:200].decode(errors='replace')!r}"
        )
    return nsqds_in(load_foreign_json(answer.body))


class Finder:
    """Asks one nsqlookupd repeatedly. Its owner calls `step`, which does not wait."""

    def __init__(self, address: str, topic: str, context: ClientContext) -> None:
        """Without a topic, it asks for all nsqds.

        failure  why it did not answer last time; None if it did
        """
        self.address = address
        self.failure: LookupFailed | None = None
        self.has_asked = False
        self._options = context.options
        self._chance = context.chance
        self._due_s = monotonic()
        self._ask = partial(find_nsqds, address, topic, context.options, context.backend)
        self._spawn = partial(WorkerThread[tuple[str, ...]], context.backend, context.poller)
        self._outage = OutageLog(context.log, monotonic)
        self._request: WorkerThread[tuple[str, ...]] | None = None

    def retry_soon(self) -> None:
        """Ask soon: an nsqd was lost. The interval, or 1 s, still limits the rate, even if nsqds are lost repeatedly."""
        soon_s = min(1.0, self._options.lookupd_poll_interval_s)
        self._due_s = min(self._due_s, monotonic() + soon_s)

    def kill(self) -> None:
        if self._request is not None:
            self._request.kill()

    def step(self) -> tuple[str, ...] | None:
        """Ask when it is due. Return the nsqds of an answer that has come; None if none has."""
        request = self._request
        if request is None:
            if monotonic() >= self._due_s:
                self._due_s = monotonic() + poll_after_s(self._options, self._chance())
                self._request = self._spawn(self._ask)
            return None
        if not request.is_done:
            return None
        self._request = None
        self.has_asked = True
        try:
            nsqds = request.result()
        except LookupFailed as error:
            self.failure = error
            self._outage.report("nsqlookupd %s; asking again", error)
            return None
        self.failure = None
        if len(nsqds) < MOST_NSQDS:
            self._outage.end("nsqlookupd %s: answers again", hidden_url(self.address))
        else:
            self._outage.report("nsqlookupd %s: %s", hidden_url(self.address), TOO_MANY_NSQDS)
        return nsqds
