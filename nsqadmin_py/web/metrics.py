"""/metrics of nsqadmin for Prometheus: the state of the cluster, its problems, and nsqadmin itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from werkzeug.wrappers import Request, Response

from nsqadmin_py.cluster.findings import Findings
from nsqadmin_py.cluster.node_views import FAILED, GONE, NEW, OK, SLOW, state_of
from nsqadmin_py.cluster.problems import KINDS
from nsqadmin_py.cluster.views import overview
from nsqadmin_py.history.series import History
from nsqadmin_py.web.access import Access
from nsqadmin_py.web.answers import Refusal
from nsqd_py.cluster.model import Cluster
from nsqd_py.cluster.roles import FOLLOWING
from nsqd_py.errors import missing_package
from nsqd_py.runtime.logs import one_line

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_STATES = (OK, SLOW, FAILED, NEW, GONE)
# Rendering takes 1 to 2 ms; whoever asks more often than this gets the same text again.
_RENDERED_FOR_S = 1.0


class Metrics:
    """Answers GET /metrics. Everything is in memory, so that no scrape waits for an nsqd."""

    def __init__(
        self, cluster: Cluster, findings: Findings, history: History, access: Access, count_readers: Callable[[], int]
    ) -> None:
        self._cluster = cluster
        self._findings = findings
        self._history = history
        self._access = access
        self._count_readers = count_readers
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
        for name, text, value in self._figures():
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
        self._add_lags(registry)
        return exposition(registry)

    def _add_lags(self, registry: CollectorRegistry) -> None:
        """Add the lag of each standby; nothing without standbys."""
        from prometheus_client import Gauge

        standbys = [pair for pair in self._cluster.pairs() if pair.standby]
        if not standbys:
            return
        names = ["primary", "standby"]
        messages = Gauge("nsqadmin_standby_lag_messages", "Messages that a standby lacks.", names, registry=registry)
        size = Gauge("nsqadmin_standby_lag_bytes", "Bytes that a standby lacks.", names, registry=registry)
        age = Gauge("nsqadmin_standby_lag_seconds", "Age of the oldest change that it lacks.", names, registry=registry)
        follows = Gauge("nsqadmin_standby_following", "1 if a standby follows its primary.", names, registry=registry)
        for pair in standbys:
            labels = one_line(pair.primary), one_line(pair.standby)
            messages.labels(*labels).set(pair.lag.messages or 0)
            size.labels(*labels).set(pair.lag.size_bytes or 0)
            age.labels(*labels).set(pair.lag.ms / 1000)
            follows.labels(*labels).set(pair.state == FOLLOWING)

    def _figures(self) -> list[tuple[str, str, float]]:
        head = overview(self._cluster, monotonic(), self._findings).head
        return [
            ("nsqadmin_topics", "Topics of the cluster.", head["topics"]),
            ("nsqadmin_channels", "Channels of the cluster.", head["channels"]),
            ("nsqadmin_depth", "Messages that wait in the cluster.", head["depth"]),
            ("nsqadmin_missing_depth", "Messages on nsqds that do not answer, when last seen.", head["missing_depth"]),
            ("nsqadmin_standbys", "nsqds that are standbys.", head["standbys"]),
            ("nsqadmin_failed_lookups", "nsqlookupds that do not answer.", len(self._cluster.failed_lookups)),
            ("nsqadmin_event_readers", "Open event streams of pages.", self._count_readers()),
            ("nsqadmin_history_bytes", "Memory of the history's values.", self._history.size_bytes),
        ]

    def _states(self) -> dict[str, int]:
        now_s = monotonic()
        found = Counter(state_of(node, now_s) for node in self._cluster.nodes.values())
        found[GONE] = len(self._findings.memory.gone())
        return {state: found[state] for state in _STATES}
