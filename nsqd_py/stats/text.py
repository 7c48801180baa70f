"""/stats as text, in the layout of Go's nsqd; and /health: liveness, readiness, and the topics with errors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from nsqd_py.broker.broker import Broker
from nsqd_py.debug.memory import memory_statistics
from nsqd_py.net.addresses import host_and_port
from nsqd_py.runtime.logs.daemon_log import one_line
from nsqd_py.runtime.pacing import ONE_ROUND_S, WorkSlices
from nsqd_py.settings.durations import SECOND_NS, format_duration
from nsqd_py.stats.collect import Statistics, Stats, health_text
from nsqd_py.version import version_string

_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"))


OK = "ok"
DEGRADED = "degraded"
DRAINING = "draining"
STANDBY = "standby"
FAILING = "failing"


# ---- /stats


def render_text(broker: Broker, stats: Stats, *, include_memory: bool) -> str:
    """Return the whole text. Blocks this greenlet in its pauses."""
    lines = []
    slices = WorkSlices(ONE_ROUND_S)
    for line in _lines(broker, stats, include_memory, time.time()):
        slices.sleep_if_due()
        lines.append(line)
    return "\n".join(lines) + "\n"


def _lines(broker: Broker, stats: Stats, include_memory: bool, now_s: float) -> Iterator[str]:
    started = datetime.fromtimestamp(int(broker.start_time)).astimezone()
    yield version_string("nsqd")
    yield f"start_time {started.isoformat().replace('+00:00', 'Z')}"
    yield f"uptime {format_duration(int((now_s - broker.start_time) * SECOND_NS))}"
    yield ""
    yield f"Health: {health_text(broker)}"
    if include_memory:
        yield "\nMemory:"
        for name, value in (memory_statistics() | broker.memory.statistics()).items():
            yield f"   {name:<25}\t{value}"
    yield "\nTopics:" if stats.topics else "\nTopics: None"
    for number, topic in enumerate(stats.topics or ()):
        if number:
            yield ""
        yield from _topic_lines(topic, now_s)
        topic.clear()  # freeing many at once takes 10 ms
    yield "\nProducers:" if stats.producers else "\nProducers: None"
    for producer in stats.producers or ():
        yield f"   {_client_line(producer, now_s)}"


def _topic_lines(topic: Statistics, now_s: float) -> Iterator[str]:
    yield (
        f"{'*P ' if topic['paused'] else '   '}[{topic['topic_name']:<15}] depth: {topic['depth']:<5} "
        f"be-depth: {topic['backend_depth']:<5} msgs: {topic['message_count']:<8} "
        f"e2e%: {_latency_text(topic['e2e_processing_latency'])}"
    )
    for channel in topic["channels"]:
        yield (
            f"{'   *P ' if channel['paused'] else '      '}[{channel['channel_name']:<25}] "
            f"depth: {channel['depth']:<5} be-depth: {channel['backend_depth']:<5} "
            f"inflt: {channel['in_flight_count']:<4} def: {channel['deferred_count']:<4} "
            f"re-q: {channel['requeue_count']:<5} timeout: {channel['timeout_count']:<5} "
            f"msgs: {channel['message_count']:<8} e2e%: {_latency_text(channel['e2e_processing_latency'])}"
        )
        for client in channel["clients"] or ():
            yield f"        {_client_line(client, now_s)}"


def _latency_text(latency: Statistics) -> str:
    return ", ".join(_nanoseconds_text(entry["value"]) for entry in latency["percentiles"] or ())


def _nanoseconds_text(value_ns: float) -> str:
    """Return a duration in the largest unit of which it is more than 1: `1.5ms`."""
    for unit_ns, name in _UNITS:
        if value_ns > unit_ns:
            return f"{value_ns / unit_ns:.1f}{name}"
    return f"{value_ns:.1f}ns"


def _client_line(client: Statistics, now_s: float) -> str:
    _, port = host_and_port(client["remote_address"])
    name = one_line(f"{client['hostname']}:{port} {client['user_agent']}")
    connected = format_duration(int(now_s - client["connect_ts"]) * SECOND_NS)
    head = f"[{client['version']} {name:<21}]"
    counts = client.get("pub_counts")
    if counts:
        total = sum(count["count"] for count in counts)
        topics = ",".join(f"{count['topic']}={count['count']}" for count in counts)
        return f"{head} msgs: {total:<8} topics: {topics} connected: {connected}"
    return (
        f"{head} state: {client['state']} inflt: {client['in_flight_count']:<4} rdy: {client['ready_count']:<4} "
        f"fin: {client['finish_count']:<8} re-q: {client['requeue_count']:<8} "
        f"msgs: {client['message_count']:<8} connected: {connected}"
    )


# ---- /health


class Health(NamedTuple):
    """The answer to `/health`.

    status  OK; DEGRADED if some topics refuse publishes; DRAINING; STANDBY; FAILING if the disk of the whole node has
            an error
    reason  the reason for DRAINING, STANDBY and FAILING
    topics  (name, reason) of each topic with an error
    """

    status: str
    reason: str | None
    topics: tuple[tuple[str, str], ...]

    @property
    def is_ready(self) -> bool:
        """True if publishers and new consumers should use this nsqd."""
        return self.status in (OK, DEGRADED)

    def fields(self) -> dict[str, Any]:
        """Return the document of `/health?format=json`."""
        return {
            "status": self.status,
            "live": self.status != FAILING,  # a restart helps neither a drain nor a topic at its limits
            "ready": self.is_ready,
            "reason": self.reason,
            "topics": [{"topic_name": name, "reason": _shown(reason)} for name, reason in self.topics],
        }

    def text(self) -> str:
        """Return the health as text: a line for the node, and a line for each topic with an error."""
        if self.reason is None:
            status = self.status
        else:
            status = f"{self.status} - {self.reason}"
        return "\n".join([status, *(f"topic {name}: {reason}" for name, reason in self.topics)])


def health_of(broker: Broker) -> Health:
    """Return the health of an nsqd, and of its topics."""
    problems = {topic.name: str(error) for topic, error in broker.disk.errors()}
    problems |= broker.space.refused()
    problems |= {topic.name: text for topic, text in broker.removed_files.problems.items()}
    topics = tuple(sorted(problems.items()))
    node_problem = broker.node_problem()
    if node_problem is not None:
        return Health(FAILING, _shown(node_problem), topics)
    refusal = broker.refusal
    if refusal is not None:
        return Health(STANDBY, refusal.reason, topics)
    if broker.drain.is_active:
        return Health(DRAINING, "nsqd refuses publishes and exits when its backlog is delivered", topics)
    status = DEGRADED if topics else OK
    return Health(status, None, topics)


def _shown(reason: str) -> str:
    """Return an error text as valid UTF-8 for JSON; it may have a file name that is not UTF-8."""
    return reason.encode("utf-8", "replace").decode()
