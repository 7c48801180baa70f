"""Machines and disks destroyed under load: `python -m tests.torture.store_losses --kills 200`.

An nsqd with a store, publishers, and a consumer. At a random moment, nsqd ends as its machine and its disk do: SIGKILL, and
its data path is removed. Another one is restored from the store at another place, and gives out everything. In some rounds the
old one is only suspended, and wakes up when the other one serves; or nsqd is killed and starts on the same disk; or it ends
cleanly before its disk is lost. Before some of the starts, somebody puts a foreign object among the rounds, or flips a bit of a
round whose messages the disk has too.

lost         acknowledged messages that neither came before nor come after; with --store-acks=0 only those count that were
             acknowledged more than an interval and a second before the end
woken        old nsqds that acknowledged something after another one had taken over, or that did not end
two writers  epochs of the store with rounds of two writers
unnamed      foreign and damaged objects that the next nsqd did not name and set aside
"""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import click

from nsqd_py.objects.calls import Exists, Objects
from nsqd_py.objects.opening import open_objects
from nsqd_py.store import rounds
from nsqd_py.store.layout import ASIDE, HEAD_NAME, ROUNDS, Head, parse_round_name, round_name
from tests.support.bucket_faults import FaultProxy
from tests.support.buckets import Bucket, moto
from tests.support.hostile_machine import SlowDisk, computing, environment
from tests.support.nsqd_process import NsqdProcess, StoreNsqd, wait_until
from tests.support.wire import mpub, pub

INTERVAL_S = 0.3
# What may be lost with acks 0 was acknowledged in this time before the end.
WINDOW_S = INTERVAL_S + 1.0
TOPIC = "t"
PUBLISHERS = 3
LIVES_S = (0.2, 3.0)
FAULTS = 0.05
# Part of all starts before which a round is spoiled, and how far behind all rounds a foreign one may be.
SPOILED = 0.25
FAR = 1_000_000
DEADLINE_S = 90.0
KINDS = {"disk lost": 10, "suspended": 4, "killed": 3, "stopped, disk lost": 2}
# What may lose messages that were acknowledged a moment before, with acks 0.
LOSING = ("disk lost", "suspended")
FLAGS = (
    f"--store-interval={INTERVAL_S * 1000:.0f}ms",
    "--max-bytes-per-file=1500000",
    "--mem-queue-size=100",
)
# An nsqd whose bases, rounds and stored files are so small that there are many of them.
SMALL = """
import sys
from nsq_apps.nsqd import main
from nsqd_py.store import files
from nsqd_py.store.uploading import writing
assert files.PREFIX_BYTES and writing._OBJECT_BYTES and writing._MOST_ROUNDS and writing._LEAST_BYTES
files.PREFIX_BYTES = 5_000
writing._OBJECT_BYTES = 10_000
writing._MOST_ROUNDS = 10
writing._LEAST_BYTES = 20_000
sys.exit(main())
"""
# So many objects take time: publishers pause, so that the store keeps up without acknowledgements.
SMALL_PAUSE_S = 0.05
SMALL_FLAGS = ("--max-bytes-per-file=30000", "--store-retention-bytes=100000")


