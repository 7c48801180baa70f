"""What is measured beside other message queues: one property of the load varies in each section.

The subject comes first in a row's setups; of the others those run that are installed. Every row has the *limit* among
them: a server that makes the same system calls, and has no queue.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from bench.loads import CHANNEL_COUNTS
from bench.peers.setups import (
    BEANSTALKD,
    BEANSTALKD_SYNCED,
    GO,
    GO_ON_DISK,
    JETSTREAM,
    LIMIT,
    LIMIT_SYNCED,
    OURS,
    OURS_SYNCED,
    RABBITMQ,
    REDIS,
    REDIS_SYNCED,
    Setup,
)
from bench.run import Amount
from bench.scenario import Scenario, Side
from bench.workload import Workload

# Go's nsqd reserves the memory of a topic's and of a channel's queue when it creates them.
_GO_WITH_MANY_QUEUES = replace(GO, flags=("--mem-queue-size=10000",))
_KEPT = (OURS, GO, JETSTREAM, REDIS, BEANSTALKD, LIMIT)
_SYNCED = (OURS_SYNCED, REDIS_SYNCED, BEANSTALKD_SYNCED, RABBITMQ, LIMIT_SYNCED)
_COMPARED = (OURS, GO, JETSTREAM, REDIS, LIMIT)
_WITH_MANY_TOPICS = (OURS, _GO_WITH_MANY_QUEUES, JETSTREAM, REDIS, LIMIT)
_ON_DISK = (OURS, GO_ON_DISK, JETSTREAM, REDIS, BEANSTALKD, LIMIT)
_SECONDS = 1
_MESSAGE_BYTES_AT_START = 1000


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page.

    axis   what varies, as the head of the first column; nothing if the rows are not places on an axis
    value  what a figure is
    text   how it is measured
    """

    name: str
    title: str
    axis: str
    value: str
    text: str


SECTIONS: Mapping[str, Section] = {
    section.name: section
    for section in (
        Section(
            "publish", "Publishing, written before the answer", "", "messages a second",
            "Messages of 200 bytes to one topic. A client that waits sends its next publish after the last answer.",
        ),
        Section(
            "synced", "Publishing, synced before the answer", "", "messages a second",
            "The same, where an answer means that the message survives a power cut.",
        ),
        Section(
            "size", "Message size", "bytes in a message", "messages a second",
            "16 connections, each waits for its answer.",
        ),
        Section(
            "batch", "Batch size", "messages in a batch", "messages a second",
            "4 connections, each waits for the answers to its batch of messages of 200 bytes. A batch is one MPUB; for "
            "a server without batches, that many publishes in one write.",
        ),
        Section(
            "connections", "Connections", "connections", "messages a second",
            "Each connection waits for its answer; messages of 200 bytes to one topic.",
        ),
        Section(
            "topics", "Topics", "topics", "messages a second",
            "16 connections publish to all topics in turn, and each waits for its answer. A topic is a stream of Redis "
            "and a subject of JetStream. The topics exist when the measurement begins.",
        ),
        Section(
            "channels", "Channels", "channels", "deliveries a second",
            "A topic with a backlog. Each channel has a consumer that finishes every message. All channels together. "
            "The limit sends the same messages for each RDY and FIN.",
        ),
        Section(
            "consumed", "Publishing and consuming at once", "", "deliveries a second",
            "Consumers with RDY 100 finish every message while publishers are at work.",
        ),
        Section(
            "latency", "Latency at a fixed rate", "messages offered a second", "99th percentile in ms",
            "20 connections send at fixed instants, whether or not earlier publishes were answered. A latency counts "
            "from the instant at which the publish should leave, so a stall of the server counts for all that would "
            "have been sent meanwhile (no coordinated omission). The table has the 50th / 99th / 99.9th percentiles; "
            "ratios are of the 99th.",
        ),
        Section(
            "memory", "Memory of a backlog", "messages that wait", "resident MB",
            "Messages of 200 bytes in one topic, which nobody consumes.",
        ),
        Section(
            "start-up", "Start-up", "MB in the log", "seconds",
            "From the start after SIGKILL to the first answered publish, with a backlog of messages of 1,000 bytes. "
            "The limit reads its file once.",
        ),
    )
}  # fmt: skip


def _row(
    section: str, name: str, setups: tuple[Setup, ...], workload: Workload, *, load: str = "publish",
    unit: str = "msg/s", amount: Amount | None = None, place: float | None = None, quick: bool = False,
    rounds: int = 3, least_s: float = 0,
) -> Scenario:  # fmt: skip
    side = Side(amount or Amount(_SECONDS, messages=1))
    return Scenario(
        load, unit, side, side, lower_is_better=not unit.endswith("/s"), name=name, setups=setups, workload=workload,
        section=section, place=place, is_quick=quick, rounds=rounds, least_s=least_s,
    )  # fmt: skip


