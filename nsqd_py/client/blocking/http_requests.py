"""GET requests to nsqlookupds and nsqds. They block only the thread or greenlet that asks."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from nsqd_py.client.blocking.backend import THREADS, Backend
from nsqd_py.client.blocking.connection import tls_context
from nsqd_py.client.lookup import lookup_headers
from nsqd_py.client.options import ClientOptions
from nsqd_py.protocol.wrong_port import not_http
from nsqd_py.runtime.documents import load_foreign_json

if TYPE_CHECKING:
    from http.client import HTTPMessage

_READ_BYTES = 256 * 1024
_UNAUTHORIZED, _FORBIDDEN = 401, 403


class NoAnswer(Exception):
    """A request failed; str(error) says why, without the address."""


class Answer(NamedTuple):
    """An answer to a request."""

    status: int
    reason: str
    headers: HTTPMessage
    body: bytes


def login_header(login: str) -> dict[str, str]:
    """Return the header of a login, which is quoted as in a URL."""
    return {"Authorization": f"Basic {b64encode(unquote(login).encode()).decode()}"} if login else {}


def get(
    url: str,
    headers: Mapping[str, str],
    options: ClientOptions,
    answer_s: float | None,
    most_bytes: int,
    *,
    step_s: float | None = None,
    most_lines: int | None = None,
    backend: Backend = THREADS,
) -> Answer:
    """Return the answer to a GET. The server ends it by closing the connection. Raises NoAnswer.

    answer_s    time limit of the whole answer, `step_s` of connecting and of each read; None: no limit
    most_bytes  of the whole answer; `most_lines` of it, also of chunks, which take time to parse
    """
    import http.client  # takes 20 ms

    wait_s = partial(_wait_s, monotonic() + answer_s if answer_s else None, step_s)
    try:
        data = _received(url, headers, options, wait_s, most_bytes, backend)
        if most_lines is not None and data.count(b"\r\n") > most_lines:
            raise ValueError("the answer has too many lines or chunks")
        # The part of a socket that is read from.
        received: Any = SimpleNamespace(makefile=lambda mode: io.BytesIO(data))
        response = http.client.HTTPResponse(received, method="GET")
        response.begin()
        return Answer(response.status, response.reason, response.headers, response.read())
    except TimeoutError as error:
        limits_s = [limit_s for limit_s in (answer_s, step_s) if limit_s]
        raise NoAnswer(f"no answer within {min(limits_s):g}s" if limits_s else "timed out") from error
    except http.client.BadStatusLine as error:
        raise NoAnswer(not_http(str(error))) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoAnswer(getattr(error, "strerror", None) or str(error)) from error


def _received(
    url: str,
    headers: Mapping[str, str],
    options: ClientOptions,
    wait_s: Callable[[], float | None],
    most_bytes: int,
    backend: Backend,
) -> bytes:
    """Return all bytes that a server sends. `wait_s` says how long the next step may take. Raises OSError and ValueError."""
    parts = urlsplit(url)
    lines = [
        f"{name}: {value}" for name, value in {"Host": parts.netloc, "Connection": "close", **headers}.items()
    ]
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    sock = backend.create_connection((parts.hostname, parts.port), wait_s())
    try:
        if parts.scheme == "https":
            context = tls_context(options, backend.ssl_context_class())
            sock = context.wrap_socket(sock, server_hostname=parts.hostname)
        sock.sendall("\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode())
        answer = bytearray()
        while data := sock.recv(_READ_BYTES):
            answer += data
            if len(answer) > most_bytes:
                raise ValueError(f"the answer is longer than {most_bytes} bytes")
            sock.settimeout(wait_s())
    finally:
        sock.close()
    if not answer:
        raise ValueError("the connection was closed before an answer came")
    return bytes(answer)


def _wait_s(deadline_s: float | None, step_s: float | None) -> float | None:
    """Return how long the next step may take. Raises TimeoutError."""
    if deadline_s is None:
        return step_s
    left_s = deadline_s - monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s if step_s is None else min(left_s, step_s)


# ---- with a login or a token, which is sent over TLS only


@dataclass(frozen=True)
class HttpAccess:
    """The settings of requests to nsqds and nsqlookupds.

    login      the `user:password` of an address, or empty
    named      the servers that the user has named, as `servers_in` returns them
    timeout_s  of each read of an answer; `answer_s` of all of it
    """

    client: ClientOptions
    login: str = field(default="", repr=False)
    named: frozenset[str] = frozenset()
    timeout_s: float = 30.0
    answer_s: float = 120.0

    def get(self, address: str, path: str, most_bytes: int) -> tuple[str, Answer]:
        """Return the address that has answered, and its answer. Raises NoAnswer.

        The token or login is sent over TLS only, to servers that may see it: an nsqd that refuses a plain request is asked
        again at its HTTPS port.
        """
        answer = self._get(address, path, most_bytes)
        if "://" not in address and (port := self._https_port(address, answer)):
            address = f"https://{address.rpartition(':')[0]}:{port}"
            answer = self._get(address, path, most_bytes)
        return address, answer

    def may_see_secrets(self, server: str) -> bool:
        """True if the login or token may be sent over TLS to a server (`host:port`).

        Anybody can register with an nsqlookupd, and answer with another port for HTTPS. A certificate of a public
        authority proves only that he owns the name that he registered.
        """
        has_own_authority = bool(self.client.tls_root_ca_file) and not self.client.tls_insecure_skip_verify
        return has_own_authority or server.lower() in self.named

    def headers_for(self, server: str) -> dict[str, str]:
        """Return the headers of a request over TLS: with the login, or else the token, if the server may see it."""
        headers = lookup_headers(self.client) | login_header(self.login)
        if not self.may_see_secrets(server):
            headers.pop("Authorization", None)
        return headers

    def why_unauthorized(self, server: str) -> str:
        """Return why a server that wants a login or token did not get it; empty if it did, or there is none."""
        if self.may_see_secrets(server) or not (self.login or self.client.auth_secret):
            return ""
        return (
            ". Logins and tokens are sent over TLS to addresses that options name as https://host:port, and to servers with "
            "a certificate of tls_root_ca_file"
        )

    def _get(self, address: str, path: str, most_bytes: int) -> Answer:
        if address.startswith("https://"):
            headers = self.headers_for(address.removeprefix("https://"))
            return get(
                f"{address}{path}", headers, self.client, self.answer_s, most_bytes, step_s=self.timeout_s
            )
        url = f"http://{address.removeprefix('http://')}{path}"
        return get(url, {}, self.client, self.answer_s, most_bytes, step_s=self.timeout_s)

    def _https_port(self, address: str, answer: Answer) -> int | None:
        """Return the port that a refusal without TLS names; after one without a token, that of /info. None if there is none."""
        if answer.status == _UNAUTHORIZED:
            answer = self._get(address, "/info", _READ_BYTES)
        elif answer.status != _FORBIDDEN:
            return None
        with suppress(ValueError, TypeError, KeyError):
            return int(load_foreign_json(answer.body)["https_port"])
        return None


def servers_in(addresses: Iterable[str]) -> frozenset[str]:
    """Return addresses without logins, such as https://a:4152, as `HttpAccess.named` has them."""
    return frozenset(
        address.removeprefix("https://").removeprefix("http://").lower() for address in addresses
    )
