"""Failovers by a lease, under load: `python -m tests.standby.lease_failovers --count 200`.

Two nsqds share a lease of etcd. Again and again something happens to the one that has it:

    kill    SIGKILL
    stop    SIGTERM
    freeze  SIGSTOP, until the other one serves; then SIGCONT: the old primary must refuse publishers and consumers
    store   etcd is stopped for longer than the lease lives: nobody serves meanwhile

Publishers publish lone messages all the time, and consumers take them. In the end, every message that was acknowledged
has been received. What ended is started again, and becomes the standby of the other.
"""

from __future__ import annotations

import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import click

from nsqd_py.client import Consumer, NsqClientError, Producer
from tests.support.etcd import Etcd
from tests.support.network import free_ports
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.nsqlookupd_process import NsqlookupdProcess
from tests.support.standby_processes import figures_of
from tests.support.wire import Client, Closed, pub

TOPIC, CHANNEL = "failovers", "c"
PUBLISHERS = 4
DEADLINE_S = 60.0


@dataclass
class Report:
    """What happened. `gaps_s` are the times from the fault until a publish succeeded again."""

    failovers: Counter[str] = field(default_factory=Counter)
    gaps_s: list[float] = field(default_factory=list)
    acknowledged: int = 0
    refused: int = 0
    doubled: int = 0
    lost: set[bytes] = field(default_factory=set)

    def __str__(self) -> str:
        gaps = sorted(self.gaps_s) or [0.0]
        faults = ", ".join(f"{number} {fault}" for fault, number in sorted(self.failovers.items()))
        return (
            f"{self.failovers.total()} failovers ({faults}): {self.acknowledged:,} acknowledged, "
            f"{len(self.lost)} lost, "
            f"{self.doubled:,} delivered again, {self.refused:,} publishes refused; served again after "
            f"{gaps[len(gaps) // 2]:.1f} s (median), {gaps[-1]:.1f} s (longest)"
        )


class Publisher(threading.Thread):
    """Publishes lone messages; `acknowledged` are those whose publish returned, with the time."""

    def __init__(self, addresses: list[str], name: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[tuple[bytes, float]] = []
        self.refused = 0
        self.last_error = ""
        self.is_over = threading.Event()
        self._addresses = addresses
        self._name = name

    def run(self) -> None:
        number = 0
        with Producer(*self._addresses) as producer:
            while not self.is_over.is_set():
                body = f"{self._name}-{number}".encode()
                number += 1
                try:
                    producer.publish(TOPIC, body)
                except NsqClientError as error:
                    self.refused += 1
                    self.last_error = str(error)
                    time.sleep(0.05)
                else:
                    self.acknowledged.append((body, time.monotonic()))
                    time.sleep(0.002)


class Cluster:
    """etcd, nsqlookupd and two nsqds, of which one is primary."""

    def __init__(self, directory: Path, ttl_s: int) -> None:
        self.etcd = Etcd(directory)
        self.etcd.wait_until_it_answers()
        self.lookupd = NsqlookupdProcess(directory / "nsqlookupd.log").start()
        flags = (
            f"--lease={self.etcd.url('orders')}", f"--lease-ttl={ttl_s}s", "--standby-acks=1", "--standby-timeout=2s",
            f"--lookupd-tcp-address=127.0.0.1:{self.lookupd.tcp_port}",
        )  # fmt: skip
        ports = free_ports(4)
        self.nsqds = [
            NsqdProcess(directory / "a", *flags, "--node-id=0", ports=(ports[0], ports[1])),
            NsqdProcess(directory / "b", *flags, "--node-id=1", ports=(ports[2], ports[3])),
        ]
        for nsqd in self.nsqds:
            nsqd.start()

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{nsqd.tcp_port}" for nsqd in self.nsqds]

    def primary(self) -> NsqdProcess | None:
        """Return the nsqd that serves, or None."""
        serving = [nsqd for nsqd in self.nsqds if nsqd.is_running and _role(nsqd) == "primary"]
        assert len(serving) < 2, "two primaries"
        return serving[0] if serving else None

    def wait_until_whole(self) -> tuple[NsqdProcess, NsqdProcess]:
        """Wait for a primary and a standby that follows it, and return them."""

        def whole() -> tuple[NsqdProcess, NsqdProcess] | None:
            primary = self.primary()
            if primary is None:
                return None
            other = next(nsqd for nsqd in self.nsqds if nsqd is not primary)
            is_following = _role(other) == "standby" and figures_of(other)["state"] == "following"
            return (primary, other) if is_following else None

        found = wait_until(whole, DEADLINE_S, "a primary and its standby")
        assert found is not None
        return found

    def end(self) -> None:
        for nsqd in self.nsqds:
            if nsqd.is_running:
                nsqd.signal(signal.SIGCONT)
            nsqd.destroy()
        self.lookupd.destroy()
        self.etcd.end()


def _role(nsqd: NsqdProcess) -> str:
    try:
        return "standby" if "standby" in nsqd.stats() else "primary"
    except (OSError, AssertionError):  # between two roles, or frozen
        return ""


# ---- faults: each returns when another nsqd, or the same one, serves again, and all processes run


def _kill(cluster: Cluster, primary: NsqdProcess, other: NsqdProcess, ttl_s: int) -> None:
    primary.kill()
    _wait_for(cluster, other)
    primary.start()


def _stop(cluster: Cluster, primary: NsqdProcess, other: NsqdProcess, ttl_s: int) -> None:
    primary.stop()
    _wait_for(cluster, other)
    primary.start()


def _freeze(cluster: Cluster, primary: NsqdProcess, other: NsqdProcess, ttl_s: int) -> None:
    primary.signal(signal.SIGSTOP)
    try:
        wait_until(lambda: _role(other) == "primary", DEADLINE_S, "the other nsqd to serve")
    finally:
        primary.signal(signal.SIGCONT)
    try:
        with Client(primary.tcp_port) as client:
            answer = client.ask(pub(TOPIC, b"to the old primary")).data
    except (OSError, Closed):
        return  # it is between its two roles
    assert answer != b"OK", f"the old primary took a message at {datetime.now(UTC)}"


def _store(cluster: Cluster, primary: NsqdProcess, other: NsqdProcess, ttl_s: int) -> None:
    cluster.etcd.process.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: cluster.primary() is None, DEADLINE_S, "the primary to stop serving")
    finally:
        cluster.etcd.process.send_signal(signal.SIGCONT)
    wait_until(cluster.primary, DEADLINE_S, "a primary")


