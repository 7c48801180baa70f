"""nsqd as a process: lock, load, listen, and stop without losing anything."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path
from typing import Any

import gevent

from nsqd_py.broker import Broker
from nsqd_py.connection import ClientConnection
from nsqd_py.errors import StartError
from nsqd_py.http.publishing import PublishingConnection
from nsqd_py.loading import load
from nsqd_py.logs import Log
from nsqd_py.lookup.peers import LookupPeers
from nsqd_py.lookup.tls import client_context
from nsqd_py.pqueues import Alarms
from nsqd_py.process import StopSignals, calm_collector, raise_descriptor_limit
from nsqd_py.protocol.session import Limits
from nsqd_py.server import Listener
from nsqd_py.turn import Turn
from nsqd_py.version import NSQ_VERSION, version_string

_MS = 1_000_000


class Daemon:
    """Everything that runs in one nsqd. `options` are those of `nsqd_py.options`."""

    def __init__(self, options: Any, log: Log) -> None:
        self._options = options
        self._log = log
        self._hub = gevent.get_hub()
        self._loop = self._hub.loop
        self._turn = Turn(self._hub, log)
        self._alarms = Alarms()
        self._timer = self._loop.timer(0.0)
        self._broker = Broker(options, log, self._turn, self._alarms, self._hub.threadpool)
        self._lookups = LookupPeers(self._broker, options, log, _lookupd_tls(options))
        self._limits = _limits(options)
        self._listeners: list[Listener] = []
        self._lock: int | None = None
        self._is_loaded = False

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises StartError."""
        raise_descriptor_limit()
        self._lock = _lock_directory(self._options.data_path or ".")
        self._log.info("%s", version_string("nsqd"))
        self._log.info("ID: %d", self._options.node_id)
        self._alarms.on_earlier = self._set_timer
        with StopSignals() as signals:
            self._serve(signals)

    def _serve(self, signals: StopSignals) -> None:
        try:
            load(self._broker, Path(self._options.data_path or "."))
            self._is_loaded = True
            self._listen()
            self._broker.persist_metadata()
            calm_collector()
            self._broker.lookups = self._lookups
            self._lookups.set_addresses(self._options.lookupd_tcp_address)
            for listener in self._listeners:
                listener.start()
            self._lookups.start()
            signals.wait()
        except OSError as error:
            raise StartError(str(error)) from error
        finally:
            self._shut_down()

    # ---- connections

    def _listen(self) -> None:
        options = self._options
        tcp = Listener("TCP", options.tcp_address, self._loop, self._log, self._on_client)
        self._listeners.append(tcp)
        self._broker.tcp_port = tcp.port
        if options.http_address:
            http = Listener("HTTP", options.http_address, self._loop, self._log, self._on_http)
            self._listeners.append(http)
            self._broker.http_port = http.port

    def _on_client(self, sock: socket.socket, peer: str) -> None:
        self._log.info("TCP: new client(%s)", peer)
        ClientConnection(sock, peer, self._loop, self._turn, self._log, self._broker, self._limits).start()

    def _on_http(self, sock: socket.socket, peer: str) -> None:
        PublishingConnection(sock, peer, self._loop, self._turn, self._log, self._broker).start()

    # ---- time

    def _set_timer(self, due_ns: int) -> None:
        """One timer of the loop serves all deadlines of the process."""
        delay_s = max(0.0, (due_ns - self._broker.clock()) / 1e9)
        self._timer.close()
        self._timer = self._loop.timer(delay_s)
        self._timer.start(self._on_timer)

    def _on_timer(self) -> None:
        self._alarms.on_earlier = None  # ringing sets alarms; the timer is set once, for the earliest of all
        try:
            self._alarms.ring_due(self._broker.clock())
        finally:
            self._alarms.on_earlier = self._set_timer
            next_ns = self._alarms.next_due_ns
            if next_ns is not None:
                self._set_timer(next_ns)

    # ---- the end

    def _shut_down(self) -> None:
        self._lookups.close()  # first of all, so that consumers stop finding what is about to go
        for listener in self._listeners:
            listener.close()
        self._turn.end()
        for client in [*self._broker.clients, *self._broker.http_clients]:
            client.close("nsqd is stopping")
        if self._is_loaded:  # a start that failed leaves what is on disk as it is
            self._broker.close()
        self._timer.close()
        self._log.info("NSQ: bye")
        if self._lock is not None:
            os.close(self._lock)


def _limits(options: Any) -> Limits:
    """The options as the protocol wants them."""
    return Limits(
        max_msg_size=options.max_msg_size,
        max_body_size=options.max_body_size,
        max_rdy_count=options.max_rdy_count,
        max_req_timeout_ms=options.max_req_timeout_ns // _MS,
        msg_timeout_ms=options.msg_timeout_ns // _MS,
        max_msg_timeout_ms=options.max_msg_timeout_ns // _MS,
        max_heartbeat_interval_ms=options.max_heartbeat_interval_ns // _MS,
        output_buffer_timeout_ms=options.output_buffer_timeout_ns // _MS,
        min_output_buffer_timeout_ms=options.min_output_buffer_timeout_ns // _MS,
        max_output_buffer_timeout_ms=options.max_output_buffer_timeout_ns // _MS,
        max_output_buffer_size=options.max_output_buffer_size,
        max_deflate_level=options.max_deflate_level,
        deflate_enabled=options.deflate,
        snappy_enabled=options.snappy,
        version=NSQ_VERSION,
        topology_region=options.topology_region,
        topology_zone=options.topology_zone,
    )


def _lookupd_tls(options: Any) -> Any:
    """The TLS context for nsqlookupds, None without TLS. Raises StartError."""
    if not options.lookupd_tls:
        return None
    from gevent import ssl  # only where TLS is asked for: it is slow to import

    try:
        return client_context(options, ssl.SSLContext)
    except OSError as error:
        raise StartError(f"failed to set up TLS to nsqlookupd - {error.strerror or error}") from error


def _lock_directory(path: str) -> int:
    """Lock the data path against a second nsqd, Go's included (it locks the directory too). Raises StartError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise StartError(f"failed to lock data-path: {error.strerror} ({path})") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise StartError(
            f"failed to lock data-path: {path} is in use by another nsqd; stop it or choose another --data-path"
        ) from error
    return descriptor
