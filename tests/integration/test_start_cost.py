"""What a start costs: slow modules are imported only for what needs them; and processor time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from nsqd_py.diskqueue.files.log_file import log_file_name
from nsqd_py.diskqueue.journals.journal import journal_name
from tests.support.nsqd_process import REPOSITORY, NsqdProcess, wait_until
from tests.support.wire import Client

pytestmark = pytest.mark.ours

DAEMONS = ("nsqd", "nsqlookupd", "nsqadmin")
TOOLS = (
    "nsq_cat",
    "nsq_stat",
    "nsq_tail",
    "nsq_to_file",
    "nsq_to_http",
    "nsq_to_nsq",
    "spark_replay",
    "to_nsq",
)
# Processor time, as a multiple of that of an interpreter that does nothing: a start takes less than 8, a word than 6.
MOST_OF_START, MOST_OF_WORD = 16, 14
# 1,800 more topics with a channel each, after a kill, take 12 to 13. When each log was searched to its end and cut: 24 to 29.
FEW_TOPICS, MANY_TOPICS, MOST_OF_TOPICS = 200, 2000, 20
ATTEMPTS = 12
# What --version and --help do without; spark-replay checks its settings with the client.
NEEDLESS = {
    "asyncio",
    "gevent",
    "importlib.metadata",
    "logging",
    "nsqd_py.work",
    "pathlib",
    "socket",
    "ssl",
    "traceback",
}
NEEDLESS_TO_OTHERS = {"nsqd_py.client", "nsqd_py.net.http.client", "urllib.parse"}


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


by_thread = pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="the kernel counts no processor time by thread"
)


def executed(directory: Path) -> NsqdProcess:
    """A new nsqd, which is not forked from this process."""
    nsqd = NsqdProcess(directory / f"data{len(list(directory.iterdir()))}")
    nsqd.is_executed = True
    return nsqd


@by_thread
def test_processor_time_until_nsqd_answers_and_the_modules_of_a_start(tmp_path, nothing_s):
    def start():
        with executed(tmp_path) as nsqd:
            nsqd.launch()
            wait_until(lambda: "TCP: listening on" in nsqd.log_text(), what="nsqd to listen")
            port = int(nsqd.log_text().split("TCP: listening on 127.0.0.1:")[1].split()[0])
            with Client(port) as client:
                client.pub("orders", b"first")
                loaded = Path(f"/proc/{nsqd.pid}/maps").read_text()
                assert not any(f"/{name}/" in loaded for name in ("OpenSSL", "pyarrow", "numpy"))
                return used_s(nsqd)

    assert least(start, MOST_OF_START * nothing_s) < MOST_OF_START * nothing_s


def used_s(nsqd: NsqdProcess) -> float:
    """The processor time of all its threads."""
    threads = Path(f"/proc/{nsqd.pid}/task").glob("*/schedstat")
    return sum(int(path.read_text().split()[0]) for path in threads) / 1e9


def copy_topics(killed: NsqdProcess, data_path: Path, count: int) -> None:
    """Write what a kill of an nsqd leaves that has topics like "t" with its channel "c"."""
    data_path.mkdir()
    log = (killed.data_path / log_file_name("t", 0)).read_bytes()
    records = log.rstrip(b"\0")
    assert len(records) + 10_000 < len(log), "space is preallocated behind the record"
    journal = (killed.data_path / journal_name("t", "c")).read_bytes()
    for number in range(count):
        with (data_path / log_file_name(f"t{number}", 0)).open("wb") as file:
            file.write(records)
            file.flush()
            os.posix_fallocate(file.fileno(), len(records), len(log) - len(records))
        (data_path / journal_name(f"t{number}", "c")).write_bytes(journal)


@by_thread
@pytest.mark.calm  # threads that switch all the time take processor time too
def test_processor_time_of_a_start_with_many_topics_after_a_kill(make_nsqd, tmp_path):
    """A topic with a channel takes a fixed time, however many there are: with 20,000 of them nsqd is soon back."""
    killed = make_nsqd()
    killed.create("t", "c")
    killed.pub("t", b"first")
    killed.kill()

    def start_s(count):
        with executed(tmp_path) as nsqd:
            copy_topics(killed, nsqd.data_path, count)
            nsqd.start()
            cpu_s = used_s(nsqd)
            depths = [topic["channels"][0]["depth"] for topic in nsqd.stats()["topics"]]
            assert depths == [1] * count
            return cpu_s

    def ratio():
        nothing_s = min(run_s("-c", "pass") for _ in range(5))
        return (start_s(MANY_TOPICS) - start_s(FEW_TOPICS)) / nothing_s

    assert least(ratio, MOST_OF_TOPICS) < MOST_OF_TOPICS


@pytest.mark.parametrize("command", [*DAEMONS, *TOOLS])
def test_processor_time_of_a_word(command, nothing_s):
    most_s = MOST_OF_WORD * nothing_s
    assert least(lambda: run_s("-m", "nsq_apps", command, "--version"), most_s) < most_s


@cache
def imported(*arguments: str) -> set[str]:
    command = [sys.executable, "-X", "importtime", *arguments]
    done = subprocess.run(
        command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


@pytest.mark.parametrize("command", [*DAEMONS, *TOOLS])
def test_modules_of_a_word(command):
    needless = NEEDLESS if command == "spark_replay" else NEEDLESS | NEEDLESS_TO_OTHERS
    more = imported("-m", "nsq_apps", command, "--version") - imported("-c", "import runpy")
    assert "click" in more
    assert not more & needless


@pytest.mark.parametrize("module", ["nsqd_py.client", "nsqd_py.client.aio", "nsqd_py.server.daemon"])
def test_what_does_not_use_work_does_not_load_it(module):
    more = imported("-c", f"import {module}")
    assert module in more
    assert not {name for name in more if name.startswith(("nsqd_py.work", "nsqd_py.protocol.envelope"))}


def test_work_loads_what_is_used():
    none = imported("-c", "pass")
    assert not (imported("-c", "from nsqd_py.work import Retry") - none) & {
        "asyncio",
        "nsqd_py.client.blocking.consumer",
        "nsqd_py.work.app",
    }
    declared = "from nsqd_py.work import App, Once, Batch\nApp().handler('orders')(lambda order: None)"
    assert not (imported("-c", declared) - none) & {
        "cronsim",
        "gevent",
        "msgspec",
        "nsqd_py.work.testing",
        "opentelemetry",
        "prometheus_client",
        "pydantic",
        "sqlite3",
        "watchfiles",
    }


# What a run with IP addresses and without TLS does without.
TLS, HTTP = {"gevent.ssl", "ssl", "nsqd_py.net.tls"}, {"http.client", "nsqd_py.net.http.client", "email"}
NAMES = {"gevent.pool", "gevent.threadpool", "encodings.idna"}
RUNS = {
    "nsq_tail": (
        ("--topic=orders", "--channel=c", "--n=1"),
        TLS | HTTP | NAMES | {"gevent.monkey", "nsqd_py.diskqueue"},
    ),
    "to_nsq": (("--topic=orders",), TLS | HTTP | NAMES | {"gevent.monkey", "orjson", "rich"}),
    "nsq_stat": (("--once",), NAMES | {"nsqd_py.client", "rich"}),
}


@pytest.mark.parametrize("tool", RUNS)
def test_modules_of_a_run(shared_nsqd, tool):
    shared_nsqd.create("orders", "c")
    shared_nsqd.pub("orders", b"first")
    way, port = ("http", shared_nsqd.http_port) if tool == "nsq_stat" else ("tcp", shared_nsqd.tcp_port)
    flags, needless = RUNS[tool]
    more = imported("-m", "nsq_apps", tool, f"--nsqd-{way}-address=127.0.0.1:{port}", *flags) - imported(
        "-c", "import runpy"
    )
    assert "gevent" in more
    assert not more & needless
