"""What is asked of whom: addresses, and the bytes of a request. No I/O."""

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
    """`name: value` of a --header. Raises ValueError with what is wrong."""
    name, _, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not name or not value:
        raise ValueError("--header value format should be 'name: value'")
    if not _TOKEN.fullmatch(name) or _CONTROL.search(value):
        raise ValueError(f"--header {text!r} has characters that no header may have")
    if name.lower() in _OWN:
        raise ValueError(f"--header {name}: nsq-to-http sets it itself")
    return name, value


def merge_headers(defaults: Headers, given: Iterable[tuple[str, str]]) -> Headers:
    """The given ones in place of the defaults of the same name, in whatever case; the last of a name counts."""
    merged = {name.lower(): (name, value) for name, value in (*defaults.items(), *given)}
    return dict(merged.values())


# Where it stands in a --get address, the message goes.
PLACEHOLDER = "%s"
POST = "POST"
GET = "GET"

_REDIRECTS = {GET: frozenset((301, 302, 303, 307, 308)), POST: frozenset((307, 308))}
# Who is redirected to another host must not show it the secrets of the first.
_SECRET = frozenset(("authorization", "cookie"))
# Stands for the message while a URL is taken apart.
_MARKER = "nsq0message0goes0here"
_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))


@dataclass(frozen=True)
class Place:
    """Whom to connect to."""

    is_secure: bool
    host: str
    port: int


class Request:
    """An address to send messages to: a POST with the message as body, or a GET with the message in the URL.

    It also tells where to ask instead when the answer is a redirect.
    """

    def __init__(self, method: str, address: str, headers: Headers, *, has_place: bool = False) -> None:
        """`has_place`: the message goes where %s is in the address. Raises ValueError if that cannot be used."""
        self._method = method
        self._headers = headers
        self._url = fill(address, _MARKER) if has_place else address
        url = parse_url(self._url)
        path = quote(url.path, safe=_PRINTABLE)
        if has_place and _MARKER not in path:
            raise ValueError("%s has to be in the path or the query")
        before, marker, after = path.partition(_MARKER)
        self.place = Place(url.is_secure, url.host, url.port)
        # For logs: a query may hold secrets.
        self.name = url.place + path.partition("?")[0].replace(_MARKER, PLACEHOLDER)
        self._before = f"{method} {before}".encode()
        self._after = after.encode() if marker else None
        self._fields = b" HTTP/1.1\r\n" + _field_lines(url, headers)

    def head(self, message: bytes) -> bytes:
        """All that goes before the body."""
        if self._method == POST:
            return b"%b%bContent-Length: %d\r\n\r\n" % (self._before, self._fields, len(message))
        if self._after is None:
            return b"%b%b\r\n" % (self._before, self._fields)
        return b"%b%b%b%b\r\n" % (self._before, quote_plus(message).encode(), self._after, self._fields)

    def body(self, message: bytes) -> bytes:
        return message if self._method == POST else b""

    def redirected(self, message: bytes, status: int, location: str) -> Request | None:
        """The same for another address; None where this answer is no redirect that can be followed.

        A POST that is answered with 301, 302 or 303 would go on as a GET without the message: it is not followed.
        Raises ValueError where the address cannot be used.
        """
        if not location or status not in _REDIRECTS[self._method]:
            return None
        address = urljoin(self._url.replace(_MARKER, quote_plus(message)), location)
        headers = self._headers
        if parse_url(address).host != self.place.host:
            headers = {name: value for name, value in headers.items() if name.lower() not in _SECRET}
        return Request(self._method, address, headers)


def fill(address: str, escaped: str) -> str:
    """The address with this in place of its %s; %% stands for %."""
    return address.replace("%%", "\0").replace(PLACEHOLDER, escaped).replace("\0", "%")


def _field_lines(url: Url, headers: Headers) -> bytes:
    host = url.place.partition("://")[2].removesuffix(":443" if url.is_secure else ":80")
    defaults = {"Host": host}
    if url.login:
        defaults["Authorization"] = "Basic " + base64.b64encode(url.login.encode()).decode()
    fields = merge_headers(defaults, headers.items())
    return "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode()
