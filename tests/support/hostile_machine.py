"""A machine on which threads meet at every bad moment: for tests that look for races.

Every Python process switches between its threads a thousand times as often, calls that use the disk take longer at
random, and processes that compute leave little of the processors. `make stress` runs tests on it; tests/stress has some
that are made for it.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

STRESS = Path(__file__).with_name("stress")
_SHIM = STRESS / "slow_disk.c"
SWITCH_INTERVAL_S = 1e-6
_INTERVAL, _SEED = "TESTS_SWITCH_INTERVAL_S", "TESTS_STRESS_SEED"
# What computes looks so often if its parent is still there.
_LOOK_EVERY_S = 0.05


@dataclass(frozen=True)
class SlowDisk:
    """Of 10,000 calls, `short_share` take up to `short_us` longer, and `long_share` between half of `long_us` and all.

    A call that takes 100 ms makes nsqd leave the disk to threads for 10 s.
    """

    short_share: int = 2_000
    short_us: int = 2_000
    long_share: int = 40
    long_us: int = 300_000

    def setting(self, seed: int, directory: Path) -> str:
        return f"{seed} {self.short_share} {self.short_us} {self.long_share} {self.long_us} {directory}"


def drawn_seed() -> int:
    """Return the seed of the lane; outside of it, a new one."""
    return int(os.environ.get(_SEED) or random.SystemRandom().randrange(2**32))


def compiled_shim(directory: Path) -> Path | None:
    """Compile the library that slows the disk into this directory; None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    library = directory / f"{_SHIM.stem}.so"
    command = [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-o", str(library), str(_SHIM), "-ldl"]
    subprocess.run(command, check=True)
    return library


def environment(
    seed: int,
    directory: Path,
    *,
    shim: Path | None,
    disk: SlowDisk,
    switch_interval_s: float = SWITCH_INTERVAL_S,
) -> dict[str, str]:
    """Return the variables for a process, and for all that it starts; calls on files below `directory` are slow."""
    paths = [str(STRESS), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {"PYTHONPATH": os.pathsep.join(paths), _INTERVAL: repr(switch_interval_s), _SEED: str(seed)}
    if shim is not None:
        others = [
            each
            for each in os.environ.get("LD_PRELOAD", "").split(":")
            if each and Path(each).name != shim.name
        ]
        variables["LD_PRELOAD"] = ":".join([str(shim), *others])
        variables["SLOW_DISK"] = disk.setting(seed, directory)
    return variables


@contextmanager
def computing(count: int) -> Iterator[list[int]]:
    """Yield the ids of processes that compute until the end; they end by themselves when this process is gone."""
    command = [sys.executable, "-I", __file__, str(os.getpid())]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def compute(parent: int) -> None:
    """Compute while the parent lives."""
    while os.getppid() == parent:
        ends_s = time.perf_counter() + _LOOK_EVERY_S
        while time.perf_counter() < ends_s:
            pass


if __name__ == "__main__":
    compute(int(sys.argv[1]))
