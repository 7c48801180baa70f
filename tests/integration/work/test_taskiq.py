"""taskiq's own worker and scheduler with the broker over a real nsqd."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from nsqd_py.testing.embedded import Nsqd
from tests.support.aio_client import run_in_new_loop
from tests.support.module_servers import delete_topics, module_embedded
from tests.support.nsqd_process import wait_until

# To import it takes 0.5 CPU seconds, of each worker of pytest.
NEEDS_TASKIQ = pytest.mark.skipif(find_spec("taskiq") is None, reason="needs taskiq")
pytestmark = [pytest.mark.ours, NEEDS_TASKIQ]

DEADLINE_S = 60.0
TOPIC, CHANNEL = "taskiq", "workers"

MODULE = """
import asyncio, os
from pathlib import Path
from taskiq import SmartRetryMiddleware, TaskiqScheduler
from taskiq.schedule_sources import LabelScheduleSource
from nsqd_py.taskiq import NsqBroker

FOLDER = Path(__file__).parent
broker = NsqBroker(os.environ["NSQD"]).with_middlewares(
    SmartRetryMiddleware(default_retry_count=3, default_delay=0.2, use_jitter=False)
)
scheduler = TaskiqScheduler(broker, [LabelScheduleSource(broker)])

def note(*words):
    with (FOLDER / "effects").open("a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

@broker.task
async def bill(number):
    note("bill", number)

@broker.task
def bill_in_a_thread(number):
    note("bill in a thread", number)

@broker.task
async def slow(number):
    note("slow begins", number)
    while not (FOLDER / "gate").exists():
        await asyncio.sleep(0.01)
    note("slow ends", number)

@broker.task(retry_on_error=True)
async def fails():
    note("fails")
    raise ValueError("always")

@broker.task(schedule=[{"interval": 1, "args": [7]}] if os.environ.get("SCHEDULED") else [])
async def scheduled(number):
    note("scheduled", number)
"""


class Project:
    """A module with a broker and tasks, and the programs of taskiq that run it."""

    def __init__(self, folder: Path, nsqd: Nsqd) -> None:
        self.folder = folder
        self.environment = {**os.environ, "NSQD": nsqd.tcp_address}
        self.effects_file = folder / "effects"
        self.effects_file.touch()
        self._programs: list[subprocess.Popen[bytes]] = []
        (folder / "shop_tasks.py").write_text(MODULE)

    def start(self, program: str, name: str, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "taskiq", program, f"shop_tasks:{name}", *arguments]
        with (self.folder / f"{program}.log").open("ab") as log:
            self._programs.append(
                subprocess.Popen(
                    command, cwd=self.folder, env={**self.environment, **environment}, stdout=log, stderr=log
                )
            )
        return self._programs[-1]

    def worker(self) -> subprocess.Popen[bytes]:
        return self.start("worker", "broker", "--workers=1", "--log-level=INFO")

    def send(self, *calls: str) -> None:
        """Send tasks, such as `bill.kiq(1)`, from a program of its own."""
        code = "\n    ".join(f"await {call}" for call in calls)
        program = f"""
import asyncio
from shop_tasks import *

async def main():
    await broker.startup()
    {code}
    await broker.shutdown()

asyncio.run(main())
"""
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert (done.returncode, done.stderr) == (0, "")

    def effects(self) -> list[str]:
        return self.effects_file.read_text().splitlines()

    def wait_for(self, expected: list[str]) -> None:
        """Wait until the tasks have written these lines, in any order."""
        wait_until(
            lambda: sorted(self.effects()) == sorted(expected),
            DEADLINE_S,
            f"{expected}, not {self.effects()}",
        )

    def close(self) -> None:
        """Kill the programs, and the worker processes that they have started."""
        for program in self._programs:
            children = subprocess.run(["pgrep", "-P", str(program.pid)], capture_output=True, text=True)
            program.kill()
            program.wait()
            for pid in children.stdout.split():
                kill(int(pid))


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


nsqd = module_embedded("--msg-timeout=2s")


@pytest.fixture
def project(nsqd, tmp_path) -> Iterator[Project]:
    project = Project(tmp_path, nsqd)
    yield project
    project.close()
    delete_topics(nsqd)


def channel(nsqd: Nsqd) -> dict[str, Any]:
    (topic,) = nsqd.stats(TOPIC)["topics"]
    (found,) = topic["channels"]
    return dict(found)


def is_done(nsqd: Nsqd) -> bool:
    found = channel(nsqd)
    return found["depth"] + found["in_flight_count"] + found["deferred_count"] == 0


def test_tasks_run_in_a_worker(nsqd, project):
    project.send(*[f"bill.kiq({number})" for number in range(50)], "bill_in_a_thread.kiq(1)")
    project.worker()
    project.wait_for([*(f"bill {number}" for number in range(50)), "bill in a thread 1"])
    wait_until(lambda: is_done(nsqd), what="all messages to be finished")


def test_a_delay_is_on_the_server(nsqd, project):
    project.worker()
    wait_until(lambda: (nsqd.stats(TOPIC)["topics"] or [{"channels": ()}])[0]["channels"], what="the worker")
    project.send("bill.kicker().with_labels(delay=2).kiq(1)", "bill.kiq(2)")
    project.wait_for(["bill 2"])
    assert channel(nsqd)["deferred_count"] == 1
    project.wait_for(["bill 2", "bill 1"])


def test_retries_are_those_of_taskiq(nsqd, project):
    project.send("fails.kiq()")
    project.worker()
    project.wait_for(["fails"] * 3)
    wait_until(lambda: is_done(nsqd), what="all messages to be finished")


def test_a_worker_that_stops_finishes_its_tasks(nsqd, project):
    """Their acks come after the end of the generator. The message that was not begun waits for another worker."""
    project.send("slow.kiq(1)")
    worker = project.worker()
    project.wait_for(["slow begins 1"])
    worker.send_signal(signal.SIGTERM)
    wait_until(
        lambda: "Waiting for 1 running tasks" in (project.folder / "worker.log").read_text(), DEADLINE_S
    )
    project.send("bill.kiq(2)")
    (project.folder / "gate").touch()
    worker.wait(DEADLINE_S)
    assert project.effects() == ["slow begins 1", "slow ends 1"]
    found = channel(nsqd)
    assert (found["depth"], found["in_flight_count"], found["requeue_count"]) == (1, 0, 0)


def test_a_worker_without_tasks_stops(nsqd, project):
    """taskiq's signal handler does not wake the event loop."""
    worker = project.worker()
    wait_until(lambda: (nsqd.stats(TOPIC)["topics"] or [{"channels": ()}])[0]["channels"], what="the worker")
    wait_until(lambda: channel(nsqd)["client_count"] == 1, what="its connection")
    worker.send_signal(signal.SIGTERM)
    worker.wait(10)


def test_the_task_of_a_killed_worker_runs_again(project):
    project.send("slow.kiq(1)")
    worker = project.worker()
    project.wait_for(["slow begins 1"])
    children = subprocess.run(["pgrep", "-P", str(worker.pid)], capture_output=True, text=True).stdout.split()
    for pid in map(int, children):
        kill(pid)  # taskiq starts another one
    project.wait_for(["slow begins 1"] * 2)
    (project.folder / "gate").touch()
    project.wait_for(["slow begins 1", "slow begins 1", "slow ends 1"])


def test_the_scheduler_of_taskiq(project):
    project.worker()
    project.start("scheduler", "scheduler", SCHEDULED="1")
    wait_until(lambda: project.effects().count("scheduled 7") >= 2, DEADLINE_S, "two runs")


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (
            {"priority": 5},
            "nsqd has no priorities: remove the label 'priority', and give urgent tasks a broker",
        ),
        ({"delay": "soon"}, "the label 'delay' is a number of seconds, got 'soon'"),
    ],
)
def test_labels_that_nsqd_cannot_serve(labels, text):
    from taskiq.exceptions import SendTaskError

    from nsqd_py.taskiq import NsqBroker

    broker = NsqBroker("127.0.0.1:1")

    @broker.task
    async def bill() -> None: ...

    async def send() -> None:
        await bill.kicker().with_labels(**labels).kiq()

    with pytest.raises(SendTaskError) as refused:
        run_in_new_loop(send())
    assert text in str(refused.value.__cause__)


def test_a_bad_topic_is_refused_at_once():
    from nsqd_py.client import BadName
    from nsqd_py.taskiq import NsqBroker

    with pytest.raises(BadName, match="a b"):
        NsqBroker("127.0.0.1:4150", topic="a b")
