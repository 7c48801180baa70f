"""Bits that flip in a store, in a data path, and in both halves of a standby pair: `python -m tests.torture.flips --flips 1000`.

An nsqd with a store, with a standby, or with both, has messages, of which a channel has finished some. Bits flip in files of one
side at a time (the disk of the nsqd, its store, or the standby's disk), a random one in each of several files, while the nsqds
run or while they are stopped. Then the nsqds repair what they can, and everything is read.

found     the check of a data path or of a store names the file, or a log does
harmless  the check names nothing, and everything that is read is right
repaired  found, and the check finds nothing any more
lost      messages that a channel has not finished, and does not get
silent    a message with another body, topics or channels that nobody has made, and damage that stays and is not named
"""

from __future__ import annotations

import random
import re
import shutil
import signal
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import click

from nsqd_py.diskqueue.checking import damage_in
from nsqd_py.fsck.reading import load_directory
from nsqd_py.objects.opening import open_objects
from nsqd_py.store.checking import check_store
from nsqd_py.store.image import StoreReader
from nsqd_py.store.layout import HEAD_NAME, BadObject, Head, parse_round_name
from tests.support.harm import flip
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.standby_processes import promote, wait_until_it_follows, wait_until_it_has_all
from tests.support.wire import req

SETTINGS = ("store", "standby", "both")
TOPIC = "t"
ALL, PART = "all", "part"
FIRST_COUNT, LATER_COUNT = 300, 20
BODY_BYTES = 150
DEADLINE_S = 60.0
READ_S = 10.0  # longer than a message of a closed connection is in flight
ROUNDS_PER_WORLD = 6
FLIPS_AT_ONCE = 10
FLAGS = (
    "--max-bytes-per-file=8000",
    "--scrub-rate=50MB",
    "--mem-queue-size=100",
    "--retention-bytes=100MB",
    "--msg-timeout=2s",
)
STORE_FLAGS = ("--store-interval=50ms", "--store-scrub-requests=100000000")
_IN_LOG = re.compile(r"damaged|unreadable|set aside|failed to parse|wrong|cannot|is missing|torn")


@dataclass
class Figures:
    """What a campaign has found, by (setting, when, kind of file)."""

    flips: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    found: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    harmless: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    repaired: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    unrepaired: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    read: int = 0

    @property
    def count(self) -> int:
        return self.flips.total()

    def problems(self) -> list[str]:
        return [*self.lost, *self.silent, *self.unrepaired, *self.stuck]

    def report(self) -> Iterator[str]:
        yield f"{'setting':9}{'when':9}{'file':20}{'flips':>7}{'found':>7}{'harmless':>10}{'repaired':>10}"
        for key in sorted(self.flips):
            setting, when, kind = key
            yield (
                f"{setting:9}{when:9}{kind:20}{self.flips[key]:7}{self.found[key]:7}{self.harmless[key]:10}"
                f"{self.repaired[key]:10}"
            )
        yield (
            f"{self.count} flips: {self.found.total()} found, {self.harmless.total()} harmless, {self.repaired.total()} "
            f"repaired; {self.read} messages read; {len(self.lost)} lost, {len(self.silent)} silent, "
            f"{len(self.unrepaired)} not repaired, {len(self.stuck)} stuck"
        )


@dataclass(frozen=True)
class Flip:
    """A bit that was flipped. `side` is disk, standby or bucket, `name` that of the file below it.

    is_needed  False for an object that the state of the store does not need any more, and behind the end of a log
    """

    side: str
    name: str
    offset: int
    mask: int
    is_needed: bool = True

    @property
    def kind(self) -> str:
        if self.side == "bucket":
            return f"bucket {self.name.partition('/')[0]}{'' if self.is_needed else ', old'}"
        if self.name.startswith("nsqd."):
            return f"{self.side} {self.name}"
        return f"{self.side} {Path(self.name).suffix.lstrip('.')}{'' if self.is_needed else ', unused'}"

    def __str__(self) -> str:
        return f"{self.side} {self.name} at {self.offset} by {self.mask:#04x}"


def body_of(number: int) -> bytes:
    text = f"{number}-".encode() + bytes(random.Random(number).randbytes(BODY_BYTES))
    return b"%08x" % zlib.crc32(text) + text


