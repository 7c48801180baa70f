"""Asks nsqlookupds for nsqds, on gevent. Each request blocks only the greenlet that asks."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

import gevent
from gevent.event import Event

from nsqd_py.client.discovery import Schedule
from nsqd_py.client.lookup import BadLookupAnswer, LookupFailed, lookup_headers, lookup_url, nodes_url, nsqds_in
from nsqd_py.client.options import ClientLog, ClientOptions
from nsqd_py.net.http.client import BadStatus, HttpClient, HttpClientError, parse_url
from nsqd_py.protocol.wrong_port import not_lookupd_http
from nsqd_py.runtime.hidden import hidden_url
from nsqd_py.runtime.outages import OutageLog

_NOT_FOUND = 404


class LookupClient:
    """Asks with the time limit and secret of the options. Every method raises LookupFailed."""

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        limit_s = options.lookupd_poll_timeout_s or None
        self._plain = HttpClient(limit_s, limit_s, headers=lookup_headers(options))
        self._secure: HttpClient | None = None

    def lookup(self, address: str, topic: str) -> tuple[str, ...]:
        """Return the nsqds that have the topic according to this nsqlookupd; none if it does not know the topic."""
        return self._nsqds(address, lookup_url(address, topic))

    def nodes(self, address: str) -> tuple[str, ...]:
        """Return all nsqds that this nsqlookupd knows."""
        return self._nsqds(address, nodes_url(address))

    def _nsqds(self, address: str, url: str) -> tuple[str, ...]:
        try:
            return nsqds_in(self._ask(url))
        except BadStatus as error:
            if error.status == _NOT_FOUND:
                wrong_port = not_lookupd_http(error.body)
                if wrong_port:
                    raise LookupFailed(f"{hidden_url(address)}: {wrong_port}") from error
                return ()
            raise LookupFailed(f"{hidden_url(address)}: {error}") from error
        except (HttpClientError, BadLookupAnswer, OSError) as error:
            raise LookupFailed(f"{hidden_url(address)}: {error}") from error

    def _ask(self, url: str) -> Any:
        parsed = parse_url(url)
        client = self._secure_client() if parsed.is_secure else self._plain
        return client.ask(parsed)

    def _secure_client(self) -> HttpClient:
        """Raise OSError if a TLS file cannot be used."""
        if self._secure is None:
            from gevent import ssl  # imported only if TLS is used: it is slow to import

            from nsqd_py.client.tls import client_context

            context = client_context(self._options, ssl.SSLContext)
            limit_s = self._options.lookupd_poll_timeout_s or None
            self._secure = HttpClient(limit_s, limit_s, tls=context, headers=lookup_headers(self._options))
        return self._secure


class Finder:
    """Asks one nsqlookupd again and again, in its own greenlet, so that one that hangs delays no other."""

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
        self._schedule = Schedule(monotonic(), options.lookupd_poll_interval_s, options.lookupd_poll_jitter, chance)
        self._outage = OutageLog(log, monotonic)
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
        self._outage.end("nsqlookupd %s: answers again", hidden_url(self.address))
        self._on_answer(self.address, nsqds)
