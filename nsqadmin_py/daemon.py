"""nsqadmin as a process: a poller that keeps the cluster in memory, its history, and the page."""

from __future__ import annotations

from time import monotonic, time

import gevent

from nsqadmin_py.audit import AuditLog
from nsqadmin_py.cluster.findings import Findings
from nsqadmin_py.history.file import HistoryFile
from nsqadmin_py.history.series import History, records
from nsqadmin_py.options import NsqadminOptions
from nsqadmin_py.problem_webhook import ProblemWebhook
from nsqadmin_py.upstream import make_upstream
from nsqadmin_py.web.access import AccessRights
from nsqadmin_py.web.actions import Actions
from nsqadmin_py.web.app import App, Handlers, Routes
from nsqadmin_py.web.events import Events
from nsqadmin_py.web.go_api import GoApi
from nsqadmin_py.web.message_queries import MessageQueries
from nsqadmin_py.web.node_queries import NodeQueries
from nsqadmin_py.web.server import HttpServer, server_tls
from nsqadmin_py.web.shell import Shell
from nsqadmin_py.web.views_api import Metrics, Views, ViewsApi, ViewsOfUsers
from nsqd_py.cluster.model import Cluster
from nsqd_py.cluster.poller import ClusterPoller
from nsqd_py.cluster.problems.limits import Limits
from nsqd_py.net.http.guard import admin_guard
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.pacing import Turns
from nsqd_py.runtime.process import serving, tune_gc
from nsqd_py.runtime.systemd import Notifier
from nsqd_py.runtime.threads import in_slices

_SAVE_EVERY_S = 60.0
# Metrics live long. A collection takes 30 ms with 200,000 of them, and 1 ms with 10,000; there is one for
# each answer.
COLLECT_EVERY = (10_000, 100_000)
_PAGES = (
    "/",
    "/topics",
    "/topics/<topic>",
    "/topics/<topic>/<channel>",
    "/nodes",
    "/nodes/<node>",
    "/counter",
    "/lookup",
    "/channels",
    "/audit",
)


