"""Two nsqds that get other addresses at each start, one of them damaged: `python -m tests.torture.moves --rounds 200`.

A primary and its standby with `--standby-acks=1`, two nsqds that share a lease, or these with a store. In each round, both have
everything; then they end, one of them is harmed, and they come back where neither finds the other one: at new ports, at each
other's, or with another nsqd at the old ones, in any order, and some with a wrong `--standby-of` first. The standby may be
promoted. Then the primary of that time must have every message that was acknowledged.
"""

from __future__ import annotations

import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import click

from nsqd_py.broker.state_files import (
    CLOCK_FILE,
    MEMBER_FILE,
    METADATA_FILE,
    STANDBY_FILE,
    STANDBYS_FILE,
    STOP_FILE,
)
from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE
from tests.support.harm import flip
from tests.support.network import port_pairs
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.standby_processes import (
    NOWHERE,
    is_primary,
    promote,
    state_of,
    wait_until_it_follows,
    wait_until_it_has_all,
    wait_until_it_serves,
)
from tests.support.wire import req

SETTINGS = ("pair", "lease", "store")
TOPIC, CHANNEL = "t", "c"
FIRST_COUNT, LATER_COUNT = 60, 20
BODY_BYTES = 120
DEADLINE_S = 60.0
READ_S = 10.0
ROUNDS_PER_WORLD = 8
LONGEST_GAP_S = 6.0  # between the starts of two nsqds that share a lease
FLAGS = (
    "--max-bytes-per-file=4000",
    "--mem-queue-size=100",
    "--retention-bytes=100MB",
    "--msg-timeout=2s",
    "--standby-acks=1",
    "--standby-timeout=2s",
    "--scrub-rate=50MB",
)
SMALL_FILES = (CLOCK_FILE, EPOCHS_FILE, MEMBER_FILE, METADATA_FILE, STANDBY_FILE, STANDBYS_FILE, STOP_FILE)

Ports = tuple[int, int]


@dataclass
class Figures:
    """What a campaign has found: the rounds by setting and event, the harms, and what is wrong."""

    rounds: Counter[tuple[str, str]] = field(default_factory=Counter)
    harms: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    acknowledged: int = 0
    refused: int = 0

    def report(self) -> Iterator[str]:
        for (setting, event), count in sorted(self.rounds.items()):
            yield f"{setting:8}{event:24}{count:6}"
        yield ", ".join(f"{harm} {count}" for harm, count in sorted(self.harms.items()))
        yield (
            f"{self.rounds.total()} rounds, {self.acknowledged} messages acknowledged, {self.refused} publishes refused, "
            f"{len(self.problems)} problems"
        )


