"""HTTP requests to nsqd and nsqlookupd. Each has one deadline for everything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

import gevent
import orjson
from gevent import ssl

from nsqadmin_py.address_blocks import AddressBlocks
from nsqadmin_py.answer_budget import Answer, AnswerBudget
from nsqadmin_py.go_json import rows_in
from nsqadmin_py.options import NsqadminOptions
from nsqd_py.errors import StartError
from nsqd_py.lookup.endpoints import literal_endpoint
from nsqd_py.net.http.client import (
    MAX_STATS_BYTES,
    BadStatus,
    HttpClient,
    HttpClientError,
    Target,
    Url,
    limit_s,
    parse_url,
    resolve_by_hub,
)
from nsqd_py.net.http.foreign_json import load_foreign_json
from nsqd_py.net.tls_options import http_client_context
from nsqd_py.protocol.names import quote
from nsqd_py.runtime.logs import one_line
from nsqd_py.settings.declaration import BadOptions

# The most producers in one answer of an nsqlookupd.
MOST_PRODUCERS = 10_000
_STARTED_AT_A_TIME = 20
# The part of an error answer that the error shows.
_SHOWN_BYTES = 1024

T = TypeVar("T")


class UpstreamError(Exception):
    """A server did not do what it was asked to; str(error) is a single line that names the server and the reason.

    status  the status of its answer; 0 if it did not answer
    """

    def __init__(self, text: str, status: int = 0, message: str = "") -> None:
        super().__init__(one_line(text))
        self.status = status
        self.message = message


@dataclass
class Answers(Generic[T]):
    """The answers of several servers by address, and the errors of the others."""

    good: dict[str, T] = field(default_factory=dict)
    errors: list[UpstreamError] = field(default_factory=list)


class Upstream:
    """Sends requests to any number of servers in parallel."""

    def __init__(self, client: HttpClient, token: TokenRule | None = None) -> None:
        self._client = client
        self._token = token
        self._budget = AnswerBudget()

    def answer(self) -> Answer:
        """Return a context for one answer that `get_bytes` receives, and for what is done with it."""
        return self._budget.answer()

    def get(self, address: str, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Return the JSON that answers a GET. Raises UpstreamError."""
        with self.answer() as answer:
            return parsed(address, self.get_bytes(answer, address, path, query))

    def get_bytes(self, answer: Answer, address: str, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """Raises UpstreamError."""
        return self._exchange("GET", address, path, query or {}, None, answer)

    def post(self, address: str, path: str, query: Mapping[str, str], body: bytes = b"") -> bytes:
        """Raises UpstreamError."""
        with self.answer() as answer:
            return self._exchange("POST", address, path, query, body, answer)

    def ask_url(self, url: str) -> Any:
        """Return the JSON that answers a GET of a whole URL. Raises UpstreamError, ValueError."""
        try:
            return self._client.ask(parse_url(url))
        except HttpClientError as error:
            raise UpstreamError(str(error)) from error

    def _exchange(
        self, method: str, address: str, path: str, query: Mapping[str, str], body: bytes | None, answer: Answer
    ) -> bytes:
        url = _url(address, f"{path}?{urlencode(query)}" if query else path)
        try:
            try:
                return self._exchange_with_login(method, url, body, answer)
            except BadStatus as error:
                port = error.https_port
                if url.is_secure or not port:
                    raise
                return self._exchange_with_login(method, replace(url, is_secure=True, port=port), body, answer)
        except BadStatus as error:
            text = f"got response {error.status} {error.reason} {quote(error.body[:_SHOWN_BYTES])}"
            raise UpstreamError(text, error.status, _message(error.body)) from error
        except HttpClientError as error:
            raise UpstreamError(f"{method} {url.place}{path}: {error}") from error

    def _exchange_with_login(self, method: str, url: Url, body: bytes | None, answer: Answer) -> bytes:
        """Send the token to servers that may see it, and to no others."""
        headers = self._token.headers_for(url) if self._token is not None else {}
        return self._client.exchange(method, url, body, headers, answer.admit)


class TokenRule:
    """The bearer token of `--http-client-token-file`, and the servers that may see it.

    Anybody can register an address with an nsqlookupd. So over plain HTTP the token is sent only to hosts that the
    options of nsqadmin name. Other hosts get it only over HTTPS with a certificate that is checked.
    """

    def __init__(self, token: str, hosts: Iterable[str], *, checks_certificates: bool) -> None:
        """`hosts` are host names, IP addresses and blocks of them in CIDR notation. Raises ValueError."""
        self._headers = {"Authorization": f"Bearer {token}"}
        self._checks_certificates = checks_certificates
        named = [host.lower() for host in hosts]
        self._blocks = AddressBlocks(host for host in named if "/" in host)
        self._hosts = frozenset(host for host in named if "/" not in host)

    def headers_for(self, url: Url) -> dict[str, str]:
        """Return the headers with the token, or none."""
        host = url.host.lower()
        is_named = host in self._hosts or host in self._blocks
        return self._headers if is_named or (url.is_secure and self._checks_certificates) else {}


def ask_all(addresses: Iterable[str], ask: Callable[[str], T]) -> Answers[T]:
    """Ask each address in parallel, and wait for all answers: at most for one deadline."""
    answers: Answers[T] = Answers()

    def one(address: str) -> None:
        try:
            answers.good[address] = ask(address)
        except UpstreamError as error:
            answers.errors.append(error)

    wanted = list(dict.fromkeys(addresses))
    if len(wanted) == 1:
        one(wanted[0])
        return answers
    greenlets: list[gevent.Greenlet[..., None]] = []
    try:
        for address in wanted:
            greenlets.append(gevent.spawn(one, address))
            if not len(greenlets) % _STARTED_AT_A_TIME:
                gevent.sleep(0)  # each connect takes 0.2 ms, and there may be thousands
        gevent.joinall(greenlets, raise_error=True)
    finally:
        gevent.killall(greenlets, block=False)
    answers.good = {address: answers.good[address] for address in wanted if address in answers.good}
    return answers


def parsed(address: str, body: bytes) -> Any:
    """Return the JSON of an answer. Raises UpstreamError."""
    try:
        return load_foreign_json(body)
    except ValueError as error:
        raise UpstreamError(f"{place_of(address)}: {error}") from error


def named_producers(address: str, document: Any) -> list[Mapping[str, Any]]:
    """Return the nsqds that an nsqlookupd names. Raises UpstreamError if there are too many to ask."""
    rows = rows_in(document, "producers")
    if len(rows) > MOST_PRODUCERS:
        raise UpstreamError(f"{place_of(address)}: names {len(rows)} nsqds, but at most {MOST_PRODUCERS} can be asked")
    return rows


def place_of(address: str) -> str:
    """Return the address as texts show it, without a user and password."""
    return address.rpartition("@")[2].removeprefix("https://").removeprefix("http://")


def _url(address: str, path: str) -> Url:
    try:
        return parse_url(f"{address if '://' in address else f'http://{address}'}{path}")
    except ValueError as error:  # an nsqlookupd may name an invalid address
        raise UpstreamError(f"{place_of(address)}: {error}") from error


def _message(body: bytes) -> str:
    """Return the `message` of a JSON answer; empty if it has none."""
    try:
        document = orjson.loads(body)
    except ValueError:
        return ""
    message = document.get("message") if isinstance(document, dict) else None
    return message if isinstance(message, str) else ""


def make_upstream(options: NsqadminOptions) -> Upstream:
    """Return the client of all requests, with the time-outs and certificates of the options. Raises StartError."""
    return Upstream(
        HttpClient(
            connect_timeout_s=limit_s(options.http_client_connect_timeout_ns),
            request_timeout_s=limit_s(options.http_client_request_timeout_ns),
            resolve=_resolve,
            tls=_tls_context(options),
            max_answer_bytes=MAX_STATS_BYTES,
        ),
        _token_rule(options),
    )


def _resolve(host: str, port: int) -> Sequence[Target]:
    """Resolve a name in a thread; an IP address needs none. Raises OSError."""
    endpoint = literal_endpoint(host, port)
    return resolve_by_hub(host, port) if endpoint is None else [(endpoint.family, endpoint.target)]


def _token_rule(options: NsqadminOptions) -> TokenRule | None:
    """Raises StartError."""
    token_file = options.http_client_token_file
    if not token_file:
        return None
    addresses = (*options.lookupd_http_address, *options.nsqd_http_address)
    named = [parse_url(address if "://" in address else f"http://{address}").host for address in addresses]
    try:
        return TokenRule(
            _read_token(token_file),
            [*named, *options.http_client_token_host],
            checks_certificates=not options.http_client_tls_insecure_skip_verify,
        )
    except ValueError as error:
        raise StartError(f"--http-client-token-host: {error}") from error


def _read_token(token_file: str) -> str:
    try:
        token = Path(token_file).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a token"
        raise StartError(f"cannot use --http-client-token-file {token_file}: {reason}") from error
    if not token or not token.isprintable() or " " in token:
        raise StartError(f"cannot use --http-client-token-file {token_file}: expected one token")
    return token


def _tls_context(options: NsqadminOptions) -> Any:
    try:
        return http_client_context(
            options, ssl.SSLContext, verifies=not options.http_client_tls_insecure_skip_verify
        )
    except BadOptions as error:
        raise StartError(str(error)) from error
