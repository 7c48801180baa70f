"""The data of the page, under /api/v2, and /metrics.

They are in memory, so that no request waits for an nsqd.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic, time

from werkzeug.wrappers import Request, Response

from nsqadmin_py.audit_trail import MOST_ENTRIES, AuditQuery
from nsqadmin_py.cluster import node_views, views
from nsqadmin_py.cluster.findings import Findings, VisibleCluster, visible_findings
from nsqadmin_py.cluster.metrics import Json, View, hide_rates
from nsqadmin_py.cluster.views import MOST_LIMIT, SORTS, Page
from nsqadmin_py.history.series import COARSE_RANGE_S, LAGS, LATENCIES, METRICS, History, Key
from nsqadmin_py.options import NsqadminOptions
from nsqadmin_py.permissions import Scope
from nsqadmin_py.refusals import NotThere, Query, RequestRefused, choice_of, number_of
from nsqadmin_py.web.access import AccessRights
from nsqadmin_py.web.answers import Handler, uncached
from nsqadmin_py.web.app import Handlers
from nsqd_py.cluster.model import Cluster
from nsqd_py.cluster.problems.kinds import KINDS
from nsqd_py.cluster.problems.states import FAILED, GONE, NEW, OK, SLOW, STOPPED
from nsqd_py.errors import missing_package
from nsqd_py.runtime.logs.daemon_log import one_line
from nsqd_py.runtime.threads import in_slices
from nsqd_py.settings.durations import parse_duration
from nsqd_py.version import NSQ_VERSION, PROJECT_VERSION

_VIEW_WORDS = ("view", "topic", "channel", "node", "search", "sort", "order", "offset", "limit", "only")
_KNOWN_METRICS = {*METRICS, *LATENCIES, *LAGS}
# The most different permissions of users whose views are cached; those that were not used for longest are made
# again.
_MOST_SCOPES = 100
_VIEWS_WITH_LINES = ("topics", "channels", "topic")

_AUDIT_LIMIT = 100
_AUDIT_FIELDS = ("user", "action", "topic", "channel", "node")
_MOST_SEARCH = 200  # characters

# No series has it.
_NO_KEY = Key("/", "/", "/")


class Views:
    """All views of the cluster, by the words of a query: `view` is its name, the rest are its arguments.

    A view is computed once in a round, and shared by all its readers.
    """

    def __init__(self, cluster: Cluster, findings: Findings, clock: Callable[[], float] = monotonic) -> None:
        self.cluster = cluster
        self.findings = findings
        self.clock = clock
        self._known: dict[tuple[tuple[str, str], ...], View] = {}
        self._known_tick = 0

    def read(self, query: Query) -> View:
        """Raises RequestRefused."""
        if self.cluster.tick != self._known_tick:
            self._known = {}
            self._known_tick = self.cluster.tick
        key = tuple((name, query[name]) for name in _VIEW_WORDS if name in query)
        known = self._known  # while the view is made, the next round may end
        view = known.get(key)
        if view is None:
            view = self._make(query)
            known[key] = view
            if not self.cluster.is_settled:
                hide_rates(view)
        return view

    def _make(self, query: Query) -> View:
        """Raises RequestRefused."""
        cluster = self.cluster
        findings = self.findings
        now_s = self.clock()
        topic, channel, node = (query.get(name, "") for name in ("topic", "channel", "node"))
        match query.get("view", ""):
            case "overview":
                return views.overview(cluster, now_s, findings)
            case "attention":
                return findings.attention.view()
            case "topics":
                return views.topic_list(cluster, Page.read(query), findings)
            case "channels":
                return views.channel_list(cluster, Page.read(query, SORTS), findings, node)
            case "topic":
                return views.topic(cluster, topic, now_s, findings, in_slices)
            case "channel":
                return views.channel(cluster, topic, channel, now_s, findings, in_slices)
            case "nodes":
                return node_views.nodes(cluster, now_s, findings.memory, in_slices)
            case "node":
                return node_views.node(cluster, node, now_s, findings.memory)
        raise RequestRefused(400, "INVALID_ARG_VIEW")

    def document(self, query: Query) -> Json:
        """Return the view as JSON. Raises RequestRefused."""
        view = self.read(query)
        rows = list(view.rows.values())
        return {"time": time(), "tick": self.cluster.tick, **view.head, "rows": rows}


class ViewsOfUsers:
    """The views of each user. Users with the same permissions share them."""

    def __init__(self, whole: Views) -> None:
        self._whole = whole
        self._visible: dict[Scope, Views] = {}

    def of(self, scope: Scope) -> Views:
        """Return the views of users who have these permissions, as of the last round."""
        whole = self._whole
        if scope.has_all:
            return whole
        views = self._visible.pop(scope, None)
        if views is None or views.cluster.tick != whole.cluster.tick:
            cluster = VisibleCluster(whole.cluster, scope.sees, in_slices)
            findings = visible_findings(whole.findings, cluster, whole.clock())
            views = Views(cluster, findings, whole.clock)
        self._visible[scope] = views  # the one that was asked for last is at the end
        if len(self._visible) > _MOST_SCOPES:
            del self._visible[next(iter(self._visible))]
        return views


# ---- handlers


@dataclass(frozen=True)
class ViewsApi(Handlers):
    """Handlers of the read-only paths below /api/v2."""

    views: ViewsOfUsers
    past: History

    def session(self, request: Request) -> Json:
        return session_of(self.options, self.access, request)

    def view(self, name: str) -> Handler:
        """Return the handler of a view, whose arguments are parts of the path and words of the query."""
        return partial(self._view, name)

    def _view(self, view: str, request: Request, **names: str) -> Json:
        query = {**request.args.to_dict(), **names, "view": view}
        return self._views_for(request).document(query)

    def _views_for(self, request: Request) -> Views:
        return self.views.of(self.access.scope(request))

    def history(self, request: Request) -> Json:
        """Return metrics over time: `data` has times, then a list of values for each metric, as in uPlot.

        Raises RequestRefused.
        """
        query = request.args
        asked = Key(*(query.get(name, "") for name in Key._fields))
        scope = self.access.scope(request)
        # A hidden topic has no metrics, nor have sums that hidden topics are in.
        key = asked if scope.sees(asked.topic) else _NO_KEY
        metrics = _metrics(query.get("metric") or ",".join(METRICS))
        range_s = _range_s(query.get("range") or "1h")
        step_s, times, lists = self.past.read(key, metrics, range_s, time())
        about = {"metrics": metrics, "step_s": step_s, "quantiles": self.past.quantiles(key)}
        return {**asked._asdict(), **about, "data": [times, *lists]}  # NaN is null in JSON

    def audit(self, request: Request) -> Json:
        """Return a page of the latest actions that the user may see, newest first.

        Addresses of clients are for users who may do everything. Raises RequestRefused.
        """
        query = request.args
        offset = number_of(query, "offset", 0, MOST_ENTRIES)
        limit = number_of(query, "limit", _AUDIT_LIMIT, MOST_ENTRIES)
        only_failed = choice_of(query, "only", ("", "failed")) != ""
        fields = {name: query[name] for name in _AUDIT_FIELDS if query.get(name)}
        asked = AuditQuery(query.get("search", "")[:_MOST_SEARCH], fields, only_failed)
        is_admin = self.access.is_admin(request)
        scope = self.access.scope(request)
        found = list(self.audit_log.trail.find(asked, scope, sees_addresses=is_admin))
        return {
            "time": time(),
            "total": len(found),
            "most": MOST_ENTRIES,
            "rows": found[offset : offset + limit],
        }

    def sparklines(self, request: Request) -> Json:
        """Return the depth over the last minutes for each topic, or channel, of a view.

        Its words are those of the view, so that one request serves all rows that a page shows. A topic that
        does not exist has no lines. Raises RequestRefused.
        """
        query = request.args.to_dict()
        choice_of(query, "view", _VIEWS_WITH_LINES)
        rows: list[Json] = []
        with suppress(NotThere):
            view = self._views_for(request).read(query)
            rows += view.rows.values()
        keys = [Key(row["topic"], row.get("channel", "")) for row in rows if "topic" in row]
        keys = keys[:MOST_LIMIT]
        step_s, lines = self.past.lines(keys, "depth", time(), in_slices)
        pairs = zip(keys, lines, strict=True)
        shown = [{"topic": key.topic, "channel": key.channel, "depth": line} for key, line in pairs]
        return {"step_s": step_s, "lines": shown}  # NaN is null in JSON


def session_of(options: NsqadminOptions, access: AccessRights, request: Request) -> Json:
    """Return the user, and what the page may do. The token must be sent with each action.

    `permissions` has pairs of a permission and a pattern of topics; null if no rule restricts the user.
    """
    grants = access.scope(request).grants
    permissions = None
    if grants is not None:
        permissions = [list(grant) for grant in grants]
    return {
        "user": access.user(request),
        "may_act": access.may_act(request),
        "permissions": permissions,
        "read_only": bool(options.read_only),
        "login": bool(options.http_auth_file),
        "token": access.token(request),
        "version": NSQ_VERSION,
        "project_version": PROJECT_VERSION,
        "poll_interval_s": options.poll_interval_ns / 1e9,
        "lookupds": len(options.lookupd_http_address),
    }


def _metrics(text: str) -> list[str]:
    names = dict.fromkeys(text.split(","))
    if not _KNOWN_METRICS.issuperset(names):
        raise RequestRefused(400, "INVALID_ARG_METRIC")
    return list(names)


def _range_s(text: str) -> float:
    with suppress(ValueError):
        range_s = parse_duration(text) / 1e9
        if 0 < range_s <= COARSE_RANGE_S:
            return range_s
    raise RequestRefused(400, "INVALID_ARG_RANGE")


# ---- metrics


@dataclass(frozen=True)
class Metrics(Handlers):
    """Answers GET /metrics. Everything is in memory, so that no scrape waits for an nsqd."""

    past: History
    count_readers: Callable[[], int]

    def handle(self, request: Request) -> Response:
        """Raises RequestRefused for a user who may not view all topics: the sums contain all of them."""
        self.access.check_sees_all(request)
        missing = missing_package("prometheus_client", "metrics")
        if missing:
            raise RequestRefused(501, missing)
        # Imported late: nsqadmin starts without it.
        from prometheus_client import (
            CONTENT_TYPE_PLAIN_0_0_4,
            CollectorRegistry,
            Gauge,
            ProcessCollector,
            generate_latest,
        )

        registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        for name, text, value in self._totals():
            gauge(name, text).set(value)
        nodes = gauge("nsqadmin_nodes", "nsqds by state.", "state")
        states = views.node_states(self.cluster, monotonic(), self.findings.memory)
        for state in (OK, SLOW, FAILED, NEW, GONE, STOPPED):
            nodes.labels(state).set(states[state])
        attention = self.findings.attention
        problems = gauge("nsqadmin_problems", "Problems under Attention.", "kind", "severity")
        for kind, info in KINDS.items():
            problems.labels(kind, info.severity).set(attention.counts[kind])
        labels = ("kind", "severity", "topic", "channel", "node")
        listed = gauge("nsqadmin_problem", "1 for each problem under Attention.", *labels)
        for entry in attention.listed:
            problem = entry.problem
            names = map(one_line, (problem.topic, problem.channel, problem.node))
            listed.labels(problem.kind, problem.severity, *names).set(1)
        return uncached(generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4)

    def _totals(self) -> list[tuple[str, str, float]]:
        """Return the metrics without labels: name, description and value."""
        head = views.overview(self.cluster, monotonic(), self.findings).head
        return [
            ("nsqadmin_topics", "Topics of the cluster.", head["topics"]),
            ("nsqadmin_channels", "Channels of the cluster.", head["channels"]),
            ("nsqadmin_depth", "Messages that wait in the cluster.", head["depth"]),
            (
                "nsqadmin_missing_depth",
                "Messages on nsqds that do not answer, when last seen.",
                head["missing_depth"],
            ),
            ("nsqadmin_standbys", "nsqds that are standbys.", head["standbys"]),
            ("nsqadmin_failed_lookups", "nsqlookupds that do not answer.", len(self.cluster.failed_lookups)),
            ("nsqadmin_event_readers", "Open event streams of pages.", self.count_readers()),
            ("nsqadmin_history_bytes", "Memory of the history's values.", self.past.size_bytes),
        ]
