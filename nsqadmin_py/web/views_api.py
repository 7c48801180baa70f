"""The data of the page, under /api/v2. They are in memory, so that no request waits for an nsqd."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic, time
from typing import Any

from werkzeug.wrappers import Request, Response

from nsqadmin_py.audit_trail import MOST_ENTRIES, AuditQuery
from nsqadmin_py.cluster import node_views, views
from nsqadmin_py.cluster.findings import NO_FINDINGS, Findings, VisibleCluster, visible_findings
from nsqadmin_py.cluster.metrics import BadViewQuery, NotKnown, View, hide_rates
from nsqadmin_py.cluster.views import MOST_LIMIT, SORTS, Page, channel_list, overview
from nsqadmin_py.history.series import COARSE_RANGE_S, LAGS, LATENCIES, METRICS, History, Key
from nsqadmin_py.options import NsqadminOptions
from nsqadmin_py.permissions import Scope
from nsqadmin_py.web.access import AccessRights
from nsqadmin_py.web.answers import Handler, NotThere, RequestRefused, as_json, number_of
from nsqadmin_py.web.app import Services
from nsqd_py.cluster.model import Cluster
from nsqd_py.cluster.problems.kinds import KINDS
from nsqd_py.cluster.problems.of_nodes import is_planned
from nsqd_py.cluster.problems.states import FAILED, GONE, NEW, OK, SLOW, STOPPED, state_of
from nsqd_py.errors import missing_package
from nsqd_py.runtime.logs import one_line
from nsqd_py.runtime.threads import in_slices
from nsqd_py.settings.durations import parse_duration
from nsqd_py.version import NSQ_VERSION, PROJECT_VERSION

_KNOWN_METRICS = (*METRICS, *LATENCIES, *LAGS)
_METRIC_LIST = re.compile(r"[\w,]+")
# The most different permissions of users whose views are kept; those that were not used for longest are made again.
_MOST_SCOPES = 100
_VIEWS_WITH_LINES = ("topics", "channels", "topic")

_AUDIT_LIMIT = 100
_AUDIT_FIELDS = ("user", "action", "topic", "channel", "node")
_MOST_SEARCH = 200  # characters

# No series has it.
_NO_KEY = Key("/", "/", "/")

Query = Mapping[str, str]


class Views:
    """All views of the cluster, by the words of a query: `view` is its name, the rest are its arguments.

    A view is computed once in a round, and shared by all its readers.
    """

    def __init__(self, cluster: Cluster, findings: Findings = NO_FINDINGS, clock: Callable[[], float] = monotonic) -> None:
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
        key = tuple(sorted((name, query[name]) for name in _VIEW_WORDS if name in query))
        known = self._known  # while the view is made, the next round may end
        view = known.get(key)
        if view is None:
            try:
                view = known[key] = self._make(query)
            except BadViewQuery as error:
                raise RequestRefused(400, str(error)) from error
            except NotKnown as error:
                raise NotThere(str(error)) from error
            if not self.cluster.is_settled:
                hide_rates(view)
        return view

    def _make(self, query: Query) -> View:
        """Raises RequestRefused, BadQuery and NotKnown."""
        cluster, findings, memory, now_s = self.cluster, self.findings, self.findings.memory, self.clock()
        topic, channel, node = (query.get(name, "") for name in ("topic", "channel", "node"))
        match query.get("view", ""):
            case "overview":
                return views.overview(cluster, now_s, findings)
            case "attention":
                return findings.attention.view()
            case "topics":
                return views.topic_list(cluster, Page.read(query), findings)
            case "channels":
                return channel_list(cluster, Page.read(query, SORTS), findings, node)
            case "topic":
                return views.topic(cluster, topic, now_s, findings, in_slices)
            case "channel":
                return views.channel(cluster, topic, channel, now_s, findings, in_slices)
            case "nodes":
                return node_views.nodes(cluster, now_s, memory, in_slices)
            case "node":
                return node_views.node(cluster, node, now_s, memory)
        raise RequestRefused(400, "INVALID_ARG_VIEW")

    def document(self, query: Query) -> dict[str, Any]:
        """Return the view as JSON. Raises RequestRefused."""
        view = self.read(query)
        return {"time": time(), "tick": self.cluster.tick, **view.head, "rows": list(view.rows.values())}


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
            views = Views(cluster, visible_findings(whole.findings, cluster, whole.clock()), whole.clock)
        self._visible[scope] = views  # the one that was asked for last is at the end
        if len(self._visible) > _MOST_SCOPES:
            del self._visible[next(iter(self._visible))]
        return views


_VIEW_WORDS = ("view", "topic", "channel", "node", "search", "sort", "order", "offset", "limit", "only")


@dataclass(frozen=True, slots=True)
class ViewsApi:
    """The read-only paths below /api/v2."""

    services: Services
    views: ViewsOfUsers
    past: History

    def session(self, request: Request) -> Response:
        return as_json(session_of(self.services.options, self.services.access, request))

    def view(self, name: str) -> Handler:
        """Return the handler of a view, whose arguments are parts of the path and words of the query."""
        return partial(self._view, name)

    def _view(self, view: str, request: Request, **names: str) -> Response:
        return as_json(
            self.views.of(self.services.access.scope(request)).document({**request.args.to_dict(), **names, "view": view})
        )

    def history(self, request: Request) -> Response:
        """Return metrics over time: `data` has times, then a list of values for each metric, as in uPlot.

        Raises RequestRefused.
        """
        query = request.args
        asked = Key(query.get("topic", ""), query.get("channel", ""), query.get("node", ""))
        scope = self.services.access.scope(request)
        # A hidden topic has no metrics, nor have sums that hidden topics are in.
        key = asked if scope.has_all or (asked.topic and scope.sees(asked.topic)) else _NO_KEY
        metrics = _metrics(query.get("metric") or ",".join(METRICS))
        range_s = _range_s(query.get("range") or "1h")
        step_s, times, lists = self.past.read(key, metrics, range_s, time())
        document = {
            "topic": asked.topic,
            "channel": asked.channel,
            "node": asked.node,
            "metrics": metrics,
            "step_s": step_s,
            "quantiles": self.past.quantiles(key),
            "data": [times, *lists],  # NaN is null in JSON
        }
        return as_json(document)

    def audit(self, request: Request) -> Response:
        """Return a page of the latest actions that the user may see, newest first.

        Addresses of clients are for users who may do everything. Raises RequestRefused.
        """
        services, query = self.services, request.args
        offset = number_of(query, "offset", 0, MOST_ENTRIES)
        limit = number_of(query, "limit", _AUDIT_LIMIT, MOST_ENTRIES)
        if query.get("only", "") not in ("", "failed"):
            raise RequestRefused(400, "INVALID_ARG_ONLY")
        fields = {name: query[name] for name in _AUDIT_FIELDS if query.get(name)}
        wanted = AuditQuery(query.get("search", "")[:_MOST_SEARCH], fields, only_failed=bool(query.get("only")))
        found = list(
            services.audit_log.trail.find(
                wanted, services.access.scope(request), sees_addresses=services.access.is_admin(request)
            )
        )
        return as_json({"time": time(), "total": len(found), "most": MOST_ENTRIES, "rows": found[offset : offset + limit]})

    def sparklines(self, request: Request) -> Response:
        """Return the depth over the last minutes for each topic, or channel, of a view: a page of topics or channels, or a topic.

        Its words are those of the view, so that one request serves all rows that a page shows. A topic that does not exist has
        no lines. Raises RequestRefused.
        """
        query = request.args.to_dict()
        if query.get("view") not in _VIEWS_WITH_LINES:
            raise RequestRefused(400, "INVALID_ARG_VIEW")
        rows = []
        with suppress(NotThere):
            view = self.views.of(self.services.access.scope(request)).read(query)
            rows = [row for row in view.rows.values() if "topic" in row][:MOST_LIMIT]
        keys = [Key(row["topic"], row.get("channel", "")) for row in rows]
        step_s, lines = self.past.lines(keys, "depth", time(), in_slices)
        shown = [{"topic": key.topic, "channel": key.channel, "depth": line} for key, line in zip(keys, lines, strict=True)]
        return as_json({"step_s": step_s, "lines": shown})  # NaN is null in JSON


def session_of(options: NsqadminOptions, access: AccessRights, request: Request) -> dict[str, Any]:
    """Return the user, and what the page may do. The token must be sent with each action.

    `permissions` has pairs of a permission and a pattern of topics; null if no rule restricts the user.
    """
    grants = access.scope(request).grants
    return {
        "user": access.user(request),
        "may_act": access.may_act(request),
        "permissions": None if grants is None else [list(grant) for grant in grants],
        "read_only": bool(options.read_only),
        "login": bool(options.http_auth_file),
        "token": access.token(request),
        "version": NSQ_VERSION,
        "project_version": PROJECT_VERSION,
        "poll_interval_s": options.poll_interval_ns / 1e9,
        "lookupds": len(options.lookupd_http_address),
    }


def _metrics(text: str) -> list[str]:
    names = text.split(",") if _METRIC_LIST.fullmatch(text) else [text]
    if any(name not in _KNOWN_METRICS for name in names):
        raise RequestRefused(400, "INVALID_ARG_METRIC")
    return list(dict.fromkeys(names))


def _range_s(text: str) -> float:
    try:
        range_s = parse_duration(text) / 1e9
    except ValueError as error:
        raise RequestRefused(400, "INVALID_ARG_RANGE") from error
    if not 0 < range_s <= COARSE_RANGE_S:
        raise RequestRefused(400, "INVALID_ARG_RANGE")
    return range_s


@dataclass(frozen=True, slots=True)
class Metrics:
    """Answers GET /metrics. Everything is in memory, so that no scrape waits for an nsqd."""

    services: Services
    history: History
    count_readers: Callable[[], int]

    def handle(self, request: Request) -> Response:
        """Raises RequestRefused for a user who may not view all topics: the sums contain all of them."""
        self.services.access.check_sees_all(request)
        if missing := missing_package("prometheus_client", "metrics"):
            raise RequestRefused(501, missing)
        # Imported late: nsqadmin starts without it.
        from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, Gauge, ProcessCollector, generate_latest

        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        for name, text, value in self._gauges():
            Gauge(name, text, registry=registry).set(value)
        nodes = Gauge("nsqadmin_nodes", "nsqds by state.", ["state"], registry=registry)
        now_s = monotonic()
        states = Counter(state_of(node, now_s) for node in self.services.cluster.nodes.values())
        away = self.services.findings.memory.gone()
        states[STOPPED] = sum(map(is_planned, away))
        states[GONE] = len(away) - states[STOPPED]
        for state in (OK, SLOW, FAILED, NEW, GONE, STOPPED):
            nodes.labels(state).set(states[state])
        problems = Gauge("nsqadmin_problems", "Problems under Attention.", ["kind", "severity"], registry=registry)
        found = self.services.findings.attention.counts
        for kind, info in KINDS.items():
            problems.labels(kind, info.severity).set(found[kind])
        labels = ["kind", "severity", "topic", "channel", "node"]
        listed = Gauge("nsqadmin_problem", "1 for each problem under Attention.", labels, registry=registry)
        for entry in self.services.findings.attention.listed:
            kind, where = entry.problem.kind, entry.problem
            place = map(one_line, (where.topic, where.channel, where.node))
            listed.labels(kind, KINDS[kind].severity, *place).set(1)
        headers = {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4, "Cache-Control": "no-store"}
        return Response(generate_latest(registry), 200, headers)

    def _gauges(self) -> list[tuple[str, str, float]]:
        head = overview(self.services.cluster, monotonic(), self.services.findings).head
        return [
            ("nsqadmin_topics", "Topics of the cluster.", head["topics"]),
            ("nsqadmin_channels", "Channels of the cluster.", head["channels"]),
            ("nsqadmin_depth", "Messages that wait in the cluster.", head["depth"]),
            ("nsqadmin_missing_depth", "Messages on nsqds that do not answer, when last seen.", head["missing_depth"]),
            ("nsqadmin_standbys", "nsqds that are standbys.", head["standbys"]),
            ("nsqadmin_failed_lookups", "nsqlookupds that do not answer.", len(self.services.cluster.failed_lookups)),
            ("nsqadmin_event_readers", "Open event streams of pages.", self.count_readers()),
            ("nsqadmin_history_bytes", "Memory of the history's values.", self.history.size_bytes),
        ]
