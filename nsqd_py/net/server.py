"""Listening sockets: where connections come from."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from nsqd_py.errors import StartError
from nsqd_py.net.addresses import join_address, split_address
from nsqd_py.runtime.logs import Log

BACKLOG = 4096
_ACCEPTS_PER_EVENT = 256
_DISCARDED_BYTES = 64 * 1024
_PAUSE_WITHOUT_DESCRIPTORS_S = 0.1
_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

_READ = 1

OnConnection = Callable[[socket.socket, str], None]
Farewell = Callable[[], bytes]


class Door(Protocol):
    """Who may come in; `nsqd_py.net.limits.Connections` is one."""

    def refuses(self, peer: str, descriptor: int) -> str: ...


def peer_name(peer: Any) -> str:
    """How a client is called in logs and stats."""
    return join_address(peer[0], peer[1]) if isinstance(peer, tuple) else str(peer or "@")


class Listener:
    """A bound socket that hands on each connection. `port` is -1 for a Unix socket."""

    def __init__(
        self, name: str, address: str, loop: Any, log: Log, on_connection: OnConnection,
        inherited: socket.socket | None = None,
    ) -> None:  # fmt: skip
        """Binds, unless it gets a socket that listens already. Raises StartError."""
        self.name = name
        self._log = log
        self._loop = loop
        self._on_connection = on_connection
        self._door: Door | None = None
        self._farewell: Farewell = bytes
        self._path: str | None = None
        self._own_file: os.stat_result | None = None
        try:
            self._sock = self._bind(address) if inherited is None else inherited
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise StartError(f"listen ({address}) failed - {reason}") from error
        self._sock.setblocking(False)
        bound = self._sock.getsockname()
        self.port = bound[1] if isinstance(bound, tuple) else -1
        self.address = peer_name(bound)
        self._watcher = loop.io(self._sock.fileno(), _READ)
        self._pause = loop.timer(_PAUSE_WITHOUT_DESCRIPTORS_S)

    def _bind(self, address: str) -> socket.socket:
        parsed = split_address(address)
        if parsed is None:
            return self._bind_path(address)
        host, port = parsed
        if not host:
            if socket.has_dualstack_ipv6():
                return socket.create_server(("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
            return socket.create_server(("", port), backlog=BACKLOG)
        family, _, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(target[:2], family=family, backlog=BACKLOG)

    def _bind_path(self, path: str) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _remove_dead_socket(Path(path))
            sock.bind(path)
            sock.listen(BACKLOG)
        except OSError:
            sock.close()
            raise
        self._path, self._own_file = path, os.lstat(path)
        return sock

    def guard(self, door: Door, farewell: Farewell) -> None:
        """Let in whom `door` does not refuse; the others are told what `farewell` gives."""
        self._door = door
        self._farewell = farewell

    def start(self) -> None:
        self._log.info("%s: listening on %s", self.name, self.address)
        self._watcher.start(self._on_readable)

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
                    self._pause.start(self._resume)
                return
            name = peer_name(peer)
            if self._door is not None and self._door.refuses(name, sock.fileno()):
                _turn_away(sock, self._farewell())
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
        if self._path is not None:
            _remove_file(Path(self._path), self._own_file)


def _remove_file(path: Path, own: os.stat_result | None) -> None:
    """Remove the file of a socket; one that another process has put there meanwhile stays."""
    with suppress(FileNotFoundError):
        if own is not None and os.path.samestat(path.lstat(), own):
            path.unlink()


def _turn_away(sock: socket.socket, farewell: bytes) -> None:
    """Close without waiting for anything: what fits into the socket's own buffer is all that is said."""
    with sock, suppress(OSError):
        sock.setblocking(False)
        sock.send(farewell)
        sock.shutdown(socket.SHUT_WR)
        sock.recv(_DISCARDED_BYTES)  # closing on unread input resets the connection, and the client may miss the rest


def _remove_dead_socket(path: Path) -> None:
    """A socket file that nobody listens on any more is in the way of a new one. Raises OSError."""
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
