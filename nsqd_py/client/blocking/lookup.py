"""Asks nsqlookupds for nsqds. A request blocks only the thread or greenlet that asks."""

from __future__ import annotations

import base64
import io
from functools import partial
from time import monotonic
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from nsqd_py.client.blocking.backend import THREADS, Backend, WorkerThread
from nsqd_py.client.blocking.connection import ClientContext, tls_context
from nsqd_py.client.lookup import LookupFailed, lookup_headers, lookup_url, nodes_url, nsqds_in, poll_after_s
from nsqd_py.client.options import ClientOptions
from nsqd_py.protocol.wrong_port import not_http, not_lookupd_http
from nsqd_py.runtime.documents import MOST_NSQDS, TOO_MANY_NSQDS, load_foreign_json
from nsqd_py.runtime.hidden import hidden_url
from nsqd_py.runtime.outages import OutageLog

if TYPE_CHECKING:
    from http.client import HTTPResponse

_READ_BYTES = 64 * 1024
_MAX_ANSWER_BYTES = 16 << 20
# Go's servers send chunks of 2 KiB or more; 16 MiB in chunks of one byte would take 2 s to read.
_MAX_LINES = 20_000
_OK, _NOT_FOUND = 200, 404


def find_nsqds(address: str, topic: str, options: ClientOptions, backend: Backend = THREADS) -> tuple[str, ...]:
    """Return the nsqds that have the topic according to this nsqlookupd; without a topic, all that it knows.

    Uses the time limit and secret of the options. Raises LookupFailed.
    """
    import http.client  # takes 20 ms

    limit_s = options.lookupd_poll_timeout_s
    url = lookup_url(address, topic) if topic else nodes_url(address)
    try:
        answer = io.BytesIO(_get(url, monotonic() + limit_s if limit_s else None, options, backend))
        received: Any = SimpleNamespace(makefile=lambda mode: answer)  # the part of a socket that is read from
        return _nsqds_of(http.client.HTTPResponse(received, method="GET"))
    except TimeoutError as error:
        raise LookupFailed(f"{hidden_url(address)}: no answer within {limit_s:g}s") from error
    except http.client.BadStatusLine as error:
        raise LookupFailed(f"{hidden_url(address)}: {not_http(str(error))}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise LookupFailed(f"{hidden_url(address)}: {getattr(error, 'strerror', None) or error}") from error


def _get(url: str, deadline_s: float | None, options: ClientOptions, backend: Backend) -> bytes:
    """Return the whole answer. The server ends it by closing the connection."""
    parts = urlsplit(url)
    login, _, place = parts.netloc.rpartition("@")
    headers = {"Host": place, "Connection": "close", **lookup_headers(options)}
    if login:
        headers["Authorization"] = "Basic " + base64.b64encode(unquote(login).encode()).decode()
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    sock = backend.create_connection((parts.hostname, parts.port), _left_s(deadline_s))
    try:
        if parts.scheme == "https":
            context = tls_context(options, backend.ssl_context_class())
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
    if not answer:
        raise ValueError("the connection was closed before an answer came")
    if answer.count(b"\r\n") > _MAX_LINES:
        raise ValueError("the answer has too many lines or chunks")
    return bytes(answer)


def _left_s(deadline_s: float | None) -> float | None:
    if deadline_s is None:
        return None
    left_s = deadline_s - monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _nsqds_of(response: HTTPResponse) -> tuple[str, ...]:
    """Return the nsqds of an answer. Raises ValueError, HTTPException."""
    response.begin()
    body = response.read()
    if response.status == _NOT_FOUND:
        wrong_port = not_lookupd_http(body)
        if wrong_port:
            raise ValueError(wrong_port)
        return ()
    if response.status != _OK:
        raise ValueError(f"got response {response.status} {response.reason} {body[:200].decode(errors='replace')!r}")
    return nsqds_in(load_foreign_json(body))


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
        self._due_s = min(self._due_s, monotonic() + min(1.0, self._options.lookupd_poll_interval_s))

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
