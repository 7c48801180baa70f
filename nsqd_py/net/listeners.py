"""The listening sockets of a daemon: they accept connections, and refuse those above a limit."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import InitVar, dataclass
from pathlib import Path
from typing import Any

from nsqd_py.errors import StartError
from nsqd_py.net.addresses import join_address, split_address
from nsqd_py.net.limits import Connections
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.systemd import InheritedSockets

BACKLOG = 4096
_ACCEPTS_PER_EVENT = 16  # 1 ms: more come in than are served if it is much more
_DISCARDED_BYTES = 64 * 1024
_PAUSE_WITHOUT_DESCRIPTORS_S = 0.1
_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

_READ = 1
_SOCKET_MODE = 0o660  # whoever may write to a socket can connect

# Called with the socket and the name of its peer.
OnConnection = Callable[[socket.socket, str], None]
# Returns the bytes that a refused client gets.
Refusal = Callable[[], bytes]


def peer_name(peer: Any) -> str:
    """Return the name of a client for logs and stats: `host:port`, the path of its unix socket, or "@"."""
    if isinstance(peer, tuple):
        return join_address(peer[0], peer[1])
    return str(peer or "@")


# Called with the name and the address of each listener when it accepts connections.
on_listening: list[Callable[[str, str], object]] = []


@dataclass(eq=False, repr=False)
class Listener:
    """A bound socket that passes each connection to `on_connection`. `port` is -1 for a unix socket.

    Clients that `_connections` refuses get the bytes of `_refusal`. The address is that given, unless the socket
    `inherited` listens already, and then the one it is bound to. Making it raises StartError.
    """

    name: str
    address: str
    _loop: Any
    _log: Log
    _on_connection: OnConnection
    _connections: Connections
    _refusal: Refusal
    inherited: InitVar[socket.socket | None] = None
    _path: str | None = None
    _own_file: os.stat_result | None = None

    def __post_init__(self, inherited: socket.socket | None) -> None:
        try:
            if inherited is None:
                self._sock = self._bind(self.address)
            else:
                self._sock = inherited
        except (OSError, OverflowError) as error:
            # gevent adds the address, which the text has already.
            reason = str(getattr(error, "strerror", None) or error).partition(" (while ")[0]
            raise StartError(f"listen ({self.address}) failed - {reason}") from error
        self._sock.setblocking(False)
        bound = self._sock.getsockname()
        if isinstance(bound, tuple):
            self.port = bound[1]
        else:
            self.port = -1
        self.address = peer_name(bound)
        self._watcher = self._loop.io(self._sock.fileno(), _READ)
        self._pause = self._loop.timer(_PAUSE_WITHOUT_DESCRIPTORS_S, _PAUSE_WITHOUT_DESCRIPTORS_S)

    def _bind(self, address: str) -> socket.socket:
        parsed = split_address(address)
        if parsed is None:
            return self._bind_path(address)
        host, port = parsed
        if not host:
            if socket.has_dualstack_ipv6():
                return socket.create_server(
                    ("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
                )
            return socket.create_server(("", port), backlog=BACKLOG)
        name = host.encode() if host.isascii() else host  # a str loads the tables of Unicode, 0.4 MB
        family, _, _, _, target = socket.getaddrinfo(
            name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(target[:2], family=family, backlog=BACKLOG)

    def _bind_path(self, path: str) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _remove_dead_socket(Path(path))
            os.fchmod(sock.fileno(), _SOCKET_MODE)  # `bind` takes this mode, without the bits of the umask
            sock.bind(path)
            sock.listen(BACKLOG)
        except OSError:
            sock.close()
            raise
        self._path = path
        self._own_file = os.lstat(path)
        return sock

    def start(self) -> None:
        self._log.info("%s: listening on %s", self.name, self.address)
        self._watcher.start(self._on_readable)
        for call in on_listening:
            call(self.name, self.address)

    def _on_readable(self) -> None:
        for _ in range(_ACCEPTS_PER_EVENT):
            try:
                sock, peer = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._log.of_clients.warning("temporary Accept() failure - %s", error)
                if error.errno in _OUT_OF_RESOURCES:
                    self._watcher.stop()
                    self._pause.again(self._resume)  # `start` would end at once after the first pause
                return
            name = peer_name(peer)
            if self._connections.refuses(name, sock.fileno()):
                _refuse(sock, self._refusal())
                continue
            try:
                self._on_connection(sock, name)
            except OSError as error:  # the peer is gone already
                self._log.of_clients.info("%s: client(%s) - %s", self.name, name, error)
                sock.close()

    def _resume(self) -> None:
        self._pause.stop()
        self._watcher.start(self._on_readable)

    def close(self) -> None:
        self._log.info("%s: closing %s", self.name, self.address)
        self._watcher.stop()
        self._watcher.close()
        self._pause.stop()
        self._pause.close()
        self._sock.close()
        if self._path is not None and self._own_file is not None:
            with suppress(FileNotFoundError):
                # Else another process has replaced it.
                if os.path.samestat(os.lstat(self._path), self._own_file):
                    os.unlink(self._path)


def _refuse(sock: socket.socket, refusal: bytes) -> None:
    """Send as much of `refusal` as fits into the socket's buffer, and close, without waiting."""
    with sock, suppress(OSError):
        sock.setblocking(False)
        sock.send(refusal)
        sock.shutdown(socket.SHUT_WR)
        # Closing on unread input resets the connection, and the client may miss the rest.
        sock.recv(_DISCARDED_BYTES)


def _remove_dead_socket(path: Path) -> None:
    """Remove a socket file on which no process listens, so that a new one can be bound there. Raises OSError."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()


class Listeners:
    """The listeners of one daemon: `add` binds them; they accept from `start` to `close`.

    refusals  the answer to a client above the limit of connections, by the name of the listener
    """

    def __init__(
        self, connections: Connections, refusals: Mapping[str, Refusal], loop: Any, log: Log
    ) -> None:
        self._connections = connections
        self._refusals = refusals
        self._loop = loop
        self._log = log
        self._inherited = InheritedSockets.from_environment(log)
        self._listeners: list[Listener] = []

    def add(self, name: str, address: str, on_connection: OnConnection) -> Listener:
        """Bind the address, or use the sockets that systemd passed for `name`. Raises StartError.

        Return the listener, if possible one with a port.
        """
        sockets = self._inherited.take(name.lower(), address)
        refusal = self._refusals[name]
        added = [
            Listener(name, address, self._loop, self._log, on_connection, self._connections, refusal, sock)
            for sock in sockets
        ]
        self._listeners += added
        return max(added, key=lambda listener: listener.port)

    def close_others(self) -> None:
        """Close the sockets from systemd that no listener uses."""
        self._inherited.close_others()

    @property
    def address(self) -> str:
        """The address of the first listener."""
        return self._listeners[0].address

    def start(self) -> None:
        for listener in self._listeners:
            listener.start()

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()
