"""Failovers by a lease, under mixed load: `python -m tests.standby.lease_failovers --count 200`.

Two nsqds share a lease of etcd, or with `--lease=s3` one in a bucket, of whose requests some may meet a fault, and with
`--store-acks` a store of their messages; see tests/standby/hosts.py, and tests/standby/faults.py for what happens to them. It
fails if a message that was acknowledged does not arrive, if two nsqds serve in the same epoch, or if one serves after a
newer one has begun. Root and network namespaces are required.
"""

from __future__ import annotations

import itertools
import logging
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import median

import click

from tests.standby.faults import FAULTS, FREEZES, STAYS, Scene
from tests.standby.hosts import DEADLINE_S, Hosts
from tests.standby.lease_worlds import BucketWorld, EtcdWorld, LeaseWorld, StoreWorld
from tests.support.ledger import Finding, Kind, Verdict, judge
from tests.support.ledger.serving import Late, Serving
from tests.support.network import Host
from tests.support.nsqd_process import wait_until

_STAYS_BROKEN_S = 2.0
_TIME = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d+")
WORLDS: dict[str, type[EtcdWorld | BucketWorld]] = {"etcd": EtcdWorld, "s3": BucketWorld}
_LATEST_ANSWER_S = 0.2  # from the log line until the client has read the answer


@dataclass
class Happened:
    """One fault. The gaps are the times until the first OK and the first delivery of the next primary."""

    fault: str
    began_s: float
    ok_gap_s: float = 0.0
    delivery_gap_s: float = 0.0


@dataclass
class Report:
    """What happened, and what clients saw; `verdict` and `alone` are there at the end.

    alone  what was acknowledged without a standby, and may be lost
    two_writers  rounds of an epoch of the store that has two writers
    """

    serving: Serving
    happened: list[Happened] = field(default_factory=list)
    verdict: Verdict | None = None
    alone: set[str] = field(default_factory=set)
    two_writers: list[str] = field(default_factory=list)

    @property
    def failovers(self) -> int:
        return sum(each.fault not in STAYS for each in self.happened)

    @property
    def lost(self) -> list[Finding]:
        return self.verdict.of("lost")

    def late(self) -> Iterator[tuple[str, Late]]:
        """Yield what came from an old primary after a newer one had begun, with the last fault before."""
        for late in self.serving.late:
            at_s = late.operation.at_ns / 1e9
            yield next(each.fault for each in reversed(self.happened) if each.began_s <= at_s), late

    def violations(self) -> list[str]:
        """Return what must not be. What a frozen primary was about to deliver may arrive when it goes on."""
        shared = self.serving.shared().items()
        found = [
            f"epoch {epoch}: {sorted(first.nsqd for first in firsts)} served" for epoch, firsts in shared
        ]
        found += self.two_writers
        found += [f"{fault}: {late}" for fault, late in self.late() if _is_wrong(fault, late)]
        if self.verdict is not None:
            found += [
                str(finding)
                for finding in self.verdict.findings
                if finding.body not in self.alone or finding.check != "lost"
            ]
        return found

    def table(self) -> Iterator[str]:
        """Yield the lines of a summary."""
        yield f"{'fault':16}{'number':>8}{'OK again, s':>22}{'delivery again, s':>22}"
        yield f"{'':16}{'':>8}{'median':>11}{'longest':>11}{'median':>11}{'longest':>11}"
        faults = sorted({each.fault for each in self.happened})
        for fault in faults:
            yield _row(fault, [each for each in self.happened if each.fault == fault])
        yield _row("all failovers", [each for each in self.happened if each.fault not in STAYS])
        verdict = self.verdict
        lost = {finding.body for finding in self.lost}
        yield f"{verdict.acknowledged:,} messages acknowledged, {len(lost)} lost"
        if self.alone:
            yield f"{len(self.alone):,} of them were acknowledged alone, {len(lost & self.alone)} of those lost"
        yield f"{verdict.again:,} of {verdict.deliveries:,} deliveries were repeated"
        yield f"{verdict.published - verdict.acknowledged:,} messages were refused, or their answer did not come"
        yield f"{len(self.serving.shared())} epochs with two primaries"
        yield f"{len(self.serving.late)} answers and deliveries of an old primary after a newer one had begun"