@dataclass
class Figures:
    """What a campaign has found."""

    acknowledged: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    lost_in_window: int = 0
    oldest_lost_s: float = 0.0
    woken: list[str] = field(default_factory=list)
    two_writers: list[str] = field(default_factory=list)
    epochs: int = 0
    spoiled: Counter[str] = field(default_factory=Counter)
    unnamed: list[str] = field(default_factory=list)
    restored_s: list[float] = field(default_factory=list)
    faults: int = 0

    @classmethod
    def sum(cls, parts: list[Figures]) -> Figures:
        """Return what several campaigns have found together."""
        found = cls()
        for part in parts:
            found.acknowledged += part.acknowledged
            found.kinds.update(part.kinds)
            found.lost += part.lost
            found.lost_in_window += part.lost_in_window
            found.oldest_lost_s = max(found.oldest_lost_s, part.oldest_lost_s)
            found.woken += part.woken
            found.two_writers += part.two_writers
            found.epochs += part.epochs
            found.spoiled.update(part.spoiled)
            found.unnamed += part.unnamed
            found.restored_s += part.restored_s
            found.faults += part.faults
        return found

    def problems(self) -> list[str]:
        return [*self.lost, *self.woken, *self.two_writers, *self.unnamed]

    def report(self) -> str:
        slowest_s = max(self.restored_s, default=0.0)
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kinds.items())
        spoiled = ", ".join(f"{count} {what}" for what, count in self.spoiled.items()) or "none"
        lines = (
            f"{self.kinds.total()} kills: {kinds}; {self.acknowledged} acknowledged, {self.faults} faults of the store",
            f"lost: {len(self.lost)} (and {self.lost_in_window} within {WINDOW_S} s, the oldest {self.oldest_lost_s:.2f} s)",
            f"objects spoiled: {spoiled}; not named and set aside: {len(self.unnamed)}",
            f"epochs: {self.epochs}, with two writers: {len(self.two_writers)}; woken: {len(self.woken)}",
            f"slowest restoration: {slowest_s:.1f} s",
        )
        return "\n".join(lines)


class Publisher(threading.Thread):
    """Publishes to one nsqd until its connection ends. `acknowledged` has when each message got its OK."""

    def __init__(self, nsqd: NsqdProcess, name: str, batch: int, pause_s: float = 0.0) -> None:
        super().__init__(daemon=True)
        self.acknowledged: dict[bytes, float] = {}
        self.refused = 0
        self._client = nsqd.connect()
        self._name = name
        self._batch = batch
        self._pause_s = pause_s

    def run(self) -> None:
        number = 0
        with suppress(Exception):  # the connection ended: that is what it waits for
            while True:
                bodies = [f"{self._name}-{number + i}".encode() + bytes(200) for i in range(self._batch)]
                number += self._batch
                command = mpub(TOPIC, bodies) if self._batch > 1 else pub(TOPIC, bodies[0])
                if self._client.ask(command, deadline_s=DEADLINE_S).data == b"OK":
                    self.acknowledged |= dict.fromkeys(bodies, time.monotonic())
                else:
                    self.refused += 1
                time.sleep(self._pause_s)
        self._client.close()


class Consumer(threading.Thread):
    """Finishes what a channel gets until its connection ends. `received` has everything that it got."""

    def __init__(self, nsqd: NsqdProcess, channel: str) -> None:
        super().__init__(daemon=True)
        self.received: set[bytes] = set()
        self._client = nsqd.consumer(TOPIC, channel, 50)

    def run(self) -> None:
        with suppress(Exception):
            while True:
                message = self._client.message(DEADLINE_S)
                self.received.add(message.body)
                self._client.fin(message)
        self._client.close()


