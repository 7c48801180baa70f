"""Finds what is wrong in the cluster now. Pure.

Each problem names what it is about, and says in one sentence what is wrong, with numbers. It is true of the last round; what
was wrong before is not listed.
"""

from __future__ import annotations

from collections.abc import Iterator

from nsqd_py.cluster.model import Cluster
from nsqd_py.cluster.problems.kinds import Problem
from nsqd_py.cluster.problems.limits import Limits
from nsqd_py.cluster.problems.memory import SeenNodes
from nsqd_py.cluster.problems.of_channels import OfChannel, of_topic
from nsqd_py.cluster.problems.of_nodes import of_lookups, of_nodes, of_versions
from nsqd_py.cluster.problems.of_standbys import of_standbys
from nsqd_py.cluster.problems.trends import Trends


def problems(
    cluster: Cluster,
    memory: SeenNodes,
    trends: Trends,
    now_s: float,
    time_s: float,
    limits: Limits | None = None,
) -> Iterator[Problem]:
    """Yield all problems, those of nsqds first, by the default limits if none are given.

    `now_s` is on the clock of the cluster, `time_s` is since the epoch.
    """
    limits = limits or Limits()
    yield from of_nodes(cluster, memory, limits, now_s, time_s)
    yield from of_standbys(cluster.pairs(), limits.lagging_after_s)
    yield from of_lookups(cluster)
    yield from of_versions(cluster)
    for name, topic in cluster.topics.items():
        for problem in of_topic(name, topic):
            yield problem._replace(topic=name)
        for channel_name, channel in topic.channels.items():
            trend = trends.of(name, channel_name)
            of_channel = OfChannel(name, channel_name, channel, trend, limits, now_s, time_s)
            for problem in of_channel.problems():
                yield problem._replace(topic=name, channel=channel_name)
