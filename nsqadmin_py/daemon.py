"""nsqadmin as a process: a poller that keeps the cluster in memory, its history, and the page."""

from __future__ import annotations

import signal
import socket
from collections.abc import Sequence
from time import monotonic, time

import gevent
from gevent.event import Event

from nsqadmin_py.audit import AuditLog, Notifications
from nsqadmin_py.cluster.attention import grouped
from nsqadmin_py.cluster.findings import Findings
from nsqadmin_py.cluster.problems import Limits
from nsqadmin_py.clusterinfo import ClusterInfo
from nsqadmin_py.history.annotations import Marks
from nsqadmin_py.history.file import HistoryFile, Remembered
from nsqadmin_py.history.series import History, records
from nsqadmin_py.options import NsqadminOptions
from nsqadmin_py.upstream import make_upstream
from nsqadmin_py.web.access import Access
from nsqadmin_py.web.actions import Actions
from nsqadmin_py.web.app import App, Route
from nsqadmin_py.web.dead_letters import LetterQueries
from nsqadmin_py.web.events import Events
from nsqadmin_py.web.go_api import GoApi, GraphiteProxy
from nsqadmin_py.web.message_queries import MessageQueries
from nsqadmin_py.web.metrics import Metrics
from nsqadmin_py.web.node_queries import NodeDetails, NodeQueries
from nsqadmin_py.web.server import HttpServer, server_tls
from nsqadmin_py.web.shell import Shell
from nsqadmin_py.web.views_api import Views, ViewsApi, ViewsOfUsers
from nsqd_py.client.options import ClientOptions
from nsqd_py.cluster.model import Cluster
from nsqd_py.cluster.poller import Poller
from nsqd_py.errors import StartError
from nsqd_py.net.http.guard import admin_guard
from nsqd_py.runtime.command import release_signals
from nsqd_py.runtime.logs import Log
from nsqd_py.runtime.process import StopSignals, calm_collector, log_uncaught_errors, raise_descriptor_limit
from nsqd_py.runtime.systemd import Notifier
from nsqd_py.version import version_string

_SAVE_EVERY_S = 60.0
# What --attention-http-endpoint has received is saved earlier, so that a restart repeats nothing.
_SAVE_PAUSE_S = 10.0
# The most rows of a round that --attention-http-endpoint receives, the worst first.
_MOST_POSTED = 100
# Figures live long. A collection takes 30 ms with 200,000 of them, and 1 ms with 10,000.
COLLECT_EVERY = (10_000, 1_000)


