"""All that a daemon listens on, and who is let in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nsqd_py.net.limits import Connections
from nsqd_py.net.server import Farewell, Listener, OnConnection
from nsqd_py.runtime.logs import Log
from nsqd_py.runtime.systemd import InheritedSockets


class Listeners:
    """The listeners of one daemon: bound by `add`, accepting from `start` to `close`.

    farewells  what a client hears that is one too many, by the name of the listener
    """

    def __init__(self, connections: Connections, farewells: Mapping[str, Farewell], loop: Any, log: Log) -> None:
        self._connections = connections
        self._farewells = farewells
        self._loop = loop
        self._log = log
        self._inherited = InheritedSockets.from_environment(log)
        self._listeners: list[Listener] = []

    def add(self, name: str, address: str, on_connection: OnConnection) -> Listener:
        """Listen at the address, or where systemd does for it. Gives the listener that has a port, if any has.

        Raises StartError.
        """
        sockets = self._inherited.take(name.lower(), address)
        added = [Listener(name, address, self._loop, self._log, on_connection, sock) for sock in sockets]
        for listener in added:
            listener.guard(self._connections, self._farewells[name])
        self._listeners += added
        return max(added, key=lambda listener: listener.port)

    def close_others(self) -> None:
        """Close the sockets of systemd that nobody wanted."""
        self._inherited.close_others()

    @property
    def address(self) -> str:
        """Where the first of them listens."""
        return self._listeners[0].address

    def start(self) -> None:
        for listener in self._listeners:
            listener.start()

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()
