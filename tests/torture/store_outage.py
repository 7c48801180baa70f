"""A store that is away for an hour: `python -m tests.torture.store_outage --minutes 60` (root: it mounts small disks).

Two nsqds under load, with `--store-acks=0` and `--store-acks=1`, each on a small disk. Their store refuses connections, hangs,
and answers 503 in turns, all the time. In the middle third of the outage the disks are full. Then space comes back, then the
store; when nsqd has stored everything, the machine is destroyed with its disk, and another nsqd is restored from the store.

lost      acknowledged messages that neither came before nor come after
problems  what nsqd should have said or done in the meantime, and did not
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import click

from tests.support.bucket_faults import Exchange, FaultProxy, cut, refused
from tests.support.buckets import Bucket, moto
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.wire import pub
from tests.torture.store_losses import StoreNsqd

TOPIC = "t"
PUBLISHERS = 2
DEADLINE_S = 120.0
CATCH_UP_DEADLINE_S = 600.0
PAUSE_S = 0.1
SAMPLE_S = 2.0
PADDING = bytes(200)
# A publisher's messages have numbers from its own number times this on.
NUMBERS = 10**9
# The outage begins for nsqd 5 s after a request that hangs, and /ping shows it 10 s after that request began.
SAID_AFTER_S = 20.0
# What nsqd may need beyond its memory before the outage; and lines of its log.
MOST_GROWTH_MB = 40.0
MOST_LINES_PER_S = 1.0
TURNS_COUNT = 18
DISK_BYTES = 2 * 10**9
FLAGS = ("--store-interval=300ms", "--max-bytes-per-file=8000000", "--mem-queue-size=1000")
# The second of a line that reports a problem, and what else it says.
_PROBLEM = re.compile(r"^\[nsqd\] \S+ (\d\d:\d\d:\d\d)\S* (?:ERROR|WARNING): (.*)", re.MULTILINE)
# Each refused publish has one or both of these, until nsqd finds that the disk is full.
_OF_CLIENT = re.compile("E_PUB_FAILED|failed to write message to disk")
_NUMBERS = re.compile(r"[0-9a-f]*\d[0-9a-f.]*")


@contextmanager
def small_disk(directory: Path, size_bytes: int) -> Iterator[Path]:
    """Mount a disk of this size in a new directory."""
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", directory], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


def fill(disk: Path) -> None:
    """Leave no byte free on a disk."""
    with (disk / "ballast").open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


class Publisher(threading.Thread):
    """Publishes at a rate until it is stopped. `acknowledged` has the numbers of the messages that got their OK."""

    def __init__(self, nsqd: NsqdProcess, number: int, rate: float) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[int] = []
        self.refusals: Counter[str] = Counter()
        self.stopping = threading.Event()
        self._nsqd = nsqd
        self._next = number * NUMBERS
        self._pause_s = 1 / rate

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._publish()
            except Exception as error:  # noqa: BLE001
                self.refusals[type(error).__name__] += 1
                self.stopping.wait(PAUSE_S)

    def _publish(self) -> None:
        """Publish on one connection until a publish is refused."""
        with self._nsqd.connect(heartbeat_interval=-1) as client:
            due_s = time.monotonic()
            while not self.stopping.is_set():
                number = self._next
                self._next += 1
                answer = client.ask(pub(TOPIC, b"%d " % number + PADDING), deadline_s=DEADLINE_S).data
                if answer != b"OK":
                    self.refusals[_NUMBERS.sub("N", answer.decode()[:120])] += 1
                    self.stopping.wait(PAUSE_S)
                    return
                self.acknowledged.append(number)
                due_s += self._pause_s
                self.stopping.wait(max(0.0, due_s - time.monotonic()))


class Consumer(threading.Thread):
    """Finishes what a channel gets until it is stopped. `received` has the numbers of the messages."""

    def __init__(self, nsqd: NsqdProcess, channel: str) -> None:
        super().__init__(daemon=True)
        self.received: set[int] = set()
        self.stopping = threading.Event()
        self._nsqd = nsqd
        self._channel = channel

    def run(self) -> None:
        while not self.stopping.is_set():
            with suppress(Exception):  # nsqd ended, or the channel is silent
                self._consume()
            self.stopping.wait(PAUSE_S)

    def _consume(self) -> None:
        with self._nsqd.consumer(TOPIC, self._channel, 200) as client:
            while not self.stopping.is_set():
                message = client.message(DEADLINE_S)
                self.received.add(number_of(message.body))
                client.fin(message)


def number_of(body: bytes) -> int:
    return int(body.partition(b" ")[0])


@dataclass
class Figures:
    """What was seen of one nsqd."""

    acknowledged: int = 0
    acknowledged_away: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    problems: list[str] = field(default_factory=list)
    rss_mb: dict[str, float] = field(default_factory=dict)
    states: Counter[str] = field(default_factory=Counter)
    log_lines: int = 0
    most_lines: int = 0
    client_lines: int = 0
    away_s: float = 0.0
    caught_up_s: float = 0.0
    restored_s: float = 0.0
    lag_messages: int = 0

    def report(self) -> str:
        memory = ", ".join(f"{name} {size:.0f}" for name, size in self.rss_mb.items())
        return (
            f"{self.acknowledged} acknowledged, {self.acknowledged_away} of them in {self.away_s:.0f} s of outage; "
            f"lost: {self.lost}\n"
            f"  refused: {dict(self.refusals)}\n"
            f"  states while away: {dict(self.states)}; lag at its end: {self.lag_messages} messages\n"
            f"  problems in the log while away: {self.log_lines} ({self.log_lines / self.away_s:.2f}/s, "
            f"at most {self.most_lines} in one second), and {self.client_lines} of refused clients\n"
            f"  RSS in MB: {memory}\n"
            f"  caught up in {self.caught_up_s:.1f} s, restored in {self.restored_s:.1f} s"
        )


class Machine:
    """One nsqd on a small disk, with its clients."""

    def __init__(self, disk: Path, url: str, endpoint: str, acks: int, rate: float) -> None:
        self.figures = Figures()
        self.acks = acks
        self._disk = disk
        self._flags = (*FLAGS, f"--store={url}", f"--store-endpoint={endpoint}", f"--store-acks={acks}")
        # With acks, the disk fails for real; without, nsqd keeps its reserve.
        if acks:
            self._flags += ("--store-timeout=2s", "--min-free-disk-bytes=0")
        self.nsqd = StoreNsqd(disk / "nsqd", *self._flags)
        self.nsqd.log_path = disk.with_suffix(".log")
        self.nsqd.start()
        self.nsqd.create(TOPIC, "slow", "all")
        self._publishers = [Publisher(self.nsqd, number, rate / PUBLISHERS) for number in range(PUBLISHERS)]
        self._consumer = Consumer(self.nsqd, "slow")
        for thread in (*self._publishers, self._consumer):
            thread.start()

    # ---- what is seen

    @property
    def acknowledged(self) -> int:
        return sum(len(publisher.acknowledged) for publisher in self._publishers)

    def _refused(self) -> int:
        return sum(publisher.refusals.total() for publisher in self._publishers)

    def problem(self, text: str) -> None:
        self.figures.problems.append(f"acks={self.acks}: {text}")

    def note_memory(self, when: str) -> None:
        self.figures.rss_mb[when] = max(self.figures.rss_mb.get(when, 0.0), rss_mb(self.nsqd.pid))

    def sample(self, away_s: float) -> None:
        """Note what nsqd says of itself, this long after the store went away."""
        state = self.nsqd.stats()["store"]["state"]
        self.note_memory("at most while away")
        self.figures.states[state] += 1
        if away_s < SAID_AFTER_S:
            return
        ping = self.nsqd.http("GET", "/ping").text
        if state != "away" or not ping.startswith(("OK - the store", "NOK - disk")):
            self.problem(f"{away_s:.0f} s after the begin it says {state}, and {ping!r}")

    def note_log(self, before: str) -> None:
        """Count the problems in the log since `before`."""
        found = _PROBLEM.findall(self.nsqd.log_text()[len(before) :])
        of_nsqd = Counter(second for second, text in found if not _OF_CLIENT.search(text))
        self.figures.log_lines = of_nsqd.total()
        self.figures.most_lines = max(of_nsqd.values(), default=0)
        self.figures.client_lines = len(found) - self.figures.log_lines

    # ---- what happens to it

    def wait_until_it_publishes(self, what: str) -> None:
        before = self.acknowledged
        wait_until(lambda: self.acknowledged > before + 20, DEADLINE_S, f"{what}: publishes")

    def wait_until_it_refuses(self) -> None:
        """Wait until nothing is acknowledged any more."""
        refused_before = self._refused()
        wait_until(lambda: self._refused() > refused_before + 4, DEADLINE_S, "refusals")

    def fill_disk(self) -> None:
        fill(self._disk)
        self.wait_until_it_refuses()
        if not (self._disk / "nsqd").exists() or not self.nsqd.is_running:
            self.problem("it ended on a full disk")

    def free_disk(self) -> None:
        (self._disk / "ballast").unlink()
        if not self.acks:
            self.wait_until_it_publishes("space is back")

    def wait_until_stored(self) -> float:
        """Return after how long the store had everything."""
        began_s = time.monotonic()

        def is_stored() -> bool:
            store = self.nsqd.stats()["store"]
            return store["state"] == "storing" and store["lag_messages"] < 1000

        wait_until(is_stored, CATCH_UP_DEADLINE_S, "the store to have everything")
        return time.monotonic() - began_s

    def end_publishing(self) -> None:
        for publisher in self._publishers:
            publisher.stopping.set()
        for publisher in self._publishers:
            publisher.join(DEADLINE_S)
            self.figures.refusals += publisher.refusals
        wait_until(
            lambda: self.nsqd.stats()["store"]["lag_messages"] == 0, CATCH_UP_DEADLINE_S, "the last round"
        )
        self.note_memory("caught up")

    def destroy(self) -> None:
        """End it as a machine does, with its disk."""
        self._consumer.stopping.set()
        self.nsqd.kill()
        self._consumer.join(DEADLINE_S)
        shutil.rmtree(self.nsqd.data_path)

    def restore(self, directory: Path) -> None:
        """Restore it in a directory, and compare what it has with what was acknowledged."""
        began_s = time.monotonic()
        restore_from = self._flags[len(FLAGS)].replace("--store=", "--restore-from=")
        with StoreNsqd(directory, *self._flags, restore_from) as restored:
            restored.start()
            self.figures.restored_s = time.monotonic() - began_s
            acknowledged = {number for publisher in self._publishers for number in publisher.acknowledged}
            self.figures.acknowledged = len(acknowledged)
            for channel, before in (("all", set()), ("slow", self._consumer.received)):
                found = {number_of(message.body) for message in restored.consume_all(TOPIC, channel)}
                lost = acknowledged - found - before
                self.figures.lost += len(lost)
                if lost:
                    self.problem(f"{len(lost)} messages of {channel} are lost, among them {sorted(lost)[:5]}")
            self.figures.rss_mb["restored"] = rss_mb(restored.pid)

    def judge(self) -> None:
        figures = self.figures
        growth_mb = figures.rss_mb["at most while away"] - figures.rss_mb["before"]
        if growth_mb > MOST_GROWTH_MB:
            self.problem(f"{growth_mb:.0f} MB of memory more while the store was away")
        if figures.log_lines > MOST_LINES_PER_S * figures.away_s:
            self.problem(f"{figures.log_lines} problems in the log in {figures.away_s:.0f} s")
        if not self.acks and not figures.acknowledged_away:
            self.problem("nothing was acknowledged while the store was away")


def rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s*(\d+)", status)[1]) / 1024


class Outage:
    """An outage of the store of some nsqds, with a full disk in its middle third."""

    def __init__(self, machines: Sequence[Machine], proxy: FaultProxy, away_s: float) -> None:
        self._machines = machines
        self._proxy = proxy
        self._away_s = away_s
        self._began_s = 0.0
        self._turn = -1
        self._is_over = threading.Event()
        self._turns = (cut, self._hang, refused(503))

    def _hang(self, exchange: Exchange) -> None:
        self._is_over.wait()
        exchange.cut()

    def run(self) -> None:
        logs = []
        for machine in self._machines:
            machine.wait_until_it_publishes("the store is there")
            machine.wait_until_stored()
            machine.note_memory("before")
            logs.append(machine.nsqd.log_text())
        before = [machine.acknowledged for machine in self._machines]
        self._began_s = time.monotonic()
        self._stay_away(self._away_s / 3)
        for machine in self._machines:
            machine.fill_disk()
        self._stay_away(2 * self._away_s / 3)
        for machine in self._machines:
            machine.free_disk()
        self._stay_away(self._away_s)
        for number, machine in enumerate(self._machines):
            machine.figures.away_s = time.monotonic() - self._began_s
            machine.figures.acknowledged_away = machine.acknowledged - before[number]
            machine.figures.lag_messages = machine.nsqd.stats()["store"]["lag_messages"]
            machine.note_log(logs[number])
        self._proxy.stop_faults()
        self._is_over.set()
        for machine in self._machines:
            machine.figures.caught_up_s = machine.wait_until_stored()
            machine.wait_until_it_publishes("the store is back")

    def _stay_away(self, until_s: float) -> None:
        while (away_s := time.monotonic() - self._began_s) < until_s:
            self._change_turn(int(away_s / self._away_s * TURNS_COUNT))
            for machine in self._machines:
                machine.sample(away_s)
            time.sleep(min(SAMPLE_S, max(0.0, until_s - away_s)))

    def _change_turn(self, turn: int) -> None:
        if turn != self._turn:
            self._turn = turn
            self._proxy.at_random(seed=turn, rate=1.1, faults=[self._turns[turn % len(self._turns)]])


def campaign(
    directory: Path, bucket: Bucket, away_s: float, rate: float, disk_bytes: int = DISK_BYTES
) -> list[Figures]:
    """Let the store of two nsqds be away for a time; return the figures for acks 0 and 1."""
    os.environ.update(bucket.environment())
    with ExitStack() as stack:
        proxy = stack.enter_context(FaultProxy(bucket.endpoint))
        machines = []
        for acks in (0, 1):
            disk = stack.enter_context(small_disk(directory / f"disk{acks}", disk_bytes))
            machine = Machine(disk, bucket.url(f"acks{acks}"), proxy.endpoint, acks, rate)
            stack.callback(machine.nsqd.destroy)
            machines.append(machine)
        Outage(machines, proxy, away_s).run()
        for machine in machines:
            machine.end_publishing()
        for machine in machines:
            machine.destroy()
        for machine in machines:
            machine.restore(directory / f"restored{machine.acks}")
            machine.judge()
        return [machine.figures for machine in machines]


@click.command()
@click.option("--minutes", default=60.0, help="Length of the outage.")
@click.option("--rate", default=200.0, help="Messages a second for each nsqd.")
def main(minutes: float, rate: float) -> None:
    """Let a store be away; end with 1 if a message was lost, or if nsqd did not say what it should."""
    failed = False
    with tempfile.TemporaryDirectory(prefix="store-outage-") as name, moto(Path(name)) as server:
        for acks, figures in enumerate(campaign(Path(name), server.make_bucket(), minutes * 60, rate)):
            click.echo(f"--store-acks={acks}: {figures.report()}")
            for problem in figures.problems[:20]:
                click.echo(f"  {problem}")
            failed |= bool(figures.problems)
    sys.exit(failed)


if __name__ == "__main__":
    main()