class Daemon:
    """Everything that runs in one nsqadmin. `options` are those of `nsqadmin_py.options`. Raises StartError."""

    def __init__(self, options: NsqadminOptions, log: Log) -> None:
        self._options = options
        self._log = log
        self._upstream = make_upstream(options)
        self._cluster = Cluster()
        interval_s = options.poll_interval_ns / 1e9
        self._history = History(interval_s)
        limits = Limits(options.attention_max_depth, options.attention_max_age_ns / 1e9)
        self._findings = Findings(limits=limits)
        self._alarms = Notifications(options.attention_http_endpoint, options, log)
        self._marks = Marks()
        self._file = HistoryFile(options.history_file, log)
        self._poller = Poller(
            self._cluster,
            self._upstream,
            options.lookupd_http_address,
            options.nsqd_http_address,
            interval_s,
            self._on_round,
            self._report_bug,
            asks_info=True,
            keeps_unlisted=True,
        )
        self._access = Access(options, admin_guard(options.http_auth_file, log))
        self._audit_log = AuditLog(options, log, self._access, self._marks)
        self._views = ViewsOfUsers(Views(self._cluster, self._findings), self._access)
        self._events = Events(self._views)
        self._notifier = Notifier.from_environment()
        app = App(self._routes(), options.base_path, self._access, log)
        self._tls = server_tls(options.tls_cert, options.tls_key, options.tls_security_level)
        self._server = HttpServer(app, options.http_address, options.max_connections, self._tls, log)
        self._last_bug = ""
        self._saver: gevent.Greenlet[[], None] | None = None
        self._has_posted = Event()

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises StartError."""
        raise_descriptor_limit()
        log_uncaught_errors(gevent.get_hub(), self._log)
        self._log.info("%s", version_string("nsqadmin"))
        reload = gevent.signal_handler(signal.SIGHUP, self._reload)
        release_signals()
        with StopSignals() as signals:
            try:
                remembered = self._file.open(self._history)
                self._findings.memory.load(remembered.nodes)
                self._poller.add_standbys(self._findings.memory.standbys())
                self._marks.load(remembered.marks)
                self._findings.attention.load(remembered.problems, time())
                calm_collector(*COLLECT_EVERY)
                self._server.start()
                self._poller.start()
                self._saver = gevent.spawn(self._save_again_and_again)
                self._notifier.ready(f"serving on {self._server.address}")
                self._notifier.start_watchdog(gevent.get_hub().loop)
                signals.wait()
            except OSError as error:
                raise StartError(str(error)) from error
            finally:
                self._shut_down()
                reload.cancel()

    def _report_bug(self, error: Exception) -> None:
        """Log a bug with its stack, and a repeated one in one line."""
        if repr(error) == self._last_bug:
            self._log.of_clients.error("NSQADMIN: again: %r", error)
            return
        self._last_bug = repr(error)
        self._log.of_clients.exception("NSQADMIN: a round ended early: %r", error)

    def _reload(self) -> None:
        """Load the certificate again after SIGHUP."""
        self._log.info("NSQADMIN: reloading")
        with self._notifier.reloading():
            if self._tls is not None:
                try:
                    self._tls.load_cert_chain(self._options.tls_cert, self._options.tls_key, password="")
                except OSError as error:
                    self._log.error("NSQADMIN: the certificate stays the one before: %s", error.strerror or error)

    def _shut_down(self) -> None:
        self._notifier.stopping()
        self._events.close()
        self._poller.close()
        if self._saver is not None:
            self._saver.kill()
        self._server.close()
        self._audit_log.close()
        self._alarms.close()
        self._write_file()
        self._file.close()
        self._log.info("NSQADMIN: bye")
        self._log.flush()

    # ---- after each round

    def _on_round(self) -> None:
        time_s = time()
        for _ in self._findings.noting_round(self._cluster, monotonic(), time_s):
            gevent.sleep(0)
        self._marks.note_starts(((node.address, node.start_time) for node in self._cluster.nodes.values()), time_s)
        self._post_news(time_s)
        if self._cluster.is_settled:  # the sums of some nsqds would look like a dip
            self._history.record(time_s, records(self._cluster))
        self._events.publish(self._cluster.tick)

    def _post_news(self, time_s: float) -> None:
        """Send problems that have begun, and those that are over, to --attention-http-endpoint."""
        if not self._options.attention_http_endpoint:
            return
        news = self._findings.attention.news
        for event, entries in (("problem_began", news.began), ("problem_ended", news.ended)):
            for _, row in grouped(entries)[:_MOST_POSTED]:
                place = {"timestamp": int(time_s), "via": socket.gethostname()}
                self._alarms.send({"event": event, **row, **place})
                self._has_posted.set()

    def _write_file(self) -> None:
        remembered = Remembered(self._findings.memory.dump(), self._marks.dump(), self._findings.attention.dump())
        self._file.write(self._history, remembered)

    def _save_again_and_again(self) -> None:
        while True:
            self._has_posted.wait(_SAVE_EVERY_S)
            self._has_posted.clear()
            self._write_file()
            gevent.sleep(_SAVE_PAUSE_S)

    # ---- what there is over HTTP

    def _info(self) -> ClusterInfo:
        options = self._options
        return ClusterInfo(self._upstream, options.lookupd_http_address, options.nsqd_http_address)

    def _on_lookupds(self, addresses: Sequence[str]) -> None:
        self._poller.set_lookupds(addresses)
        self._poller.hurry()

    def _routes(self) -> list[Route]:
        shell = Shell(self._options, self._access, self._views)
        pages = ["/", "/topics", "/topics/<topic>", "/topics/<topic>/<channel>", "/nodes", "/nodes/<node>"]
        pages += ["/counter", "/lookup", "/channels"]
        routes: list[Route] = [(path, {"GET": shell.index}) for path in pages]
        routes += [("/static/<path:name>", {"GET": shell.asset}), ("/fonts/<path:name>", {"GET": shell.asset})]
        if self._options.proxy_graphite:
            routes.append(("/render", {"GET": GraphiteProxy(self._options, self._access, self._log).render}))
        return [*routes, *self._go_routes(), *self._own_routes()]

    def _go_routes(self) -> list[Route]:
        go = GoApi(
            self._options,
            self._info,
            self._upstream,
            self._access,
            self._audit_log,
            self._log,
            self._on_lookupds,
            self._poller.hurry,
        )
        return [
            ("/ping", {"GET": go.ping}),
            ("/api/topics", {"GET": go.topics, "POST": go.create}),
            ("/api/topics/<topic>", {"GET": go.topic, "POST": go.act, "DELETE": go.delete_topic}),
            ("/api/topics/<topic>/<channel>", {"GET": go.channel, "POST": go.act, "DELETE": go.delete_channel}),
            ("/api/nodes", {"GET": go.nodes}),
            ("/api/nodes/<node>", {"GET": go.node, "DELETE": go.tombstone}),
            ("/api/counter", {"GET": go.counter}),
            ("/api/graphite", {"GET": go.graphite}),
            ("/config/<opt>", {"GET": go.config, "PUT": go.config}),
        ]

    def _own_routes(self) -> list[Route]:
        api = ViewsApi(self._options, self._views, self._history, self._marks, self._access)
        metrics = Metrics(self._cluster, self._findings, self._history, self._access, lambda: self._events.readers)
        queries = NodeQueries(self._cluster, self._upstream, self._info, self._access)
        messages = MessageQueries(self._cluster, self._upstream)
        letters = LetterQueries(self._cluster, self._upstream, self._access)
        node_details = NodeDetails(self._cluster, self._upstream, self._access)
        dialling = ClientOptions.parse(self._options.client_opt)
        actions = Actions(
            self._cluster,
            self._findings.memory,
            self._info,
            self._upstream,
            dialling,
            self._access,
            self._audit_log,
            self._log,
            monotonic,
            self._poller.hurry,
        )
        return [
            ("/metrics", {"GET": metrics.handle}),
            ("/api/v2/session", {"GET": api.session}),
            ("/api/v2/overview", {"GET": api.overview}),
            ("/api/v2/topics", {"GET": api.topics}),
            ("/api/v2/topics/<topic>", {"GET": api.topic}),
            ("/api/v2/topics/<topic>/log", {"GET": queries.log}),
            ("/api/v2/topics/<topic>/dead-letters", {"GET": letters.dead_letters}),
            ("/api/v2/topics/<topic>/channels/<channel>", {"GET": api.channel}),
            ("/api/v2/topics/<topic>/channels/<channel>/clients", {"GET": queries.clients}),
            ("/api/v2/topics/<topic>/channels/<channel>/peek", {"GET": messages.peek}),
            ("/api/v2/topics/<topic>/channels/<channel>/messages/<message>", {"GET": messages.queued_body}),
            ("/api/v2/topics/<topic>/messages", {"GET": messages.log}),
            ("/api/v2/topics/<topic>/messages/<seq>", {"GET": messages.body}),
            ("/api/v2/attention", {"GET": api.attention}),
            ("/api/v2/channels", {"GET": api.channels}),
            ("/api/v2/nodes", {"GET": api.nodes}),
            ("/api/v2/nodes/<node>", {"GET": api.node}),
            ("/api/v2/nodes/<node>/clients", {"GET": node_details.clients}),
            ("/api/v2/nodes/<node>/details", {"GET": node_details.details}),
            ("/api/v2/lookup", {"GET": queries.lookup}),
            ("/api/v2/history", {"GET": api.history}),
            ("/api/v2/marks", {"GET": api.marks}),
            ("/api/v2/sparklines", {"GET": api.sparklines}),
            ("/api/v2/events", {"GET": self._events.handle}),
            ("/api/v2/actions", {"POST": actions.handle}),
        ]
