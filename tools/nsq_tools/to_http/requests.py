"""The requests of a command line: addresses, headers, redirects. No I/O."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import quote, quote_plus, urljoin

from nsq_tools.to_http.options import DEFAULT_CONTENT_TYPE, ToHttpOptions
from nsqd_py.client.tool_checks import check_name, check_sources, client_options
from nsqd_py.net.http import Url, parse_url
from nsqd_py.net.http.client import http_client
from nsqd_py.settings.declaration import BadOptions, bad_options, check_one_of
from nsqd_py.version import NSQ_VERSION

Headers = Mapping[str, str]

# A --get address has the message here.
PLACEHOLDER = "%s"
POST = "POST"
GET = "GET"

_REDIRECTS = {GET: (301, 302, 303, 307, 308), POST: (307, 308)}
# Other headers may be secrets, such as X-Api-Key. They are not sent where only a redirect says so.
_NO_SECRETS = ("accept", "content-type", "user-agent")
# Represents the message while a URL is parsed.
_MARKER = "nsq0message0goes0here"
_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_OWN = ("content-length", "transfer-encoding", "trailer")


# --- headers


def parse_header(text: str) -> tuple[str, str]:
    """Return the name and value of a --header such as `name: value`. Raises ValueError with the reason."""
    name, _, value = map(str.strip, text.partition(":"))
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


# --- requests


class Server(NamedTuple):
    """The server to connect to."""

    is_secure: bool
    host: str
    port: int


class HttpRequest:
    """The request for an address: a POST with the message as the body, or a GET with the message in the URL."""

    def __init__(self, method: str, address: str, headers: Headers, *, has_placeholder: bool = False) -> None:
        """`has_placeholder`: the message replaces %s in the address. Raises ValueError for an address that cannot be used."""
        self.method = method
        self._headers = headers
        self._url = address
        if has_placeholder:
            self._url = address.replace("%%", "\0").replace(PLACEHOLDER, _MARKER).replace("\0", "%")
        url = parse_url(self._url)
        path = quote(url.path, safe=_PRINTABLE)
        if has_placeholder and _MARKER not in path:
            raise ValueError("%s must be in the path or the query")
        self.server = Server(url.is_secure, url.host, url.port)
        # For logs; without the query, which may hold secrets.
        self.name = url.origin + path.partition("?")[0].replace(_MARKER, PLACEHOLDER)
        lines = (f"{name}: {value}\r\n" for name, value in _fields(url, headers).items())
        fields = "".join(lines)
        self._before, marker, self._after = f"{method} {path} HTTP/1.1\r\n{fields}".encode().partition(
            _MARKER.encode()
        )
        self._has_placeholder = bool(marker)

    def encode(self, message: bytes) -> bytes:
        """Return the request with this message, as it is sent."""
        if self.method == POST:
            return b"%bContent-Length: %d\r\n\r\n%b" % (self._before, len(message), message)
        quoted = b""
        if self._has_placeholder:
            quoted = quote_plus(message).encode()
        return b"%b%b%b\r\n" % (self._before, quoted, self._after)

    def redirected(self, message: bytes, status: int, location: str) -> HttpRequest | None:
        """Return the request to follow a redirect, or None if the response is not a redirect that can be followed.

        After 301, 302 or 303, a POST would have to continue as a GET without the message, so these are not followed.
        Raises ValueError for an address that cannot be used.
        """
        if not location or status not in _REDIRECTS[self.method]:
            return None
        address = urljoin(self._url.replace(_MARKER, quote_plus(message)), location)
        url = parse_url(address)
        headers = self._headers
        is_less_secure = self.server.is_secure and not url.is_secure
        if is_less_secure or url.host != self.server.host:
            headers = {name: value for name, value in headers.items() if name.lower() in _NO_SECRETS}
        return HttpRequest(self.method, address, headers)


def _fields(url: Url, headers: Headers) -> Headers:
    host = url.origin.partition("://")[2].removesuffix(":443" if url.is_secure else ":80")
    defaults = {"Host": host}
    if url.login:
        login = base64.b64encode(url.login.encode())
        defaults["Authorization"] = "Basic " + login.decode()
    return merge_headers(defaults, headers.items())


# --- options


def check(options: ToHttpOptions) -> None:
    """Raise BadOptions if the options contradict each other. The order of the checks is that of Go's nsq_to_http."""
    headers = headers_of(options)
    if not options.topic or not options.channel:
        raise BadOptions("--topic and --channel are required")
    _check_content_type(options)
    check_sources(options)
    _check_addresses(options)
    if not 0.0 <= options.sample <= 1.0:
        raise BadOptions("--sample must be between 0.0 and 1.0")
    check_name(options.topic, "topic")
    check_name(options.channel, "channel")
    make_requests(options, headers)
    client_options(options.consumer_opt, "consumer-opt")
    http_client(options)


def _check_content_type(options: ToHttpOptions) -> None:
    if options.content_type == DEFAULT_CONTENT_TYPE:
        return
    if not options.post:
        raise BadOptions("--content-type only used with --post")
    if not options.content_type:
        raise BadOptions("--content-type requires a value when used")
    if _CONTROL.search(options.content_type):
        raise BadOptions("--content-type has characters that are not allowed in a header")


def _check_addresses(options: ToHttpOptions) -> None:
    check_one_of(options, "get", "post")
    for address in options.get:
        if address.count("%s") != 1:
            raise BadOptions(f"invalid GET address - must have %s once, where the message goes: {address}")


def headers_of(options: ToHttpOptions) -> Headers:
    """Return the headers of the requests. Raises BadOptions."""
    defaults = {"User-Agent": f"nsq_to_http v{NSQ_VERSION}"}
    if options.post:
        defaults["Content-Type"] = options.content_type
    with bad_options(""):
        return merge_headers(defaults, map(parse_header, options.header))


def make_requests(options: ToHttpOptions, headers: Headers) -> dict[str, HttpRequest]:
    """Return a request for each address. Raises BadOptions."""
    method, flag = (POST, "post") if options.post else (GET, "get")
    requests = {}
    for address in options.post or options.get:
        with bad_options(f"--{flag} {address}: "):
            requests[address] = HttpRequest(method, address, headers, has_placeholder=method == GET)
    return requests
