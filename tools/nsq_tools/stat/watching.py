"""The problems of each round of the live table: those of --check, and those that take several rounds to see. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from nsq_tools.stat.checking import Asked, limits_of
from nsq_tools.stat.memory import SeenNodes
from nsq_tools.stat.options import StatOptions
from nsq_tools.stat.rows import Name
from nsqd_py.cluster.model import Cluster
from nsqd_py.cluster.problems.finding import problems
from nsqd_py.cluster.problems.kinds import KINDS, SEVERITIES, Problem
from nsqd_py.cluster.problems.limits import LISTED_AFTER_S
from nsqd_py.cluster.problems.trends import Trends
from nsqd_py.runtime.logs import one_line

_SLOW_ANSWERS = 2
_ORDER = {kind: (SEVERITIES.index(info.severity), place) for place, (kind, info) in enumerate(KINDS.items())}


class Watch:
    """Finds the problems of a cluster, round by round.

    problems    those of the last round that the options choose, the worst first
    severities  the worst severity of each topic and channel that has a problem
    """

    def __init__(self, options: StatOptions, cluster: Cluster) -> None:
        self._asked = Asked(options)
        self._cluster = cluster
        self._limits = limits_of(options, slow_answers=_SLOW_ANSWERS)
        self._memory = SeenNodes()
        self._trends = Trends()
        self._begun: dict[str, float] | None = None  # when each problem was found first; None before the first round
        self.problems: Sequence[Problem] = ()
        self.severities: dict[Name, str] = {}

    def note_round(self, now_s: float, time_s: float) -> None:
        """Take a round. `now_s` is on the clock of the cluster, `time_s` is since the epoch."""
        self._memory.note_round(self._cluster, now_s, time_s)
        self._trends.note_round(self._cluster, now_s)
        found = problems(self._cluster, self._memory, self._trends, now_s, time_s, self._limits)
        chosen = self._lasting([problem for problem in found if self._asked.about(problem)], now_s)
        self.problems = sorted(chosen, key=lambda one: (_ORDER[one.kind], -one.weight, one.key))
        self.severities = {}
        for problem in self.problems:
            if problem.topic:
                name = Name(one_line(problem.topic), one_line(problem.channel))
                self.severities.setdefault(name, KINDS[problem.kind].severity)

    def _lasting(self, found: Sequence[Problem], now_s: float) -> list[Problem]:
        """Leave out what may be over in a moment: an nsqd that starts or ends is not at all its nsqlookupds yet."""
        known = self._begun
        is_first = known is None
        begun = {problem.key: (known or {}).get(problem.key, -math.inf if is_first else now_s) for problem in found}
        self._begun = begun
        return [one for one in found if now_s - begun[one.key] >= LISTED_AFTER_S.get(one.kind, 0.0)]

    @property
    def counts(self) -> Counter[str]:
        """The number of problems by severity."""
        return Counter(KINDS[problem.kind].severity for problem in self.problems)

    def of_topic(self, topic: str) -> list[Problem]:
        """Return the problems of a topic and its channels, the worst first."""
        return [problem for problem in self.problems if problem.topic and one_line(problem.topic) == topic]
