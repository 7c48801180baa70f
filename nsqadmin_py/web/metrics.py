"""/metrics of nsqadmin for Prometheus: the state of the cluster, its problems, and nsqadmin itself."""

from __future__ import annotations

from collections import Counter
from time import monotonic

from werkzeug.wrappers import Request, Response

from nsqadmin_py.cluster.node_views import FAILED, GONE, NEW, OK, SLOW, state_of
from nsqadmin_py.cluster.problems import KINDS
from nsqadmin_py.cluster.views import overview
from nsqadmin_py.history.series import History
from nsqadmin_py.web.answers import Refusal
from nsqadmin_py.web.app import Services
from nsqadmin_py.web.events import Events
from nsqd_py.errors import missing_package
from nsqd_py.runtime.logs import one_line

_STATES = (OK, SLOW, FAILED, NEW, GONE)
# Rendering takes 1 to 2 ms; a request that comes earlier than this gets the same text again.
_RENDERED_FOR_S = 1.0


class Metrics:
    """Answers GET /metrics. Everything is in memory, so that no scrape waits for an nsqd."""

    def __init__(self, services: Services, history: History, events: Events) -> None:
        self._cluster = services.cluster
        self._findings = services.findings
        self._access = services.access
        self._history = history
        self._events = events
        self._rendered = b""
        self._rendered_until_s = 0.0

    def handle(self, request: Request) -> Response:
        """Raises Refusal for a user who may not view all topics: the sums contain all of them."""
        self._access.check_sees_all(request)
        if missing := missing_package("prometheus_client", "metrics"):
            raise Refusal(501, missing)
        # Imported late: nsqadmin starts without it.
        from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

        now_s = monotonic()
        if now_s >= self._rendered_until_s:
            self._rendered = self._render()
            self._rendered_until_s = now_s + _RENDERED_FOR_S
        return Response(self._rendered, 200, {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4, "Cache-Control": "no-store"})

    def _render(self) -> bytes:
        from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
        from prometheus_client import generate_latest as exposition

        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        for name, text, value in self._gauges():
            Gauge(name, text, registry=registry).set(value)
        nodes = Gauge("nsqadmin_nodes", "nsqds by state.", ["state"], registry=registry)
        for state, number in self._states().items():
            nodes.labels(state).set(number)
        problems = Gauge("nsqadmin_problems", "Problems under Attention.", ["kind", "severity"], registry=registry)
        found = self._findings.attention.counts
        for kind, info in KINDS.items():
            problems.labels(kind, info.severity).set(found[kind])
        labels = ["kind", "severity", "topic", "channel", "node"]
        listed = Gauge("nsqadmin_problem", "1 for each problem under Attention.", labels, registry=registry)
        for entry in self._findings.attention.listed:
            kind, where = entry.problem.kind, entry.problem
            place = map(one_line, (where.topic, where.channel, where.node))
            listed.labels(kind, KINDS[kind].severity, *place).set(1)
        return exposition(registry)

    def _gauges(self) -> list[tuple[str, str, float]]:
        head = overview(self._cluster, monotonic(), self._findings).head
        return [
            ("nsqadmin_topics", "Topics of the cluster.", head["topics"]),
            ("nsqadmin_channels", "Channels of the cluster.", head["channels"]),
            ("nsqadmin_depth", "Messages that wait in the cluster.", head["depth"]),
            ("nsqadmin_missing_depth", "Messages on nsqds that do not answer, when last seen.", head["missing_depth"]),
            ("nsqadmin_standbys", "nsqds that are standbys.", head["standbys"]),
            ("nsqadmin_failed_lookups", "nsqlookupds that do not answer.", len(self._cluster.failed_lookups)),
            ("nsqadmin_event_readers", "Open event streams of pages.", self._events.readers),
            ("nsqadmin_history_bytes", "Memory of the history's values.", self._history.size_bytes),
        ]

    def _states(self) -> dict[str, int]:
        now_s = monotonic()
        found = Counter(state_of(node, now_s) for node in self._cluster.nodes.values())
        found[GONE] = len(self._findings.memory.gone())
        return {state: found[state] for state in _STATES}
