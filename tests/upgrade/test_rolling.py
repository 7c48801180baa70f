"""A cluster is upgraded process by process under load: no publish fails, nothing is lost, consumers go on."""

from __future__ import annotations

import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

from tests.support.ledger import History, judge
from tests.support.network import port_pairs
from tests.support.nsqd_process import REPOSITORY, NsqdProcess, nsqd_command, wait_until
from tests.support.nsqlookupd_process import NsqlookupdProcess, nsqlookupd_command
from tests.upgrade.publishers import BETWEEN, DEADLINE_S, TOPIC, Publishers, noting_consumer
from tests.upgrade.write_directory import command_in, work_tree

pytestmark = pytest.mark.ours

CHANNELS = ("billing", "archive")
NSQDS = 2
OLD = "4ad857e"  # of the day before the first release

Stop = Callable[[NsqdProcess], object]


def drain(nsqd: NsqdProcess) -> None:
    """The stop that docs/operations.md advises: nothing is left in the data directory."""
    nsqd.post("/drain")
    assert nsqd.wait(DEADLINE_S) == 0


def stop(nsqd: NsqdProcess) -> None:
    assert nsqd.stop() == 0


class Cluster:
    """An nsqlookupd and nsqds on ports of their own, which they keep when their program changes."""

    def __init__(self, directory: Path, nsqd: list[str], nsqlookupd: list[str]) -> None:
        self._directory = directory
        self._lookupd_ports, *self._nsqd_ports = port_pairs(1 + NSQDS)
        self.lookupd = self._lookupd(nsqlookupd).start()
        self.nsqds = [self._nsqd(number, nsqd).start() for number in range(NSQDS)]

    def _lookupd(self, command: list[str]) -> NsqlookupdProcess:
        return NsqlookupdProcess(
            self._directory / "nsqlookupd.log", ports=self._lookupd_ports, command=command
        )

    def _nsqd(self, number: int, command: list[str]) -> NsqdProcess:
        lookupd = f"--lookupd-tcp-address=127.0.0.1:{self._lookupd_ports[0]}"
        directory = self._directory / f"nsqd{number}"
        return NsqdProcess(directory, lookupd, ports=self._nsqd_ports[number], command=command)

    def upgrade_lookupd(self) -> None:
        self.lookupd.stop()
        self.lookupd = self._lookupd(nsqlookupd_command()).start()

    def upgrade_nsqd(self, number: int, end: Stop) -> None:
        end(self.nsqds[number])
        self.nsqds[number] = self._nsqd(number, nsqd_command()).start()

    def has_consumers(self) -> bool:
        """True if each channel has a consumer on each nsqd. A drain of one that they do not know never ends."""
        return [channel["client_count"] for channel in self._channels()] == [1] * len(CHANNELS) * NSQDS

    def left(self) -> int:
        """Return how many messages are not finished yet, over all channels."""
        return sum(channel["depth"] + channel["in_flight_count"] for channel in self._channels())

    def _channels(self) -> list[dict[str, int]]:
        topics = [nsqd.topic_stats(TOPIC) for nsqd in self.nsqds]
        return [channel for topic in topics if topic is not None for channel in topic["channels"]]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.nsqds, self.lookupd):
            process.destroy()


@contextmanager
def old_commands() -> Iterator[tuple[list[str], list[str]]]:
    """Yield the commands of nsqd and nsqlookupd as they once were; skip without the history."""
    known = subprocess.run(["git", "cat-file", "-e", OLD], cwd=REPOSITORY, capture_output=True, check=False)
    if known.returncode:
        pytest.skip(f"the history has no commit {OLD}")
    with tempfile.TemporaryDirectory() as name, work_tree(OLD, Path(name, "tree")) as tree:
        yield command_in(tree, "nsqd"), command_in(tree, "nsqlookupd")


def go_on_consuming(received: Counter[str]) -> None:
    """Return when each channel has received some more messages."""
    goals = {channel: received[channel] + BETWEEN for channel in CHANNELS}
    wait_until(
        lambda: all(received[channel] >= goal for channel, goal in goals.items()), DEADLINE_S, "more messages"
    )


def roll(cluster: Cluster, history: History, end: Stop) -> None:
    """Upgrade one process after the other, under load, and count."""
    received = Counter[str]()
    for nsqd in cluster.nsqds:
        nsqd.create(TOPIC, *CHANNELS)
    history.created(TOPIC, *CHANNELS)
    lookupd = cluster.lookupd.http_address
    consumers = [noting_consumer(history, received, channel, lookupd) for channel in CHANNELS]
    for one in consumers:
        one.start()
    try:
        with Publishers(history, [f"127.0.0.1:{nsqd.tcp_port}" for nsqd in cluster.nsqds]) as publishers:
            wait_until(cluster.has_consumers, DEADLINE_S, "consumers")
            cluster.upgrade_lookupd()
            for number in range(NSQDS):
                publishers.go_on()
                cluster.upgrade_nsqd(number, end)
                wait_until(cluster.has_consumers, DEADLINE_S, "consumers")
                go_on_consuming(received)
            publishers.go_on()
        wait_until(lambda: not cluster.left(), DEADLINE_S, "the channels to be empty")
    finally:
        for one in consumers:
            one.stop()
    judge(history).require_sound()
    assert history.acknowledged >= BETWEEN * (NSQDS + 2)


@pytest.mark.parametrize(
    "end", [drain, pytest.param(stop, marks=pytest.mark.slow)], ids=["drained", "stopped"]
)
def test_a_rolling_restart(tmp_path, end):
    with Cluster(tmp_path, nsqd_command(), nsqlookupd_command()) as cluster:
        roll(cluster, History(tmp_path / "history.jsonl"), end)


@pytest.mark.slow
@pytest.mark.parametrize("end", [drain, stop], ids=["drained", "stopped"])
def test_a_rolling_upgrade_from_an_earlier_version(tmp_path, end):
    with old_commands() as (nsqd, nsqlookupd), Cluster(tmp_path, nsqd, nsqlookupd) as cluster:
        roll(cluster, History(tmp_path / "history.jsonl"), end)
