"""Two nsqds behind one name beside one: `python -m bench.two_nsqds --load CMD`.

An nsqd uses one processor. To use two, run two nsqds: they register at one nsqlookupd, a `Producer` takes the list of
both, and a `Consumer` finds both by the topic. This starts both clusters, publishes through the list, consumes by
nsqlookupd, and counts that all messages arrive. Then it measures: a neutral load generator (`bench/loads/neutral.py`)
with connections that wait for their answers, divided between the nsqds.
"""

import json
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import click

from bench import procfs
from bench.run import Endpoint
from bench.server import NSQD, NSQLOOKUPD, Daemon, Server
from nsqd_py.client import Consumer, Message, Producer

TOPIC, CHANNEL = "orders", "billing"
_MESSAGES = 400
_WITHIN_S = 30.0
_CONNECTS_WITHIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """nsqds that are registered at one nsqlookupd."""

    nsqds: list[Endpoint]
    lookupd: Endpoint

    @property
    def tcp_addresses(self) -> list[str]:
        return [f"127.0.0.1:{nsqd.tcp_port}" for nsqd in self.nsqds]


@contextmanager
def cluster_of(count: int) -> Iterator[Cluster]:
    """Start `count` nsqds and an nsqlookupd."""

    def command(daemon: Daemon) -> list[str]:
        return [sys.executable, "-m", daemon.module]

    with ExitStack() as stack:
        lookupd = stack.enter_context(Server(NSQLOOKUPD, command(NSQLOOKUPD))).endpoint
        flags = [f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}"]
        nsqds = [stack.enter_context(Server(NSQD, command(NSQD), flags)).endpoint for _ in range(count)]
        yield Cluster(nsqds, lookupd)


def deliver_through(cluster: Cluster) -> Counter[str]:
    """Publish through one list of addresses, consume by nsqlookupd; return the messages received from each nsqd."""
    sources: dict[bytes, str] = {}

    def handle(message: Message) -> None:
        sources[message.body] = message.nsqd

    with Producer(*cluster.tcp_addresses) as producer:
        producer.ping()
        time.sleep(_CONNECTS_WITHIN_S)  # until it has a connection to each nsqd, it uses those that it has
        for number in range(_MESSAGES):
            producer.publish(TOPIC, b"%d" % number)
    lookupd = f"127.0.0.1:{cluster.lookupd.http_port}"
    with Consumer(TOPIC, CHANNEL, handle, lookupd_http_addresses=[lookupd], max_in_flight=200):
        deadline_s = time.monotonic() + _WITHIN_S
        while len(sources) < _MESSAGES and time.monotonic() < deadline_s:
            time.sleep(0.01)
    return Counter(sources.values())


def measure(cluster: Cluster, load: list[str], connections: int, seconds: float) -> str:
    """Publish on `connections` connections, divided between the nsqds, and return the figures."""
    pids = [nsqd.pid for nsqd in cluster.nsqds]
    each = [*load, "-mode", "pub", "-conns", str(connections // len(pids)), "-seconds", f"{seconds:g}"]

    def run(address: str) -> int:
        ended = subprocess.run([*each, "-addr", address], capture_output=True, text=True, check=True)
        return int(json.loads(ended.stdout)["published_s"])

    with ThreadPoolExecutor(len(pids)) as threads:
        before_s = [procfs.cpu_s(pid) for pid in pids]
        published_per_s = sum(threads.map(run, cluster.tcp_addresses))
        used_s = [procfs.cpu_s(pid) - before for pid, before in zip(pids, before_s, strict=True)]
    cpu_us = sum(used_s) / seconds / published_per_s * 1e6
    return (
        f"{published_per_s:,} msg/s, {cpu_us:.1f} us of nsqds' CPU a message, "
        f"the busiest nsqd used {max(used_s) / seconds:.2f} processors"
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--load", required=True, metavar="CMD", help="A neutral load generator.")
@click.option("--connections", default=64, show_default=True, help="Publishers that wait for each answer, in all.")
@click.option("--seconds", default=2.0, show_default=True, help="Length of each run.")
@click.option("--rounds", default=3, show_default=True, help="Runs of each cluster, alternately.")
def main(load: str, connections: int, seconds: float, rounds: int) -> None:
    """Compare one nsqd with two behind one name."""
    with cluster_of(1) as one, cluster_of(2) as two:
        for cluster in (one, two):
            received = deliver_through(cluster)
            counts = ", ".join(f"{count} from {address}" for address, count in received.items())
            click.echo(f"{len(cluster.nsqds)} nsqd: received {received.total()} of {_MESSAGES} messages: {counts}")
        for number in range(rounds):
            for cluster in (one, two) if number % 2 == 0 else (two, one):
                click.echo(f"{len(cluster.nsqds)} nsqd: {measure(cluster, shlex.split(load), connections, seconds)}")


if __name__ == "__main__":
    main()