def _ways_to_publish(section: str, setups: tuple[Setup, ...], *, with_batches: bool) -> Iterable[Scenario]:
    """One way for each kind of producer: waiting for each answer, pipelining, batching."""
    for count, quick in ((1, False), (16, True), (64, True)):
        name = f"{count} connection{'s' * (count > 1)}, each waits"
        yield _row(section, name, setups, Workload(connections=count), quick=quick)
    yield _row(section, "4 connections, 100 in the pipe", setups, Workload(connections=4, window=100), quick=True)
    if with_batches:
        yield _row(section, "4 connections, batches of 100", setups, Workload(connections=4, batch=100))


def _sizes() -> Iterable[Scenario]:
    for size, name, quick in (
        (16, "16 B", True), (200, "200 B", False), (1000, "1 KB", False), (16_000, "16 KB", True),
        (64_000, "64 KB", False), (1_000_000, "1 MB", True),
    ):  # fmt: skip
        yield _row("size", name, _COMPARED, Workload(size_bytes=size), place=size, quick=quick)


def _batches() -> Iterable[Scenario]:
    for batch in (1, 10, 100, 1000):
        workload = Workload(connections=4, batch=batch)
        yield _row("batch", f"{batch:,}", _KEPT, workload, place=batch, quick=batch in (10, 1000))


def _connections() -> Iterable[Scenario]:
    for count in (1, 16, 100, 1000, 5000):
        workload = Workload(connections=count)
        yield _row("connections", f"{count:,}", _COMPARED, workload, place=count, quick=count == 1000)


def _topics() -> Iterable[Scenario]:
    for count in (1, 10, 100, 1000, 10_000):
        yield _row(
            "topics", f"{count:,}", _WITH_MANY_TOPICS, Workload(topics=count), place=count, quick=count == 1000,
            rounds=1 if count == 10_000 else 3,
        )  # fmt: skip


def _channels() -> Iterable[Scenario]:
    for count in CHANNEL_COUNTS:
        yield _row(
            "channels", f"{count:,}", (OURS, GO, LIMIT), Workload(), load=f"channels-{count}",
            amount=Amount(60, messages=1_000_000), place=count, quick=count == 10,
        )  # fmt: skip


def _consumed() -> Iterable[Scenario]:
    for name, workload, quick in (
        ("16 connections, each waits; 4 consumers", Workload(connections=16, consumers=4), True),
        ("4 connections, batches of 200; 2 consumers", Workload(connections=4, batch=200, consumers=2), False),
        (
            "2 connections, batches of 10 of 64 KB; 2 consumers",
            Workload(connections=2, batch=10, size_bytes=64_000, consumers=2), False,
        ),
        ("20,000 offered a second; 2 consumers", Workload(connections=20, rate_per_s=20_000, consumers=2), False),
    ):  # fmt: skip
        yield _row("consumed", name, (OURS, GO), workload, load="publish-consumed", quick=quick)


def _rates() -> Iterable[Scenario]:
    for rate in (1000, 10_000, 20_000, 40_000, 60_000):
        yield _row(
            "latency", f"{rate:,}", _KEPT, Workload(connections=20, rate_per_s=rate), load="publish-latency",
            unit="ms", amount=Amount(1.5, messages=1), place=rate, quick=rate == 10_000, least_s=1.5,
        )  # fmt: skip


def _backlogs() -> Iterable[Scenario]:
    for count in (10_000, 100_000, 1_000_000):
        yield _row(
            "memory", f"{count:,}", _KEPT, Workload(connections=2, batch=100, window=4), load="publish-backlog",
            unit="MB", amount=Amount(60, count), place=count, quick=count == 100_000,
            rounds=1 if count == 1_000_000 else 2,
        )  # fmt: skip


def _starts() -> Iterable[Scenario]:
    for log_mb in (1, 10, 100, 1000):
        messages = log_mb * 1_000_000 // _MESSAGE_BYTES_AT_START
        workload = Workload(connections=2, batch=100, window=4, size_bytes=_MESSAGE_BYTES_AT_START)
        yield _row(
            "start-up", f"{log_mb:,} MB", _ON_DISK, workload, load="publish-start-up", unit="s",
            amount=Amount(60, messages), place=log_mb, quick=log_mb == 10, rounds=1 if log_mb == 1000 else 3,
        )  # fmt: skip


SWEEPS = (
    *_ways_to_publish("publish", _KEPT, with_batches=True),
    *_ways_to_publish("synced", _SYNCED, with_batches=False),
    *_sizes(),
    *_batches(),
    *_connections(),
    *_topics(),
    *_channels(),
    *_consumed(),
    *_rates(),
    *_backlogs(),
    *_starts(),
)
