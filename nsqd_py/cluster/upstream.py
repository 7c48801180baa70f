"""The admin client on gevent: requests to many servers in parallel, and the memory that their answers take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import gevent
from gevent.event import Event

from nsqd_py.cluster.admin_client import AdminClient, Answer, UpstreamError, shown_address
from nsqd_py.cluster.values import rows_in
from nsqd_py.net.http import Url
from nsqd_py.net.http.client import HttpClient
from nsqd_py.runtime.documents import MOST_NSQDS
from nsqd_py.runtime.threads import in_slices

# Answers up to this size need no permission: a thousand of them take less memory than one larger answer.
FREE_BYTES = 256 * 1024
# Of the answers that are larger than this, only one is received at a time.
LARGE_BYTES = 8 * 1024 * 1024
# All other answers share this much memory.
SHARED_BYTES = 32 * 1024 * 1024

T = TypeVar("T")


class AnswerBudget:
    """Admits answers while memory is left for them. Small answers do not wait for large ones."""

    def __init__(self) -> None:
        self.shared_bytes = 0
        self.has_large = False
        self._changed = Event()

    @contextmanager
    def answer(self) -> Iterator[Answer]:
        """Yield an answer, and give back what it has taken. Only its first long part is asked for."""
        taken: list[int] = []

        def admit(most_bytes: int) -> None:
            if most_bytes > FREE_BYTES and not taken:
                self._take(most_bytes)
                taken.append(most_bytes)

        try:
            yield Answer(admit)
        finally:
            for most_bytes in taken:
                self._give_back(most_bytes)

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


@dataclass
class Answers(Generic[T]):
    """The answers of several servers by address, and the errors of the others."""

    good: dict[str, T] = field(default_factory=dict)
    errors: list[UpstreamError] = field(default_factory=list)


class Upstream(AdminClient):
    """The admin client of greenlets. Their requests share one budget for answers.

    headers_for  returns headers for a URL, such as a token
    """

    pace = staticmethod(in_slices)

    def __init__(
        self, client: HttpClient, headers_for: Callable[[Url], dict[str, str]] = lambda url: {}
    ) -> None:
        self._client = client
        self._headers_for = headers_for
        self._budget = AnswerBudget()

    def answer(self) -> AbstractContextManager[Answer]:
        return self._budget.answer()

    def fetch(self, url: Url, answer: Answer) -> bytes:
        return self._send("GET", url, None, answer)

    def post(self, address: str, path: str, query: Mapping[str, str], body: bytes = b"") -> bytes:
        """Raises UpstreamError."""
        with self.answer() as answer:
            return self.exchange(
                "POST", address, path, query, lambda url: self._send("POST", url, body, answer)
            )

    def _send(self, method: str, url: Url, body: bytes | None, answer: Answer) -> bytes:
        headers = self._headers_for(url)
        return self._client.exchange(method, url, body, headers, answer.admit, answer.note_headers)

    def get_url(self, url: Url) -> bytes:
        """Send a GET without the headers of `headers_for`, to a server that is no nsqd. Raises HttpClientError."""
        with self.answer() as answer:
            return self._client.exchange("GET", url, admit=answer.admit)


def ask_all(addresses: Iterable[str], ask: Callable[[str], T]) -> Answers[T]:
    """Ask each address in parallel, and wait for all answers: at most for one deadline."""
    answers: Answers[T] = Answers()

    def one(address: str) -> None:
        try:
            answers.good[address] = ask(address)
        except UpstreamError as error:
            answers.errors.append(error)

    unique = list(dict.fromkeys(addresses))
    if len(unique) == 1:
        one(unique[0])
        return answers
    greenlets: list[gevent.Greenlet[..., None]] = []
    try:
        for address in in_slices(unique):
            greenlets.append(gevent.spawn(one, address))
        gevent.joinall(greenlets, raise_error=True)
    finally:
        gevent.killall(greenlets, block=False)
    answers.good = {address: answers.good[address] for address in unique if address in answers.good}
    return answers


def named_producers(address: str, document: Any) -> list[Mapping[str, Any]]:
    """Return the first MOST_NSQDS nsqds that an nsqlookupd names. Raises UpstreamError."""
    if not isinstance(document, dict) or not isinstance(document.get("producers"), list):
        raise UpstreamError("the answer is not from an nsqlookupd", shown_address(address))
    return rows_in(document, "producers")[:MOST_NSQDS]