class Campaign:
    """Destroys one nsqd after the other; `figures` says what was lost."""

    def __init__(
        self,
        folder: Path,
        url: str,
        acks: int,
        seed: int,
        proxy: FaultProxy | None,
        *flags: str,
        pause_s: float = 0.0,
    ) -> None:
        self.figures = Figures()
        self._folder = folder
        self._acks = acks
        self._random = random.Random(seed)
        self._proxy = proxy
        self._pause_s = pause_s
        self._number = 0
        self._flags = (*FLAGS, f"--store={url}", f"--restore-from={url}", f"--store-acks={acks}", *flags)
        self._nsqd = self._make()
        self._without_restore = [flag for flag in self._flags if not flag.startswith("--restore-from")]
        self._nsqd = StoreNsqd(self._nsqd.data_path, *self._without_restore).start()
        self._nsqd.create(TOPIC, "slow", "all")
        if not acks:
            wait_until(lambda: self._nsqd.stats()["store"]["last_round"] > 1, DEADLINE_S, "the first rounds")
            time.sleep(2 * INTERVAL_S)  # the channels are stored
        self._actions: dict[str, Callable[[], float]] = {
            "disk lost": self._lose,
            "suspended": self._suspend,
            "killed": self._kill,
            "stopped, disk lost": self._stop_and_lose,
        }
        self._spoiled: set[int] = set()  # numbers of rounds
        self._objects = open_objects(url)  # without faults
        self._old: StoreNsqd | None = None
        self._old_publisher: Publisher | None = None

    def _make(self) -> StoreNsqd:
        self._number += 1
        return StoreNsqd(self._folder / f"machine{self._number}", *self._flags)

    def run(self, kills: int, ends_s: float) -> None:
        """Destroy this many nsqds, or until this time."""
        for _ in range(kills):
            if time.monotonic() > ends_s:
                break
            self._round()
        self._check_writers()

    def _round(self) -> None:
        name = f"r{sum(self.figures.kinds.values())}"
        kind = self._random.choices(list(KINDS), list(KINDS.values()))[0]
        publishers = [
            Publisher(self._nsqd, f"{name}-p{number}", 1 + 9 * (number % 2), self._pause_s)
            for number in range(PUBLISHERS)
        ]
        consumer = Consumer(self._nsqd, "slow")
        for thread in (*publishers, consumer):
            thread.start()
        time.sleep(self._random.uniform(*LIVES_S))
        ended_s = self._actions[kind]()
        self.figures.kinds[kind] += 1
        for thread in (*publishers, consumer):
            thread.join(DEADLINE_S)
        acknowledged = {
            body: ok_s
            for publisher in publishers
            for body, ok_s in publisher.acknowledged.items()
            if ok_s <= ended_s or kind != "suspended"
        }
        self.figures.acknowledged += len(acknowledged)
        self._judge(name, kind, acknowledged, ended_s, consumer.received)
        self._wake()
        if self._proxy is not None:
            self.figures.faults = sum(bool(seen.fault) for seen in self._proxy.seen)

    def _judge(
        self, name: str, kind: str, acknowledged: dict[bytes, float], ended_s: float, received: set[bytes]
    ) -> None:
        """Take everything from the new nsqd, and compare it with what was acknowledged."""
        for channel, before in (("all", set()), ("slow", received)):
            found = {message.body for message in self._nsqd.consume_all(TOPIC, channel)} | before
            for body, ok_s in acknowledged.items():
                if body in found:
                    continue
                ago_s = ended_s - ok_s
                if not self._acks and ago_s <= WINDOW_S and kind in LOSING:
                    self.figures.lost_in_window += 1
                    self.figures.oldest_lost_s = max(self.figures.oldest_lost_s, ago_s)
                else:
                    text = body.rstrip(b"\0").decode()
                    self.figures.lost.append(
                        f"{kind}: {text} of {channel}, acknowledged {ago_s:.2f} s before"
                    )

    # ---- objects that somebody spoils

    def _put_foreign(self, ahead: int) -> int:
        """Put a foreign object among the rounds, so far behind the last one. Return its number."""
        while True:
            number = self._numbers()[-1] + ahead
            with suppress(Exists):  # a request of the nsqd before was under way
                self._objects.create(round_name(number), self._random.randbytes(200))
                self.figures.spoiled["foreign"] += 1
                return number

    def _flip(self) -> int | None:
        """Sometimes flip a bit of a round that counts. Return its number."""
        if self._random.random() >= SPOILED:
            return None
        base = Head.decode(self._objects.get(HEAD_NAME)[0]).base
        number = self._random.choice([number for number in self._numbers() if number >= base])
        data, version = self._objects.get(round_name(number))
        flipped = bytearray(data)
        flipped[self._random.randrange(len(data))] ^= 1 << self._random.randrange(8)
        self._objects.swap(round_name(number), bytes(flipped), version)
        self.figures.spoiled["flipped"] += 1
        return number

    def _numbers(self) -> list[int]:
        return sorted(parse_round_name(listed.name) or 0 for listed in self._objects.list(ROUNDS))

    def _check_named(self, number: int | None) -> None:
        """Check that the nsqd that has just started named a spoiled round, and set it aside."""
        if number is None:
            return
        self._spoiled.add(number)
        name = round_name(number)
        is_named = re.search(
            rf"{name} (is damaged|is foreign|was written by).*; set aside", self._nsqd.log_text()
        )
        is_aside = any(listed.name.startswith(f"{ASIDE}/{name}-") for listed in self._objects.list(ASIDE))
        if not is_named or not is_aside:
            self.figures.unnamed.append(f"{name}: {self._nsqd.log_text()[-500:]}")
        wait_until(lambda: self._nsqd.stats()["store"]["state"] == "storing", DEADLINE_S, "the next base")

    # ---- what happens to an nsqd

    def _restore(self) -> None:
        number = None
        ahead = self._random.choice((1, FAR))
        if self._random.random() < SPOILED:
            number = self._put_foreign(ahead)
        began_s = time.monotonic()
        self._nsqd = self._make()
        if number is not None and ahead == 1:
            self._refuse()
        self._nsqd.start()
        self.figures.restored_s.append(time.monotonic() - began_s)
        self._check_named(number)

    def _refuse(self) -> None:
        """Check that nsqd does not serve where a round may have been, unless it is told to."""
        reason = self._nsqd.fails_to_start()
        if "and messages are missing in it: " not in reason or "without --restore-from" not in reason:
            self.figures.unnamed.append(reason)
        path = self._nsqd.data_path
        self._nsqd = StoreNsqd(path, *self._without_restore)

    def _lose(self) -> float:
        ended_s = time.monotonic()
        self._nsqd.kill()
        shutil.rmtree(self._nsqd.data_path)
        self._restore()
        return ended_s

    def _stop_and_lose(self) -> float:
        ended_s = time.monotonic()
        self._nsqd.signal(signal.SIGTERM)
        assert self._nsqd.wait(DEADLINE_S) == 0
        shutil.rmtree(self._nsqd.data_path)
        self._restore()
        return ended_s

    def _kill(self) -> float:
        ended_s = time.monotonic()
        self._nsqd.kill()
        number = self._flip()
        self._nsqd.start()
        self._check_named(number)
        return ended_s

    def _suspend(self) -> float:
        """Stop the process; another one takes over. `_wake` lets the old one go on."""
        ended_s = time.monotonic()
        old = self._nsqd
        self._old_publisher = Publisher(old, "old", 1)
        old.signal(signal.SIGSTOP)
        self._old = old
        self._restore()
        old.signal(signal.SIGCONT)
        if self._acks:
            self._old_publisher.start()
        return ended_s

    def _wake(self) -> None:
        """Check that an nsqd that was suspended ends, and acknowledges nothing."""
        old, publisher = self._old, self._old_publisher
        if old is None or publisher is None:
            return
        self._old = self._old_publisher = None
        try:
            status = old.wait(DEADLINE_S)
        except Exception as error:  # noqa: BLE001
            self.figures.woken.append(f"{old.data_path.name} did not end: {error!r}")
            old.destroy()
            return
        if status != 1 or "belongs to" not in old.log_text():
            self.figures.woken.append(f"{old.data_path.name} ended with {status}: {old.log_text()[-500:]}")
        if publisher.acknowledged:
            self.figures.woken.append(f"{old.data_path.name} acknowledged {len(publisher.acknowledged)}")
        shutil.rmtree(old.data_path)

    def _check_writers(self) -> None:
        if self._proxy is not None:
            self._proxy.stop_faults()
        written = Written.in_store(self._objects, self._spoiled)
        self.figures.two_writers += written.two_writers
        self.figures.epochs = written.epochs

    def close(self) -> None:
        for nsqd in (self._nsqd, self._old):
            if nsqd is not None:
                nsqd.destroy()


