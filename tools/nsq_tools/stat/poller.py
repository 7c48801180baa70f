"""Polling all nsqds and nsqlookupds at the same time. None of them delays the others.

If a server does not answer within a round, the next rounds do not wait for it until it answers quickly again. A late
answer is used in the round in which it arrives.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

import gevent

from nsq_tools.cli import BadUsage
from nsq_tools.options import http_url
from nsq_tools.stat.figures import BadStats, Reading, read_stats
from nsq_tools.stat.model import Model
from nsqd_py.net.addresses import join_address
from nsqd_py.net.http.client import BadStatus, HttpClient, HttpClientError, Url

_NOT_FOUND = 404


def shown_address(address: str) -> str:
    """Return the address as it is shown: without user, password and scheme."""
    return address.rpartition("@")[2].removeprefix("https://")


@dataclass(frozen=True)
class Sources:
    """Requests to nsqds and nsqlookupds. An empty topic or channel means all."""

    client: HttpClient
    topic: str = ""
    channel: str = ""
    clock: Callable[[], float] = time.monotonic

    def reading(self, address: str) -> Reading:
        """Return the figures of an nsqd. Raises HttpClientError."""
        asked = {"format": "json", "topic": self.topic, "channel": self.channel, "include_clients": "false"}
        # With a channel and no topic, nsqd answers with all topics, so `_selected` filters the answer.
        query = urlencode({name: value for name, value in asked.items() if value})
        document = self._ask(address, f"/stats?{query}")
        try:
            return self._selected(read_stats(shown_address(address), document, self.clock()))
        except BadStats as error:
            raise HttpClientError(str(error)) from error

    def _selected(self, reading: Reading) -> Reading:
        if not self.channel:
            return reading
        counts = {name: count for name, count in reading.counts.items() if name.channel == self.channel}
        return replace(reading, counts=counts)

    def nodes(self, address: str) -> list[str]:
        """Return the HTTP addresses of the nsqds that an nsqlookupd lists, for the topic if there is one.

        Raises HttpClientError.
        """
        path = f"/lookup?{urlencode({'topic': self.topic})}" if self.topic else "/nodes"
        try:
            return _addresses(self._ask(address, path))
        except BadStatus as error:
            if self.topic and error.status == _NOT_FOUND:  # no nsqd has the topic yet
                return []
            raise

    def _ask(self, address: str, path: str) -> Any:
        url = _url(address, path)
        try:
            return self.client.ask(url)
        except BadStatus as error:
            port = error.https_port
            if url.is_secure or not port:
                raise
        return self.client.ask(replace(url, is_secure=True, port=port))


def _url(address: str, path: str) -> Url:
    try:
        return http_url(address, path)
    except BadUsage as error:  # an nsqlookupd may list an invalid address
        raise HttpClientError(str(error)) from error


def _addresses(answer: Any) -> list[str]:
    try:
        found = [join_address(node["broadcast_address"], int(node["http_port"])) for node in answer["producers"]]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise HttpClientError("the answer is not from an nsqlookupd") from error
    return list(dict.fromkeys(found))


T = TypeVar("T")
NSQD, NSQLOOKUPD = "nsqd", "nsqlookupd"
# A server that has not answered for longer is shown as failed; until then its last answer is shown.
_LONG_S = 1.0


@dataclass(slots=True)
class Round:
    """The results of one round: new answers, and the servers without an answer with the reason."""

    nodes: list[str]
    readings: list[Reading] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    failed_lookups: dict[str, str] = field(default_factory=dict)
    late: dict[str, float] = field(default_factory=dict)  # pending nsqds, with the seconds since the request
    gone: list[str] = field(default_factory=list)

    def apply_to(self, model: Model) -> None:
        for reading in self.readings:
            model.observe(reading)
        for node in self.failed:
            model.fail(node)
        for node in self.gone:
            model.forget(node)

    @property
    def failures(self) -> list[tuple[str, str]]:
        """Return all failures as (server, reason); the server is such as `nsqd 10.0.0.1:4151`."""
        lookups = [(f"{NSQLOOKUPD} {address}", reason) for address, reason in self.failed_lookups.items()]
        nodes = [(f"{NSQD} {address}", reason) for address, reason in self.failed.items()]
        late = [
            (f"{NSQD} {address}", f"no answer for {waited_s:.0f}s")
            for address, waited_s in self.late.items()
            if waited_s > _LONG_S
        ]
        return [*lookups, *nodes, *late]


class _Request(Generic[T]):
    """A request that is repeated at one server, one at a time."""

    def __init__(self, address: str, ask: Callable[[str], T], clock: Callable[[], float]) -> None:
        self._address = address
        self._ask = ask
        self._clock = clock
        self._greenlet: gevent.Greenlet[[], None] | None = None
        self._began_s = 0.0
        self._took_s = 0.0
        self.is_late = False
        self.answer: T | None = None  # the latest valid one
        self.is_new = False
        self.reason: str | None = None  # of the latest failure, or None

    @property
    def is_busy(self) -> bool:
        return self._greenlet is not None and not self._greenlet.ready()

    def begin(self) -> None:
        """Send the request, unless one is pending."""
        if not self.is_busy:
            self._began_s = self._clock()
            self._greenlet = gevent.spawn(self._run)

    @property
    def waited_s(self) -> float:
        """The time since the request."""
        return self._clock() - self._began_s

    def _run(self) -> None:
        try:
            self.answer = self._ask(self._address)
            self.is_new, self.reason = True, None
        except HttpClientError as error:
            self.reason = str(error)
        self._took_s = self.waited_s

    @property
    def greenlet(self) -> gevent.Greenlet[[], None] | None:
        return self._greenlet

    def end_round(self, limit_s: float | None) -> None:
        self.is_late = self.is_busy or (limit_s is not None and self._took_s > limit_s)

    def take(self) -> T | None:
        """Return a new answer, or None."""
        is_new, self.is_new = self.is_new, False
        return self.answer if is_new else None

    def close(self) -> None:
        if self._greenlet is not None:
            self._greenlet.kill()


class Poller:
    """Polls the nsqds in `nsqd_addresses` and those that the nsqlookupds list."""

    def __init__(
        self,
        sources: Sources,
        nsqd_addresses: Sequence[str],
        lookupd_addresses: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sources = sources
        self._clock = clock
        self._lookups = {
            shown_address(address): _Request(address, sources.nodes, clock) for address in lookupd_addresses
        }
        self._nodes: dict[str, _Request[Reading]] = {}
        self._fixed_nodes = tuple(nsqd_addresses)

    def round(self, limit_s: float | None) -> Round:
        """Ask all nsqlookupds, then all nsqds. Wait at most `limit_s` for each group; None waits for all answers."""
        self._begin(self._lookups.values())
        self._await(self._lookups.values(), limit_s)
        gone = self._update_nodes()
        self._begin(self._nodes.values())
        self._await(self._nodes.values(), limit_s)
        return self._result(gone)

    def close(self) -> None:
        for lookup in self._lookups.values():
            lookup.close()
        for node in self._nodes.values():
            node.close()

    @staticmethod
    def _begin(requests: Collection[_Request[T]]) -> None:
        for request in requests:
            request.begin()

    @staticmethod
    def _await(requests: Collection[_Request[T]], limit_s: float | None) -> None:
        prompt = [request.greenlet for request in requests if limit_s is None or not request.is_late]
        gevent.joinall([greenlet for greenlet in prompt if greenlet is not None], timeout=limit_s)
        for request in requests:
            request.end_round(limit_s)

    def _update_nodes(self) -> list[str]:
        """Add new nsqds, and remove and return those that no nsqlookupd lists any more."""
        named = [address for lookup in self._lookups.values() for address in lookup.answer or ()]
        wanted = {shown_address(address): address for address in (*self._fixed_nodes, *named)}
        gone = [place for place in self._nodes if place not in wanted]
        for place in gone:
            self._nodes.pop(place).close()
        for place, address in wanted.items():
            if place not in self._nodes:
                self._nodes[place] = _Request(address, self._sources.reading, self._clock)
        return gone

    def _result(self, gone: list[str]) -> Round:
        result = Round(list(self._nodes), gone=gone)
        for place, lookup in self._lookups.items():
            if lookup.reason is not None:
                result.failed_lookups[place] = lookup.reason
        for place, request in self._nodes.items():
            reading = request.take()
            if reading is not None:
                result.readings.append(reading)
            if request.reason is not None:
                result.failed[place] = request.reason
            elif request.is_busy:
                result.late[place] = request.waited_s
        return result
