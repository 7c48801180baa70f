"""What a start costs: the modules that are imported, which is exact, and processor time, which has room to spare."""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.nsqd_process import REPOSITORY, NsqdProcess, wait_until
from tests.support.wire import Client

pytestmark = pytest.mark.ours

DAEMONS = ("nsqd", "nsqlookupd", "nsqadmin")
TOOLS = ("nsq_cat", "nsq_stat", "nsq_tail", "nsq_to_file", "nsq_to_http", "nsq_to_nsq", "spark_replay", "to_nsq")
PACKAGES = ("apps/nsq_apps", "nsqadmin_py", "nsqd_py", "nsqlookupd_py", "spark/nsq_spark", "tools/nsq_tools")

# Modules that are slow to import, and that an nsqd which was only started has no use for.
NOT_FOR_A_START = {
    "OpenSSL",
    "bcrypt",
    "click",
    "concurrent.futures",
    "cramjam",
    "ctypes.util",
    "ddsketch",
    "difflib",
    "email",
    "html",
    "gevent.ssl",
    "gevent.subprocess",
    "hmac",
    "http.client",
    "httptools",
    "importlib.metadata",
    "isal",
    "orjson",
    "prometheus_client",
    "pydoc",
    "re2",
    "rich",
    "secrets",
    "ssl",
    "tomllib",
    "tracemalloc",
    "yaml",
    "nsqd_py.auth",
    "nsqd_py.fsck.command",
    "nsqd_py.client",
    "nsqd_py.net.http.debug",
    "nsqd_py.go_import.take_over",
    "nsqd_py.api.publishing",
    "nsqd_py.net.http.client",
    "nsqd_py.lookup.peers",
    "nsqd_py.stats.prometheus",
    "nsqd_py.stats.statsd",
    "nsqd_py.net.tls",
}
# And what no command needs to print its help, its version, or what is wrong with its flags.
NOT_FOR_A_WORD = (NOT_FOR_A_START - {"nsqd_py.client"}) | {
    "gevent",
    "greenlet",
    "pyarrow",
    "pyspark",
    "nsq_spark.replay.command",
    "zope",
    "nsqd_py.daemon",
    "json",
    "logging",
    "pathlib",
    "random",
    "socket",
    "traceback",
    "urllib.parse",
}
# The most modules that a word imports, beside those of the interpreter's own start: 72 to 91 when this was written.
MOST_OF_WORD_MODULES = 100
# What a tool needs for more than nsqds at an address, or for other flags.
NOT_FOR_A_RUN = {"click", "email", "http.client", "re2", "rich", "ssl", "yaml", "tomllib"}
RUNS = {"nsq_tail": ("--topic=orders", "--n=1"), "to_nsq": ("--topic=orders",), "nsq_stat": ("--once",)}
# Processor time, as a multiple of that of an interpreter that does nothing: a start takes less than 8, a word than 6.
MOST_OF_START, MOST_OF_WORD = 16, 14
ATTEMPTS = 12

LIST_MODULES = """
import atexit, sys
atexit.register(lambda: sys.stderr.write("MODULES " + " ".join(sys.modules) + "\\n"))
import importlib
sys.exit(importlib.import_module(sys.argv[1]).main(sys.argv[2:]))
"""