def answered_alone(logs: Sequence[Path], verdict: Verdict) -> set[str]:
    """Return what was acknowledged while an nsqd said in its log that it goes on alone."""
    spans = [span for log in logs for span in _spans_alone(log)]
    wall_s = time.time() - time.monotonic()
    found = set()
    for publish in verdict.story.acknowledged():
        at_s = publish.answered_ns / 1e9 + wall_s
        if any(start <= at_s <= end for start, end in spans):
            found.add(publish.body)
    return found


def _spans_alone(log: Path) -> Iterator[tuple[float, float]]:
    """Yield when an nsqd went on alone, and when it began to wait for standbys again, or ended."""
    start_s = 0.0
    for line in log.read_text(errors="replace").splitlines():
        at = _TIME.search(line)
        if at is None:
            continue
        at_s = datetime.strptime(at.group(), "%Y/%m/%d %H:%M:%S.%f").astimezone().timestamp()
        if "publishers are answered without them" in line:
            start_s = at_s
        elif start_s and any(
            text in line for text in ("wait for standbys again", "NSQ: bye", "LEASE: waiting for")
        ):
            yield start_s, at_s + _LATEST_ANSWER_S
            start_s = 0.0
    if start_s:
        yield start_s, float("inf")


def _is_wrong(fault: str, late: Late) -> bool:
    return fault not in FREEZES or late.operation.kind != Kind.DELIVERED


def _row(name: str, happened: Sequence[Happened]) -> str:
    cells = []
    for gaps in ([each.ok_gap_s for each in happened], [each.delivery_gap_s for each in happened]):
        cells += [median(gaps), max(gaps)] if gaps else [0.0, 0.0]
    return f"{name:16}{len(happened):>8}" + "".join(f"{cell:>11.1f}" for cell in cells)


def run(
    directory: Path,
    count: int,
    ttl_s: int,
    faults: Sequence[str],
    seed: int,
    say: Callable[[str], object],
    *flags: str,
    minutes: float = 0.0,
    make_world: Callable[[Path, Host], LeaseWorld] = EtcdWorld,
) -> Report:
    """Let `count` failovers happen, or as many as fit into `minutes`; return what clients saw."""
    chance = random.Random(seed)
    hosts = Hosts(directory, ttl_s, *flags, make_world=make_world)
    report = Report(hosts.serving)
    said: set[str] = set()
    end_s = time.monotonic() + minutes * 60 if minutes else float("inf")
    try:
        hosts.start_clients()
        for fault in itertools.chain.from_iterable(iter(lambda: chance.sample(faults, len(faults)), [])):
            if report.failovers >= count or time.monotonic() > end_s:
                break
            _let_happen(fault, hosts, chance, report)
            last = report.happened[-1]
            say(f"{report.failovers}/{count} {fault}: {last.ok_gap_s:.1f} s, {last.delivery_gap_s:.1f} s")
            for violation in report.violations():
                if violation not in said:
                    say(violation)
                    said.add(violation)
        hosts.wait_until_whole()
        hosts.stop_publishers()
        hosts.wait_until_received()
        # Which late deliveries are wrong depends on the fault: `violations` judges them.
        report.verdict = judge(hosts.history, without=("late", "shared"))
        report.alone = answered_alone([nsqd.log_path for nsqd in hosts.nsqds], report.verdict)
        if isinstance(hosts.world, StoreWorld):
            report.two_writers = hosts.world.two_writers()
        return report
    finally:
        hosts.end()


