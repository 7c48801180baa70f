"""systemd: notifications of readiness, state and watchdog, and inherited sockets.

The protocols are those of sd_notify(3) and sd_listen_fds(3): datagrams of `KEY=value` lines to the socket in
NOTIFY_SOCKET; descriptors from 3 on, whose number is in LISTEN_FDS. Without systemd, nothing here has an effect.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from nsqd_py.runtime.logs.daemon_log import Log

FIRST_DESCRIPTOR = 3
# The loop waits no longer for a manager that does not read.
_PATIENCE_S = 0.1
_MORE_TIME_US = 60_000_000
_MICROSECONDS = 1e6

Environment = MutableMapping[str, str]

LISTENER_NAMES = ("tcp", "http", "https")


class Notifier:
    """Reports the state of this process to systemd. With an empty `address` it reports nothing."""

    def __init__(self, address: str = "", watchdog_s: float = 0.0) -> None:
        """`watchdog_s` is the longest time between two signs of life; 0 if systemd does not watch."""
        self.watchdog_s = watchdog_s
        if address.startswith("@"):
            self._address = "\0" + address[1:]
        else:
            self._address = address
        self._watchdog: Any = None

    @classmethod
    def from_environment(cls, environment: Environment = os.environ) -> Notifier:
        """Return the notifier of the environment, and remove its variables: children must not get them."""
        address = environment.pop("NOTIFY_SOCKET", "")
        watchdog_us = environment.pop("WATCHDOG_USEC", "")
        watchdog_pid = environment.pop("WATCHDOG_PID", "")
        is_watched = watchdog_us.isdecimal() and watchdog_pid in ("", str(os.getpid()))
        return cls(address, int(watchdog_us) / _MICROSECONDS if is_watched else 0.0)

    def send(self, *lines: str) -> None:
        """Send `KEY=value` lines in one datagram. Errors are ignored: the manager may be gone."""
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.settimeout(_PATIENCE_S)
            sock.sendto("\n".join(lines).encode(), self._address)

    def status(self, text: str) -> None:
        """Set the text that `systemctl status` shows."""
        self.send(f"STATUS={text}")

    def starting_takes_longer(self) -> None:
        """Restart the time that systemd allows for the start."""
        self.send(f"EXTEND_TIMEOUT_USEC={_MORE_TIME_US}")

    def ready(self, text: str) -> None:
        """Report that the daemon serves, so that units that wait for it start."""
        self.send("READY=1", f"STATUS={text}")

    def stopping(self) -> None:
        self.send("STOPPING=1", "STATUS=stopping")
        if self._watchdog is not None:
            self._watchdog.close()
            self._watchdog = None

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Report a reload for as long as the context is entered."""
        self.send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            yield
        finally:
            self.send("READY=1")

    def start_watchdog(self, loop: Any) -> None:
        """Send a sign of life twice per watchdog interval from the event loop, until `stopping`."""
        if self._address and self.watchdog_s and self._watchdog is None:
            half_s = self.watchdog_s / 2
            self._watchdog = loop.timer(half_s, half_s)
            self._watchdog.start(self.send, "WATCHDOG=1")


# ---- inherited sockets


# A listening socket, and the FileDescriptorName= of its unit.
_Inherited = tuple[str, socket.socket]


def _is_at(sock: socket.socket, address: str) -> bool:
    """True if it listens at `address`, a `host:port` or a path. The host of a TCP address is ignored."""
    bound = sock.getsockname()
    if isinstance(bound, tuple):
        return address.rpartition(":")[2] == str(bound[1])
    return bool(address) and address == bound


class InheritedSockets:
    """The listening sockets that systemd opened for this process. Each can be taken once."""

    def __init__(self, found: list[_Inherited], log: Log) -> None:
        self._left = found
        self._log = log

    @classmethod
    def from_environment(cls, log: Log, environment: Environment = os.environ) -> InheritedSockets:
        """Return the sockets of the environment, and remove its variables. Other descriptors are closed."""
        count = environment.pop("LISTEN_FDS", "")
        pid = environment.pop("LISTEN_PID", "")
        names = environment.pop("LISTEN_FDNAMES", "").split(":")
        if pid != str(os.getpid()) or not count.isdecimal():
            return cls([], log)
        descriptors = range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(count))
        names += [""] * (len(descriptors) - len(names))
        found = [
            (name, _inherited(name, descriptor, log))
            for name, descriptor in zip(names, descriptors, strict=False)
        ]
        return cls([(name, sock) for name, sock in found if sock is not None], log)

    def take(self, name: str, address: str) -> Sequence[socket.socket | None]:
        """Return the sockets with this name, or those at this address without another listener's name, or [None]."""
        taken = [known for known in self._left if known[0] == name]
        if not taken:
            taken = [
                known for known in self._left if known[0] not in LISTENER_NAMES and _is_at(known[1], address)
            ]
        self._left = [known for known in self._left if known not in taken]
        return [sock for _, sock in taken] or [None]

    def close_others(self) -> None:
        """Close the sockets that no listener took: their clients would wait forever."""
        for name, sock in self._left:
            self._log.warning(
                "systemd: closing socket %r (%s): no listener has its name or address",
                name,
                sock.getsockname(),
            )
            sock.close()
        self._left = []


def _inherited(name: str, descriptor: int, log: Log) -> socket.socket | None:
    try:
        os.set_inheritable(descriptor, False)
        sock = socket.socket(fileno=descriptor)
    except OSError as error:
        log.warning("systemd: descriptor %d (%s) is not a socket - %s", descriptor, name, error)
        return None
    if sock.type != socket.SOCK_STREAM or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        log.warning("systemd: socket %d (%s) is not a listening stream socket", descriptor, name)
        sock.close()
        return None
    return sock