def modules_after(command: str, *flags: str, end: Callable[[subprocess.Popen[str]], None] | None = None) -> set[str]:
    """The modules that a command has imported when it ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", LIST_MODULES, f"nsq_apps.{command}", *flags],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if end is not None:
        end(process)
    _, said = process.communicate(timeout=40)
    (line,) = [line for line in said.splitlines() if line.startswith("MODULES ")]
    return set(line.split()[1:])


def modules_of(code: str) -> set[str]:
    """The modules of an interpreter that has run this code."""
    code += "; import sys; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


STARTED = modules_of("pass")


def found_in(modules: set[str], denied: set[str]) -> set[str]:
    """Those of `denied` that are there, as themselves or as a module inside them."""
    return {name for name in denied if any(module == name or module.startswith(name + ".") for module in modules)}


def stop_when_it_listens(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    while "TCP: listening on" not in (line := process.stderr.readline()):
        assert line, "it ended before it listened"
    process.terminate()


@pytest.mark.parametrize("command", [*DAEMONS, *TOOLS])
def test_a_word_needs_few_modules(command: str) -> None:
    """click lays out the help; it costs 20 ms, and nothing else needs it."""
    by_click = modules_of("import click; click.HelpFormatter(width=99).write_text('x')")
    for word, free in (("--version", STARTED), ("--help", STARTED | by_click)):
        modules = modules_after(command, word) - free
        assert found_in(modules, NOT_FOR_A_WORD) == set()
        assert len(modules) <= MOST_OF_WORD_MODULES, sorted(modules)


@pytest.mark.parametrize("command", RUNS)
def test_a_short_run_of_a_tool_needs_few_modules(command: str, nsqd: NsqdProcess) -> None:
    nsqd.post("/pub?topic=orders", b"paid")
    address = f"127.0.0.1:{nsqd.http_port if command == 'nsq_stat' else nsqd.tcp_port}"
    flag = "http" if command == "nsq_stat" else "tcp"
    modules = modules_after(command, f"--nsqd-{flag}-address={address}", *RUNS[command])
    denied = NOT_FOR_A_RUN - ({"email", "http.client", "ssl"} if command == "nsq_stat" else set())
    assert found_in(modules - STARTED, denied) == set()


def test_a_start_needs_few_modules(tmp_path: Path) -> None:
    ports = ("--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0")
    modules = modules_after("nsqd", f"--data-path={tmp_path}", *ports, end=stop_when_it_listens)
    assert "nsqd_py.broker.broker" in modules
    # A stop writes in threads.
    assert found_in(modules, NOT_FOR_A_START - {"concurrent.futures"}) == set()


# ---- processor time


@pytest.fixture(scope="module")
def compiled() -> None:
    """As pip leaves it: no module has to be compiled. Files that are up to date cost a look."""
    for package in PACKAGES:
        compileall.compile_dir(REPOSITORY / package, quiet=1)


def processor_s(pid: int) -> float:
    """What the threads of a process have used so far, to the nanosecond."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def least(measure: Callable[[], float], most_s: float) -> float:
    """The least of some measurements, as soon as one is below the bound: others may use the processor's caches."""
    found = []
    for _ in range(ATTEMPTS):
        found.append(measure())
        if found[-1] < most_s:
            break
    return min(found)


def run_s(*arguments: str) -> float:
    """The processor time of an interpreter with these arguments."""
    process = subprocess.Popen([sys.executable, *arguments], cwd=REPOSITORY, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime


@pytest.fixture(scope="module")
def nothing_s() -> float:
    return min(run_s("-c", "pass") for _ in range(5))


@pytest.fixture
def needs_schedstat() -> None:
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("the kernel counts no processor time by thread")


@pytest.mark.usefixtures("compiled", "needs_schedstat")
def test_processor_time_until_nsqd_answers(tmp_path: Path, nothing_s: float) -> None:
    numbers: Iterator[int] = iter(range(ATTEMPTS))

    def start() -> float:
        nsqd = NsqdProcess(tmp_path / f"data{next(numbers)}")
        try:
            nsqd.launch()
            wait_until(lambda: "TCP: listening on" in nsqd.log_text(), 40, "nsqd to listen")
            port = int(nsqd.log_text().split("TCP: listening on 127.0.0.1:")[1].split()[0])
            with Client(port) as client:
                client.pub("orders", b"first")
                return processor_s(nsqd.pid)
        finally:
            nsqd.destroy()

    assert least(start, MOST_OF_START * nothing_s) < MOST_OF_START * nothing_s


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("command", [*DAEMONS, *TOOLS])
def test_processor_time_of_a_word(command: str, nothing_s: float) -> None:
    most_s = MOST_OF_WORD * nothing_s
    for flag in ("--version", "--help"):
        assert least(lambda flag=flag: run_s("-m", f"nsq_apps.{command}", flag), most_s) < most_s, flag


def test_the_first_http_request_brings_the_api(tmp_path: Path) -> None:
    """What the start leaves out is there when it is needed."""
    nsqd = NsqdProcess(tmp_path / "data").start()
    try:
        assert nsqd.is_healthy()
        assert nsqd.stats()["topics"] == []
    finally:
        nsqd.destroy()
