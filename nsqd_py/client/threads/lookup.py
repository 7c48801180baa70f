"""Asks nsqlookupds without gevent. A `Question` uses its own socket and never blocks the caller."""

from __future__ import annotations

import base64
import errno
import http.client
import io
import os
import select
import socket
import ssl
from collections.abc import Callable
from time import monotonic
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from nsqd_py.client.discovery import Schedule
from nsqd_py.client.lookup import BadLookupAnswer, LookupFailed, lookup_headers, lookup_url, nodes_url, nsqds_in
from nsqd_py.client.options import ClientLog, ClientOptions
from nsqd_py.client.tls import client_context
from nsqd_py.protocol.wrong_port import not_http, not_lookupd_http
from nsqd_py.runtime.documents import load_foreign_json
from nsqd_py.runtime.hidden import hidden_url
from nsqd_py.runtime.outages import OutageLog

_READ_BYTES = 64 * 1024
_MAX_ANSWER_BYTES = 16 << 20
_NOT_FOUND = 404


class Question:
    """One GET. Call `step` when its socket is ready for `mask`, and when its time is over.

    answer  the nsqds of the answer; None before it arrives
    """

    def __init__(self, lookupd: str, url: str, options: ClientOptions, now_s: float) -> None:
        """Resolving a host name is the only step that blocks. Raises LookupFailed."""
        parts = urlsplit(url)
        self.lookupd = lookupd
        self.answer: tuple[str, ...] | None = None
        self.mask = select.POLLOUT
        self.deadline_s = now_s + options.lookupd_poll_timeout_s if options.lookupd_poll_timeout_s else float("inf")
        self._options = options
        self._host = parts.hostname or ""
        self._is_secure = parts.scheme == "https"
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        self._unsent = _request(parts, path, lookup_headers(options))
        self._input = bytearray()
        self.sock: Any = None
        try:
            self._targets = socket.getaddrinfo(self._host, parts.port, type=socket.SOCK_STREAM)
            self._begin()
        except (OSError, UnicodeError) as error:
            raise self._failure(error) from error

    def fileno(self) -> int:
        descriptor: int = self.sock.fileno()
        return descriptor

    def close(self) -> None:
        if self.sock is not None:
            self.sock.close()

    def wait(self) -> None:
        """Wait until `step` has something to do."""
        poll = select.poll()
        poll.register(self.sock, self.mask)
        left_s = self.deadline_s - monotonic()
        poll.poll(None if left_s == float("inf") else max(left_s, 0.0) * 1000)

    def step(self, now_s: float) -> None:
        """Do what needs no waiting. Raises LookupFailed. After an error or an answer, call `close`."""
        if now_s >= self.deadline_s:
            limit_s = self._options.lookupd_poll_timeout_s
            raise LookupFailed(f"{hidden_url(self.lookupd)}: no answer within {limit_s:g}s")
        try:
            while self.answer is None:
                self._phase()
        except ssl.SSLWantReadError:
            self.mask = select.POLLIN
        except (BlockingIOError, ssl.SSLWantWriteError):
            pass  # `mask` says what the phase waits for
        except http.client.BadStatusLine as error:  # checked above for bytes of another protocol
            raise LookupFailed(f"{hidden_url(self.lookupd)}: {not_http(str(error))}") from error
        except (OSError, http.client.HTTPException, ValueError, BadLookupAnswer) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> LookupFailed:
        return LookupFailed(f"{hidden_url(self.lookupd)}: {getattr(error, 'strerror', None) or error}")

    # ---- the phases, one after the other; each raises when it has to wait

    def _begin(self) -> None:
        """Connect to the next address of the host. Raises OSError."""
        family, kind, protocol, _, target = self._targets.pop(0)
        self.close()
        self.sock = socket.socket(family, kind, protocol)
        self.sock.setblocking(False)
        self._phase: Callable[[], None] = self._connect
        self.mask = select.POLLOUT
        number = self.sock.connect_ex(target)
        if number not in (0, errno.EINPROGRESS):
            self._try_next(number)

    def _try_next(self, number: int) -> None:
        if not self._targets:
            raise OSError(number, f"cannot connect: {os.strerror(number)}")
        self._begin()

    def _connect(self) -> None:
        number = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self._try_next(number)
            raise BlockingIOError
        self._phase = self._send
        if self._is_secure:
            context = client_context(self._options)
            self.sock = context.wrap_socket(self.sock, server_hostname=self._host, do_handshake_on_connect=False)
            self._phase = self._shake_hands

    def _shake_hands(self) -> None:
        self.mask = select.POLLOUT
        self.sock.do_handshake()
        self._phase = self._send

    def _send(self) -> None:
        self.mask = select.POLLOUT
        while self._unsent:
            self._unsent = self._unsent[self.sock.send(self._unsent) :]
        self._phase = self._receive

    def _receive(self) -> None:
        self.mask = select.POLLIN
        while data := self.sock.recv(_READ_BYTES):
            self._input += data
            if len(self._input) > _MAX_ANSWER_BYTES:
                raise ValueError(f"the answer is longer than {_MAX_ANSWER_BYTES} bytes")
        self.answer = _nsqds_of(bytes(self._input))


