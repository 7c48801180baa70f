"""A first copy of many gigabytes, and a standby that was away: `python -m tests.standby.large_copy --gigabytes 5`.

A primary has a topic of so many gigabytes. Its standby copies them while a client publishes lone messages at a fixed
rate, then is stopped, misses many messages, and comes back. After each, the log files of both are equal byte for byte.
"""

from __future__ import annotations

import hashlib
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import click

from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.standby_processes import figures_of, standby_of, wait_until_it_has_all

TOPIC, OTHER, CHANNEL = "large", "other", "c"
BODY_BYTES, BATCH = 5_000, 200
SMALL_BYTES, SMALL_BATCH = 200, 2_000
RATE = 200  # lone publishes a second
SAMPLE_S = 0.1
DEADLINE_S = 1800.0
_PIECE = 1 << 20


class Catching(NamedTuple):
    """How a standby caught up. Memory is the most that was seen, latencies those of the publisher in the meantime."""

    what: str
    seconds: float
    primary_cpu_s: float
    standby_cpu_s: float
    primary_mb: float
    standby_mb: float
    latencies_ms: list[float]

    def __str__(self) -> str:
        ordered = sorted(self.latencies_ms)
        percentiles = [ordered[min(len(ordered) - 1, int(len(ordered) * part))] for part in (0.5, 0.99, 1.0)]
        return (
            f"{self.what}: {self.seconds:.1f} s; CPU s: primary {self.primary_cpu_s:.1f}, standby "
            f"{self.standby_cpu_s:.1f}; most memory, MB: primary {self.primary_mb:.0f}, standby {self.standby_mb:.0f}; "
            f"{len(ordered):,} publishes in the meantime, ms: median {percentiles[0]:.1f}, "
            f"99 % {percentiles[1]:.1f}, longest {percentiles[2]:.1f}"
        )


@dataclass
class Watched:
    """Publishes lone messages and samples the memory of both processes until it is left."""

    what: str
    primary: NsqdProcess
    standby: NsqdProcess
    latencies_ms: list[float] = field(default_factory=list)
    most_mb: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def __enter__(self) -> Watched:
        self._over = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._publish, self._sample)]
        self._began_s = time.monotonic()
        self._cpu_s = self.primary.cpu_s
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        cpu_s = self.primary.cpu_s - self._cpu_s
        self.result = Catching(
            self.what, time.monotonic() - self._began_s, cpu_s, self.standby.cpu_s, *self.most_mb, self.latencies_ms
        )

    def _publish(self) -> None:
        with self.primary.connect() as client:
            due_s = time.monotonic()
            while not self._over.is_set():
                client.pub(OTHER, b"x" * SMALL_BYTES)
                self.latencies_ms.append((time.monotonic() - due_s) * 1000)  # from when it should have left
                due_s += 1 / RATE
                self._over.wait(max(0.0, due_s - time.monotonic()))

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_S):
            for place, process in enumerate((self.primary, self.standby)):
                self.most_mb[place] = max(self.most_mb[place], _resident_mb(process.pid))


def run(directory: Path, size_bytes: int, missed: int) -> list[Catching]:
    """Raises AssertionError if the copies differ."""
    primary = NsqdProcess(directory / "a", "--accept-standbys").start()
    standby = None
    try:
        primary.create(TOPIC, CHANNEL)
        primary.create(OTHER, CHANNEL)
        _publish(primary, size_bytes // BODY_BYTES, BODY_BYTES, BATCH)
        standby = standby_of(primary, directory / "b", wait=False)
        first = _until_it_follows(f"first copy of {size_bytes / 1e9:.1f} GB", primary, standby)
        _check_equal(primary, directory)
        standby.stop()
        _publish(primary, missed, SMALL_BYTES, SMALL_BATCH)
        standby.start()
        return [first, _until_it_follows(f"{missed:,} messages later", primary, standby, directory)]
    finally:
        for process in (primary, standby):
            if process is not None:
                process.destroy()


def _until_it_follows(what: str, primary: NsqdProcess, standby: NsqdProcess, compared_in: Path | None = None) -> Catching:
    with Watched(what, primary, standby) as watched:
        wait_until(lambda: figures_of(standby)["state"] == "following", DEADLINE_S, "the standby to follow")
    if compared_in is not None:
        _check_equal(primary, compared_in)
    return watched.result


def _publish(nsqd: NsqdProcess, count: int, size_bytes: int, batch: int) -> None:
    with nsqd.connect() as client:
        for start in range(0, count, batch):
            numbers = range(start, min(start + batch, count))
            client.mpub(TOPIC, [b"%d " % number + b"x" * size_bytes for number in numbers])


def _check_equal(primary: NsqdProcess, directory: Path) -> None:
    """Compare the log files, which nobody writes any more. The primary's have allocated space at their ends."""
    wait_until_it_has_all(primary)
    names = sorted(path.name for path in (directory / "a").glob("*.log"))
    assert names
    for name in names:
        ours, copy = directory / "a" / name, directory / "b" / name
        size = copy.stat().st_size
        assert _digest(ours, size) == _digest(copy, size), name
        with ours.open("rb") as file:
            file.seek(size)
            assert not any(file.read(_PIECE)), name


def _digest(path: Path, size: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(min(_PIECE, size - file.tell())):
            digest.update(piece)
    return digest.hexdigest()


def _resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--gigabytes", default=5.0, show_default=True, type=click.FloatRange(0.01), help="Size of the copy.")
@click.option("--missed", default=1_000_000, show_default=True, type=click.IntRange(1), help="Messages that it misses.")
@click.option("--scratch", type=click.Path(exists=True, file_okay=False), help="Where the data directories are made.")
def main(gigabytes: float, missed: int, scratch: str | None) -> None:
    """Let a standby make a large first copy, and miss many messages, while others publish."""
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        for catching in run(Path(directory), int(gigabytes * 1e9), missed):
            print(catching)


if __name__ == "__main__":
    main()
