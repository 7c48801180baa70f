"""A small HTTP client on gevent, for requests with short JSON answers.

It asks nsqlookupds, auth servers and other daemons. Each request opens a connection, and one deadline covers all of
it. Call it from a greenlet. At the end: a socket file that lets other greenlets run.
"""

from __future__ import annotations

import base64
import http.client
import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

import gevent
from gevent import socket, ssl

from nsqd_py.net.addresses import check_host
from nsqd_py.net.http import AnswerTooLong, BadStatus, HttpClientError, Unreachable, Url, parse_url
from nsqd_py.net.peer_tls import PeerTls
from nsqd_py.net.socket_buffers import literal_target
from nsqd_py.net.tls_context import advised
from nsqd_py.net.tls_options import HttpClientOptions
from nsqd_py.protocol.wrong_port import not_http
from nsqd_py.runtime.documents import load_foreign_json
from nsqd_py.runtime.pacing import ONE_ROUND_S, WorkSlices
from nsqd_py.settings.declaration import BadOptions, bad_options

# Names of nsqd_py.net.http that the users of this client need too.
__all__ = ["BadStatus", "HttpClientError", "Unreachable", "Url", "parse_url"]

MAX_ANSWER_BYTES = 16 * 1024 * 1024
# For `/stats`: a topic or a channel takes about 0.5 kB, a client about 1 kB.
MAX_STATS_BYTES = 32 * 1024 * 1024
# For the body of an answer with another status than 200.
_MAX_ERROR_BYTES = 64 * 1024
_READ_BYTES = 64 * 1024
# Chunks of one byte that arrive together in a buffer are parsed in 3 ms.
_BUFFER_BYTES = 2048
_SHORT_BYTES = 256 * 1024
_SECOND_NS = 1e9

# (address family, address for `connect`).
Target = tuple[int, tuple[Any, ...]]
# Returns the targets of a host and port, the best first. Raises OSError.
Resolve = Callable[[str, int], Sequence[Target]]
# Waits until there is room for a body of at most this many bytes.
Admit = Callable[[int], object]


def http_url(address: str, path: str = "/") -> Url:
    """Return the URL of a path at `host:port`, `http://host:port` or `https://host:port`. Raises BadOptions."""
    text = address if "://" in address else f"http://{address}"
    try:
        return parse_url(text.rstrip("/") + path)
    except ValueError as error:
        raise BadOptions(f"{address!r} is not an HTTP address: {error}") from error


def limit_s(duration_ns: int) -> float | None:
    """Return a duration in seconds; None, which is no limit, for 0, as in Go."""
    return duration_ns / _SECOND_NS if duration_ns > 0 else None


def resolve_by_hub(host: str, port: int) -> list[Target]:
    """Resolve a name with the resolver of gevent's hub. Raises OSError.

    An IP address is none of its work: the first name takes 10 ms, for gevent's threads.
    """
    literal = literal_target(host, port)
    if literal:
        return [literal]
    check_host(host)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(int(family), target) for family, _, _, _, target in found]


@dataclass(frozen=True)
class HttpClient:
    """Sends requests with these limits; None is no limit.

    tls  TLS context of gevent.ssl, or PeerTls. With one, `get_json` uses https; `ask` and `exchange` do for https URLs.
    """

    connect_timeout_s: float | None
    request_timeout_s: float | None
    resolve: Resolve = resolve_by_hub
    tls: Any = None
    max_answer_bytes: int = MAX_ANSWER_BYTES
    headers: Mapping[str, str] = field(default_factory=lambda: {"Accept": "application/vnd.nsq; version=1.0"})

    @classmethod
    def of(cls, options: Any, **more: Any) -> HttpClient:
        """Return a client with the time-outs of a program's --http-client-... options."""
        return cls(
            limit_s(options.http_client_connect_timeout_ns),
            limit_s(options.http_client_request_timeout_ns),
            **more,
        )

    def get_json(self, host: str, port: int, path: str, *, tls_name: str = "") -> Any:
        """GET a path, over TLS if this client has a context, and return the JSON of a 200. Raises HttpClientError.

        `tls_name` is the name that the server's certificate must have; by default the host.
        """
        return _parsed(self.exchange("GET", Url(self.tls is not None, host, port, path), tls_name=tls_name))

    def ask(self, url: Url, document: Any = None) -> Any:
        """GET a URL, or POST `document` to it, and return the JSON of a 200. Raises HttpClientError."""
        if document is None:
            return _parsed(self.exchange("GET", url))
        import orjson  # here, so that the client library works where it is not installed

        return _parsed(
            self.exchange("POST", url, orjson.dumps(document), {"Content-Type": "application/json"})
        )

    def exchange(
        self,
        method: str,
        url: Url,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        admit: Admit | None = None,
        note_headers: Callable[[http.client.HTTPMessage], object] | None = None,
        tls_name: str = "",
    ) -> bytes:
        """Send a request and return the body of a 200, of any content type. Raises HttpClientError.

        `admit` may wait until there is room for the body; `note_headers` gets the headers, also of another status.
        """
        connection = _Connection(url.host, url.port)
        login = {}
        if url.login:
            login = {"Authorization": "Basic " + base64.b64encode(url.login.encode()).decode()}
        too_late = HttpClientError(f"no answer within {self.request_timeout_s}s")
        with closing(connection), gevent.Timeout(self.request_timeout_s, too_late):
            try:
                connection.sock = self._connect(url, tls_name or url.host)
                connection.request(method, url.path, body, {**self.headers, **(headers or {}), **login})
                response = connection.getresponse()
                if note_headers is not None:
                    note_headers(response.headers)
                return self._read(response, admit)
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise HttpClientError(_reason(error)) from error

    def _read(self, response: http.client.HTTPResponse, admit: Admit | None) -> bytes:
        if response.status != 200:
            error = _read_up_to(response, _MAX_ERROR_BYTES)[:_MAX_ERROR_BYTES]
            raise BadStatus(response.status, response.reason, error)
        too_long = AnswerTooLong(f"the answer is longer than {self.max_answer_bytes} bytes")
        if (response.length or 0) > self.max_answer_bytes:
            raise too_long
        if admit is not None and response.length is not None:
            admit(response.length)
            admit = None
        body = _read_up_to(response, self.max_answer_bytes, admit)
        if len(body) > self.max_answer_bytes:
            raise too_long
        if response.length:
            raise HttpClientError("the answer is cut off")
        return body

    def _connect(self, url: Url, tls_name: str) -> Any:
        """Return a connected socket. Raises Unreachable."""
        too_late = TimeoutError(f"no connection within {self.connect_timeout_s}s")
        try:
            with gevent.Timeout(self.connect_timeout_s, too_late):
                return connect_any(
                    self.resolve(url.host, url.port), self.tls if url.is_secure else None, tls_name
                )
        except OSError as error:
            raise Unreachable(_reason(error)) from error