class Written(NamedTuple):
    """What the rounds of a store say: how many epochs, and where an epoch has two writers, or an earlier one follows."""

    epochs: int
    two_writers: list[str]

    @classmethod
    def in_store(cls, objects: Objects, spoiled: Collection[int] = ()) -> Written:
        """Read all rounds but the spoiled ones."""
        found: list[str] = []
        writers: dict[int, str] = {}
        last = 0
        numbers = {parse_round_name(listed.name) or 0 for listed in objects.list(ROUNDS)}
        for number in sorted(numbers - set(spoiled)):
            one = rounds.decode(number, objects.get(round_name(number))[0])
            if writers.setdefault(one.epoch, one.writer) != one.writer or one.epoch < last:
                found.append(f"round {number} of epoch {one.epoch}")
            last = one.epoch
        return cls(len(writers), found)


def campaign(
    folder: Path,
    bucket: Bucket,
    kills: int,
    acks: int,
    seed: int,
    faults: float,
    ends_s: float,
    *flags: str,
    pause_s: float = 0.0,
) -> Figures:
    """Run a campaign in a bucket, with faults between nsqd and the bucket."""
    url = bucket.url("store")
    with FaultProxy(bucket.endpoint) as proxy:
        os.environ.update(bucket.environment())
        folder.mkdir(exist_ok=True)
        flags = (f"--store-endpoint={proxy.endpoint}", *flags)
        with closing(Campaign(folder, url, acks, seed, proxy, *flags, pause_s=pause_s)) as running:
            if faults:
                proxy.at_random(seed, faults)
            running.run(kills, ends_s)
        return running.figures


