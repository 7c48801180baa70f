"""One soak: start, load and trouble for some time, drain, verdict."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nsqd_py.fsck.reading import load_directory
from nsqd_py.fsck.reports import finding_text
from tests.soak.clients import Consumers, Producers, SlowReader
from tests.soak.cluster import Cluster
from tests.soak.nuisances import NuisanceProcess
from tests.soak.sampling import CLIENTS, FIGURES, Sampler, Series
from tests.soak.slopes import Trend, trend
from tests.soak.topics import SoakTopic
from tests.soak.troubles import Troubles
from tests.soak.workers import Workers
from tests.support.nsqd_process import wait_until

DRAIN_DEADLINE_S = 180.0
REPORT_EVERY_S = 1.0
SAMPLES = 600
# In less time, memory still approaches its level: the largest inputs come seldom.
SHORTEST_JUDGED_MINUTES = 10.0
TOPICS = (("orders", ("billing", "archive", "audit")), ("events", ("count",)))
# These live from the start to the end, so that what they use must not grow.
WATCHED = ("nsqd0", "nsqlookupd0", CLIENTS)


@dataclass
class Plan:
    """How long, how many messages a second, and which seed."""

    minutes: float
    rate: float
    seed: int


@dataclass
class Result:
    """What a soak found. `problems` are sentences; without any, it passed."""

    problems: list[str]
    counts: dict[str, int]
    trends: dict[str, dict[str, Trend]]
    published: int
    acknowledged: int
    lost: int
    repeated: int

    def summary(self, plan: Plan) -> str:
        """Return the line at the end."""
        verdict = f"FAILED, {len(self.problems)} problems" if self.problems else "passed"
        nsqds, lookupds = self.counts.get("kill nsqd", 0), self.counts.get("kill lookupd", 0)
        return (
            f"soak {verdict}: {plan.minutes:g} minutes, {self.acknowledged:,} of {self.published:,} messages "
            f"acknowledged, {self.lost} lost, {self.repeated:,} came again; {nsqds} nsqds and {lookupds} nsqlookupds "
            "killed"
        )

    def document(self, plan: Plan) -> dict[str, Any]:
        """Return what the JSON file holds."""
        trends = {
            process: {
                name: [round(t.level, 2), round(t.growth, 2), round(t.allowed, 2)] for name, t in of.items()
            }
            for process, of in self.trends.items()
        }
        return asdict(plan) | asdict(self) | {"counts": dict(sorted(self.counts.items())), "trends": trends}


def soak(plan: Plan, directory: Path, report: Callable[[str], None]) -> Result:
    """Run it; `report` gets a line on the progress each second."""
    random.seed(plan.seed)
    topics = [SoakTopic(directory, name, channels) for name, channels in TOPICS]
    publishing, disturbing = Workers(), Workers()
    with Cluster(directory) as cluster:
        cluster.create(topics)
        consumers = Consumers(cluster, topics, disturbing)
        producers = Producers(cluster, topics, publishing, plan.rate)
        nuisances = NuisanceProcess(cluster.nsqds, cluster.lookupds, _channels(topics))
        with Sampler(cluster, max(0.5, plan.minutes * 60 / SAMPLES)) as sampler, nuisances:
            consumers.start()
            producers.start()
            SlowReader(cluster, topics, disturbing).start()
            Troubles(cluster, disturbing).start()
            _wait(plan.minutes * 60, topics, disturbing, report)
        disturbing.stop()
        cluster.make_whole()
        publishing.stop()
        producers.stop()
        problems = [
            *disturbing.errors,
            *nuisances.workers.errors,
            *publishing.errors,
            *_drain(cluster, topics, report),
        ]
        consumers.stop()
        problems += _end(cluster)
    trends = _trends(sampler.series)
    judged = Counter(acknowledged=0, lost=0, repeated=0)
    for verdict in itertools.chain.from_iterable(topic.verdicts() for topic in topics):
        problems += verdict.lines() if verdict.findings else ()
        judged.update(acknowledged=verdict.acknowledged, lost=len(verdict.of("lost")), repeated=verdict.again)
    if plan.minutes >= SHORTEST_JUDGED_MINUTES:
        problems += _judge_trends(trends)
    return Result(
        problems=problems,
        counts=dict(disturbing.counts + nuisances.workers.counts + publishing.counts),
        trends=trends,
        published=sum(topic.published for topic in topics),
        **judged,
    )


def _channels(topics: list[SoakTopic]) -> list[tuple[str, str]]:
    return [(topic.name, channel) for topic in topics for channel in topic.channels]


def _wait(
    seconds: float, topics: list[SoakTopic], disturbing: Workers, report: Callable[[str], None]
) -> None:
    """Report the progress until the time is over, or a thread of the soak itself failed."""
    began_s = time.monotonic()
    while (passed_s := time.monotonic() - began_s) < seconds and not disturbing.errors:
        done = sum(topic.published for topic in topics)
        kills = disturbing.counts["kill nsqd"] + disturbing.counts["kill lookupd"]
        report(
            f"{passed_s / 60:5.1f} of {seconds / 60:g} minutes, {done:,} messages published, {kills} kills"
        )
        time.sleep(min(REPORT_EVERY_S, seconds - passed_s))


def _drain(cluster: Cluster, topics: list[SoakTopic], report: Callable[[str], None]) -> Iterator[str]:
    """Wait until nothing is left on any nsqd; yield what is stuck."""
    report("draining")
    with suppress(AssertionError):
        wait_until(lambda: not cluster.left(topics), DRAIN_DEADLINE_S)
    left = cluster.left(topics)
    if left:
        yield f"stuck after {DRAIN_DEADLINE_S:g} s: {left}"


def _end(cluster: Cluster) -> Iterator[str]:
    """Stop everything; yield exit statuses other than 0, and damage in the directories."""
    for process in cluster.processes:
        status = process.stop()
        if status:
            yield f"{process.log_path.stem} ended with status {status}"
    for nsqd in cluster.nsqds:
        report = load_directory(nsqd.data_path, time.time_ns())[0]
        yield from (
            f"{nsqd.data_path.name}: {finding_text(found)}" for found in report.findings if found.is_damage
        )


def known(samples: list[float | None]) -> list[float]:
    """Return the samples that exist."""
    return [value for value in samples if value is not None]


def _trends(series: Series) -> dict[str, dict[str, Trend]]:
    trends: dict[str, dict[str, Trend]] = {}
    for process in WATCHED:
        for name, samples in series.of[process].items():
            found = trend(known(samples), FIGURES[name].bound)
            if found is not None:
                trends.setdefault(process, {})[name] = found
    return trends


def _judge_trends(trends: dict[str, dict[str, Trend]]) -> Iterator[str]:
    for process, of in trends.items():
        for name, found in of.items():
            if not found.is_steady:
                yield (
                    f"{process}: {FIGURES[name].title}, grew by {found.growth:.1f} after the warm-up, allowed are "
                    f"{found.allowed:.1f}"
                )