FAULTS: dict[str, Callable[[Cluster, NsqdProcess, NsqdProcess, int], None]] = {
    "kill": _kill, "stop": _stop, "freeze": _freeze, "store": _store,
}  # fmt: skip


def _wait_for(cluster: Cluster, other: NsqdProcess) -> None:
    wait_until(lambda: _role(other) == "primary", DEADLINE_S, "the other nsqd to serve")


# ---- a run


def run(directory: Path, count: int, ttl_s: int, faults: list[str], seed: int, say: Callable[[str], object]) -> Report:
    """Let `count` failovers happen, and return the report. Raises AssertionError if an nsqd does what it must not."""
    chance = random.Random(seed)
    cluster = Cluster(directory, ttl_s)
    report = Report()
    received: Counter[bytes] = Counter()
    consumer = Consumer(
        TOPIC, CHANNEL, lambda message: received.update([message.body]), max_in_flight=200,
        lookupd_http_addresses=[cluster.lookupd.http_address], lookupd_poll_interval="1s",
    )  # fmt: skip
    publishers = [Publisher(cluster.addresses, f"p{number}") for number in range(PUBLISHERS)]
    try:
        primary, _ = cluster.wait_until_whole()
        primary.create(TOPIC, CHANNEL)
        consumer.start()
        for publisher in publishers:
            publisher.start()
        for number in range(count):
            primary, other = cluster.wait_until_whole()
            time.sleep(chance.random())
            fault = chance.choice(faults)
            began_s = time.monotonic()
            FAULTS[fault](cluster, primary, other, ttl_s)
            gap_s = _first_acknowledged_s(publishers, began_s + ttl_s * 0.5) - began_s
            report.failovers[fault] += 1
            report.gaps_s.append(gap_s)
            say(f"{number + 1}/{count} {fault}: served again after {gap_s:.1f} s")
        cluster.wait_until_whole()
        _finish(report, publishers, received)
        return report
    finally:
        for publisher in publishers:
            publisher.is_over.set()
        consumer.stop()
        cluster.end()


def _first_acknowledged_s(publishers: list[Publisher], after_s: float) -> float:
    def first() -> float:
        latest = [at_s for publisher in publishers for _, at_s in publisher.acknowledged[-1:] if at_s > after_s]
        return min(latest, default=0.0)

    return wait_until(first, DEADLINE_S, f"a publish; refused so far: {publishers[0].last_error}")


def _finish(report: Report, publishers: list[Publisher], received: Counter[bytes]) -> None:
    """Wait until everything that was acknowledged has been received, and count."""
    for publisher in publishers:
        publisher.is_over.set()
        publisher.join(DEADLINE_S)
    wanted = {body for publisher in publishers for body, _ in publisher.acknowledged}

    def lost() -> set[bytes]:
        return wanted - received.keys()

    end_s = time.monotonic() + DEADLINE_S
    while lost() and time.monotonic() < end_s:
        time.sleep(0.1)
    report.acknowledged = len(wanted)
    report.refused = sum(publisher.refused for publisher in publishers)
    report.lost = lost()
    report.doubled = sum(number - 1 for number in received.values() if number > 1)


@click.command()
@click.option("--count", default=200, type=click.IntRange(1), show_default=True, help="Number of failovers.")
@click.option("--ttl", default=2, type=click.IntRange(2), show_default=True, help="Time to live of the lease, seconds.")
@click.option("--fault", multiple=True, type=click.Choice(sorted(FAULTS)), help="Only these faults (repeatable).")
@click.option("--seed", type=int, help="Seed of the order of faults.  [default: a new one]")
def main(count: int, ttl: int, fault: tuple[str, ...], seed: int | None) -> None:
    """Let two nsqds take over from each other under load, and count what is lost."""
    seed = random.randrange(10**6) if seed is None else seed
    click.echo(f"seed {seed}", err=True)
    with tempfile.TemporaryDirectory(prefix="failovers-") as directory:
        report = run(
            Path(directory), count, ttl, list(fault or FAULTS), seed, lambda line: click.echo(line, err=True)
        )
    click.echo(str(report))
    if report.lost:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