def _let_happen(fault: str, hosts: Hosts, chance: random.Random, report: Report) -> None:
    serving = hosts.serving
    primary, standby = hosts.wait_until_whole()
    wait_until(
        lambda: serving.serves_now(primary.host.address), DEADLINE_S, f"a client of {primary.host.address}"
    )
    time.sleep(chance.uniform(0.0, 1.0))
    epoch = serving.newest_epoch
    happened = Happened(fault, time.monotonic())
    report.happened.append(happened)
    gap_from_s = FAULTS[fault](Scene(hosts, primary, standby, chance)) or time.monotonic()
    if not any(nsqd.is_running for nsqd in hosts.nsqds):
        epoch = serving.newest_epoch  # the standby may have served before it died too
    time.sleep(chance.uniform(0.0, _STAYS_BROKEN_S))  # the old primary could go on in the meantime
    hosts.repair()
    if fault not in STAYS:
        first_ok_ns, first_delivery_ns = (
            wait_until(
                partial(serving.first_ns, kind, epoch), DEADLINE_S, f"{kind}; refused: {serving.last_error}"
            )
            for kind in (Kind.OK, Kind.DELIVERED)
        )
        happened.ok_gap_s = max(0.0, first_ok_ns / 1e9 - gap_from_s)
        happened.delivery_gap_s = max(0.0, first_delivery_ns / 1e9 - gap_from_s)


@click.command()
@click.option("--count", default=200, type=click.IntRange(1), show_default=True, help="Number of failovers.")
@click.option(
    "--minutes", default=0.0, help="End after this time, if the failovers take longer.  [default: no limit]"
)
@click.option(
    "--ttl", default=2, type=click.IntRange(2), show_default=True, help="Time to live of the lease, seconds."
)
@click.option(
    "--fault", multiple=True, type=click.Choice(sorted(FAULTS)), help="Only these faults (repeatable)."
)
@click.option(
    "--lease",
    type=click.Choice(sorted(WORLDS)),
    default="etcd",
    show_default=True,
    help="Store of the lease.",
)
@click.option(
    "--store-faults",
    default=0.0,
    help="Part of the requests to the bucket that meet a fault.  [default: none]",
)
@click.option("--seed", type=int, help="Seed of the order of faults.  [default: a new one]")
@click.option(
    "--directory", type=click.Path(path_type=Path), help="Keep data and logs here.  [default: removed]"
)
@click.option("--sync-every", default=1, show_default=True, help="--sync-every of both nsqds.")
@click.option("--standby-acks", default=1, show_default=True, help="--standby-acks of both nsqds.")
@click.option(
    "--store-acks",
    type=click.IntRange(0, 1),
    help="Both nsqds have a store in a bucket, with this --store-acks.  [default: no store]",
)
@click.option("--on-timeout", default="refuse", help="--standby-on-timeout of both nsqds: refuse or alone.")
def main(
    count: int,
    minutes: float,
    ttl: int,
    fault: tuple[str, ...],
    lease: str,
    store_faults: float,
    seed: int | None,
    directory: Path | None,
    sync_every: int,
    standby_acks: int,
    store_acks: int | None,
    on_timeout: str,
) -> None:
    """Let two nsqds take over from each other under load, and report what clients saw."""
    seed = random.randrange(10**6) if seed is None else seed
    click.echo(f"seed {seed}", err=True)
    logging.disable(logging.CRITICAL)  # that connections are lost is no news
    began_s = time.monotonic()

    def say(line: str) -> None:
        click.echo(f"{time.monotonic() - began_s:6.0f} s  {line}", err=True)

    make_world: Callable[[Path, Host], LeaseWorld] = WORLDS[lease]
    if store_faults:
        make_world = partial(BucketWorld, seed=seed, fault_rate=store_faults)
    if store_acks is not None:
        make_world = partial(StoreWorld, make_lease=make_world, acks=store_acks)
    with tempfile.TemporaryDirectory(prefix="failovers-", ignore_cleanup_errors=True) as temporary:
        report = run(
            directory or Path(temporary),
            count,
            ttl,
            list(fault or sorted(FAULTS.keys() - WORLDS[lease].FOREIGN)),
            seed,
            say,
            f"--sync-every={sync_every}",
            f"--standby-acks={standby_acks}",
            f"--standby-on-timeout={on_timeout}",
            minutes=minutes,
            make_world=make_world,
        )
    click.echo("\n".join(report.table()))
    violations = report.violations()
    for violation in violations[:50]:
        click.echo(violation)
    if violations:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