def _request(url: SplitResult, path: str, headers: dict[str, str]) -> bytes:
    """Return the request. The server ends its answer by closing the connection."""
    login, _, place = url.netloc.rpartition("@")
    head = {"Host": place, "Connection": "close", **headers}
    if login:
        head["Authorization"] = "Basic " + base64.b64encode(unquote(login).encode()).decode()
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    return "\r\n".join(lines).encode()


class _Received:
    """Received bytes as a socket from which `http.client` reads an answer."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def _nsqds_of(answer: bytes) -> tuple[str, ...]:
    """Return the nsqds of an answer. Raises ValueError, HTTPException, BadLookupAnswer."""
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


class LookupClient:
    """Asks with the time limit and secret of the options, and waits. Every method raises LookupFailed."""

    def __init__(self, options: ClientOptions) -> None:
        self._options = options

    def lookup(self, address: str, topic: str) -> tuple[str, ...]:
        """Return the nsqds that have the topic according to this nsqlookupd; none if it does not know the topic."""
        return self._ask(address, lookup_url(address, topic))

    def nodes(self, address: str) -> tuple[str, ...]:
        """Return all nsqds that this nsqlookupd knows."""
        return self._ask(address, nodes_url(address))

    def _ask(self, address: str, url: str) -> tuple[str, ...]:
        question = Question(address, url, self._options, monotonic())
        try:
            while question.answer is None:
                question.wait()
                question.step(monotonic())
        finally:
            question.close()
        return question.answer


class Finder:
    """Asks one nsqlookupd again and again, without waiting. Poll `question` while it is not None."""

    def __init__(
        self,
        address: str,
        topic: str,
        options: ClientOptions,
        chance: Callable[[], float],
        log: ClientLog,
        on_answer: Callable[[str, tuple[str, ...]], None],
    ) -> None:
        """`on_answer(address, nsqds)` is called with each answer. Raises BadClientOption."""
        self.address = address
        self.question: Question | None = None
        self._url = lookup_url(address, topic)
        self._options = options
        self._schedule = Schedule(monotonic(), options.lookupd_poll_interval_s, options.lookupd_poll_jitter, chance)
        self._outage = OutageLog(log, monotonic)
        self._on_answer = on_answer

    def hurry(self) -> None:
        """Ask soon: an nsqd was lost."""
        self._schedule.hurry(monotonic())

    def stop(self) -> None:
        if self.question is not None:
            self.question.close()
            self.question = None

    def step(self, *, is_ready: bool) -> None:
        """Ask when it is due, and continue the question when its socket is ready."""
        now_s = monotonic()
        try:
            if self.question is None and now_s >= self._schedule.due_s:
                self._schedule.asked(now_s)
                self.question = Question(self.address, self._url, self._options, now_s)
            elif self.question is not None and (is_ready or now_s >= self.question.deadline_s):
                self.question.step(now_s)
                self._take_answer(self.question)
        except LookupFailed as error:
            self._outage.report("nsqlookupd %s", error)
            self.stop()

    def _take_answer(self, question: Question) -> None:
        if question.answer is not None:
            self.stop()
            self._outage.end("nsqlookupd %s: answers again", hidden_url(self.address))
            self._on_answer(self.address, question.answer)