class World:
    """Two nsqds, and what they must have."""

    def __init__(self, folder: Path, setting: str, chance: random.Random, figures: Figures) -> None:
        folder.mkdir()
        self._folder = folder
        self._setting = setting
        self._chance = chance
        self._figures = figures
        self._flags = (*FLAGS, *self._flags_of_setting())
        self._started: list[NsqdProcess] = []
        self._acknowledged: set[bytes] = set()
        self._sent: list[bytes] = []
        self._happened: list[str] = []  # in this round
        self._primary, self._standby = self._begin()
        self._primary.create(TOPIC, CHANNEL)
        self._publish(FIRST_COUNT)

    def _flags_of_setting(self) -> tuple[str, ...]:
        if self._setting == "pair":
            return ()
        lease = (f"--lease=file://{self._folder}/lease", "--lease-ttl=2s")
        if self._setting == "lease":
            return lease
        return (*lease, f"--store=file://{self._folder}/store", "--store-interval=50ms")

    def _begin(self) -> tuple[NsqdProcess, NsqdProcess]:
        first = self._start("a", self._new_ports())
        if self._has_lease:
            second = self._start("b", self._new_ports())
            return self._roles(first, second)
        second = self._start("b", self._new_ports(), f"--standby-of={first.tcp_address}")
        wait_until_it_follows(second)
        return first, second

    @property
    def _has_lease(self) -> bool:
        return self._setting != "pair"

    def close(self) -> None:
        for nsqd in self._started:
            nsqd.destroy()
        shutil.rmtree(self._folder, ignore_errors=True)

    # ---- processes

    def _start(self, name: str, ports: Ports, *flags: str, waits: bool = True) -> NsqdProcess:
        nsqd = NsqdProcess(self._folder / name, *self._flags, *flags, ports=ports)
        self._started.append(nsqd)
        nsqd.launch()
        if waits:
            nsqd.wait_until_it_listens()
        return nsqd

    def _new_ports(self) -> Ports:
        return port_pairs(1)[0]

    def _end(self, nsqd: NsqdProcess) -> None:
        nsqd.signal(self._chance.choice((signal.SIGTERM, signal.SIGKILL)))
        nsqd.wait()

    def _roles(self, *nsqds: NsqdProcess) -> tuple[NsqdProcess, NsqdProcess]:
        """Return the primary and the standby, as soon as the one follows the other."""

        def roles() -> tuple[NsqdProcess, NsqdProcess] | None:
            for primary, standby in (nsqds, nsqds[::-1]):
                if is_primary(primary) and state_of(standby) == "following":
                    return primary, standby
            return None

        return wait_until(roles, DEADLINE_S, "a primary and its standby")

    # ---- messages

    def _new_body(self) -> bytes:
        number = len(self._sent)
        body = f"{number:08}-".encode() + random.Random(number).randbytes(BODY_BYTES)
        self._sent.append(body)
        return body

    def _publish(self, count: int) -> None:
        bodies = [self._new_body() for _ in range(count)]
        self._primary.publish(TOPIC, bodies)
        self._acknowledged.update(bodies)
        self._figures.acknowledged += count

    def _try_to_publish(self, nsqd: NsqdProcess) -> None:
        """Publish one message while the other nsqd is away."""
        body = self._new_body()
        with suppress(OSError):
            if nsqd.http("POST", f"/pub?topic={TOPIC}", body).status == 200:
                self._acknowledged.add(body)
                self._figures.acknowledged += 1
                return
        self._figures.refused += 1

    def _settle(self) -> None:
        wait_until_it_has_all(self._primary)
        if self._has_lease:
            wait_until(self._is_in_sync, DEADLINE_S, "the standby to be in sync")

    def _is_in_sync(self) -> bool:
        return any(row["is_in_sync"] for row in self._primary.stats()["standbys"]["list"])

    # ---- one round

    def round(self) -> None:
        self._publish(LATER_COUNT)
        self._settle()
        self._publish(3)
        self._happened.clear()
        events = {"restart": self._restart, "swap": self._swap}
        if self._has_lease:
            events |= {"only the primary": self._only_primary, "only the standby": self._only_standby}
        else:
            events |= {"failover": self._fail_over, "failover, old one alone": self._fail_over_unfenced}
        event = self._chance.choice(list(events))
        self._note(event)
        try:
            events[event]()
            self._settle()
            self._check()
        except Exception as error:  # noqa: BLE001 - whatever it is, the round is a problem
            logs = "".join(f"\n--- {each.data_path.name}\n{_tail(each)}" for each in self._started[-2:])
            self._figures.problems.append(f"{self._name}: {error!r:.300}{logs}")
        self._figures.rounds[self._setting, event] += 1

    @property
    def _name(self) -> str:
        return f"{self._folder.name}, {self._setting}: {', '.join(self._happened)}"

    def _note(self, what: str) -> None:
        self._happened.append(what)

    def _restart(self) -> None:
        self._come_back(self._new_ports(), self._new_ports())

    def _swap(self) -> None:
        old = [(each.tcp_port, each.http_port) for each in (self._standby, self._primary)]
        self._come_back(*old, has_decoys=False)

    def _come_back(self, primary_ports: Ports, standby_ports: Ports, *, has_decoys: bool = True) -> None:
        """End both, harm one of them, and start both at these ports."""
        primary, standby = self._primary, self._standby
        self._end(standby)
        self._end(primary)
        harmed = self._chance.choice((primary, primary, standby, None))
        is_power_cut = self._harm(harmed)
        decoys = self._decoys(primary, standby) if has_decoys and self._chance.random() < 0.3 else []
        if self._has_lease:
            self._start_both(primary, standby, primary_ports, standby_ports)
        else:
            self._start_pair(
                primary, standby, primary_ports, standby_ports, harmed, is_power_cut=is_power_cut
            )
        for decoy in decoys:
            decoy.kill()

    def _start_both(self, primary: NsqdProcess, standby: NsqdProcess, *ports: Ports) -> None:
        one = [(primary.data_path.name, ports[0]), (standby.data_path.name, ports[1])]
        self._chance.shuffle(one)
        gap_s = self._chance.choice((0.0, self._chance.uniform(0.0, LONGEST_GAP_S)))
        self._note(f"{one[0][0]} first by {gap_s:.1f} s")
        first = self._start(*one[0], waits=False)
        time.sleep(gap_s)
        second = self._start(*one[1], waits=False)
        for nsqd in (first, second):
            nsqd.wait_until_it_listens()
        self._primary, self._standby = self._roles(first, second)

    def _start_pair(
        self,
        primary: NsqdProcess,
        standby: NsqdProcess,
        primary_ports: Ports,
        standby_ports: Ports,
        harmed: NsqdProcess | None,
        *,
        is_power_cut: bool,
    ) -> None:
        names = primary.data_path.name, standby.data_path.name
        following = f"--standby-of=127.0.0.1:{primary_ports[0]}"
        is_standby_first = self._chance.random() < 0.5
        if self._chance.random() < 0.3:
            self._note("a wrong --standby-of")
            self._start(names[1], standby_ports, f"--standby-of={NOWHERE}").kill()
        if is_standby_first:
            self._note("standby first")
            self._standby = self._start(names[1], standby_ports, following)
        self._primary = self._start(names[0], primary_ports)
        if harmed is not primary or is_power_cut:  # else the publish takes a number at the end that was cut
            self._try_to_publish(self._primary)
        if not is_standby_first:
            self._standby = self._start(names[1], standby_ports, following)
        wait_until_it_follows(self._standby)

    def _fail_over(self) -> None:
        self._promote_standby()
        self._follow_back(self._new_ports())

    def _fail_over_unfenced(self) -> None:
        """The old primary comes back without a flag, at another address or at its own, where it is fenced."""
        ports = self._chance.choice((self._new_ports(), (self._primary.tcp_port, self._primary.http_port)))
        name = self._primary.data_path.name
        self._promote_standby(may_take_address=ports[0] != self._primary.tcp_port)
        old = self._start(name, ports)
        body_count = len(self._acknowledged)
        self._try_to_publish(old)
        if len(self._acknowledged) > body_count:
            self._figures.problems.append(f"{self._name}: the old primary answered with OK")
        old.kill()
        self._follow_back(self._new_ports())

    def _promote_standby(self, *, may_take_address: bool = True) -> None:
        """End both; the standby becomes the primary, at a new address or at that of the old one."""
        old, standby = self._primary, self._standby
        self._end(old)
        self._end(standby)
        self._harm(self._chance.choice((old, None)))
        ports = self._new_ports()
        if may_take_address and self._chance.random() < 0.5:
            self._note("at the old address")
            ports = (old.tcp_port, old.http_port)
        name = standby.data_path.name
        if self._chance.random() < 0.5:
            self._note("a wrong --standby-of")
            self._start(name, ports, f"--standby-of={NOWHERE}").kill()
            self._primary = self._start(name, ports, "--promote")
        else:
            self._primary = self._start(name, ports, f"--standby-of={old.tcp_address}")
            promote(self._primary)
        self._standby = old

    def _follow_back(self, ports: Ports) -> None:
        name = self._standby.data_path.name
        self._standby = self._start(name, ports, f"--standby-of={self._primary.tcp_address}")
        wait_until_it_follows(self._standby)

    def _only_primary(self) -> None:
        old, standby = self._primary, self._standby
        self._end(old)
        self._harm(self._chance.choice((old, None)))
        wait_until_it_serves(standby)
        back = self._start(old.data_path.name, self._new_ports())
        self._primary, self._standby = self._roles(standby, back)

    def _only_standby(self) -> None:
        self._end(self._standby)
        self._harm(self._chance.choice((self._standby, None)))
        back = self._start(self._standby.data_path.name, self._new_ports())
        self._primary, self._standby = self._roles(self._primary, back)

    def _decoys(self, *nsqds: NsqdProcess) -> list[NsqdProcess]:
        """Start another nsqd at each of these addresses."""
        self._note("others at the old addresses")
        decoys = []
        for number, nsqd in enumerate(nsqds):
            path = self._folder / f"decoy{number}"
            ports = nsqd.tcp_port, nsqd.http_port
            decoys.append(NsqdProcess(path, "--accept-standbys", ports=ports).start())
            self._started.append(decoys[-1])
            decoys[-1].create(TOPIC, CHANNEL)
            decoys[-1].pub(TOPIC, b"of another one")
        return decoys

    # ---- harm

    def _harm(self, nsqd: NsqdProcess | None) -> bool:
        """Harm the files of an nsqd that is stopped. Return True if that is a power cut, after which it is another boot."""
        if nsqd is None:
            return False
        harms: dict[str, Callable[[Path], object]] = {
            "end cut": self._cut_end,
            "log cut": self._cut_log,
            "log removed": lambda path: self._chance.choice(_logs(path)).unlink(),
            "bit flipped": self._flip,
            "small file removed": self._remove_small,
            "journals removed": self._remove_journals,
        }
        harm = self._chance.choice(list(harms))
        harms[harm](nsqd.data_path)
        is_power_cut = harm == "end cut" and self._chance.random() < 0.7
        if is_power_cut:
            for name in (CLOCK_FILE, STOP_FILE):
                (nsqd.data_path / name).unlink(missing_ok=True)
            harm = "power cut"
        self._note(f"{harm} in {nsqd.data_path.name}")
        self._figures.harms[harm] += 1
        return is_power_cut

    def _cut_end(self, path: Path) -> None:
        self._cut(_logs(path)[-1])

    def _cut_log(self, path: Path) -> None:
        self._cut(self._chance.choice(_logs(path)))

    def _cut(self, log: Path) -> None:
        size_bytes = len(log.read_bytes().rstrip(b"\0"))
        with log.open("r+b") as file:
            file.truncate(self._chance.randrange(64, max(65, size_bytes)))

    def _flip(self, path: Path) -> None:
        log = self._chance.choice(_logs(path))
        size_bytes = len(log.read_bytes().rstrip(b"\0"))
        flip(log, self._chance.randrange(size_bytes), mask=1 << self._chance.randrange(8))

    def _remove_small(self, path: Path) -> None:
        found = [name for name in SMALL_FILES if (path / name).exists()]
        name = self._chance.choice(found)
        self._note(name)
        (path / name).unlink()

    def _remove_journals(self, path: Path) -> None:
        for journal in path.glob("*.cursor"):
            journal.unlink()

    # ---- what must be there

    def _check(self) -> None:
        seen: set[bytes] = set()
        with self._primary.consumer(TOPIC, CHANNEL, 2000) as client, suppress(Exception):
            ends_s = time.monotonic() + READ_S
            while not self._acknowledged <= seen and time.monotonic() < ends_s:
                message = client.message(READ_S)
                seen.add(message.body)
                client.send(req(message.id, 0))
            client.round_trip()
        missing = self._acknowledged - seen
        if missing:
            numbers = sorted(int(body[:8]) for body in missing)
            self._figures.problems.append(f"{self._name}: {len(missing)} lost: {numbers[:10]}")
        unknown = seen - set(self._sent)
        if unknown:
            self._figures.problems.append(f"{self._name}: {len(unknown)} that nobody has sent")


