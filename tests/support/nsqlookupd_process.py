"""nsqlookupd as a child process, with helpers to look into it from outside.

The environment variable NSQLOOKUPD_COMMAND replaces the program under test, as NSQD_COMMAND does for nsqd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.support.network import LOOPBACK, Host
from tests.support.nsqd_process import ServerProcess, command_of

# make_nsqlookupd(*flags) starts an nsqlookupd; see tests/conftest.py.
MakeNsqlookupd = Callable[..., "NsqlookupdProcess"]

Producer = dict[str, Any]


def nsqlookupd_command() -> list[str]:
    return command_of("nsqlookupd")


class NsqlookupdProcess(ServerProcess):
    """One nsqlookupd. It keeps nothing: a restart forgets all."""

    def __init__(
        self,
        log_path: Path,
        *flags: str,
        host: Host = LOOPBACK,
        ports: tuple[int, int] = (0, 0),
        command: Sequence[str] | None = None,
    ) -> None:
        super().__init__(command or nsqlookupd_command(), flags, log_path, host, ports)

    # --- what it says

    def topics(self) -> list[str]:
        return sorted(self._get("/topics")["topics"])

    def channels(self, topic: str) -> list[str]:
        """The channels of a topic, also those that no nsqd has any more."""
        return sorted(self._get(f"/channels?topic={quote(topic)}")["channels"])

    def nodes(self) -> list[Producer]:
        return self._get("/nodes")["producers"]

    def lookup(self, topic: str) -> list[Producer]:
        """The producers of a topic; none when it does not know the topic."""
        answer = self.http("GET", f"/lookup?topic={quote(topic)}")
        if answer.status == 404:
            assert answer.json() == {"message": "TOPIC_NOT_FOUND"}
            return []
        assert answer.status == 200, answer
        return answer.json()["producers"]

    def channel_producers(self, topic: str, channel: str) -> list[Producer]:
        """The producers that have this channel. Only /debug knows."""
        return self._get("/debug").get(f"channel:{topic}:{channel}", [])

    def _get(self, path: str) -> Any:
        answer = self.http("GET", path)
        assert answer.status == 200, answer
        return answer.json()

    # --- what nsqadmin asks of it

    def create_channel(self, topic: str, channel: str) -> None:
        self.post(f"/channel/create?topic={quote(topic)}&channel={quote(channel)}")

    def delete_topic(self, topic: str) -> None:
        self.post(f"/topic/delete?topic={quote(topic)}")

    def tombstone(self, topic: str, node: ServerProcess) -> None:
        """Hides a topic's producer, for the tombstone lifetime."""
        address = f"{node.host.address}:{node.http_port}"
        self.post(f"/topic/tombstone?topic={quote(topic)}&node={quote(address)}")
