"""Asks nsqlookupds for nsqds. A request blocks only the thread or greenlet that asks."""

from __future__ import annotations

import base64
import http.client
import io
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any
from urllib.parse import unquote, urlsplit

from nsqd_py.client.blocking.backend import THREADS, Backend, WorkerThread
from nsqd_py.client.lookup import LookupFailed, Schedule, lookup_headers, lookup_url, nodes_url, nsqds_in
from nsqd_py.client.options import ClientLog, ClientOptions
from nsqd_py.client.tls import client_context
from nsqd_py.protocol.wrong_port import not_http, not_lookupd_http
from nsqd_py.runtime.documents import load_foreign_json
from nsqd_py.runtime.hidden import hidden_url
from nsqd_py.runtime.outages import OutageLog

_READ_BYTES = 64 * 1024
_MAX_ANSWER_BYTES = 16 << 20
_NOT_FOUND = 404


class LookupClient:
    """Asks with the time limit and secret of the options. Every method raises LookupFailed."""

    def __init__(self, options: ClientOptions, backend: Backend = THREADS) -> None:
        self._options = options
        self._backend = backend

    def lookup(self, address: str, topic: str) -> tuple[str, ...]:
        """Return the nsqds that have the topic according to this nsqlookupd; none if it does not know the topic."""
        return self._nsqds(address, lookup_url(address, topic))

    def nodes(self, address: str) -> tuple[str, ...]:
        """Return all nsqds that this nsqlookupd knows."""
        return self._nsqds(address, nodes_url(address))

    def _nsqds(self, address: str, url: str) -> tuple[str, ...]:
        limit_s = self._options.lookupd_poll_timeout_s
        try:
            return _nsqds_of(self._get(url, monotonic() + limit_s if limit_s else None))
        except TimeoutError as error:
            reason = f"no answer within {limit_s:g}s"
            raise LookupFailed(f"{hidden_url(address)}: {reason}") from error
        except http.client.BadStatusLine as error:
            raise LookupFailed(f"{hidden_url(address)}: {not_http(str(error))}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise LookupFailed(f"{hidden_url(address)}: {getattr(error, 'strerror', None) or error}") from error

    def _get(self, url: str, deadline_s: float | None) -> bytes:
        """Return the whole answer. The server ends it by closing the connection."""
        parts = urlsplit(url)
        login, _, place = parts.netloc.rpartition("@")
        headers = {"Host": place, "Connection": "close", **lookup_headers(self._options)}
        if login:
            headers["Authorization"] = "Basic " + base64.b64encode(unquote(login).encode()).decode()
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        sock = self._backend.socket.create_connection((parts.hostname, parts.port), _left_s(deadline_s))
        try:
            if parts.scheme == "https":
                context = client_context(self._options, self._backend.ssl_context_class())
                sock = context.wrap_socket(sock, server_hostname=parts.hostname)
            sock.sendall("\r\n".join(lines).encode())
            answer = bytearray()
            while data := sock.recv(_READ_BYTES):
                answer += data
                if len(answer) > _MAX_ANSWER_BYTES:
                    raise ValueError(f"the answer is longer than {_MAX_ANSWER_BYTES} bytes")
                sock.settimeout(_left_s(deadline_s))
        finally:
            sock.close()
        return bytes(answer)


def _left_s(deadline_s: float | None) -> float | None:
    if deadline_s is None:
        return None
    left_s = deadline_s - monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


class _Received:
    """Received bytes as a socket from which `http.client` reads an answer."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def _nsqds_of(answer: bytes) -> tuple[str, ...]:
    """Return the nsqds of an answer. Raises ValueError, HTTPException."""
    if not answer:
        raise ValueError("the connection was closed before an answer came")
    received: Any = _Received(answer)
    response = http.client.HTTPResponse(received, method="GET")
    response.begin()
    body = response.read()
    if response.status == _NOT_FOUND:
        wrong_port = not_lookupd_http(body)
        if wrong_port:
            raise ValueError(wrong_port)
        return ()
    if response.status != http.client.OK:
        raise ValueError(f"got response {response.status} {response.reason} {body[:200].decode(errors='replace')!r}")
    return nsqds_in(load_foreign_json(body))


class Finder:
    """Asks one nsqlookupd again and again. Its owner calls `step`, which does not wait."""

    def __init__(
        self,
        address: str,
        ask: Callable[[str], tuple[str, ...]],
        options: ClientOptions,
        chance: Callable[[], float],
        log: ClientLog,
        spawn: Callable[[Callable[[], Any]], WorkerThread[Any]],
    ) -> None:
        """`ask(address)` is `LookupClient.nodes`, or `lookup` of a topic; `spawn` runs it next to the owner.

        failure  why it did not answer last time; None if it did
        """
        self.address = address
        self.failure: LookupFailed | None = None
        self.has_asked = False
        self._ask = ask
        self._spawn = spawn
        self._schedule = Schedule(monotonic(), options.lookupd_poll_interval_s, options.lookupd_poll_jitter, chance)
        self._outage = OutageLog(log, monotonic)
        self._request: WorkerThread[tuple[str, ...]] | None = None

    def hurry(self) -> None:
        """Ask soon: an nsqd was lost."""
        self._schedule.hurry(monotonic())

    def kill(self) -> None:
        if self._request is not None:
            self._request.kill()

    def step(self) -> tuple[str, ...] | None:
        """Ask when it is due. Return the nsqds of an answer that has come; None if none has."""
        request = self._request
        if request is None:
            if monotonic() >= self._schedule.due_s:
                self._schedule.asked(monotonic())
                self._request = self._spawn(partial(self._ask, self.address))
            return None
        if not request.is_done:
            return None
        self._request = None
        self.has_asked = True
        try:
            nsqds = request.result()
        except LookupFailed as error:
            self.failure = error
            self._outage.report("nsqlookupd %s", error)
            return None
        self.failure = None
        self._outage.end("nsqlookupd %s: answers again", hidden_url(self.address))
        return nsqds
