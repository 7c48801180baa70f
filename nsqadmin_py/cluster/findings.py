"""What nsqadmin concludes from the rounds of its observer. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain, islice

from nsqadmin_py.cluster.attention import Attention
from nsqadmin_py.cluster.last_known import NodeMemory
from nsqadmin_py.cluster.problems import NO_LIMITS, Limits, over_limits, problems
from nsqadmin_py.cluster.trends import Trends
from nsqd_py.cluster.model import Cluster

# The most problems that are found in a round: 30 ms. Those of nsqds come first.
MOST_FOUND = 5000


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
        self.time_s = time_s
        self.memory.note_round(cluster, now_s, time_s)
        self.trends.note_round(cluster, now_s)
        found = chain(
            problems(cluster, self.memory, self.trends, now_s), over_limits(cluster, self.limits, time_s)
        )
        self.attention.note_round(islice(found, MOST_FOUND), time_s, cluster.tick)


    def age_s(self, oldest_s: float | None) -> float | None:
        """Return the time since a message was published, as of the last round; None if that time is not known."""
        return None if oldest_s is None else max(0.0, round(self.time_s - oldest_s, 1))


NO_FINDINGS = Findings()
