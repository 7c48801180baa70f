"""Schedules with real nsqds and real processes. tests/property/test_schedules_model.py has more failures, without these."""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Lock

import pytest

from nsqd_py.client import ClientOptions, Consumer, Message
from nsqd_py.client.errors import NsqClientError
from nsqd_py.protocol.envelope import unwrap
from nsqd_py.work import App
from nsqd_py.work.timed import scheduler, tokens
from tests.support.network import free_ports
from tests.support.nsqd_process import MakeNsqd, NsqdProcess, wait_until
from tests.support.nsqlookupd_process import MakeNsqlookupd

REPOSITORY = Path(__file__).resolve().parents[3]

# A function that starts a process with schedules.
StartWorker = Callable[[], "subprocess.Popen[bytes]"]


class Jobs:
    """The jobs that are published, by name and due time, as a channel of the topic of jobs gets them."""

    def __init__(self, *addresses: str, topic: str = "clock.due") -> None:
        self.found: list[tuple[str, int, float]] = []
        self._lock = Lock()
        self._consumer = Consumer(
            topic, "test#ephemeral", self._note, nsqd_tcp_addresses=addresses, lookupd_poll_interval=0.5
        )

    def _note(self, message: Message) -> None:
        _, headers = unwrap(message.body)
        with self._lock:
            self.found.append(
                (headers["schedule"].rpartition(".")[2], int(headers["due"]), message.timestamp_ns / 1e9)
            )

    def __enter__(self) -> Jobs:
        self._consumer.start()
        wait_until(lambda: self._consumer.stats().connections)
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.stop()

    def dues(self, name: str) -> list[int]:
        with self._lock:
            return [due_s for found, due_s, _ in self.found if found == name]

    def wait_for(self, name: str, count: int) -> list[int]:
        """Wait until this many jobs more than now have come; return their due times."""
        before = len(self.dues(name))
        wait_until(
            lambda: len(self.dues(name)) >= before + count, 120, f"{count} jobs of {name}: {self.found}"
        )
        return self.dues(name)[before:]


@pytest.fixture
def nsqd(make_nsqd: MakeNsqd) -> NsqdProcess:
    return make_nsqd("--msg-timeout=2s")


@pytest.fixture
def start_worker(nsqd: NsqdProcess, tmp_path: Path) -> Iterator[StartWorker]:
    command = [sys.executable, "-m", "tests.support.scheduled_work", nsqd.tcp_address]
    with ExitStack() as stack:
        started: list[subprocess.Popen[bytes]] = []

        def start() -> subprocess.Popen[bytes]:
            log = stack.enter_context((tmp_path / f"worker{len(started)}.log").open("wb"))
            started.append(subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=log))
            return started[-1]

        yield start
        for process in started:
            process.kill()
            process.wait()


def assert_consecutive(dues: list[int], step_s: int) -> None:
    assert dues == list(range(dues[0], dues[0] + len(dues) * step_s, step_s))


