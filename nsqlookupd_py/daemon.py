"""nsqlookupd as a process: two listeners over one registry, all in memory."""

from __future__ import annotations

import socket
from typing import Any

import gevent
import orjson

from nsqd_py.clock import SteadyClock
from nsqd_py.errors import StartError
from nsqd_py.logs import Log
from nsqd_py.process import StopSignals, calm_collector, raise_descriptor_limit
from nsqd_py.server import Listener
from nsqd_py.settings import Options
from nsqd_py.tls_options import TLS_NOT_REQUIRED, TLS_REQUIRED
from nsqd_py.transport import Stream
from nsqd_py.turn import Turn
from nsqd_py.version import NSQ_VERSION, version_string
from nsqlookupd_py.backlog import Backlog
from nsqlookupd_py.connection import PeerConnection
from nsqlookupd_py.http import LookupApi, LookupHttpConnection
from nsqlookupd_py.registry import Registry


class Daemon:
    """Everything that runs in one nsqlookupd. `options` are those of `nsqlookupd_py.options`."""

    def __init__(self, options: Options, log: Log) -> None:
        self._options = options
        self._log = log
        hub = gevent.get_hub()
        self._loop = hub.loop
        self._turn = Turn(hub, log)
        self._backlog = Backlog(self._loop)
        self._clock = SteadyClock()
        self._registry = Registry(options.inactive_producer_timeout_ns, options.tombstone_lifetime_ns)
        self._api = LookupApi(self._registry, self._clock, log, requires_tls=options.tls_required == TLS_REQUIRED)
        self._peers: dict[PeerConnection, None] = {}
        self._listeners: list[Listener] = []
        self._tls: Any = None
        self._introduction = b""

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises StartError."""
        raise_descriptor_limit()
        self._log.gather(self._turn)
        self._log.info("%s", version_string("nsqlookupd"))
        with StopSignals() as signals:
            try:
                self._prepare_tls()
                self._listen()
                calm_collector()
                for listener in self._listeners:
                    listener.start()
                signals.wait()
            except OSError as error:
                raise StartError(str(error)) from error
            finally:
                self._shut_down()

    def _prepare_tls(self) -> None:
        options = self._options
        if options.tls_cert:
            from nsqd_py.tls import TlsFiles, server_context

            self._tls = server_context(
                TlsFiles(
                    options.tls_cert,
                    options.tls_key,
                    options.tls_root_ca_file,
                    options.tls_client_auth_policy,
                    options.tls_min_version,
                )
            )

    def _listen(self) -> None:
        options = self._options
        tcp = Listener("TCP", options.tcp_address, self._loop, self._log, self._on_peer)
        self._listeners.append(tcp)
        http = Listener("HTTP", options.http_address, self._loop, self._log, self._on_http)
        self._listeners.append(http)
        introduction = {
            "broadcast_address": options.broadcast_address,
            "hostname": socket.gethostname(),
            "http_port": http.port,
            "tcp_port": tcp.port,
            "version": NSQ_VERSION,
        }
        self._introduction = orjson.dumps(introduction)

    def _on_peer(self, sock: socket.socket, peer: str) -> None:
        self._log.info("TCP: new client(%s)", peer)
        connection = PeerConnection(
            sock, peer, self._loop, self._turn, self._log, self._registry, self._backlog, self._clock,
            self._introduction, requires_tls=self._options.tls_required != TLS_NOT_REQUIRED,
            on_close=self._peers.pop,
        )  # fmt: skip
        self._peers[connection] = None
        self._start(connection)

    def _on_http(self, sock: socket.socket, peer: str) -> None:
        self._start(LookupHttpConnection(sock, peer, self._loop, self._turn, self._log, self._api))

    def _start(self, stream: Stream) -> None:
        if self._tls is not None:
            from nsqd_py.tls import TlsIfAsked

            stream.use_layer(TlsIfAsked(self._tls))
        stream.start()

    def _shut_down(self) -> None:
        for listener in self._listeners:
            listener.close()
        for connection in [*self._peers, *self._api.http_clients]:
            connection.close("nsqlookupd is stopping")
        self._log.info("NSQLOOKUPD: bye")
        self._log.flush()
