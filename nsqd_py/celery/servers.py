"""Requests to nsqds over HTTP, for what AMQP's commands on queues ask."""

from __future__ import annotations

import json
from collections.abc import Mapping

from kombu.exceptions import OperationalError

from nsqd_py.celery.settings import Settings
from nsqd_py.client import Connection
from nsqd_py.client.addresses import parse_address
from nsqd_py.client.blocking.lookup import find_nsqds
from nsqd_py.client.errors import AtAddress, NoNsqd, NsqClientError
from nsqd_py.client.lookup import LookupFailed
from nsqd_py.cluster.access import HttpAccess, servers_in
from nsqd_py.cluster.admin_client import UpstreamError
from nsqd_py.net.addresses import join_address

_LOCALHOST = "127.0.0.1"
_HTTP_S = 10.0
_NOT_FOUND = 404


class Servers:
    """The nsqds of a connection, asked over HTTP: depths, purges, and what must be deleted."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # It knows to whom the secret may be sent: over TLS only.
        self._access = HttpAccess(
            settings.options, named=servers_in(settings.https), timeout_s=_HTTP_S, answer_s=_HTTP_S
        )

    def tcp_addresses(self) -> list[str]:
        """Return the addresses of all nsqds, those of the settings first. Raises LookupFailed if no nsqlookupd answers."""
        found = list(self._settings.nsqds)
        failures: list[LookupFailed] = []
        for lookupd in self._settings.lookupds:
            try:
                found += find_nsqds(lookupd, "", self._settings.options)
            except LookupFailed as error:
                failures.append(error)
        if not found and failures:
            raise failures[0]
        return list(dict.fromkeys(found))

    def check(self) -> None:
        """Connect to some nsqd. Raises NoNsqd if that is not possible, and LookupFailed."""
        reasons: list[NsqClientError] = []
        for address in self.tcp_addresses():
            connection = Connection(address, self._settings.options)
            try:
                connection.open()
            except AtAddress as error:
                reasons.append(error)
                continue
            connection.close()
            return
        texts = "; ".join(map(str, reasons)) or "no nsqlookupd knows an nsqd"
        raise NoNsqd(f"no nsqd can be connected: {texts}", reasons)

    def topics(self, topic: str, channel: str) -> list[int]:
        """Return the number of messages of a queue on each nsqd that has it. Raises OperationalError."""
        query = {"format": "json", "topic": topic, "include_clients": "false"}
        depths = []
        for address in self._http_addresses():
            answer = json.loads(self._ask(address, "GET", "/stats", query) or b"{}")
            for row in answer.get("topics") or ():
                channels = {each["channel_name"]: each for each in row["channels"] or ()}
                found = channels.get(channel)
                if found is None:
                    waiting = row["depth"]
                else:
                    waiting = found["depth"] + found["deferred_count"]
                depths.append(waiting)
        return depths

    def empty(self, topic: str, channel: str) -> int:
        """Drop the messages of a queue. Return how many waited. Raises OperationalError."""
        count = sum(self.topics(topic, channel))
        for address in self._http_addresses():
            self._ask(address, "POST", "/topic/empty", {"topic": topic})
            self._ask(address, "POST", "/channel/empty", {"topic": topic, "channel": channel})
        return count

    def delete(self, topic: str) -> None:
        """Delete a topic everywhere. Raises OperationalError."""
        for address in self._http_addresses():
            self._ask(address, "POST", "/topic/delete", {"topic": topic})

    def _http_addresses(self) -> list[str]:
        return list(self._settings.https) or [self._http_address(address) for address in self.tcp_addresses()]

    def _http_address(self, address: str) -> str:
        """Ask an nsqd for its HTTP port. Raises OperationalError."""
        connection = Connection(address, self._settings.options)
        try:
            port = connection.open().http_port
            connection.close()
        except AtAddress as error:
            raise OperationalError(str(error)) from error
        if not port:
            raise OperationalError(
                f"{address} does not say its HTTP port; set nsqd_http_addresses in broker_transport_options"
            )
        return join_address(parse_address(address).host or _LOCALHOST, port)

    def _ask(self, address: str, method: str, path: str, query: Mapping[str, str]) -> bytes:
        """Return the answer of an nsqd; empty if it does not have the topic or channel. Raises OperationalError."""
        try:
            return self._access.send(method, address, path, query)
        except UpstreamError as error:
            if error.status == _NOT_FOUND:
                return b""
            raise OperationalError(str(error)) from error
