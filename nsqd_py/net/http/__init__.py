"""HTTP for the daemons: a server that parses with httptools, and a client.

connection   one connection: parses requests, and answers them in order
handling     the head of a request, its checks, its handler, its line in the log
router       the table of routes and their kinds of access; a request as handlers see it
answers      responses
failures     the responses to what no handler could do
encoding     the bytes of responses
limiter      bounds the memory for long responses

browsers     refuses what a foreign web page makes a browser send
proxies      recognises requests that a reverse proxy passed on
guard        the file of --http-auth-file; checks passwords and tokens for admin paths

debug        the paths under /debug
client       asks for short JSON answers, on gevent

This file has the URLs of HTTP clients and the errors of their requests. It needs no gevent: clients on threads have the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from nsqd_py.net.addresses import MAX_PORT, is_host, join_address

_FORBIDDEN = 403
_SHOWN_BYTES = 200
_PORTS = {"http": 80, "https": 443}


class HttpClientError(Exception):
    """The request failed, or its answer cannot be used; str(error) says why."""


class Unreachable(HttpClientError):
    """Connecting failed, so no request was sent."""


class AnswerTooLong(HttpClientError):
    """The answer has more bytes than this client receives."""


class BadStatus(HttpClientError):
    """The answer has another status than 200."""

    def __init__(self, status: int, reason: str, body: bytes) -> None:
        super().__init__(f'got response {status} {reason} "{body[:_SHOWN_BYTES].decode(errors="replace")}"')
        self.status = status
        self.reason = reason
        self.body = body

    def https_instead(self, url: Url) -> Url | None:
        """Return the https URL that a 403 names: `{"message": "TLS_REQUIRED", "https_port": 4152}`; None without one."""
        if self.status != _FORBIDDEN or url.is_secure:
            return None
        return url.at_https_port(self.body)


@dataclass(frozen=True, slots=True)
class Url:
    """The parts of a URL. `path` includes the query; `login` is `user:password`, or empty."""

    is_secure: bool
    host: str
    port: int
    path: str
    login: str = ""

    @property
    def origin(self) -> str:
        """The URL for logs: without path, query and login, which may be secrets."""
        return f"{'https' if self.is_secure else 'http'}://{join_address(self.host, self.port)}"

    def with_query(self, query: str) -> Url:
        return replace(self, path=f"{self.path}{'&' if '?' in self.path else '?'}{query}")

    def at_https_port(self, document: bytes) -> Url | None:
        """Return the https URL with the port that a document of nsqd names, as `{"https_port": 4152}`; None without one."""
        from nsqd_py.runtime.documents import load_foreign_json  # here, since --version imports this package

        try:
            port = load_foreign_json(document)["https_port"]
        except (ValueError, TypeError, KeyError):
            return None
        is_port = type(port) is int and 0 < port <= MAX_PORT
        if is_port:
            return replace(self, is_secure=True, port=port)
        return None


def parse_url(text: str) -> Url:
    """Parse an http or https URL. Raises ValueError."""
    url = split_url(text)
    if ":" not in url.host and not is_host(url.host):
        raise ValueError(f'"{url.host}" is not a host')
    if not url.port:
        raise ValueError("port 0 cannot be connected")
    return url


def split_url(text: str) -> Url:
    """Parse an http or https URL, of any host and port: a connection to them may be impossible. Raises ValueError."""
    from urllib.parse import quote, unquote, urlsplit  # here, since --version imports this package

    parts = urlsplit(text)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("a URL must begin with http:// or https:// and a host")
    if parts.port is None:
        port = _PORTS[parts.scheme]
    else:
        port = parts.port
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~") + (f"?{parts.query}" if parts.query else "")
    login = ""
    if parts.username:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Url(parts.scheme == "https", parts.hostname, port, path, login)
