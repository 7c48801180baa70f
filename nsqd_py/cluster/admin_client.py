"""The admin client: HTTP requests to nsqds and nsqlookupds. It does no I/O, and needs no gevent: a backend sends its requests.

`Upstream` (upstream.py) is the backend for greenlets, of nsqadmin and nsq-stat. `HttpAccess` (access.py) is the one for threads,
of Spark, spark-replay and nsq-to-file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from email.message import Message
from typing import Any
from urllib.parse import urlencode

from nsqd_py.cluster.values import Pace, text_in
from nsqd_py.net.http import BadStatus, HttpClientError, Url, parse_url
from nsqd_py.protocol.names import quote
from nsqd_py.runtime.documents import load_foreign_json
from nsqd_py.runtime.logs.daemon_log import one_line

# The part of an error answer that the error shows.
_SHOWN_BYTES = 1024


class UpstreamError(HttpClientError):
    """A server did not do what it was asked to; str(error) is a single line that names the server and the reason.

    reason   the same without the server
    status   the status of its answer; 0 if it did not answer
    body     its answer
    address  where it was asked last: at its HTTPS port, if it refused a request without TLS
    """

    def __init__(
        self, reason: str, server: str = "", status: int = 0, body: bytes = b"", address: str = ""
    ) -> None:
        super().__init__(one_line(f"{server}: {reason}" if server else reason))
        self.reason = one_line(reason)
        self.status = status
        self.body = body
        self.address = address

    @property
    def message(self) -> str:
        """The `message` of a JSON answer; empty if it has none."""
        try:
            return text_in(load_foreign_json(self.body), "message")
        except ValueError:
            return ""


@dataclass
class Answer:
    """One answer, from its request until it has been processed.

    admit  waits until an answer of this size may be received, while the deadline of the request keeps running; None: at any time
    date   the Date header
    """

    admit: Callable[[int], object] | None = None
    headers: Message = field(default_factory=Message)
    date: str = ""

    def note_headers(self, headers: Message) -> None:
        self.headers = headers
        self.date = headers.get("Date", "")


class AdminClient:
    """Asks nsqds and nsqlookupds over HTTP. A backend is a subclass: it has `fetch`, and replaces other primitives."""

    # ---- primitives

    parse_url: Callable[[str], Url] = staticmethod(parse_url)
    pace: Pace = iter  # iterates over the parts of a long answer; other greenlets may run between two of them

    def fetch(self, url: Url, answer: Answer) -> bytes:
        """Send a GET and return the body of a 200. Raises HttpClientError, and BadStatus for another status.

        Blocks only the greenlet or thread that asks. `answer` gets the headers.
        """
        raise NotImplementedError

    def https_instead(self, address: str, url: Url, refusal: BadStatus) -> Url | None:
        """Return the https URL to ask after a refusal; None if there is none."""
        return refusal.https_instead(url)

    def answer(self) -> AbstractContextManager[Answer]:
        """Return a context for one answer that `get_bytes` receives, and for what is done with it."""
        return nullcontext(Answer())

    # ---- requests

    def get(self, address: str, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Return the JSON that answers a GET. Raises UpstreamError."""
        with self.answer() as answer:
            return parsed(address, self.get_bytes(answer, address, path, query), self.pace)

    def get_bytes(
        self, answer: Answer, address: str, path: str, query: Mapping[str, str] | None = None
    ) -> bytes:
        """Raises UpstreamError."""
        return self.exchange("GET", address, path, query or {}, lambda url: self.fetch(url, answer))

    def exchange(
        self, method: str, address: str, path: str, query: Mapping[str, str], send: Callable[[Url], bytes]
    ) -> bytes:
        """Let `send` send a request, and once more if the server refuses it and names another URL. Raises UpstreamError."""
        scheme = "" if "://" in address else "http://"
        try:
            url = self.parse_url(f"{scheme}{address}{path}{'?' if query else ''}{urlencode(query)}")
        except ValueError as error:  # an nsqlookupd may name an invalid address
            raise UpstreamError(str(error), shown_address(address)) from error
        asked = address
        try:
            try:
                return send(url)
            except BadStatus as refusal:
                secure_url = self.https_instead(address, url, refusal)
                if secure_url is None:
                    raise
            url = secure_url
            asked = secure_url.origin
            return send(url)
        except BadStatus as error:
            text = f"got response {error.status} {error.reason} {quote(error.body[:_SHOWN_BYTES])}"
            raise UpstreamError(text, "", error.status, error.body, asked) from error
        except HttpClientError as error:
            raise UpstreamError(str(error), f"{method} {url.origin}{path}") from error


def parsed(address: str, body: bytes, pace: Pace = iter) -> Any:
    """Return the JSON of an answer. Raises UpstreamError."""
    try:
        return load_foreign_json(body, pace)
    except ValueError as error:
        raise UpstreamError(str(error), shown_address(address)) from error


def shown_address(address: str) -> str:
    """Return the address as texts show it, without a user and password."""
    return address.rpartition("@")[2].removeprefix("https://").removeprefix("http://")