class Share(NamedTuple):
    """The part of a campaign that one process does, with a server of buckets that no other one uses."""

    folder: Path
    kills: int
    acks: int
    seed: int
    faults: float
    ends_s: float
    is_small: bool

    def run(self) -> Figures:
        flags = SMALL_FLAGS if self.is_small else ()
        pause_s = SMALL_PAUSE_S if self.is_small and not self.acks else 0.0
        self.folder.mkdir()
        with moto(self.folder) as server:
            return campaign(
                self.folder / "machines",
                server.make_bucket(),
                self.kills,
                self.acks,
                self.seed,
                self.faults,
                self.ends_s,
                *flags,
                pause_s=pause_s,
            )


def run_side_by_side(shares: list[Share]) -> list[Figures]:
    """Run each share in a process, all at once."""
    with ProcessPoolExecutor(len(shares), mp_context=get_context("spawn")) as processes:
        return list(processes.map(Share.run, shares))


def environment_of(hostile: bool) -> dict[str, str]:
    """Return the variables with which all processes change threads at every bad moment, if they must."""
    if not hostile:
        return {}
    return environment(0, Path(), shim=None, disk=SlowDisk())


@click.command()
@click.option("--kills", default=200, help="Of all values of --acks and all processes.")
@click.option("--acks", type=click.IntRange(0, 1), multiple=True, default=(1, 0))
@click.option("--seed", default=46)
@click.option("--faults", default=FAULTS, help="Part of all requests that meets a fault.")
@click.option("--minutes", default=60.0)
@click.option("--side-by-side", default=1, help="Number of processes that destroy nsqds at once.")
@click.option("--hostile", is_flag=True, help="A switch interval of 1 us in all processes.")
@click.option("--small", is_flag=True, help="Small bases, rounds and stored files, so that there are many.")
@click.option("--burners", default=0, help="Number of processes that compute in the meantime.")
def main(
    kills: int,
    acks: tuple[int, ...],
    seed: int,
    faults: float,
    minutes: float,
    side_by_side: int,
    hostile: bool,
    small: bool,
    burners: int,
) -> None:
    """Destroy nsqds with both values of --store-acks; end with 1 if anything was lost."""
    os.environ.update(environment_of(hostile))
    if small:
        os.environ["NSQD_COMMAND"] = shlex.join([sys.executable, "-c", SMALL])
    failed = False
    with tempfile.TemporaryDirectory(prefix="store-losses-") as name, computing(burners):
        for setting in acks:
            ends_s = time.monotonic() + minutes * 60 / len(acks)
            kills_each = kills // len(acks) // side_by_side
            shares = [
                Share(
                    Path(name) / f"acks{setting}-{seed + i}",
                    kills_each,
                    setting,
                    seed + i,
                    faults,
                    ends_s,
                    small,
                )
                for i in range(side_by_side)
            ]
            figures = Figures.sum(run_side_by_side(shares))
            click.echo(f"--store-acks={setting}: {figures.report()}")
            for problem in figures.problems()[:20]:
                click.echo(f"  {problem}")
            failed |= bool(figures.problems())
    sys.exit(failed)


if __name__ == "__main__":
    main()
