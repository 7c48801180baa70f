"""A proxy between obstore and an S3 server that does to requests what networks, load balancers and clouds do.

    with FaultProxy(server.endpoint) as proxy:
        proxy.add(answer_lost, method="PUT", name="head.json")       # the next one of these
        proxy.add(refused(503), method="PUT", times=3)
        proxy.at_random(seed=7, rate=0.1)                            # and of all others, a tenth meets some fault
        …  AWS_ENDPOINT_URL=proxy.endpoint  …
        proxy.stop_faults()

A fault is a function of an `Exchange`: it may forward the request or not, now or later, and answer it or not. Writes that a
fault has delayed (`late`) are carried out before the proxy closes, or when `flush_late` is called.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from email.utils import formatdate
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from tests.support.network import LOOPBACK, Host

_UPSTREAM_TIMEOUT_S = 60.0
# Longer than any test's request to a store may take.
_HANGS_S = 120.0
_CODES = {
    400: "RequestTimeout",
    403: "AccessDenied",
    404: "NoSuchKey",
    409: "ConditionalRequestConflict",
    412: "PreconditionFailed",
    429: "TooManyRequests",
    500: "InternalError",
    503: "SlowDown",
}
_HOP_HEADERS = ("connection", "keep-alive", "transfer-encoding", "content-length", "date", "server")
_CONTENTS = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)
_KEY = re.compile(rb"<Key>(.*?)</Key>", re.DOTALL)
_WRITES = ("PUT", "POST", "DELETE")


class Answer(NamedTuple):
    """What a server answered. Headers are in their order."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


class Exchange:
    """One request on its way through the proxy.

    name  of the object, below the bucket; empty for a request of the bucket itself, such as a list
    """

    def __init__(self, proxy: FaultProxy, handler: _Handler, body: bytes) -> None:
        self.proxy = proxy
        self.method = handler.command
        self.path = handler.path
        self.headers = list(handler.headers.items())
        self.body = body
        self.name = unquote(urlsplit(handler.path).path).strip("/").partition("/")[2]
        self._handler = handler

    @property
    def is_list(self) -> bool:
        return self.method == "GET" and not self.name

    def forward(self) -> Answer:
        """Let the server carry it out."""
        return self.proxy.ask_server(self)

    def answer(self, answer: Answer) -> None:
        """Send an answer to the client."""
        self._handler.send_answer(answer)

    def answer_part(self, answer: Answer) -> None:
        """Send the headers and half of the body, then cut the connection."""
        self._handler.send_answer(answer, len(answer.body) // 2)
        self.cut()

    def cut(self) -> None:
        """Close the connection."""
        self._handler.close_connection = True

    def wait(self, seconds: float) -> None:
        """Wait, at most until the proxy closes."""
        self.proxy.closing.wait(seconds)


Fault = Callable[[Exchange], None]


# ---- faults


def answer_lost(exchange: Exchange) -> None:
    """The server carries it out; the connection is cut before the answer."""
    exchange.forward()
    exchange.cut()


def answer_hangs(exchange: Exchange) -> None:
    """The server carries it out; the answer never comes."""
    exchange.forward()
    exchange.wait(_HANGS_S)
    exchange.cut()


def hangs(exchange: Exchange) -> None:
    """Nothing is carried out, and no answer comes."""
    exchange.wait(_HANGS_S)
    exchange.cut()


def cut(exchange: Exchange) -> None:
    """The connection is cut before the server has the request."""
    exchange.cut()


def torn_answer(exchange: Exchange) -> None:
    """The connection is cut in the middle of the answer's body."""
    exchange.answer_part(exchange.forward())


def torn_upload(exchange: Exchange) -> None:
    """The connections are cut when the server has half of the body."""
    exchange.proxy.tear_upload(exchange)
    exchange.cut()


def refused(status: int) -> Fault:
    """Return the fault that answers this status, and carries nothing out: 404, 409, 412, 429, 500, 503."""

    def refuse(exchange: Exchange) -> None:
        exchange.answer(_refusal(status, exchange.name))

    refuse.__name__ = f"refused_{status}"
    return refuse


def done_but_refused(status: int) -> Fault:
    """Return the fault that carries the request out, and answers this status all the same."""

    def refuse(exchange: Exchange) -> None:
        exchange.forward()
        exchange.answer(_refusal(status, exchange.name))

    refuse.__name__ = f"done_but_refused_{status}"
    return refuse


def slow(seconds: float) -> Fault:
    """Return the fault that waits before the request and before the answer."""

    def wait(exchange: Exchange) -> None:
        exchange.wait(seconds / 2)
        answer = exchange.forward()
        exchange.wait(seconds / 2)
        exchange.answer(answer)

    wait.__name__ = f"slow_{seconds}"
    return wait


def late(seconds: float) -> Fault:
    """Return the fault that cuts the connection now, and carries the request out after this time."""

    def delay(exchange: Exchange) -> None:
        exchange.cut()
        exchange.proxy.carry_out_late(exchange, seconds)

    delay.__name__ = f"late_{seconds}"
    return delay


def _refusal(status: int, name: str) -> Answer:
    code = _CODES[status]
    text = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error><Code>{code}</Code><Message>a fault of the test</Message><Key>{escape(name)}</Key></Error>"
    )
    return Answer(status, [("Content-Type", "application/xml")], text.encode())


