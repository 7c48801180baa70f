"""The nsqd process: it builds all objects, locks the data path, loads it, serves, and stops without losing messages."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent

from nsqd_py.broker.broker import Broker
from nsqd_py.broker.clock_file import ClockKeeper
from nsqd_py.broker.flipped_bits import mend_files
from nsqd_py.broker.lifetime.shutdown import close, leave
from nsqd_py.broker.lifetime.startup import load
from nsqd_py.broker.services import Ports
from nsqd_py.broker.upkeep.buffers import count_buffers
from nsqd_py.clock import SteadyClock
from nsqd_py.debug.memory import PAUSES
from nsqd_py.diskqueue.files.open_files import OPEN_FILES
from nsqd_py.errors import StartError, is_full
from nsqd_py.lookup.host import resolve
from nsqd_py.net.addresses import join_address
from nsqd_py.net.limits import connections
from nsqd_py.net.listeners import Listeners, Refusal
from nsqd_py.net.loop_iteration import LoopIteration
from nsqd_py.net.transport import Stream
from nsqd_py.pqueues.alarms import Alarms
from nsqd_py.protocol.frames import TOO_MANY_CONNECTIONS
from nsqd_py.protocol.session import Limits
from nsqd_py.runtime import process
from nsqd_py.runtime.command import unblock_signals
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.pacing import SLICE_S
from nsqd_py.runtime.systemd import Notifier
from nsqd_py.runtime.threads import DiskThreads, Job
from nsqd_py.server.docking import Part, StartsOver
from nsqd_py.server.options import NsqdOptions
from nsqd_py.server.parts import make_parts
from nsqd_py.tcp.fast_publishing import FastConnection
from nsqd_py.tcp.last_answers import read_last_answers, with_messages
from nsqd_py.version import NSQ_VERSION, version_string

if TYPE_CHECKING:
    from nsqd_py.auth.guard import AuthGuard, Guarded
    from nsqd_py.lookup.peers import LookupPeers
    from nsqd_py.stats.statsd import StatsdReporter

_POLL_SIGNALS_EVERY_S = 0.05
_CHECK_LOCK_NS = 1_000_000_000
_LOOP_ITERATION_S = 0.001  # with 0 the loop does not reach signals
CHECK_CERTIFICATE_NS = 2_000_000_000
_DISK_THREADS = 16
_FAILED = 1  # the exit status after an error that ended it

# The answers to connections above the limit. With TLS there is none, since a handshake would have to come first.
_REFUSALS: dict[str, Refusal] = {
    "TCP": lambda: TOO_MANY_CONNECTIONS,
    "HTTP": lambda: _http_refusal(),
    "HTTPS": bytes,
}


class _Stopped(Exception):
    """A signal asked nsqd to stop before it began to serve."""


class Daemon:
    """Everything that runs in one nsqd."""

    def __init__(
        self,
        options: NsqdOptions,
        log: Log,
        notifier: Notifier | None = None,
        shared: dict[str, Any] | None = None,
    ) -> None:
        """Make an nsqd that does not run yet.

        notifier  that of the nsqd that this one replaces; without one, it is read from the environment
        shared    what the parts of that nsqd have left for this one
        """
        self.shared = shared if shared is not None else {}
        self._options = options
        self._path = options.data_path or "."
        self._log = log
        self._signals = process.StopSignals()
        self._yields_role = False
        self._has_failed = False
        self._hub = gevent.get_hub()
        self._loop = self._hub.loop
        self._iteration = LoopIteration(self._hub, log)
        self._alarms = Alarms()
        self._timer = self._loop.timer(0.0)
        # Not gevent's pool, which resolves names: a stalled disk must not delay them.
        self._disk_threads = DiskThreads(_DISK_THREADS)
        self._write_threads = DiskThreads(_DISK_THREADS)
        clock = SteadyClock()
        self._make_guard: Callable[[Guarded], AuthGuard] | None = None  # of a client, if it needs AUTH
        auth_failures = None
        if options.auth_http_address:
            from nsqd_py.auth.guard import guard_maker  # with the HTTP client and TLS, 25 ms of a start

            self._make_guard, auth_failures = guard_maker(options, log, self._alarms, clock, resolve)
        self._ports = Ports()
        self._connections = connections(options, log, self._loop)
        self.broker = Broker(
            options,
            log,
            self._iteration,
            self._alarms,
            self._disk_threads,
            self._write_threads,
            clock,
            ports=self._ports,
            connections=self._connections,
            make_lookups=self._make_lookups,
            auth_failures=auth_failures,
        )
        self._data_path = self.broker.services.data_path
        self._clocks = ClockKeeper(self.broker.services, clock)
        self._statsd: StatsdReporter | None = None
        self._certificate_alarm = self._alarms.alarm(self._check_certificate)
        self._lock_alarm = self._alarms.alarm(self._check_lock)
        self._limits = Limits.of(options, NSQ_VERSION)
        self._connections.on_sweep = partial(count_buffers, self.broker)
        self._connections.share_with_files(OPEN_FILES.make_room)
        self._is_successor = notifier is not None
        self.notifier = notifier or Notifier.from_environment()
        self._listeners = Listeners(self._connections, _REFUSALS, self._loop, log)
        self._handlers: list[Any] = []
        self._greenlets: list[gevent.Greenlet[..., Any]] = []  # that end with it
        self._is_loaded = False
        self._is_serving = False
        self._parts: list[Part] = []
        self._next_poll_s = 0.0  # for signals, while it loads
        self.next_options: NsqdOptions | None = None  # of the nsqd that replaces this one, in another role

    def run(self) -> int:
        """Serve until SIGTERM, SIGINT or the end of a drain, and return the exit status. Raises StartError."""
        process.raise_descriptor_limit()
        self.broker.descriptors.watch()
        process.keep_freed_memory()
        process.log_uncaught_errors(self._hub, self._log)
        path = self._path
        try:
            self._data_path.lock()
        except BlockingIOError as error:
            text = f"failed to lock data-path: {path} is in use by another nsqd; stop it or choose another --data-path"
            raise StartError(text) from error
        except OSError as error:
            text = f"failed to lock data-path: {error.strerror} ({path}); --data-path must be a directory that exists"
            raise StartError(f"{text}, and that this user can read and write") from error
        self._log.info("%s", version_string("nsqd"))
        self._alarms.on_earlier = self._set_timer
        with self._signals as signals:
            self._serve(signals)
        for handler in self._handlers:
            handler.cancel()
        if self._has_failed:
            return _FAILED
        return self.broker.drain.exit_status

    def yield_role(self) -> None:
        """End it, so that this nsqd can take another role."""
        self._yields_role = True
        self._signals.stop()

    def _serve(self, signals: process.StopSignals) -> None:
        try:
            if self._is_successor:
                process.free_ended_daemon()
            with process.collector_paused():
                self._load()
            process.return_freed_memory()
            self.broker.read_credentials()
            self._listen()
            if self._is_loaded:
                self.broker.metadata.persist()
            self._disk_threads.serve()
            self._write_threads.serve()
            process.tune_gc()
            PAUSES.watch()
            for part in self._parts:
                part.start()
            self.broker.set_lookupds(self._options.lookupd_tcp_address)
            self._connections.start()
            self._limits = self._limits._replace(takes_members=self.broker.replication.takes_members)
            self._listeners.start()
            for part in self._parts:
                part.serving()
            self._is_serving = True
            self._check_lock(self.broker.clock())
            self.broker.lookups.start()
            self._start_statsd()
            self.broker.loop_lag.start()
            self.broker.removed_files.start()
            if self._is_loaded:
                self.broker.small_files.start()
            self.broker.start_scrub()
            for part in self._parts:
                part.started()
            self.in_greenlet(self._drain, signals)
            self.notifier.ready(f"serving on {self._listeners.address}")
            self.notifier.start_watchdog(self._loop)
            self._listen_to_signals()
            signals.wait()
            self.broker.drain.report_interruption()
        except _Stopped:
            self._log.info("NSQ: stopped before the start was over")
        except StartsOver:
            pass  # a part has arranged for the nsqd that replaces this one
        except OSError as error:
            path = Path(self._path).absolute()
            full = ""
            if is_full(error):
                full = f"the disk of {path} is full; free some space - "
            raise StartError(f"{full}{error}") from error
        finally:
            self._shut_down()

    def _listen_to_signals(self) -> None:
        """Handle SIGHUP and SIGUSR1. They were held back since the command began: a drain needs all topics."""
        self._handlers = [
            gevent.signal_handler(signal.SIGHUP, self._reload),
            gevent.signal_handler(signal.SIGUSR1, self.broker.begin_drain),
        ]
        unblock_signals()

    def _load(self) -> None:
        """Load the data path. Raises StartError, OSError, _Stopped and StartsOver."""
        for sentence in mend_files(Path(self._path)):
            self._log.error("NSQ: %s", sentence)
        self._parts = make_parts(self)
        for part in self._parts:
            part.take_role()
        if self.broker.refusal is not None:
            return
        self.notifier.status("loading messages")
        is_same_boot = self._clocks.restore()
        for part in self._parts:
            part.before_load()
        self._clocks.restore()  # due times are on the clock of the nsqd that a part has restored
        load(self.broker, self.broker.services.directory, is_same_boot=is_same_boot)
        self._is_loaded = True
        for part in self._parts:
            part.loaded()
        self._clocks.start()

    # ---- what parts ask for

    def on_progress(self) -> None:
        """Handle signals and extend the time that systemd allows, 20 times a second. Raises _Stopped."""
        if time.monotonic() < self._next_poll_s:
            return
        self.notifier.starting_takes_longer()
        gevent.sleep(_LOOP_ITERATION_S)
        self.end_if_asked()
        self._next_poll_s = time.monotonic() + _POLL_SIGNALS_EVERY_S

    def end_if_asked(self) -> None:
        """Raise _Stopped if nsqd was asked to stop."""
        if self._signals.is_asked:
            raise _Stopped

    def in_greenlet(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Run `work` in a greenlet that ends with nsqd."""
        self._greenlets.append(gevent.spawn(work, *arguments))

    def cut_off(self, reason: str) -> None:
        """End serving at once. The system does not send later what a peer does not take now."""
        self._listeners.close()
        self._connections.close_all(reason, aborts=True)

    def fail(self) -> None:
        """End this nsqd, and the process with status 1. Call `cut_off` first if no answer may leave any more."""
        self._has_failed = True
        self._signals.stop()

    def continue_as(self, options: NsqdOptions) -> None:
        """Let an nsqd with these options replace this one, on the same ports, after `yield_role`."""
        self.next_options = options.replace(
            tcp_address=_with_port(options.tcp_address, self._ports.tcp),
            http_address=_with_port(options.http_address, self._ports.http),
            https_address=_with_port(options.https_address, self._ports.https),
        )

    def _drain(self, signals: process.StopSignals) -> None:
        try:
            self.broker.drain.wait_until_over(self.notifier.status, lambda: self.broker.lookups)
        finally:  # also after a bug: nsqd must not refuse publishes for ever
            signals.stop()

    def _start_statsd(self) -> None:
        """Report to statsd, if it has an address. Its prefix may contain a port, so the ports must be known."""
        options = self._options
        options.statsd_prefix = full_prefix(
            options.statsd_prefix, options.broadcast_address, options.broadcast_http_port
        )
        if options.statsd_address:
            from nsqd_py.stats.statsd import StatsdReporter  # with orjson, 15 ms of a start

            self._statsd = StatsdReporter(self.broker)

    # ---- connections

    def _listen(self) -> None:
        options = self._options
        ports = self._ports
        ports.tcp = self._listeners.add("TCP", options.tcp_address, self._on_client).port
        if options.http_address:
            ports.http = self._listeners.add("HTTP", options.http_address, self._on_http).port
        if options.unix_socket:
            self._listeners.add("TCP", options.unix_socket, self._on_client)
        if options.http_unix_socket:
            self._listeners.add("HTTP", options.http_unix_socket, self._on_http)
        if self.broker.tls is not None:
            self._certificate_alarm.set(self.broker.clock() + CHECK_CERTIFICATE_NS)
            if options.https_address:
                ports.https = self._listeners.add(
                    "HTTPS", options.https_address, partial(self._on_http, is_secure=True)
                ).port
        self._listeners.close_others()
        # nsqlookupds and `/config` get these.
        options.broadcast_tcp_port = options.broadcast_tcp_port or max(0, ports.tcp)
        options.broadcast_http_port = options.broadcast_http_port or max(0, ports.http)

    def _on_client(self, sock: socket.socket, peer: str) -> None:
        self._log.of_clients.info("TCP: new client(%s)", peer)
        client = FastConnection(sock, peer, self._loop, self._iteration, self._log, self.broker, self._limits)
        if self._make_guard is not None:
            client.guard = self._make_guard(client)
        self._start(client)

    def _on_http(self, sock: socket.socket, peer: str, *, is_secure: bool = False) -> None:
        # Imported at the first connection: the API and its parser take 15 ms, which the start saves.
        from nsqd_py.api.publishing import PublishingConnection

        connection = PublishingConnection(sock, peer, self._loop, self._iteration, self._log, self.broker)
        if is_secure:
            from nsqd_py.net.tls import TlsLayer  # ssl is slow to import; only TLS needs it

            assert self.broker.tls is not None
            connection.add_layer(TlsLayer(self.broker.tls.context))
        self._start(connection)

    def _start(self, stream: Stream) -> None:
        self._connections.add(stream)
        stream.start()

    def _check_certificate(self, now_ns: int) -> None:
        assert self.broker.tls is not None
        self._certificate_alarm.set(now_ns + CHECK_CERTIFICATE_NS)  # first: also if the check fails
        self.broker.tls.check()

    def _check_lock(self, now_ns: int) -> None:
        """Check in a thread if the data path is another directory by now: a stalled disk must not stop the event loop."""
        try:
            self._disk_threads.begin(os.stat, (self._path,), self._lock_again_if_replaced)
        except RuntimeError:  # the system has no more threads
            self._lock_alarm.set(now_ns + _CHECK_LOCK_NS)

    def _lock_again_if_replaced(self, job: Job) -> None:
        """Lock the directory that has replaced the locked one. End as after a kill if another nsqd works there."""
        if not self._data_path.is_locked:  # this nsqd ended while the disk stalled
            return
        self._lock_alarm.set(self.broker.clock() + _CHECK_LOCK_NS)
        try:
            status = job.end()
        except OSError:  # it is gone
            status = None
        try:
            self._data_path.find(status)
        except BlockingIOError:
            self._log.fatal(
                "NSQ: %s was replaced by another directory, which is in use by another nsqd", self._path
            )
            os._exit(1)  # closing the topics would write over the files of that nsqd
        except OSError:  # it is gone by now: the next check finds that
            return

    def _reload(self) -> None:
        """Handle SIGHUP: reload the certificate."""
        self._log.info("NSQ: reloading")
        with self.notifier.reloading():
            if self.broker.tls is not None:
                self.broker.tls.reload()

    def _make_lookups(self) -> LookupPeers:
        """Return the connections to nsqlookupds. Raises StartError."""
        # With the HTTP client and TLS, 20 ms of a start.
        from nsqd_py.lookup.peers import LookupPeers, lookupd_tls

        lookups = LookupPeers(self.broker, self._options, self._log, lookupd_tls(self._options, self._log))
        if self._is_serving:
            lookups.start()
        return lookups

    # ---- time

    def _set_timer(self, due_ns: int) -> None:
        """Set the loop's only timer, which serves all alarms."""
        delay_s = max(0.0, (due_ns - self.broker.clock()) / 1e9)
        self._timer.close()
        self._timer = self._loop.timer(delay_s)
        self._timer.start(self._on_timer)

    def _on_timer(self) -> None:
        self._alarms.on_earlier = None  # ringing sets alarms; the timer is set once below, for the earliest
        now_ns = self.broker.clock()
        end_s = time.monotonic() + SLICE_S
        try:
            while self._alarms.ring_next(now_ns) and time.monotonic() < end_s:
                pass  # those that are left ring in the next iteration of the loop
        finally:
            self._alarms.on_earlier = self._set_timer
            next_ns = self._alarms.next_due_ns
            if next_ns is not None:
                self._set_timer(next_ns)

    # ---- the end

    def _shut_down(self) -> None:
        if self._yields_role:  # the process goes on
            for part in self._parts:
                part.leave_role()  # first, as what follows may wait for others
        else:
            self.notifier.stopping()
        for greenlet in self._greenlets:
            greenlet.kill()
        self.broker.lookups.close()  # first, so that consumers stop finding this nsqd
        if self._statsd is not None:
            self._statsd.stop()
        self.broker.loop_lag.stop()
        self.broker.removed_files.stop()
        self.broker.small_files.stop()
        self.broker.stop_scrub()
        self._listeners.close()
        self._iteration.end()
        for part in self._parts:
            part.stop()
        # Also those that have not said anything yet: they must not publish to a broker that is closed.
        consumers = with_messages(self.broker.clients)
        readers = {reader for part in self._parts for reader in part.last_readers()}
        self._connections.close_others("nsqd is stopping", consumers | readers)
        read_last_answers(consumers, self.broker.topics.values())
        for part in self._parts:
            part.answered()
        self._connections.close_all("nsqd is stopping")
        if self._is_loaded:  # a failed start must not change the disk
            self._end_broker()
        for part in self._parts:
            part.closed()
        self._timer.close()
        self._connections.close()
        self._disk_threads.stop()
        self._write_threads.stop()
        self._log.info("NSQ: bye")
        self._data_path.close()

    def _end_broker(self) -> None:
        with suppress(OSError):  # the last look may be a second old
            self._data_path.look()
        if self._data_path.problem:
            leave(self.broker)
        else:
            close(self.broker)
            self._clocks.close()


def full_prefix(template: str, broadcast_address: str, http_port: int) -> str:
    """Return the template with `%s` replaced by this nsqd's address, and with a dot at its end."""
    address = join_address(broadcast_address, http_port).replace(".", "_").replace(":", "_")
    prefix = template.replace("%s", address)
    if not prefix or prefix.endswith("."):
        return prefix
    return prefix + "."


def _with_port(address: str, port: int) -> str:
    """Return an address with the port that the system chose, if it has port 0."""
    if address.endswith(":0") and port > 0:
        return f"{address[:-1]}{port}"
    return address


def _http_refusal() -> bytes:
    from nsqd_py.net.http.encoding import refused_connection

    return refused_connection()