def _logs(path: Path) -> list[Path]:
    return sorted(path.glob(f"{TOPIC}.*.log"))


def _tail(nsqd: NsqdProcess) -> str:
    lines = [line for line in nsqd.log_text().splitlines() if "200 GET" not in line]
    return "\n".join(lines[-25:])


def campaign(
    folder: Path,
    rounds: int,
    seed: int,
    ends_s: float,
    say: Callable[[str], object] = lambda _: None,
    keep: Path | None = None,
    settings: Sequence[str] = SETTINGS,
) -> Figures:
    """Move nsqds in one world after the other, of each setting in turn. `keep` gets a copy of each that has had a problem."""
    figures = Figures()
    chance = random.Random(seed)
    number = 0
    while figures.rounds.total() < rounds and time.monotonic() < ends_s:
        setting = settings[number % len(settings)]
        number += 1
        before = len(figures.problems)
        with closing(World(folder / f"world{number}", setting, chance, figures)) as world:
            for _ in range(ROUNDS_PER_WORLD):
                world.round()
                is_over = figures.rounds.total() >= rounds or time.monotonic() > ends_s
                if is_over or len(figures.problems) > before:  # what follows may come from that
                    break
            say(f"{figures.rounds.total()} rounds ({setting}), {len(figures.problems)} problems")
            for problem in figures.problems[before:]:
                say(f"  {problem}")
            if keep is not None and len(figures.problems) > before:
                shutil.copytree(folder / f"world{number}", keep / f"world{number}", dirs_exist_ok=True)
    return figures


@click.command()
@click.option("--rounds", default=200)
@click.option("--seed", default=46)
@click.option("--minutes", default=60.0)
@click.option("--setting", multiple=True, type=click.Choice(SETTINGS), help="Only these (repeatable).")
@click.option(
    "--keep", type=click.Path(path_type=Path), help="Copy each world with a problem into this directory."
)
def main(rounds: int, seed: int, minutes: float, setting: tuple[str, ...], keep: Path | None) -> None:
    """Move and harm nsqds; end with 1 if a message was lost, or an nsqd waits for ever."""
    with tempfile.TemporaryDirectory(prefix="moves-") as name:
        figures = campaign(
            Path(name), rounds, seed, time.monotonic() + 60 * minutes, click.echo, keep, setting or SETTINGS
        )
    for line in figures.report():
        click.echo(line)
    sys.exit(bool(figures.problems))


if __name__ == "__main__":
    main()
