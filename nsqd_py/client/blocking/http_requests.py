"""Requests without a body to nsqlookupds and nsqds. They block only the thread or greenlet that asks."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from nsqd_py.client.blocking.backend import THREADS, Backend
from nsqd_py.client.blocking.connection import tls_context
from nsqd_py.client.options import ClientOptions
from nsqd_py.protocol.wrong_port import not_http

if TYPE_CHECKING:
    from http.client import HTTPMessage

_READ_BYTES = 256 * 1024


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
    if login:
        return {"Authorization": f"Basic {b64encode(unquote(login).encode()).decode()}"}
    return {}


def request(
    method: str,
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
    """Return the answer to a request without a body. The server ends it by closing the connection. Raises NoAnswer.

    answer_s    time limit of the whole answer, `step_s` of connecting and of each read; None: no limit
    most_bytes  of the whole answer; `most_lines` of it, also of chunks, which take time to parse
    """
    import http.client  # takes 20 ms

    wait_s = partial(_wait_s, monotonic() + answer_s if answer_s else None, step_s)
    try:
        data = _received(method, url, headers, options, wait_s, most_bytes, backend)
        if most_lines is not None and data.count(b"\r\n") > most_lines:
            raise ValueError("the answer has too many lines or chunks")
        # The part of a socket that is read from.
        received: Any = SimpleNamespace(makefile=lambda mode: io.BytesIO(data))
        response = http.client.HTTPResponse(received, method=method)
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
    method: str,
    url: str,
    headers: Mapping[str, str],
    options: ClientOptions,
    wait_s: Callable[[], float | None],
    most_bytes: int,
    backend: Backend,
) -> bytes:
    """Return all bytes that a server sends. `wait_s` says how long the next step may take. Raises OSError and ValueError."""
    parts = urlsplit(url)
    fields = {"Host": parts.netloc, "Connection": "close", **headers}
    if method != "GET":
        fields["Content-Length"] = "0"
    lines = [f"{name}: {value}" for name, value in fields.items()]
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    sock = backend.create_connection((parts.hostname, parts.port), wait_s())
    try:
        if parts.scheme == "https":
            context = tls_context(options, backend.ssl_context_class())
            sock = context.wrap_socket(sock, server_hostname=parts.hostname)
        sock.sendall("\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode())
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
    if step_s is None:
        return left_s
    return min(left_s, step_s)
