"""The machine and versions of a measurement."""

import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

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


def commit() -> str:
    """The short hash of what is checked out, with "-dirty" after it when files were changed; or "unknown"."""
    revision = _git("rev-parse", "--short", "HEAD")
    if not revision:
        return "unknown"
    return f"{revision}-dirty" if _git("status", "--porcelain", "--untracked-files=no") else revision


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
