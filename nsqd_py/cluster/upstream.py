"""HTTP requests to nsqd and nsqlookupd. Each has one deadline for everything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

import gevent
import orjson
from gevent.event import Event

from nsqd_py.cluster.values import rows_in
from nsqd_py.net.http.client import BadStatus, HttpClient, HttpClientError, Url, parse_url
from nsqd_py.protocol.names import quote
from nsqd_py.runtime.documents import MOST_NSQDS, load_foreign_json
from nsqd_py.runtime.logs.daemon_log import one_line
from nsqd_py.runtime.threads import in_slices

# The part of an error answer that the error shows.
_SHOWN_BYTES = 1024

T = TypeVar("T")


class UpstreamError(Exception):
    """A server did not do what it was asked to; str(error) is a single line that names the server and the reason.

    reason  the same without the server
    status  the status of its answer; 0 if it did not answer
    """

    def __init__(self, reason: str, server: str = "", status: int = 0, message: str = "") -> None:
        super().__init__(one_line(f"{server}: {reason}" if server else reason))
        self.reason = one_line(reason)
        self.status = status
        self.message = message


# Answers up to this size need no permission: a thousand of them take less memory than one larger answer.
FREE_BYTES = 256 * 1024
# Of the answers that are larger than this, only one is received at a time.
LARGE_BYTES = 8 * 1024 * 1024
# All other answers share this much memory.
SHARED_BYTES = 32 * 1024 * 1024


class AnswerBudget:
    """Admits answers while memory is left for them. Small answers do not wait for large ones."""

    def __init__(self) -> None:
        self.shared_bytes = 0
        self.has_large = False
        self._changed = Event()

    def answer(self) -> Answer:
        return Answer(self)

    def _take(self, most_bytes: int) -> None:
        while not self._fits(most_bytes):
            self._changed.clear()
            self._changed.wait()
        if most_bytes > LARGE_BYTES:
            self.has_large = True
        else:
            self.shared_bytes += most_bytes

    def _fits(self, most_bytes: int) -> bool:
        if most_bytes > LARGE_BYTES:
            return not self.has_large
        return self.shared_bytes + most_bytes <= SHARED_BYTES

    def _give_back(self, most_bytes: int) -> None:
        if most_bytes > LARGE_BYTES:
            self.has_large = False
        else:
            self.shared_bytes -= most_bytes
        self._changed.set()


class Answer:
    """One answer, from its request until it has been processed: a context manager."""

    def __init__(self, budget: AnswerBudget) -> None:
        self.date = ""  # the Date header of the answer
        self._budget = budget
        self._taken_bytes = 0

    def note_date(self, date: str) -> None:
        self.date = date

    def admit(self, most_bytes: int) -> None:
        """Wait until an answer of this size may be received. The deadline of the request keeps running."""
        if most_bytes > FREE_BYTES and not self._taken_bytes:
            self._budget._take(most_bytes)
            self._taken_bytes = most_bytes

    def __enter__(self) -> Answer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._taken_bytes:
            self._budget._give_back(self._taken_bytes)


@dataclass
class Answers(Generic[T]):
    """The answers of several servers by address, and the errors of the others."""

    good: dict[str, T] = field(default_factory=dict)
    errors: list[UpstreamError] = field(default_factory=list)


class Upstream:
    """Sends requests to any number of servers in parallel. `headers_for` returns headers for a URL, such as a token."""

    def __init__(
        self, client: HttpClient, headers_for: Callable[[Url], dict[str, str]] = lambda url: {}
    ) -> None:
        self._client = client
        self._headers_for = headers_for
        self._budget = AnswerBudget()

    def answer(self) -> Answer:
        """Return a context for one answer that `get_bytes` receives, and for what is done with it."""
        return self._budget.answer()

    def get(self, address: str, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Return the JSON that answers a GET. Raises UpstreamError."""
        with self.answer() as answer:
            return parsed(address, self.get_bytes(answer, address, path, query))

    def get_bytes(
        self, answer: Answer, address: str, path: str, query: Mapping[str, str] | None = None
    ) -> bytes:
        """Raises UpstreamError."""
        return self._exchange("GET", address, path, query or {}, None, answer)

    def post(self, address: str, path: str, query: Mapping[str, str], body: bytes = b"") -> bytes:
        """Raises UpstreamError."""
        with self.answer() as answer:
            return self._exchange("POST", address, path, query, body, answer)

    def get_url(self, url: Url) -> bytes:
        """Send a GET without the headers of `headers_for`, to a server that is no nsqd. Raises HttpClientError."""
        with self.answer() as answer:
            return self._client.exchange("GET", url, admit=answer.admit)

    def _exchange(
        self,
        method: str,
        address: str,
        path: str,
        query: Mapping[str, str],
        body: bytes | None,
        answer: Answer,
    ) -> bytes:
        url = _url(address, f"{path}?{urlencode(query)}" if query else path)
        try:
            try:
                return self._client.exchange(
                    method, url, body, self._headers_for(url), answer.admit, answer.note_date
                )
            except BadStatus as error:
                secure_url = error.https_instead(url)
                if secure_url is None:
                    raise
                url = secure_url
                return self._client.exchange(
                    method, url, body, self._headers_for(url), answer.admit, answer.note_date
                )
        except BadStatus as error:
            text = f"got response {error.status} {error.reason} {quote(error.body[:_SHOWN_BYTES])}"
            raise UpstreamError(text, "", error.status, _message(error.body)) from error
        except HttpClientError as error:
            raise UpstreamError(str(error), f"{method} {url.place}{path}") from error


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
        for address in in_slices(wanted):
            greenlets.append(gevent.spawn(one, address))
        gevent.joinall(greenlets, raise_error=True)
    finally:
        gevent.killall(greenlets, block=False)
    answers.good = {address: answers.good[address] for address in wanted if address in answers.good}
    return answers


def parsed(address: str, body: bytes) -> Any:
    """Return the JSON of an answer. Raises UpstreamError."""
    try:
        return load_foreign_json(body, in_slices)
    except ValueError as error:
        raise UpstreamError(str(error), place_of(address)) from error


def named_producers(address: str, document: Any) -> list[Mapping[str, Any]]:
    """Return the first MOST_NSQDS nsqds that an nsqlookupd names. Raises UpstreamError."""
    if not isinstance(document, dict) or not isinstance(document.get("producers"), list):
        raise UpstreamError("the answer is not from an nsqlookupd", place_of(address))
    return rows_in(document, "producers")[:MOST_NSQDS]


def place_of(address: str) -> str:
    """Return the address as texts show it, without a user and password."""
    return address.rpartition("@")[2].removeprefix("https://").removeprefix("http://")


def _url(address: str, path: str) -> Url:
    try:
        return parse_url(f"{address if '://' in address else f'http://{address}'}{path}")
    except ValueError as error:  # an nsqlookupd may name an invalid address
        raise UpstreamError(str(error), place_of(address)) from error


def _message(body: bytes) -> str:
    """Return the `message` of a JSON answer; empty if it has none."""
    try:
        document = orjson.loads(body)
    except ValueError:
        return ""
    message = document.get("message") if isinstance(document, dict) else None
    return message if isinstance(message, str) else ""