# What `at_random` draws from, unless it gets others. None of them lies: a store may do each of them to a correct client.
ANY = (
    answer_lost,
    cut,
    torn_answer,
    torn_upload,
    refused(503),
    refused(500),
    done_but_refused(503),
    slow(0.3),
    late(0.5),
    late(3.0),
)
# Answers to conditional writes that race others; 409 asks for a retry.
CONFLICTS = (refused(409), done_but_refused(409))


# ---- the proxy


class _Rule(NamedTuple):
    fault: Fault
    method: str
    name: re.Pattern[str]


class Seen(NamedTuple):
    """A request that the proxy has seen. `fault` is the name of its fault; empty if there was none."""

    method: str
    name: str
    fault: str


class FaultProxy:
    """A proxy in front of an S3 server, in threads of this process, on a host of the tests' network.

    seen         all requests, in their order
    list_lag_s   a list does not show what was written or deleted through the proxy in this time
    clock_off_s  added to the time in the headers Date and Last-Modified
    is_away      True while all connections are cut
    """

    def __init__(self, server_endpoint: str, host: Host = LOOPBACK) -> None:
        self.seen: list[Seen] = []
        self.list_lag_s = 0.0
        self.clock_off_s = 0.0
        self.is_away = False
        self.closing = threading.Event()
        self._server_address = urlsplit(server_endpoint).netloc
        self._lock = threading.Lock()
        self._rules: list[tuple[_Rule, list[int]]] = []
        self._random: Callable[[Exchange], Fault | None] = lambda _: None
        self._changed_s: dict[str, float] = {}
        self._deleted: dict[str, bytes] = {}
        self._late: list[tuple[threading.Event, threading.Thread]] = []
        self._host = host
        self._listener: _Listener = host.call(lambda: _Listener(host.address, self))
        self.endpoint = f"http://{host.address}:{self._listener.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def _serve(self) -> None:
        self._host.enter()  # the threads of connections inherit it
        self._listener.serve_forever(0.05)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.closing.set()
        self.flush_late()
        self._listener.shutdown()
        self._listener.server_close()

    # ---- which requests meet a fault

    def add(self, fault: Fault, method: str = "", name: str = "", times: int = 1) -> None:
        """Let the next requests meet a fault: those with this method, and with a name in which this pattern is found."""
        with self._lock:
            self._rules.append((_Rule(fault, method, re.compile(name)), [times]))

    def at_random(
        self, seed: int, rate: float, faults: Sequence[Fault] = (*ANY, *CONFLICTS), name: str = ""
    ) -> None:
        """Let this part of all requests with such a name meet one of these faults, from now on."""
        chance = random.Random(seed)
        pattern = re.compile(name)

        def draw(exchange: Exchange) -> Fault | None:
            if not pattern.search(exchange.name) or chance.random() >= rate:
                return None
            fault = chance.choice(faults)
            # Only a conditional write can meet a conflict.
            is_conditional = any(key.lower().startswith("if-") for key, _ in exchange.headers)
            return None if fault in CONFLICTS and not is_conditional else fault

        with self._lock:
            self._random = draw

    def stop_faults(self) -> None:
        """Let all later requests through. What is late remains so."""
        with self._lock:
            self._rules.clear()
            self._random = lambda _: None

    def flush_late(self) -> None:
        """Carry out now what is late, and wait until that is done."""
        with self._lock:
            late, self._late = self._late, []
        for event, _ in late:
            event.set()
        for _, thread in late:
            thread.join()

    def count(self, method: str = "", name: str = "", fault: str | None = None) -> int:
        """Return how many requests with this method, name (a pattern) and fault were seen."""
        return sum(
            each.method.startswith(method)
            and re.search(name, each.name) is not None
            and (fault is None or each.fault == fault)
            for each in list(self.seen)
        )

    # ---- for `Exchange`

    def handle(self, exchange: Exchange) -> None:
        with self._lock:
            fault = self._fault_of(exchange)
            self.seen.append(Seen(exchange.method, exchange.name, fault.__name__ if fault else ""))
        if fault is None:
            exchange.answer(exchange.forward())
        else:
            fault(exchange)

    def _fault_of(self, exchange: Exchange) -> Fault | None:
        if self.is_away:
            return cut
        for number, (rule, left) in enumerate(self._rules):
            if exchange.method.startswith(rule.method) and rule.name.search(exchange.name):
                left[0] -= 1
                if not left[0]:
                    del self._rules[number]
                return rule.fault
        return self._random(exchange)

    def ask_server(self, exchange: Exchange) -> Answer:
        """Return the server's answer. An OSError of the way to it is a 503."""
        connection = HTTPConnection(self._server_address, timeout=_UPSTREAM_TIMEOUT_S)
        try:
            headers = {key: value for key, value in exchange.headers if key.lower() not in _HOP_HEADERS}
            connection.request(exchange.method, exchange.path, exchange.body, headers)
            response = connection.getresponse()
            answer = Answer(response.status, response.getheaders(), response.read())
        except (OSError, HTTPException):
            return _refusal(503, exchange.name)
        finally:
            connection.close()
        self._note_change(exchange, answer)
        if exchange.is_list and self.list_lag_s:
            answer = answer._replace(body=self._lagging(answer.body, exchange.path))
        return answer

    def tear_upload(self, exchange: Exchange) -> None:
        """Send half of a request's body to the server, then cut the connection."""
        connection = HTTPConnection(self._server_address, timeout=_UPSTREAM_TIMEOUT_S)
        with suppress(OSError, HTTPException):
            connection.putrequest(exchange.method, exchange.path)
            for key, value in exchange.headers:
                if key.lower() not in (*_HOP_HEADERS, "host", "accept-encoding"):
                    connection.putheader(key, value)
            connection.putheader("Content-Length", str(len(exchange.body)))
            connection.endheaders(exchange.body[: len(exchange.body) // 2])
        connection.close()

    def carry_out_late(self, exchange: Exchange, seconds: float) -> None:
        """Carry out a request after this time."""
        event = threading.Event()

        def carry_out() -> None:
            event.wait(seconds)
            self.ask_server(exchange)

        thread = threading.Thread(target=carry_out)
        with self._lock:
            self._late.append((event, thread))
        thread.start()

    # ---- a list that lags

    def _note_change(self, exchange: Exchange, answer: Answer) -> None:
        if exchange.method not in _WRITES or answer.status >= 300:
            return
        if exchange.method == "POST" and "delete" in exchange.path.partition("?")[2]:
            changed = [unescape(key.decode()) for key in _KEY.findall(exchange.body)]
        else:
            changed = [exchange.name]
        is_deleted = exchange.method == "DELETE" or not exchange.name
        now_s = time.monotonic()
        with self._lock:
            for name in changed:
                self._changed_s[name] = now_s
                self._deleted.pop(name, None)
                if is_deleted:
                    self._deleted[name] = (
                        f"<Contents><Key>{escape(name)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                        '<ETag>"0"</ETag><Size>1</Size><StorageClass>STANDARD</StorageClass></Contents>'
                    ).encode()

    def _lagging(self, listed: bytes, path: str) -> bytes:
        """Return a list without what is new, and with what was just deleted."""
        prefix = parse_qs(urlsplit(path).query).get("prefix", [""])[0]
        since_s = time.monotonic() - self.list_lag_s
        with self._lock:
            recent = {name for name, changed_s in self._changed_s.items() if changed_s >= since_s}
            gone = [
                entry for name, entry in self._deleted.items() if name in recent and name.startswith(prefix)
            ]

        def shown(match: re.Match[bytes]) -> bytes:
            key = _KEY.search(match.group())
            is_recent = key is not None and unescape(key.group(1).decode()) in recent
            return b"" if is_recent else match.group()

        listed = _CONTENTS.sub(shown, listed)
        return listed.replace(b"</ListBucketResult>", b"".join(gone) + b"</ListBucketResult>")


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: str, proxy: FaultProxy) -> None:
        self.proxy = proxy
        super().__init__((address, 0), _Handler)

    def handle_error(self, *_: object) -> None:
        """A client that cut its connection is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listener

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _handle(self) -> None:
        size_bytes = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size_bytes)
        if len(body) < size_bytes:  # the client is gone
            self.close_connection = True
            return
        self.server.proxy.handle(Exchange(self.server.proxy, self, body))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    def send_answer(self, answer: Answer, part_bytes: int | None = None) -> None:
        """Send an answer, or the headers and a part of the body."""
        off_s = self.server.proxy.clock_off_s
        self.send_response_only(answer.status)
        self.send_header("Date", formatdate(time.time() + off_s, usegmt=True))
        length = str(len(answer.body))
        for key, value in answer.headers:
            if key.lower() == "content-length" and self.command == "HEAD":
                length = value
            elif key.lower() == "last-modified" and off_s:
                self.send_header(key, formatdate(time.time() + off_s, usegmt=True))
            elif key.lower() not in _HOP_HEADERS:
                self.send_header(key, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body[:part_bytes])
