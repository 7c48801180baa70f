"""Where and of what a result was measured."""

import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_VERSION = re.compile(r"\d+\.\d+[\w.]*")
_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Machine:
    cpu: str
    cores: int
    memory_gb: float
    python: str
    kernel: str

    def __str__(self) -> str:
        return f"{self.cpu}, {self.cores} cores, {self.memory_gb:g} GB, Python {self.python}, {self.kernel}"


def this_machine() -> Machine:
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        memory_gb=round(memory_bytes / 2**30, 1),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        kernel=f"{platform.system()} {platform.release()}",
    )


@contextmanager
def cores(count: int | None) -> Iterator[None]:
    """Processes started inside may use the first `count` of this process's cores (None: all of them)."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def commit() -> str:
    """The short hash of what is checked out, with "-dirty" after it when files were changed; or "unknown"."""
    revision = _git("rev-parse", "--short", "HEAD")
    if not revision:
        return "unknown"
    return f"{revision}-dirty" if _git("status", "--porcelain", "--untracked-files=no") else revision


def program_version(command: Sequence[str]) -> str:
    """Return the version of a program, or of the client library that a program of `bench.clients` uses; or ""."""
    try:
        return importlib.metadata.version(command[-1])
    except importlib.metadata.PackageNotFoundError:
        pass
    if len(command) > 1:
        return ""
    return printed_version([command[0], "--version"])


def printed_version(command: Sequence[str]) -> str:
    """Return the version that a command prints; or ""."""
    try:
        printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""
    found = _VERSION.search(printed)
    return found[0] if found else ""


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
