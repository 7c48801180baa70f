"""What --check finds: the problems of `nsqd_py.cluster.problems` that the options choose, and the exit status. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nsq_tools.stat.options import StatOptions
from nsq_tools.stat.rows import Filter, Name
from nsqd_py.cluster.model import Cluster
from nsqd_py.cluster.problems.finding import problems
from nsqd_py.cluster.problems.kinds import ERROR, KINDS, LOOKUP_KINDS, SEVERITIES, WARNING, Problem
from nsqd_py.cluster.problems.limits import Limits
from nsqd_py.cluster.problems.of_nodes import NoMemory
from nsqd_py.cluster.problems.trends import Trends
from nsqd_py.runtime.logs import one_line
from nsqd_py.settings.durations import SECOND_NS

# The exit statuses of a Nagios plugin.
_STATUSES = {ERROR: 2, WARNING: 1}


def limits_of(options: StatOptions, *, slow_answers: int) -> Limits:
    return Limits(options.max_message_age_ns, options.max_standby_lag_ns / SECOND_NS, slow_answers, "nsq-stat")


class Asked:
    """The topics and channels whose problems the options choose. All problems of nsqds are."""

    def __init__(self, options: StatOptions) -> None:
        self._channel = options.channel
        self._filter = Filter(options.filter)

    def about(self, problem: Problem) -> bool:
        return not problem.topic or self.shows(problem.topic, problem.channel)

    def shows(self, topic: str, channel: str) -> bool:
        is_asked = self._channel in ("", channel)
        return is_asked and self._filter.shows(Name(one_line(topic), one_line(channel)))


class Checked:
    """The problems of a cluster, as of one round.

    gone    topics that nsqlookupds list, and that no nsqd has
    status  0, or that of the worst problem that `findings` has yielded
    """

    def __init__(self, options: StatOptions, cluster: Cluster, gone: Iterable[str]) -> None:
        self._options = options
        self._cluster = cluster
        self._gone = sorted(gone)
        self._asked = Asked(options)
        self.status = 0

    def findings(self, now_s: float, time_s: float) -> Iterator[tuple[str, str]]:
        """Yield the severity and the line of each problem, the worst first. `time_s` is since the epoch."""
        options = self._options
        limits = limits_of(options, slow_answers=1)
        self._cluster.is_settled = True  # there is no other round
        found = [
            problem
            for problem in problems(self._cluster, NoMemory(), Trends(), now_s, time_s, limits)
            if self._asked.about(problem)
        ]
        lines = [(KINDS[problem.kind].severity, _line(problem)) for problem in found]
        for topic in self._gone:
            if self._asked.shows(topic, ""):
                lines.append((WARNING, f"{one_line(topic)}: no nsqd: listed by an nsqlookupd, but no nsqd has it"))
        if not found and not self._cluster.topics and not self._gone and (options.topic or options.channel):
            lines.append((ERROR, "no nsqd has that topic and channel"))
        for severity, line in sorted(lines, key=lambda one: SEVERITIES.index(one[0])):
            self.status = max(self.status, _STATUSES.get(severity, 0))
            yield severity, line


def _line(problem: Problem) -> str:
    """Return "orders/billing: stuck: 5 messages wait, …"."""
    place = place_of(problem)
    text = f"{KINDS[problem.kind].word}: {problem.text}"
    return one_line(f"{place}: {text}" if place else text)


def place_of(problem: Problem) -> str:
    """Return "orders/billing" or "nsqd 10.0.0.1:4151"; empty for a problem of the whole cluster."""
    place = "/".join(filter(None, (problem.topic, problem.channel)))
    if not place and problem.node:
        place = f"{'nsqlookupd' if problem.kind in LOOKUP_KINDS else 'nsqd'} {problem.node}"
    return one_line(place)
