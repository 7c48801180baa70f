"""Requests: addresses, headers, bytes. No I/O."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, quote_plus, urljoin

from nsqd_py.net.http.client import Url, parse_url

Headers = Mapping[str, str]

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_OWN = ("content-length", "transfer-encoding", "trailer")


def parse_header(text: str) -> tuple[str, str]:
    """Return the name and value of a --header such as `name: value`. Raises ValueError with the reason."""
    name, _, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not name or not value:
        raise ValueError("--header value format should be 'name: value'")
    if not _TOKEN.fullmatch(name) or _CONTROL.search(value):
        raise ValueError(f"--header {name!r} has characters that are not allowed in a header")
    if name.lower() in _OWN:
        raise ValueError(f"--header {name}: nsq-to-http sets it itself")
    return name, value


def merge_headers(defaults: Headers, given: Iterable[tuple[str, str]]) -> Headers:
    """Return the defaults, overridden by the given headers. Names ignore case; the last header of a name applies."""
    merged = {name.lower(): (name, value) for name, value in (*defaults.items(), *given)}
    return dict(merged.values())


# A --get address has the message in this place.
PLACEHOLDER = "%s"
POST = "POST"
GET = "GET"

_REDIRECTS = {GET: frozenset((301, 302, 303, 307, 308)), POST: frozenset((307, 308))}
# These headers are not sent to another host after a redirect.
_SECRET = frozenset(("authorization", "cookie"))
# Represents the message while a URL is parsed.
_MARKER = "nsq0message0goes0here"
_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))


@dataclass(frozen=True)
class Server:
    """The server to connect to."""

    is_secure: bool
    host: str
    port: int


class Request:
    """The request for an address: a POST with the message as the body, or a GET with the message in the URL."""

    def __init__(self, method: str, address: str, headers: Headers, *, has_place: bool = False) -> None:
        """`has_place`: the message replaces %s in the address. Raises ValueError for an address that cannot be used."""
        self._method = method
        self._headers = headers
        self._url = fill(address, _MARKER) if has_place else address
        url = parse_url(self._url)
        path = quote(url.path, safe=_PRINTABLE)
        if has_place and _MARKER not in path:
            raise ValueError("%s must be in the path or the query")
        before, marker, after = path.partition(_MARKER)
        self.server = Server(url.is_secure, url.host, url.port)
        # For logs; without the query, which may hold secrets.
        self.name = url.place + path.partition("?")[0].replace(_MARKER, PLACEHOLDER)
        self._before = f"{method} {before}".encode()
        self._after = after.encode() if marker else None
        self._fields = b" HTTP/1.1\r\n" + _field_lines(url, headers)

    def head(self, message: bytes) -> bytes:
        """Return everything before the body."""
        if self._method == POST:
            return b"%b%bContent-Length: %d\r\n\r\n" % (self._before, self._fields, len(message))
        if self._after is None:
            return b"%b%b\r\n" % (self._before, self._fields)
        return b"%b%b%b%b\r\n" % (self._before, quote_plus(message).encode(), self._after, self._fields)

    def body(self, message: bytes) -> bytes:
        return message if self._method == POST else b""

    def redirected(self, message: bytes, status: int, location: str) -> Request | None:
        """Return the request to follow a redirect, or None if the response is not a redirect that can be followed.

        After 301, 302 or 303, a POST would have to continue as a GET without the message, so these are not followed.
        Raises ValueError for an address that cannot be used.
        """
        if not location or status not in _REDIRECTS[self._method]:
            return None
        address = urljoin(self._url.replace(_MARKER, quote_plus(message)), location)
        headers = self._headers
        if parse_url(address).host != self.server.host:
            headers = {name: value for name, value in headers.items() if name.lower() not in _SECRET}
        return Request(self._method, address, headers)


def fill(address: str, escaped: str) -> str:
    """Replace %s in the address with `escaped`, and %% with %."""
    return address.replace("%%", "\0").replace(PLACEHOLDER, escaped).replace("\0", "%")


def _field_lines(url: Url, headers: Headers) -> bytes:
    host = url.place.partition("://")[2].removesuffix(":443" if url.is_secure else ":80")
    defaults = {"Host": host}
    if url.login:
        defaults["Authorization"] = "Basic " + base64.b64encode(url.login.encode()).decode()
    fields = merge_headers(defaults, headers.items())
    return "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode()
