"""Asking one nsqlookupd over HTTP for the channels of a topic."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote_plus

from gevent.lock import BoundedSemaphore

from nsqd_py.net.http.client import HttpClient, HttpClientError, Unreachable
from nsqd_py.protocol.names import is_ephemeral, is_valid_name

_AT_A_TIME = 16
# Limits on an answer: far more than a topic uses, yet quick to check and small in memory.
MAX_ANSWER_BYTES = 1024 * 1024
MAX_CHANNELS = 10_000


class ChannelQuery:
    """The HTTP side of one nsqlookupd.

    Questions go to its broadcast address, or to the IP address of its TCP side if that address cannot be reached.
    `tls_name` is the name that its certificate must have. `place` identifies the nsqlookupd.
    """

    def __init__(self, client: HttpClient, broadcast_address: str, ip: str, port: int, tls_name: str) -> None:
        self._client = client
        self._hosts = list(dict.fromkeys(filter(None, (broadcast_address, ip))))
        self._port = port
        self._tls_name = tls_name
        self._turns = BoundedSemaphore(_AT_A_TIME)
        self.place = (self._hosts[0], port)

    def channels(self, topic_name: str) -> list[str]:
        """Return the channels, without ephemeral ones, that the topic has on other nsqds. Raises HttpClientError."""
        path = f"/channels?topic={quote_plus(topic_name)}"
        with self._turns:
            return lasting_channels(self._get(path))

    def _get(self, path: str) -> Any:
        first, *others = self._hosts
        try:
            return self._client.get_json(first, self._port, path, tls_name=self._tls_name)
        except Unreachable:
            if not others:
                raise
        answer = self._client.get_json(others[0], self._port, path, tls_name=self._tls_name)
        self._hosts = [others[0], first]  # the next question need not wait for the other again
        return answer


def lasting_channels(answer: Any) -> list[str]:
    """Return the channels of an answer, without ephemeral channels and invalid names. Raises HttpClientError."""
    names = answer.get("channels") if isinstance(answer, dict) else None
    if not isinstance(names, list):
        raise HttpClientError("the answer has no list of channels")
    if len(names) > MAX_CHANNELS:
        raise HttpClientError(f"the answer has {len(names)} channels, but at most {MAX_CHANNELS} are taken up")
    return [name for name in names if isinstance(name, str) and _is_lasting(name)]


def _is_lasting(name: str) -> bool:
    return is_valid_name(name.encode(errors="replace")) and not is_ephemeral(name)
