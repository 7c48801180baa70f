"""The nsqlookupd process: a TCP and an HTTP listener on one registry, which is in memory only."""

from __future__ import annotations

import socket

import gevent
import orjson

from nsqd_py.clock import SteadyClock
from nsqd_py.debug.memory import PAUSES
from nsqd_py.net.http.browsers import KnownHosts
from nsqd_py.net.http.encoding import refused_connection
from nsqd_py.net.http.guard import admin_guard
from nsqd_py.net.limits import connections
from nsqd_py.net.listeners import Listeners, Refusal
from nsqd_py.net.loop_iteration import LoopIteration
from nsqd_py.net.tls import CHECK_EVERY_S, CertificateReloader, TlsIfAsked
from nsqd_py.net.tls_options import TLS_NOT_REQUIRED, TLS_REQUIRED
from nsqd_py.net.transport import Stream
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.process import return_freed_blocks, serving, tune_gc
from nsqd_py.runtime.systemd import Notifier
from nsqd_py.version import NSQ_VERSION
from nsqlookupd_py.connection import TOO_MANY_CONNECTIONS, Directory, PeerConnection, frame
from nsqlookupd_py.http import LookupApi, LookupHttpConnection
from nsqlookupd_py.options import NsqlookupdOptions
from nsqlookupd_py.registry import UNLIMITED, Registry, RegistryLimits

# Thresholds of the garbage collector. Registrations are long-lived sets: a collection of 200,000 of them took
# 40 ms, one of 10,000 takes 2 ms.
COLLECT_EVERY = (10_000, 1_000)

# The answers to connections above the limit.
_REFUSALS: dict[str, Refusal] = {"TCP": lambda: frame(TOO_MANY_CONNECTIONS), "HTTP": refused_connection}


class Nsqlookupd:
    """Everything that runs in one nsqlookupd."""

    def __init__(self, options: NsqlookupdOptions, log: Log) -> None:
        self._options = options
        self._log = log
        hub = gevent.get_hub()
        self._loop = hub.loop
        self._iteration = LoopIteration(hub, log)
        self._clock = SteadyClock()
        limits = (
            options.max_topics_and_channels,
            options.max_registrations,
            options.max_registrations_per_nsqd,
        )
        self._registry = Registry(
            options.inactive_producer_timeout_ns,
            options.tombstone_lifetime_ns,
            RegistryLimits(*(limit or UNLIMITED for limit in limits)),
        )
        self._api = LookupApi(
            self._registry,
            self._clock,
            log,
            KnownHosts.of(options),
            requires_tls=options.tls_required == TLS_REQUIRED,
        )
        self._directory = Directory(self._registry, self._clock, options.tls_required != TLS_NOT_REQUIRED)
        self._connections = connections(options, log, self._loop)
        self._notifier = Notifier.from_environment()
        self._listeners = Listeners(self._connections, _REFUSALS, self._loop, log)
        self._tls: CertificateReloader | None = None
        self._certificate_timer = self._loop.timer(CHECK_EVERY_S, CHECK_EVERY_S)

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises StartError."""
        return_freed_blocks()
        self._log.gather(self._iteration)
        with serving("nsqlookupd", self._log, self._reload, self._shut_down) as signals:
            self._api.admin_guard = admin_guard(self._options.http_auth_file, self._log)
            if self._options.tls_cert:
                self._tls = CertificateReloader(self._options, self._log)
                self._certificate_timer.start(self._tls.check)
            self._listen()
            tune_gc(*COLLECT_EVERY)
            PAUSES.watch()
            self._connections.start()
            self._listeners.start()
            self._notifier.ready(f"serving on {self._listeners.address}")
            self._notifier.start_watchdog(self._loop)
            signals.wait()

    def _reload(self) -> None:
        """Handle SIGHUP: reload the certificate."""
        self._log.info("NSQLOOKUPD: reloading")
        with self._notifier.reloading():
            if self._tls is not None:
                self._tls.reload()

    def _listen(self) -> None:
        options = self._options
        tcp_port = self._listeners.add("TCP", options.tcp_address, self._on_peer).port
        http_port = self._listeners.add("HTTP", options.http_address, self._on_http).port
        self._listeners.close_others()
        introduction = {
            "broadcast_address": options.broadcast_address,
            "hostname": socket.gethostname(),
            "http_port": http_port,
            "tcp_port": tcp_port,
            "version": NSQ_VERSION,
        }
        self._directory.introduction = orjson.dumps(introduction)

    def _on_peer(self, sock: socket.socket, peer: str) -> None:
        self._log.of_clients.info("TCP: new client(%s)", peer)
        connection = PeerConnection(sock, peer, self._loop, self._iteration, self._log, self._directory)
        self._start(connection)

    def _on_http(self, sock: socket.socket, peer: str) -> None:
        connection = LookupHttpConnection(sock, peer, self._loop, self._iteration, self._log, self._api)
        self._start(connection)

    def _start(self, stream: Stream) -> None:
        if self._tls is not None:
            stream.add_layer(TlsIfAsked(self._tls.context))
        self._connections.add(stream)
        stream.start()

    def _shut_down(self) -> None:
        self._notifier.stopping()
        self._certificate_timer.close()
        self._connections.close()
        self._listeners.close()
        for connection in [*self._directory.connections, *self._api.http_clients]:
            connection.close("nsqlookupd is stopping")
        self._log.info("NSQLOOKUPD: bye")
        self._log.flush()