def http_client_tls(options: HttpClientOptions, warn: Callable[[str], object] | None = None) -> PeerTls:
    """Return the TLS of HTTP requests. The certificates of the system, which take 20 ms, are read for the first https URL.

    Raises BadOptions if a file that the options name cannot be used.
    """
    tls = PeerTls.of(options, "http_client", ssl.SSLContext, warn)
    if options.http_client_tls_root_ca_file or options.http_client_tls_cert:
        with bad_options("--http-client-tls-…: ", OSError):
            tls.load()
    return tls


def http_client(options: HttpClientOptions, warn: Callable[[str], object] | None = None) -> HttpClient:
    """Return the client of a program's HTTP requests. Raises BadOptions for certificates that cannot be used.

    `warn` logs new certificates that cannot be used later.
    """
    return HttpClient.of(options, tls=http_client_tls(options, warn))


class _Response(http.client.HTTPResponse):
    """A response that is read through a `YieldingFile`: head, chunks and trailers."""

    def __init__(self, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp.close()  # nothing was read yet
        self.fp = yielding_reader(sock)


class _Connection(http.client.HTTPConnection):
    """The standard library's HTTP protocol on a socket of gevent, which the caller sets.

    Raises HttpClientError if `host` is not a host name: another machine may have sent it.
    """

    response_class = _Response

    def __init__(self, host: str, port: int) -> None:
        try:
            super().__init__(host, port)
        except http.client.InvalidURL as error:
            raise HttpClientError(f"{host!r} is not a host name") from error


def _read_up_to(response: http.client.HTTPResponse, most_bytes: int, admit: Admit | None = None) -> bytes:
    """Return the body. If it is longer than `most_bytes`, return a part that is longer than that.

    `admit` is called when a body without Content-Length turns out to be long.
    """
    body = bytearray()
    # A chunk may have one byte: read1 reads one chunk at most; read would read tens of thousands without a pause.
    read = response.read1 if response.chunked else response.read
    while len(body) <= most_bytes:
        part = read(_READ_BYTES)
        if not part:
            break
        body += part
        if admit is not None and len(body) > _SHORT_BYTES:
            admit(most_bytes)
            admit = None
    return bytes(body)


def connect_any(targets: Sequence[Target], tls: Any, tls_name: str) -> Any:
    """Return a connection to the first target that accepts one. Raises OSError."""
    failed: OSError = OSError("the name has no address")
    for target in targets:
        try:
            return connect(target, tls, tls_name)
        except OSError as error:
            failed = error.with_traceback(None)
    try:
        raise failed
    finally:
        del failed  # its traceback holds this frame: together they would be a reference cycle


def connect(target: Target, tls: Any = None, tls_name: str = "") -> Any:
    """Return a connected gevent socket, after the TLS handshake if `tls` is a context. Raises OSError."""
    family, address = target
    sock: Any = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.connect(address)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is None:
            return sock
        return tls.wrap_socket(sock, server_hostname=tls_name)
    except (
        BaseException
    ) as error:  # gevent's time-out is not an Exception; the socket must be closed for it too
        if tls is not None and isinstance(error, OSError):
            error.strerror = advised(error.strerror)
        with suppress(OSError):
            sock.close()
        raise


def _parsed(body: bytes) -> Any:
    try:
        return load_foreign_json(body)
    except ValueError as error:
        raise HttpClientError(str(error)) from error


def _reason(error: Exception) -> str:
    # RemoteDisconnected is both.
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, OSError):
        return not_http(str(error))
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


# ---- A socket file that lets other greenlets run while the peer sends without pause.


class YieldingFile(io.RawIOBase):
    """Reads from the raw file of a socket of gevent, and lets other greenlets run every millisecond.

    gevent's sockets do not yield while there is something to read: neither time-outs nor other greenlets would run.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._slices = WorkSlices(ONE_ROUND_S)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._slices.sleep_if_due()
        count: int | None = self._file.readinto(buffer)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def yielding_reader(sock: Any) -> io.BufferedReader:
    """Return a buffered reader of a socket. Parsing a full buffer delays other greenlets, so it is small."""
    return io.BufferedReader(YieldingFile(sock.makefile("rb", 0)), _BUFFER_BYTES)