class World:
    """One nsqd with its other copies, and what it must have."""

    def __init__(self, folder: Path, setting: str, chance: random.Random, figures: Figures) -> None:
        folder.mkdir()
        self._folder = folder
        self._setting = setting
        self._chance = chance
        self._figures = figures
        self._bucket = folder / "store"
        self._url = f"file://{self._bucket}"
        self._has_store = setting != "standby"
        self._has_standby = setting != "store"
        self._store_flags = (*STORE_FLAGS, f"--store={self._url}") if self._has_store else ()
        standbys = ("--accept-standbys",) if self._has_standby else ()
        self._flags = (*FLAGS, *self._store_flags, *standbys)
        self._nsqd = NsqdProcess(folder / "disk", *self._flags)
        self._standby: NsqdProcess | None = None
        self._expected: list[bytes] = []
        self._finished: set[bytes] = set()
        self.is_over = False  # messages that only one copy has cannot be repaired
        self._start()
        self._nsqd.create(TOPIC, ALL, PART)
        self._publish(FIRST_COUNT)
        with self._nsqd.consumer(TOPIC, PART, 1) as client:
            for message in client.consume(FIRST_COUNT // 3):
                self._finished.add(message.body)
        self._settle()

    def close(self) -> None:
        for nsqd in (self._nsqd, self._standby):
            if nsqd is not None:
                nsqd.destroy()
        shutil.rmtree(self._folder, ignore_errors=True)

    # ---- its life

    def _start(self) -> None:
        self._nsqd.start()
        if not self._has_standby:
            return
        path = self._folder / "standby"
        self._standby = NsqdProcess(
            path, f"--standby-of=127.0.0.1:{self._nsqd.tcp_port}", *FLAGS, *self._store_flags
        ).start()
        wait_until_it_follows(self._standby)

    def _stop(self) -> None:
        number = self._chance.choice((signal.SIGTERM, signal.SIGKILL))
        for nsqd in (self._standby, self._nsqd):
            if nsqd is not None:
                nsqd.signal(number)
                nsqd.wait()

    def _publish(self, count: int) -> None:
        first = len(self._expected)
        bodies = [body_of(number) for number in range(first, first + count)]
        self._nsqd.publish(TOPIC, bodies)
        self._expected += bodies

    def _settle(self) -> None:
        """Return when all copies have everything."""
        if self._standby is not None:
            wait_until_it_has_all(self._nsqd)
        if self._has_store:
            wait_until(self._is_stored, DEADLINE_S, "the store to have everything")
            wait_until(self._is_store_well, DEADLINE_S, "the store to be whole before the next flip")

    def _is_store_well(self) -> bool:
        return check_store(self._url, "", self._folder / "disk").is_well

    def _is_stored(self) -> bool:
        shown = self._nsqd.stats()["store"]
        return shown["state"] == "storing" and not shown["lag_messages"] and not shown["lag_ms"]

    # ---- one round

    def round(self, count: int) -> None:
        """Flip bits, have them repaired, and read everything."""
        self._publish(LATER_COUNT)
        self._settle()
        is_running = self._chance.random() < 0.5
        side = self._chance.choice(self._sides())
        if is_running:
            flips = self._flip(side, count)
            self._judge(flips, "running", set())
            return
        self._stop()
        flips = self._flip(side, count)
        self._judge(flips, "at rest", self._named(self._findings(), flips), is_stopped=True)

    def _sides(self) -> list[str]:
        bucket = ["bucket"] * 2 if self._has_store else []
        return ["disk", *bucket, *(["standby"] if self._has_standby else [])]

    def _root(self, side: str) -> Path:
        return self._bucket if side == "bucket" else self._folder / side

    def _flip(self, side: str, count: int) -> list[Flip]:
        """Flip a bit in each of several files, of as many kinds as possible."""
        root = self._root(side)
        by_kind: dict[str, list[Flip]] = {}
        needed = self._needed_objects() if side == "bucket" else None
        for path in sorted(root.rglob("*")):
            name = str(path.relative_to(root))
            if not path.is_file() or self._is_no_part(name):
                continue
            with suppress(FileNotFoundError):
                size_bytes = path.stat().st_size
                if size_bytes:
                    offset = self._chance.randrange(size_bytes)
                    is_needed = _is_used(path, offset) if needed is None else name in needed
                    one = Flip(side, name, offset, 1 << self._chance.randrange(8), is_needed)
                    by_kind.setdefault(one.kind, []).append(one)
        done: list[Flip] = []
        while len(done) < count and any(by_kind.values()):
            kind = self._chance.choice([kind for kind, found in by_kind.items() if found])
            one = by_kind[kind].pop(self._chance.randrange(len(by_kind[kind])))
            with suppress(FileNotFoundError, ValueError):
                flip(root / one.name, one.offset, mask=one.mask)
                done.append(one)
        return done

    def _needed_objects(self) -> set[str]:
        """Return the names of the objects that the state of the store needs now."""
        reader = StoreReader(open_objects(self._url))
        reader.refresh()
        assert reader.head is not None
        base = reader.head.base
        rounds = {f"rounds/{path.name}" for path in (self._bucket / "rounds").iterdir()}
        files = {file.name for files in reader.image.files.values() for file in files}
        return {HEAD_NAME, *files, *(name for name in rounds if (parse_round_name(name) or 0) >= base)}

    @staticmethod
    def _is_no_part(name: str) -> bool:
        leftovers = (".spare", ".gone", ".tmp", ".compact", ".lock", ".pid", ".damaged")
        first = name.partition("/")[0]
        return ".writing-" in name or name.endswith(leftovers) or first in ("aside", "probe", "nsqd.log")

    # ---- what is found

    def _findings(self) -> str:
        """Return what the checks of all sides name now, with the sides."""
        found: list[str] = []
        for side in ("disk", "standby"):
            if (self._folder / side).exists():
                report, _ = load_directory(self._folder / side, time.time_ns())
                found += [f"{side} {each.file}" for each in report.findings]
        if self._has_store:
            report_of_store = check_store(self._url, "", self._folder / "disk")
            found += [f"bucket {each.name}" for each in report_of_store.damaged]
            if report_of_store.problem:
                found.append(f"bucket problem {report_of_store.problem}")
        return "\n".join(found)

    def _named(self, findings: str, flips: list[Flip]) -> set[Flip]:
        lines = findings.splitlines()
        return {each for each in flips if any(f"{each.side} {each.name}" == line for line in lines)}

    def _named_in_logs(self, flips: list[Flip]) -> set[Flip]:
        texts = {"disk": self._nsqd.log_text(), "standby": ""}
        texts["bucket"] = texts["disk"]
        if self._standby is not None:
            texts["standby"] = self._standby.log_text()
        found: set[Flip] = set()
        for each in flips:
            lines = texts[each.side].splitlines()
            if any(each.name in line and _IN_LOG.search(line) for line in lines):
                found.add(each)
        return found

    # ---- what becomes of it

    def _judge(self, flips: list[Flip], when: str, found: set[Flip], *, is_stopped: bool = False) -> None:
        name = f"{self._setting}, {when}, {', '.join(map(str, flips))}"
        figures = self._figures
        if is_stopped:
            try:
                self._start()
            except Exception as error:
                figures.stuck.append(f"{name}: does not start: {error!r:.300} {self._nsqd.log_text()[-600:]}")
                raise Stuck from error
        with suppress(AssertionError):
            wait_until(lambda: not self._still_damaged(set(flips)), DEADLINE_S / 4, "repairs")
        found |= self._named_in_logs(flips)
        self._read(name)
        self._stop()
        after = self._named(self._findings(), flips)
        found |= after
        again = {one for one in after if one.kind.split(" ", 1)[1] in ("log", "files", "rounds", HEAD_NAME)}
        for one in flips:
            key = self._setting, when, one.kind
            figures.flips[key] += 1
            if one in again:
                figures.unrepaired.append(f"{self._setting}, {when}: {one}")
            if one not in found:
                figures.harmless[key] += 1
                continue
            figures.found[key] += 1
            if one not in again:
                figures.repaired[key] += 1
        try:
            self._start()
        except Exception as error:
            figures.stuck.append(f"{name}: does not start again: {error!r:.300}")
            raise Stuck from error
        self._settle()
        self._read(name)
        if self._chance.random() < 0.3:
            self._lose_disk(name)

    def _still_damaged(self, flips: set[Flip]) -> set[Flip]:
        """Return those of the flips that can be seen from outside, and are not repaired."""
        left = set()
        for one in flips:
            path = self._root(one.side) / one.name
            with suppress(FileNotFoundError):
                is_log = one.kind.endswith(" log") and _is_damaged_log(path)
                is_head = one.name == HEAD_NAME and not _is_valid_head(path)
                if is_log or is_head:
                    left.add(one)
        if any(one.side == "bucket" for one in flips) and not left:
            report = check_store(self._url, "", self._folder / "disk")
            names = {each.name for each in report.damaged}
            left |= {one for one in flips if one.name in names}
        return left

    def _read(self, name: str) -> None:
        """Check that each channel has what it has not finished, with the right bodies, and that nothing else is there."""
        topics = {
            topic["topic_name"]: {channel["channel_name"] for channel in topic["channels"]}
            for topic in self._nsqd.stats()["topics"]
        }
        if topics != {TOPIC: {ALL, PART}}:
            self._figures.silent.append(f"{name}: topics are {topics}")
        for channel in (ALL, PART):
            self._read_channel(name, channel)

    def _read_channel(self, name: str, channel: str) -> None:
        expected = set(self._expected)
        if channel == PART:
            expected -= self._finished
        seen: set[bytes] = set()
        shown = self._nsqd.channel_stats(TOPIC, channel)
        if shown is None:
            self._figures.lost.append(f"{name}: channel {channel} is gone")
            return
        with self._nsqd.consumer(TOPIC, channel, 2000) as client, suppress(Exception):
            ends_s = time.monotonic() + READ_S
            while not expected <= seen and time.monotonic() < ends_s:
                message = client.message(READ_S)
                seen.add(message.body)
                client.send(req(message.id, 0))
            client.round_trip()
        self._figures.read += len(seen)
        missing = expected - seen
        for body in sorted(missing)[:3]:
            self._figures.lost.append(f"{name}: {channel} lacks {body[8:20]!r}, and {len(missing)} in all")
        for body in seen - set(self._expected):
            self._figures.silent.append(f"{name}: {channel} has got another body: {body[:20]!r}")

    def _lose_disk(self, name: str) -> None:
        """Let the other copy take over, which must have everything, and be in its place from then on."""
        name = f"{name}, then the disk was lost"
        self.is_over = True
        self._nsqd.kill()
        if self._standby is not None and not self._has_store:
            promote(self._standby)
            old, self._nsqd, self._standby = self._nsqd, self._standby, None
            self._read(name)
            self._nsqd.kill()
            shutil.rmtree(old.data_path)
            self._nsqd.data_path.rename(old.data_path)
            shutil.rmtree(self._folder / "standby", ignore_errors=True)
        else:
            if self._standby is not None:
                self._standby.kill()
            shutil.rmtree(self._nsqd.data_path)
            NsqdProcess(self._nsqd.data_path, *self._flags, f"--restore-from={self._url}").start().kill()
        self._nsqd = NsqdProcess(self._folder / "disk", *self._flags)
        self._start()
        self._settle()
        self._read(name)


class Stuck(Exception):
    """A world in which an nsqd does not start any more."""


def _is_used(path: Path, offset: int) -> bool:
    """False behind the end of a log, where nsqd has reserved space."""
    return path.suffix != ".log" or offset < len(path.read_bytes().rstrip(b"\0"))


def _is_damaged_log(path: Path) -> bool:
    """True if records or the header are damaged; behind the end of the last file there may be zeros."""
    end = len(path.read_bytes().rstrip(b"\0"))
    return bool(damage_in(path, None, end)) and bool(damage_in(path))


def _is_valid_head(path: Path) -> bool:
    try:
        Head.decode(path.read_bytes())
    except BadObject:
        return False
    return True


def campaign(
    folder: Path,
    flips: int,
    seed: int,
    ends_s: float,
    say: Callable[[str], object] = lambda _: None,
    keep: Path | None = None,
    settings: Sequence[str] = SETTINGS,
) -> Figures:
    """Flip bits in one world after the other, of each setting in turn.

    keep  gets a copy of each world that has had a problem
    """
    figures = Figures()
    chance = random.Random(seed)
    number = 0
    while figures.count < flips and time.monotonic() < ends_s:
        setting = settings[number % len(settings)]
        number += 1
        before = len(figures.problems())
        with closing(World(folder / f"world{number}", setting, chance, figures)) as world:
            with suppress(Stuck):
                for _ in range(ROUNDS_PER_WORLD):
                    if figures.count >= flips or time.monotonic() > ends_s:
                        break
                    world.round(min(FLIPS_AT_ONCE, flips - figures.count))
                    say(f"{figures.count} flips ({setting}), {len(figures.problems())} problems")
                    if world.is_over or len(figures.problems()) > before:  # what follows may come from that
                        break
            for problem in figures.problems()[before:]:
                say(f"  {problem}")
            if keep is not None and len(figures.problems()) > before:
                shutil.copytree(folder / f"world{number}", keep / f"world{number}", dirs_exist_ok=True)
    return figures


@click.command()
@click.option("--flips", default=1000)
@click.option("--seed", default=46)
@click.option("--minutes", default=60.0)
@click.option(
    "--keep", type=click.Path(path_type=Path), help="Copy each world with a problem into this directory."
)
def main(flips: int, seed: int, minutes: float, keep: Path | None) -> None:
    """Flip bits; end with 1 if anything was lost, silently wrong, or not repaired."""
    with tempfile.TemporaryDirectory(prefix="flips-") as name:
        figures = campaign(Path(name), flips, seed, time.monotonic() + 60 * minutes, click.echo, keep)
    for line in figures.report():
        click.echo(line)
    for problem in figures.problems()[:40]:
        click.echo(f"  {problem}")
    sys.exit(bool(figures.problems()))


if __name__ == "__main__":
    main()