def test_two_processes_run_each_occurrence_once(nsqd: NsqdProcess, start_worker: StartWorker) -> None:
    with Jobs(nsqd.tcp_address) as jobs:
        workers = [start_worker(), start_worker()]
        jobs.wait_for("ones", 4)  # both have begun
        ones = jobs.wait_for("ones", 6)
        assert_consecutive(ones, 1)
        twos = jobs.dues("twos")[-3:]
        assert_consecutive(twos, 2)
        assert len(set(jobs.dues("ones"))) == len(jobs.dues("ones"))
        late_s = sorted(published_s - due_s for _, due_s, published_s in jobs.found)
        assert 0 <= late_s[len(late_s) // 2] < 1
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        assert [worker.wait(40) for worker in workers] == [0, 0]


def test_after_kill_9_of_one_process_another_goes_on(nsqd: NsqdProcess, start_worker: StartWorker) -> None:
    with Jobs(nsqd.tcp_address) as jobs:
        first = start_worker()
        jobs.wait_for("ones", 2)
        start_worker()
        jobs.wait_for("ones", 6)
        first.kill()
        killed_s = time.time()
        jobs.wait_for("ones", 5)
        dues = sorted(set(jobs.dues("ones")))
        assert_consecutive([due_s for due_s in dues if due_s > killed_s + 1], 1)
        assert_consecutive([due_s for due_s in dues if due_s < killed_s], 1)
        assert not [due_s for due_s in jobs.dues("ones") if jobs.dues("ones").count(due_s) > 2]


def test_a_process_that_was_suspended_goes_on_and_repeats_nothing(
    nsqd: NsqdProcess, start_worker: StartWorker
) -> None:
    with Jobs(nsqd.tcp_address) as jobs:
        worker = start_worker()
        jobs.wait_for("ones", 2)
        worker.send_signal(signal.SIGSTOP)
        # nsqd delivers the tokens that are due, and redelivers them after --msg-timeout: they come twice.
        wait_until(lambda: nsqd.channel_stats("clock.schedules", "clock")["timeout_count"] >= 2)
        worker.send_signal(signal.SIGCONT)
        jobs.wait_for("ones", 4)
        assert worker.poll() is None
        assert len(set(jobs.dues("ones"))) == len(jobs.dues("ones"))


def make_app(*nsqds: NsqdProcess, seconds: int, **settings: object) -> tuple[App, list[float]]:
    app = App(
        "clock", nsqd_tcp_addresses=[nsqd.tcp_address for nsqd in nsqds], longest_defer_s=900, **settings
    )
    called: list[float] = []

    @app.every(seconds=seconds)
    def note() -> None:
        called.append(time.time())

    return app, called


def test_an_occurrence_for_which_nobody_was_there_runs_once_late_and_says_so(
    nsqd: NsqdProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scheduler, "_LATE_S", 0.5)
    with Jobs(nsqd.tcp_address) as jobs:
        app, _ = make_app(nsqd, seconds=10)
        with app.start():
            jobs.wait_for("note", 1)
            nsqd.wait_for_channel("clock.schedules", "clock", deferred_count=1)
        app.close()
        missed_s = jobs.dues("note")[-1] + 10
        wait_until(lambda: time.time() > missed_s + 1)
        assert missed_s not in jobs.dues("note")
        app, called = make_app(nsqd, seconds=10)
        with app.start(), caplog.at_level(logging.WARNING):
            assert jobs.wait_for("note", 2) == [missed_s, missed_s + 10]
            wait_until(lambda: len(called) == 2)
        app.close()
    late = [record.getMessage() for record in caplog.records if "late" in record.getMessage()]
    assert len(late) == 1
    assert "note: the occurrence of " in late[0]


def test_tokens_of_a_deleted_topic_are_published_again(
    nsqd: NsqdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Jobs(nsqd.tcp_address) as jobs:
        app, _ = make_app(nsqd, seconds=2)
        with app.start():
            jobs.wait_for("note", 2)
            nsqd.post("/topic/delete?topic=clock.schedules")
            jobs.wait_for("note", 2)
        app.close()
        assert len(set(jobs.dues("note"))) == len(jobs.dues("note"))


def test_tokens_of_an_emptied_topic_are_published_again(
    nsqd: NsqdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "OVERDUE_S", 4.0)
    monkeypatch.setattr(scheduler, "_MISSING_INTERVAL_S", 0.5)
    with Jobs(nsqd.tcp_address) as jobs:
        app, _ = make_app(nsqd, seconds=10)
        with app.start():
            (ran_s,) = jobs.wait_for("note", 1)
            nsqd.wait_for_channel("clock.schedules", "clock", deferred_count=1)
            nsqd.post("/channel/empty?topic=clock.schedules&channel=clock")
            assert jobs.wait_for("note", 2) == [ran_s + 10, ran_s + 20]
        app.close()


def test_with_two_nsqds_one_may_go_and_come_back(
    make_nsqd: MakeNsqd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "OVERDUE_S", 4.0)
    monkeypatch.setattr(scheduler, "_MISSING_INTERVAL_S", 0.5)
    monkeypatch.setattr(scheduler, "_LOOK_S", 0.5)
    ports = free_ports(4)
    nsqds = [make_nsqd(ports=(ports[0], ports[1])), make_nsqd(ports=(ports[2], ports[3]))]
    with Jobs(*(nsqd.tcp_address for nsqd in nsqds)) as jobs:
        app, _ = make_app(*nsqds, seconds=1)
        with app.start() as running:
            jobs.wait_for("note", 3)
            for nsqd in nsqds:
                nsqd.kill()
                jobs.wait_for("note", 3)
                nsqd.start()
                jobs.wait_for("note", 6)
            assert running.failure is None
        app.close()


def test_schedules_find_their_nsqds_by_nsqlookupd(
    make_nsqlookupd: MakeNsqlookupd, make_nsqd: MakeNsqd
) -> None:
    lookupd = make_nsqlookupd()
    nsqd = make_nsqd(f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}")
    wait_until(lambda: lookupd.http("GET", "/nodes").json()["producers"])
    app = App("clock", lookupd_http_addresses=f"127.0.0.1:{lookupd.http_port}", longest_defer_s=900)

    @app.every(seconds=1)
    def note() -> None:
        """Do nothing: the test looks at the jobs."""

    with Jobs(nsqd.tcp_address) as jobs, app.start():
        assert_consecutive(jobs.wait_for("note", 4)[1:], 1)
    app.close()


def test_a_stop_does_not_wait_for_a_publish_that_no_nsqd_takes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and says nothing
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        options = ClientOptions(dial_timeout_s=60)
        app = App("clock", nsqd_tcp_addresses=address, lookupd_http_addresses="127.0.0.1:1", options=options)
        app.every(seconds=1)(tick)
        running = app.start()
        wait_until(lambda: has_open_publishes(app), what="a publish of the scheduler")
        running.begin_to_stop(0)
        assert running.wait(15)  # a publish waits for 30 s
        with pytest.raises(NsqClientError):
            app.close(0)


def has_open_publishes(app: App) -> bool:
    try:
        app.producer.flush(0)
    except NsqClientError:
        return True
    return False


def tick() -> None:
    """Does nothing: no occurrence of it is handled."""
