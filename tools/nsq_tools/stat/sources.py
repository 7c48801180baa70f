"""Asking one nsqd for its figures, and one nsqlookupd for the nsqd that there are."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

import orjson

from nsq_tools.cli import BadUsage
from nsq_tools.options import http_url
from nsq_tools.stat.figures import BadStats, Reading, read_stats
from nsqd_py.net.addresses import join_address
from nsqd_py.net.http.client import BadStatus, HttpClient, HttpClientError, Url

_FORBIDDEN, _NOT_FOUND = 403, 404
_HIGHEST_PORT = 65535


def place_of(address: str) -> str:
    """How an address is called: without a user and password, which it may have."""
    return address.rpartition("@")[2].removeprefix("https://")


@dataclass(frozen=True)
class Sources:
    """Asks for one topic, one channel, or all of them where these are empty."""

    client: HttpClient
    topic: str = ""
    channel: str = ""
    clock: Callable[[], float] = time.monotonic

    def reading(self, address: str) -> Reading:
        """The figures of an nsqd. Raises HttpClientError."""
        asked = {"format": "json", "topic": self.topic, "channel": self.channel, "include_clients": "false"}
        # A channel without a topic is selected here: nsqd would answer with its topics all the same.
        query = urlencode({name: value for name, value in asked.items() if value})
        document = self._ask(address, f"/stats?{query}")
        try:
            return self._selected(read_stats(place_of(address), document, self.clock()))
        except BadStats as error:
            raise HttpClientError(str(error)) from error

    def _selected(self, reading: Reading) -> Reading:
        if not self.channel:
            return reading
        counts = {name: count for name, count in reading.counts.items() if name.channel == self.channel}
        return replace(reading, counts=counts)

    def nodes(self, address: str) -> list[str]:
        """HTTP addresses of the nsqd that an nsqlookupd knows, for the topic where there is one.

        Raises HttpClientError.
        """
        path = f"/lookup?{urlencode({'topic': self.topic})}" if self.topic else "/nodes"
        try:
            return _addresses(self._ask(address, path))
        except BadStatus as error:
            if self.topic and error.status == _NOT_FOUND:  # nobody has the topic yet
                return []
            raise

    def _ask(self, address: str, path: str) -> Any:
        url = _url(address, path)
        try:
            return self.client.ask(url)
        except BadStatus as error:
            port = _https_port(error)
            if url.is_secure or not port:
                raise
        return self.client.ask(replace(url, is_secure=True, port=port))


def _url(address: str, path: str) -> Url:
    try:
        return http_url(address, path)
    except BadUsage as error:  # an nsqlookupd may name what is no address
        raise HttpClientError(str(error)) from error


def _addresses(answer: Any) -> list[str]:
    try:
        found = [join_address(node["broadcast_address"], int(node["http_port"])) for node in answer["producers"]]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise HttpClientError("the answer is not that of an nsqlookupd") from error
    return list(dict.fromkeys(found))


def _https_port(error: BadStatus) -> int:
    """Where a server that answers 403 wants to be asked; 0 where it does not say."""
    if error.status != _FORBIDDEN:
        return 0
    try:
        port = orjson.loads(error.body)["https_port"]
    except (ValueError, TypeError, KeyError):
        return 0
    return port if type(port) is int and 0 < port <= _HIGHEST_PORT else 0
