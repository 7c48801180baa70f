"""The machine on which threads meet at every bad moment is one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stress import shown_interval
from tests.support.forked import Template
from tests.support.hostile_machine import SlowDisk, compiled_shim, computing, environment
from tests.support.nsqd_process import REPOSITORY, wait_until

SHOWN = [sys.executable, "-m", shown_interval.__name__]
ALL_LONG = SlowDisk(short_share=0, short_us=0, long_share=10_000, long_us=40_000)
CALLS = """
import os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
calls = {
    "write": lambda: os.write(fd, b"x"),
    "pwrite": lambda: os.pwrite(fd, b"x", 0),
    "pwritev": lambda: os.pwritev(fd, [b"x"], 0),
    "pread": lambda: os.pread(fd, 1, 0),
    "fsync": lambda: os.fsync(fd),
    "fdatasync": lambda: os.fdatasync(fd),
    "open": lambda: os.close(os.open(sys.argv[1], os.O_RDONLY)),
    "rename": lambda: os.rename(sys.argv[1], sys.argv[1]),
    "stat": lambda: os.stat(sys.argv[1]),
}
for name, call in calls.items():
    took_s = []
    for _ in range(5):
        began_s = time.monotonic()
        call()
        took_s.append(time.monotonic() - began_s)
    print(name, min(took_s) >= 0.02)
"""


def interval_of_one(command: list[str], **variables: str) -> str:
    done = subprocess.run(
        command, env=os.environ | variables, cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def hostile(directory: Path, interval_s: float, shim: Path | None = None) -> dict[str, str]:
    return environment(7, directory, shim=shim, disk=ALL_LONG, switch_interval_s=interval_s)


def test_every_python_has_the_interval(tmp_path):
    assert interval_of_one(SHOWN, **hostile(tmp_path, 3e-6)) == "3e-06"
    nested = f"import subprocess; subprocess.run({SHOWN!r}, check=True)"
    assert interval_of_one([sys.executable, "-c", nested], **hostile(tmp_path, 3e-6)) == "3e-06"


def test_a_daemon_that_is_forked_has_the_interval(tmp_path, monkeypatch):
    for name, value in hostile(tmp_path, 3e-6).items():
        monkeypatch.setenv(name, value)
    template = Template(shown_interval.__name__)
    with (tmp_path / "shown").open("w+b") as shown:
        streams = [shown.fileno()] * 3
        assert template.start([], tmp_path, streams, os.environ).wait(40) == 0
        shown.seek(0)
        assert shown.read() == b"3e-06\n"


def test_another_sitecustomize_is_run_too(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("print('the other one', __name__)\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    shown = interval_of_one(SHOWN, **hostile(tmp_path, 3e-6))
    assert shown.splitlines() == ["the other one sitecustomize", "3e-06"]


def test_calls_on_files_of_the_directory_take_longer(tmp_path):
    shim = compiled_shim(tmp_path)
    if shim is None:
        pytest.skip("without a C compiler, the disk is not slowed down")
    inside = tmp_path / "inside"
    inside.mkdir()
    slow = hostile(inside, 0.005, shim)

    def delayed(path):
        lines = interval_of_one([sys.executable, "-c", CALLS, str(path)], **slow).splitlines()
        return {name for name, is_slow in map(str.split, lines) if is_slow == "True"}

    assert delayed(inside / "file") == {
        "write",
        "pwrite",
        "pwritev",
        "pread",
        "fsync",
        "fdatasync",
        "open",
        "rename",
    }
    assert delayed(tmp_path / "outside") == set()


def test_what_computes_ends_with_the_block_and_with_its_parent():
    with computing(2) as pids:
        assert all(map(is_running, pids))
    assert not any(map(is_running, pids))
    owner = "from tests.support.hostile_machine import *\nwith computing(1) as pids: print(*pids, flush=True); time.sleep(3600)"
    with subprocess.Popen([sys.executable, "-c", owner], cwd=REPOSITORY, stdout=subprocess.PIPE) as parent:
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: not is_running(pid), what="the end of what computes")


def is_running(pid: int) -> bool:
    """True unless the process is gone, or waits to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
