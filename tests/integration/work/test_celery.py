"""Celery's workers as processes, on a real nsqd: what the tasks of tests/support/celery_app.py note in a file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chord
from kombu import Exchange, Queue

import nsqd_py
import nsqd_py.celery
from nsqd_py.testing.embedded import Nsqd
from tests.support.module_servers import module_embedded
from tests.support.nsqd_process import wait_until

pytestmark = pytest.mark.ours

APP = "tests.support.celery_app"
MSG_TIMEOUT_S = 3


nsqd = module_embedded()


class Program:
    """A Celery app, its workers, and the effects of its tasks. Each has a queue of its own."""

    def __init__(self, folder: Path, nsqd: Nsqd, queue: str) -> None:
        self.queue = queue
        self.effects_path = folder / "effects"
        self.effects_path.touch()
        self.app = Celery("tests", broker=f"nsq://{nsqd.tcp_address}", set_as_current=False)
        self._folder = folder
        self._environment = os.environ | {
            "CELERY_BROKER": f"nsq://{nsqd.tcp_address}",
            "CELERY_EFFECTS": str(self.effects_path),
            "CELERY_SETTINGS": json.dumps({"broker_transport_options": {"msg_timeout": MSG_TIMEOUT_S}}),
        }
        self.workers: list[subprocess.Popen[bytes]] = []

    def use_backend(self, url: str) -> None:
        """Keep results in a backend from now on."""
        self.app.conf.result_backend = self._environment["CELERY_BACKEND"] = url

    def start_worker(self, *arguments: str, queues: str = "") -> subprocess.Popen[bytes]:
        """Start a worker, and wait until it is ready."""
        log = self._folder / f"worker-{len(self.workers)}.log"
        command = [sys.executable, "-m", "celery", "-A", APP, "worker", "--loglevel=INFO"]
        command += [f"--hostname={self.queue}-{len(self.workers)}@test", f"--queues={queues or self.queue}"]
        with log.open("ab") as file:
            worker = subprocess.Popen(
                [*command, *arguments],
                env=self._environment,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self.workers.append(worker)
        wait_until(lambda: " ready." in log.read_text(), what=f"ready in {log.read_text()}")
        return worker

    def send(self, task: str, *arguments: object, **options: Any) -> Any:
        options.setdefault("queue", self.queue)
        return self.app.send_task(f"{APP}.{task}", arguments, **options)

    def effects(self) -> list[list[str]]:
        return [line.split() for line in self.effects_path.read_text().splitlines()]

    def wait_for(self, *effects: str, count: int = 1) -> list[list[str]]:
        """Return the lines that begin with these words once there are so many."""

        def found() -> list[list[str]]:
            lines = [line for line in self.effects() if " ".join(line[:2]) in effects]
            return lines if len(lines) >= count else []

        return wait_until(found, what=f"{count} of {effects} in {self.effects()}")

    def close(self) -> None:
        for worker in self.workers:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
        self.app.close()


Make = Callable[[str], Program]


@pytest.fixture
def program(tmp_path: Path, nsqd: Nsqd, request: pytest.FixtureRequest) -> Iterator[Program]:
    one = Program(tmp_path, nsqd, request.node.name.replace("[", ".").replace("]", "")[5:40])
    yield one
    one.close()


POOLS = (
    ("--pool=prefork", "--concurrency=2"),
    ("--pool=threads", "--concurrency=2"),
    ("--pool=solo",),
    ("--pool=gevent", "--concurrency=2"),
)


@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: pool[0].removeprefix("--pool="))
def test_each_pool_runs_tasks_with_etas_and_retries(program, pool):
    program.start_worker(*pool)
    due_s = time.time() + 1.5
    program.send("eta", 1, countdown=1.5)
    program.send("flaky", 2)
    for number in range(20):
        program.send("early", number)
    program.wait_for(*(f"early {number}" for number in range(20)), count=20)
    program.wait_for("flaky 2")
    ((*_, ran_s),) = program.wait_for("eta 1")
    assert due_s - 0.1 < float(ran_s)
    assert sorted(line[1] for line in program.effects() if line[0] == "flaky") == ["0", "1", "2"]


def test_a_worker_that_waits_takes_no_processor_time(program):
    worker = program.start_worker("--concurrency=1", "--without-heartbeat")
    began = cpu_s(worker.pid)
    time.sleep(3)  # what a loop that spins would take
    assert cpu_s(worker.pid) - began < 0.5


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_late_task_of_a_killed_worker_runs_in_another_one(program):
    first = program.start_worker("--concurrency=1")
    program.send("slow", 1, 30)
    program.wait_for("begin 1")
    os.killpg(first.pid, signal.SIGKILL)
    program.start_worker("--concurrency=1")
    first_pid, second_pid = (line[2] for line in program.wait_for("begin 1", count=2))
    assert first_pid != second_pid


def test_a_late_task_survives_the_loss_of_its_nsqd_and_runs_once(tmp_path):
    with nsqd_py.embedded() as nsqd:
        program = Program(tmp_path, nsqd, "lost")
        try:
            program.start_worker("--concurrency=1")
            program.send("slow", 1, 3)
            program.wait_for("begin 1")
            nsqd.kill()
            nsqd.restart()
            program.send("early", 2)
            program.wait_for("early 2")
            program.wait_for("end 1")
            wait_until(lambda: in_flight(nsqd, "lost") == 0, what="nothing in flight")
            assert sum(line[0] == "begin" for line in program.effects()) == 1
        finally:
            program.close()


def in_flight(nsqd: Nsqd, topic: str) -> int:
    (channel,) = nsqd.stats(topic)["topics"][0]["channels"]
    return int(channel["in_flight_count"] + channel["depth"])


def test_a_task_whose_process_died_is_delivered_again_with_reject_on_worker_lost(program):
    program.start_worker("--concurrency=1")
    program.send("deadly")
    program.wait_for("deadly 1")
    assert [line[1] for line in program.effects()] == ["0", "1"]


def test_a_warm_shutdown_gives_back_what_has_not_begun(program, nsqd):
    worker = program.start_worker("--concurrency=1", "--prefetch-multiplier=4")
    for number in range(4):
        program.send("slow", number, 1.0)
    program.wait_for("begin 0")
    worker.terminate()
    assert worker.wait(40) == 0
    begun = {line[1] for line in program.effects() if line[0] == "begin"}
    nsqd.wait_for_depth(program.queue, 4 - len(begun), "celery")
    program.start_worker("--concurrency=1")
    program.wait_for(*(f"end {number}" for number in range(4)), count=4)
    assert len(program.effects()) == 8


def test_remote_control_pings_revokes_and_adds_queues(program):
    program.start_worker("--concurrency=1")
    name = f"{program.queue}-0@test"
    control = program.app.control
    assert control.inspect([name], timeout=5).ping() == {name: {"ok": "pong"}}
    result = program.send("early", 1, countdown=2.0)
    assert control.revoke(result.id, reply=True, destination=[name], timeout=5)
    program.send("early", 2, countdown=2.5)
    program.wait_for("early 2")
    assert [line[1] for line in program.effects()] == ["2"]
    control.add_consumer(f"{program.queue}-more", reply=True, destination=[name], timeout=5)
    program.send("early", 3, queue=f"{program.queue}-more")
    program.wait_for("early 3")
    active = control.inspect([name], timeout=5).active_queues()[name]
    assert [queue["name"] for queue in active] == [program.queue, f"{program.queue}-more"]


def test_events_reach_a_monitor(program):
    program.start_worker("--concurrency=1", "--task-events")
    types: set[str] = set()

    def note(event: dict[str, Any]) -> None:
        types.add(event["type"])
        if event["type"] == "task-succeeded":
            receiver.should_stop = True

    with program.app.connection_for_read() as connection:
        receiver = program.app.events.Receiver(connection, handlers={"*": note})
        for _ in range(40):
            program.send("early", 1)
            with suppress(TimeoutError):
                receiver.capture(limit=None, timeout=1, wakeup=False)
            if "task-succeeded" in types:
                break
    assert {"task-received", "task-started", "task-succeeded"} <= types


def test_purge_drops_the_tasks_that_wait(program, nsqd):
    for number in range(3):
        program.send("early", number)
    program.app.amqp.queues.select_add(Queue(program.queue, routing_key=program.queue))
    assert program.app.control.purge() == 3
    assert nsqd.depth(program.queue) == 0


def test_two_queues_and_routing_by_exchanges(program):
    topics = Exchange(f"{program.queue}-topics", type="topic")
    video = Queue(f"{program.queue}-video", topics, "media.video.#")
    audio = Queue(f"{program.queue}-audio", topics, "media.audio")
    program.start_worker("--concurrency=1", queues=f"{video.name},{audio.name},{program.queue}")
    program.app.conf.task_queues = [video, audio]
    declare = [video, audio]
    routes = {1: "media.video.hd", 2: "media.audio", 3: "media.text"}
    for number in (1, 2):
        program.send(
            "early", number, queue=None, exchange=topics, routing_key=routes[number], declare=declare
        )
    with pytest.raises(Exception, match="no queue is bound"):
        program.send("early", 3, queue=None, exchange=topics, routing_key=routes[3], declare=declare)
    program.send("early", 4)
    program.wait_for("early 1", "early 2", "early 4", count=3)


def test_results_come_back_by_messages(program):
    program.use_backend("rpc://")
    program.start_worker("--concurrency=1")
    results = [program.send("early", number) for number in range(5)]
    assert [result.get(timeout=40) for result in results] == list(range(5))


def test_a_chord_needs_a_result_backend_as_with_every_broker(program):
    signature = program.app.signature(f"{APP}.early", (1,), queue=program.queue)
    with pytest.raises(NotImplementedError, match="result backend"):
        chord([signature, signature], signature, app=program.app).apply_async()


def test_a_priority_is_refused_when_the_task_is_sent(program):
    with pytest.raises(Exception, match="priority 5 of a message: NSQ cannot do this"):
        program.send("early", 1, priority=5)