class Nsqadmin:
    """Everything that runs in one nsqadmin. Raises StartError."""

    def __init__(self, options: NsqadminOptions, log: Log) -> None:
        self._options = options
        self._log = log
        self._upstream = make_upstream(options, log)
        self._cluster = Cluster()
        interval_s = options.poll_interval_ns / 1e9
        self._history = History(interval_s)
        self._findings = Findings(limits=Limits(options.max_message_age_ns))
        self._file = HistoryFile(options.history_file, log)
        self._poller = ClusterPoller(
            self._cluster,
            self._upstream,
            options.lookupd_http_address,
            options.nsqd_http_address,
            interval_s,
            self._on_round,
            lambda error: log.of_clients.exception("NSQADMIN: a round ended early: %r", error),
            asks_info=True,
            checks_tcp=True,
        )
        access = AccessRights(options, admin_guard(options.http_auth_file, log))
        self._audit_log = AuditLog(options, log, access, self._file)
        self._problem_webhook = ProblemWebhook(options, log, self._file)
        self._views = ViewsOfUsers(Views(self._cluster, self._findings))
        turns = Turns(gevent.get_hub().loop)
        self._events = Events(self._views, access, turns)
        self._notifier = Notifier.from_environment()
        self._handlers = Handlers(
            options, log, self._cluster, self._findings, self._upstream, self._poller, access, self._audit_log
        )
        self.routes = self._routes() | self._go_routes()
        app = App(self.routes, options.base_path, access, log)
        self._tls = server_tls(options.tls_cert, options.tls_key, options.tls_security_level)
        self._server = HttpServer(app, options.http_address, options.max_connections, self._tls, log, turns)
        self._saver: gevent.Greenlet[[], None] | None = None

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises StartError."""
        with serving("nsqadmin", self._log, self._reload, self._shut_down) as signals:
            self._findings.memory.load(self._file.open(self._history))
            self._audit_log.open()
            self._problem_webhook.open()
            self._poller.add_standbys(self._findings.memory.standbys())
            tune_gc(*COLLECT_EVERY)
            self._server.start()
            self._poller.start()
            self._saver = gevent.spawn(self._save_again_and_again)
            self._notifier.ready(f"serving on {self._server.address}")
            self._notifier.start_watchdog(gevent.get_hub().loop)
            signals.wait()

    def _reload(self) -> None:
        """Load the certificate again after SIGHUP."""
        self._log.info("NSQADMIN: reloading")
        with self._notifier.reloading():
            if self._tls is not None:
                try:
                    self._tls.load_cert_chain(self._options.tls_cert, self._options.tls_key, password="")
                except OSError as error:
                    self._log.error(
                        "NSQADMIN: the certificate stays the one before: %s", error.strerror or error
                    )

    def _shut_down(self) -> None:
        self._notifier.stopping()
        self._events.close()
        self._poller.close()
        if self._saver is not None:
            self._saver.kill()
        self._server.close()
        self._audit_log.close()
        self._problem_webhook.close()
        self._write_file()
        self._file.close()
        self._log.info("NSQADMIN: bye")
        self._log.flush()

    # ---- after each round

    def _on_round(self) -> None:
        time_s = time()
        self._findings.note_round(self._cluster, monotonic(), time_s, in_slices)
        self._problem_webhook.note_round(self._cluster, self._findings)
        if self._cluster.is_settled:  # the sums of some nsqds would look like a dip
            self._history.record(time_s, records(self._cluster), in_slices)
        self._events.publish(self._cluster.tick)

    def _write_file(self) -> None:
        self._file.write(self._history, self._findings.memory.dump())

    def _save_again_and_again(self) -> None:
        while True:
            gevent.sleep(_SAVE_EVERY_S)
            self._write_file()

    # ---- the paths

    def _routes(self) -> Routes:
        base = self._handlers
        shell = Shell(base.options, base.access)
        api = ViewsApi.like(base, views=self._views, past=self._history)
        metrics = Metrics.like(base, past=self._history, count_readers=self._events.readers.total)
        queries = NodeQueries.like(base)
        messages = MessageQueries.like(base)
        actions = Actions.like(base)
        return {
            **{f"GET {path}": shell.index for path in _PAGES},
            "GET /static/<path:name>": shell.asset,
            "GET /metrics": metrics.handle,
            "GET /api/v2/session": api.session,
            "GET /api/v2/overview": api.view("overview"),
            "GET /api/v2/topics": api.view("topics"),
            "GET /api/v2/topics/<topic>": api.view("topic"),
            "GET /api/v2/topics/<topic>/log": queries.log_files,
            "GET /api/v2/topics/<topic>/dead-letters": messages.dead_letters,
            "GET /api/v2/topics/<topic>/channels/<channel>": api.view("channel"),
            "GET /api/v2/topics/<topic>/channels/<channel>/clients": queries.clients,
            "GET /api/v2/topics/<topic>/channels/<channel>/peek": messages.peek,
            "GET /api/v2/topics/<topic>/channels/<channel>/messages/<message>": messages.queued_body,
            "GET /api/v2/topics/<topic>/messages": messages.in_log,
            "GET /api/v2/topics/<topic>/messages/<seq>": messages.body,
            "GET /api/v2/attention": api.view("attention"),
            "GET /api/v2/channels": api.view("channels"),
            "GET /api/v2/nodes": api.view("nodes"),
            "GET /api/v2/nodes/<node>": api.view("node"),
            "GET /api/v2/nodes/<node>/clients": queries.node_clients,
            "GET /api/v2/lookup": queries.lookup,
            "GET /api/v2/history": api.history,
            "GET /api/v2/audit": api.audit,
            "GET /api/v2/sparklines": api.sparklines,
            "GET /api/v2/events": self._events.handle,
            "POST /api/v2/actions": actions.handle,
        }

    def _go_routes(self) -> Routes:
        go = GoApi.like(self._handlers)
        routes: Routes = {
            "GET /ping": go.ping,
            "GET /api/topics": go.topics,
            "POST /api/topics": go.create,
            "GET /api/topics/<topic>": go.topic,
            "POST /api/topics/<topic>": go.act,
            "DELETE /api/topics/<topic>": go.delete,
            "GET /api/topics/<topic>/<channel>": go.channel,
            "POST /api/topics/<topic>/<channel>": go.act,
            "DELETE /api/topics/<topic>/<channel>": go.delete,
            "GET /api/nodes": go.nodes,
            "GET /api/nodes/<node>": go.node,
            "DELETE /api/nodes/<node>": go.tombstone,
            "GET /api/counter": go.counter,
            "GET /api/graphite": go.graphite,
            "GET /config/<opt>": go.config,
            "PUT /config/<opt>": go.config,
        }
        if self._options.proxy_graphite:
            routes["GET /render"] = go.render
        return routes
