"""What nsqadmin concludes from the rounds of its observer. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

from nsqadmin_py.cluster.attention import Attention, Found
from nsqadmin_py.cluster.last_known import NodeMemory
from nsqadmin_py.cluster.problems import NO_LIMITS, Limits, Problem, over_limits, problems
from nsqadmin_py.cluster.trends import Trends
from nsqd_py.cluster.model import Cluster

# The problems that are found before other greenlets run: about 1 ms.
_PROBLEMS_AT_A_TIME = 200


@dataclass(slots=True)
class Findings:
    """Remembered nsqds, the trends of all channels, and all problems. `time_s` is that of the last round."""

    memory: NodeMemory = field(default_factory=NodeMemory)
    trends: Trends = field(default_factory=Trends)
    attention: Attention = field(default_factory=Attention)
    limits: Limits = NO_LIMITS
    time_s: float = 0.0

    def note_round(self, cluster: Cluster, now_s: float, time_s: float) -> None:
        """Take a round of the cluster. `now_s` is on its clock, `time_s` is since the epoch."""
        for _ in self.noting_round(cluster, now_s, time_s):
            pass

    def noting_round(self, cluster: Cluster, now_s: float, time_s: float) -> Iterator[None]:
        """As `note_round`. Yield whenever other greenlets may run; they must not change the cluster until the end."""
        self.time_s = time_s
        self.memory.note_round(cluster, now_s, time_s)
        self.trends.note_round(cluster, now_s)
        found = Found()
        for number, problem in enumerate(all_problems(cluster, self, now_s), start=1):
            found.add(problem)
            if number % _PROBLEMS_AT_A_TIME == 0:
                yield
        self.attention.note_round(found, time_s, cluster.tick)

    def age_s(self, oldest_s: float | None) -> float | None:
        """Return the time since a message was published, as of the last round; None if that time is not known."""
        return None if oldest_s is None else max(0.0, round(self.time_s - oldest_s, 1))


def all_problems(cluster: Cluster, findings: Findings, now_s: float) -> Iterator[Problem]:
    """Yield the problems of a cluster, by what is remembered of it."""
    return chain(
        problems(cluster, findings.memory, findings.trends, now_s),
        over_limits(cluster, findings.limits, findings.trends, findings.time_s),
    )


NO_FINDINGS = Findings()
