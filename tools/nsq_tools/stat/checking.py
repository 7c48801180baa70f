"""The problems of `nsqd_py.cluster.problems` that the options choose: of one round, and of each round of the live table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from nsq_tools.stat.options import StatOptions
from nsq_tools.stat.rows import Filter, Name
from nsqd_py.cluster.model import Cluster
from nsqd_py.cluster.problems.finding import problems
from nsqd_py.cluster.problems.kinds import ERROR, SEVERITIES, WARNING, Problem
from nsqd_py.cluster.problems.lasting import lasting
from nsqd_py.cluster.problems.limits import Limits
from nsqd_py.cluster.problems.memory import SeenNodes
from nsqd_py.cluster.problems.trends import Trends
from nsqd_py.runtime.logs.daemon_log import one_line
from nsqd_py.settings.durations import SECOND_NS

Problems = Sequence[Problem]
# The exit statuses of a Nagios plugin.
_STATUSES = {ERROR: 2, WARNING: 1}
# The answers in a row that must be slow before an nsqd counts as slow in the live table.
_SLOW_ANSWERS = 2


class _Finder:
    """Finds all problems of nsqds, and those of the topics and channels that the options choose."""

    def __init__(self, options: StatOptions, cluster: Cluster, slow_answers: int) -> None:
        self._options = options
        self._cluster = cluster
        self._filter = Filter(options.filter)
        self._limits = Limits(
            options.max_message_age_ns, options.max_standby_lag_ns / SECOND_NS, slow_answers, "nsq-stat"
        )

    def _find(self, memory: SeenNodes, trends: Trends, now_s: float, time_s: float) -> list[Problem]:
        found = problems(self._cluster, memory, trends, now_s, time_s, self._limits)
        return [
            problem for problem in found if not problem.topic or self._shows(problem.topic, problem.channel)
        ]

    def _shows(self, topic: str, channel: str) -> bool:
        is_asked = self._options.channel in ("", channel)
        if not is_asked:
            return False
        return self._filter.shows(Name(one_line(topic), one_line(channel)))


# --- one round


class Checked(_Finder):
    """The problems that --check finds in one round.

    gone    topics that nsqlookupds list, and that no nsqd has
    status  0, or that of the worst problem that `findings` has yielded
    """

    def __init__(self, options: StatOptions, cluster: Cluster, gone: Iterable[str]) -> None:
        super().__init__(options, cluster, slow_answers=1)
        self._gone = sorted(gone)
        self.status = 0

    def findings(self, now_s: float, time_s: float) -> Iterator[tuple[str, str]]:
        """Yield the severity and the line of each problem, the worst first. `time_s` is since the epoch."""
        self._cluster.is_settled = True  # there is no other round
        lines = []
        for problem in self._find(SeenNodes(), Trends(), now_s, time_s):
            lines.append((problem.severity, line_of(problem)))
        if not (lines or self._cluster.topics or self._gone) and (
            self._options.topic or self._options.channel
        ):
            lines.append((ERROR, "no nsqd has that topic and channel"))
        for topic in self._gone:
            if self._shows(topic, ""):
                lines.append(
                    (WARNING, f"{one_line(topic)}: no nsqd: listed by an nsqlookupd, but no nsqd has it")
                )
        for severity, line in sorted(lines, key=lambda one: SEVERITIES.index(one[0])):
            self.status = max(self.status, _STATUSES.get(severity, 0))
            yield severity, line


def line_of(problem: Problem) -> str:
    """Return "orders/billing: stuck: 5 messages wait, …"."""
    parts = (subject_of(problem), problem.about.word, problem.text)
    return one_line(": ".join(filter(None, parts)))


def subject_of(problem: Problem) -> str:
    """Return "orders/billing" or "nsqd 10.0.0.1:4151"; empty for a problem of the whole cluster."""
    server = f"{problem.server} {problem.node}" if problem.node else ""
    return one_line(problem.subject or server)


# --- many rounds


class Watch(_Finder):
    """Finds the problems of the live table, round by round: those of --check, and those that take several rounds to see.

    problems    those of the last round that the options choose, the worst first
    severities  the worst severity of each topic and channel that has a problem
    """

    def __init__(self, options: StatOptions, cluster: Cluster) -> None:
        super().__init__(options, cluster, _SLOW_ANSWERS)
        self._memory = SeenNodes()
        self._trends = Trends()
        self._begun_s: dict[str, float] | None = None  # None before the first round
        self.problems: Problems = ()
        self.severities: dict[Name, str] = {}

    def note_round(self, now_s: float, time_s: float) -> None:
        """Take a round. `now_s` is on the clock of the cluster, `time_s` is since the epoch."""
        self._memory.note_round(self._cluster, now_s, time_s)
        self._trends.note_round(self._cluster, now_s)
        found = self._find(self._memory, self._trends, now_s, time_s)
        listed, self._begun_s = lasting(found, self._begun_s, now_s)
        self.problems = sorted(listed, key=attrgetter("rank"))
        self.severities = {}
        for problem in self.problems:
            if problem.topic:
                name = Name(one_line(problem.topic), one_line(problem.channel))
                self.severities.setdefault(name, problem.severity)

    def of_topic(self, topic: str) -> list[Problem]:
        """Return the problems of a topic and its channels, the worst first."""
        return [problem for problem in self.problems if problem.topic and one_line(problem.topic) == topic]
