"""The addresses of one store. A request goes to the member that answered last, then to the others in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from nsqd_py.lease.store import LeaseError, LeaseUrl
from nsqd_py.net.http.client import BadStatus, HttpClientError, Unreachable, Url, parse_url

T = TypeVar("T")


class Members:
    """The members of the store that a lease's URL names. `product` is its name for errors."""

    def __init__(self, product: str, url: LeaseUrl) -> None:
        scheme = "https" if url.is_secure else "http"
        self._product = product
        self._urls = [parse_url(f"{scheme}://{address}/") for address in url.addresses]

    def ask(self, send: Callable[[Url], T], what: str, *, may_repeat: bool = True) -> T:
        """Return the answer of the first member that gives one to `send`. Raises LeaseError.

        what        names the request in errors; the error of a refusal has the BadStatus as its cause
        may_repeat  False if a request that may have been carried out must not be sent to another member
        """
        failures = []
        for _ in range(len(self._urls)):
            try:
                return send(self._urls[0])
            except BadStatus as refusal:
                raise LeaseError(f"{self._product} refused {what}: {refusal}") from refusal
            except (HttpClientError, ValueError) as error:
                failures.append(f"{self._urls[0].place} - {error}")
                self._urls.append(self._urls.pop(0))
                if not may_repeat and not isinstance(error, Unreachable):
                    break
        raise LeaseError(f"no answer from {self._product}: {'; '.join(failures)}")
