"""nsq-worker and its processes: signals, kills, reloads, and what ends it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.support.nsqd_process import MakeNsqd, NsqdProcess, wait_until
from tests.support.worker import APP, Worker, is_gone

pytestmark = pytest.mark.ours


@pytest.fixture
def nsqd(make_nsqd: MakeNsqd) -> NsqdProcess:
    """The messages of a process that was killed come again soon."""
    return make_nsqd("--msg-timeout=2s")


def order(nsqd: NsqdProcess, number: int, **more: object) -> None:
    nsqd.pub("orders", json.dumps({"id": number, **more}).encode())


def counts(nsqd: NsqdProcess) -> tuple[int, int]:
    """The depth of the channel, and the messages in flight."""
    stats = nsqd.channel_stats("orders", "billing")
    return (stats["depth"], stats["in_flight_count"]) if stats else (-1, -1)


def takes_messages(nsqd: NsqdProcess) -> bool:
    """True if a consumer is ready for a message."""
    stats = nsqd.channel_stats("orders", "billing")
    return stats is not None and any(client["ready_count"] for client in stats["clients"])


def wait_for_counts(nsqd: NsqdProcess, depth: int, in_flight: int) -> None:
    wait_until(lambda: counts(nsqd) == (depth, in_flight), what=f"{depth} queued, {in_flight} in flight")


# ---- signals


def test_plain_and_async_handlers_run_in_each_process(worker: Worker, nsqd: NsqdProcess) -> None:
    worker.start("--processes=2")
    order(nsqd, 1)
    nsqd.pub("mails", b"hello")
    worker.wait_for_note("done 1")
    worker.wait_for_note("mailed hello")
    stats = nsqd.channel_stats("orders", "billing")
    assert stats is not None
    assert len(stats["clients"]) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_signal_finishes_what_runs(worker: Worker, nsqd: NsqdProcess, number: signal.Signals) -> None:
    worker.start("--processes=2")
    order(nsqd, 1, wait=True)
    worker.wait_for_note("began 1")
    worker.signal(number)
    worker.wait_for_log("stopping: what runs has 25 s to finish")
    wait_until(lambda: not takes_messages(nsqd), what="the consumers to stop")
    order(nsqd, 2)
    (worker.folder / "go").touch()
    assert worker.wait() == 0
    assert worker.notes() == ["began 1", "done 1"]
    wait_for_counts(nsqd, 1, 0)
    assert all(map(is_gone, worker.pids().values()))


def test_a_second_signal_gives_back_what_runs(worker: Worker, nsqd: NsqdProcess) -> None:
    worker.start("--processes=2")
    order(nsqd, 1, wait=True)
    worker.wait_for_note("began 1")
    worker.signal(signal.SIGTERM)
    worker.wait_for_log("stopping:")
    assert counts(nsqd) == (0, 1)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 1
    wait_for_counts(nsqd, 1, 0)
    assert all(map(is_gone, worker.pids().values()))


def test_handlers_that_take_longer_than_the_stop_timeout_give_back(worker: Worker, nsqd: NsqdProcess) -> None:
    worker.start("--stop-timeout=100ms")
    order(nsqd, 1, wait=True)
    worker.wait_for_note("began 1")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    wait_for_counts(nsqd, 1, 0)


def test_a_signal_to_one_process_finishes_what_it_runs_and_another_one_starts(
    worker: Worker, nsqd: NsqdProcess
) -> None:
    worker.start()
    first = worker.pids()[1]
    order(nsqd, 1, wait=True)
    worker.wait_for_note("began 1")
    os.kill(first, signal.SIGTERM)
    (worker.folder / "go").touch()
    wait_until(lambda: worker.pids()[1] != first, what="another process")
    assert worker.notes() == ["began 1", "done 1"]
    assert f"process 1 (pid {first}) ended with status 0" in worker.log()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("is_ordered", [True, False], ids=["after the order", "before the order"])
def test_a_signal_to_all_processes_finishes_what_runs(
    worker: Worker, nsqd: NsqdProcess, number: signal.Signals, is_ordered: bool
) -> None:
    """As pkill does, and systemd by default."""
    worker.start("--processes=2")
    order(nsqd, 1, wait=True)
    worker.wait_for_note("began 1")
    children = worker.pids().values()
    if is_ordered:
        worker.signal(number)
        wait_until(lambda: not takes_messages(nsqd), what="the consumers to stop")
    for pid in children:
        if not is_gone(pid):
            os.kill(pid, number)
    if not is_ordered:
        wait_until(lambda: not takes_messages(nsqd), what="the consumers to stop")
        worker.signal(number)
        worker.wait_for_log("stopping:")
    order(nsqd, 2)
    for _ in range(50):  # a process that stopped at once would return it within 0.05 s
        assert counts(nsqd) == (1, 1)
    (worker.folder / "go").touch()
    assert worker.wait() == 0
    assert worker.notes() == ["began 1", "done 1"]
    wait_for_counts(nsqd, 1, 0)


def test_a_second_signal_to_one_process_gives_back_what_it_runs(worker: Worker, nsqd: NsqdProcess) -> None:
    worker.start()
    first = worker.pids()[1]
    order(nsqd, 1, wait=True)
    worker.wait_for_note("began 1")
    os.kill(first, signal.SIGTERM)
    wait_until(lambda: not takes_messages(nsqd), what="the consumer to stop")
    os.kill(first, signal.SIGTERM)
    worker.wait_for_note("began 1", 2)
    assert f"process 1 (pid {first}) ended with status 0" in worker.log()


def test_a_worker_that_had_to_kill_a_process_fails(worker: Worker, nsqd: NsqdProcess) -> None:
    worker.start("--stop-timeout=100ms")
    os.kill(worker.pids()[1], signal.SIGSTOP)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 1
    assert "it is killed" in worker.log()


# ---- kills


def test_a_killed_process_is_started_again_and_its_messages_come_again(
    worker: Worker, nsqd: NsqdProcess
) -> None:
    worker.start("--processes=2")
    before = worker.pids()
    order(nsqd, 1, wait=True)
    worker.wait_for_note("began 1")
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)
    (worker.folder / "go").touch()
    worker.wait_for_note("done 1")
    for number, pid in before.items():
        assert f"process {number} (pid {pid}) was ended by SIGKILL after" in worker.log()
    assert worker.log().count("it starts again in 0.25 s") == 2


def test_a_handler_that_ends_its_process_gets_the_message_again(worker: Worker, nsqd: NsqdProcess) -> None:
    worker.write(APP.replace("attempts=1", "attempts=3"))
    worker.start()
    order(nsqd, 1, die=True)
    worker.wait_for_note("done 1")
    assert worker.notes() == ["began 1", "began 1", "done 1"]
    assert "ended with status 3" in worker.log()


def test_processes_end_when_the_supervisor_is_killed_and_give_back(worker: Worker, nsqd: NsqdProcess) -> None:
    worker.start("--processes=2")
    order(nsqd, 1, wait=True)
    worker.wait_for_note("began 1")
    worker.signal(signal.SIGKILL)
    wait_until(lambda: all(map(is_gone, worker.pids().values())), what="the processes to end")
    wait_for_counts(nsqd, 1, 0)


def test_a_supervisor_that_hangs_keeps_no_process_from_work(worker: Worker, nsqd: NsqdProcess) -> None:
    worker.start()
    worker.signal(signal.SIGSTOP)
    for number in range(30):
        order(nsqd, number)
        worker.wait_for_note(f"done {number}")
    worker.signal(signal.SIGCONT)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


# ---- the end for good


def test_a_consumer_that_ends_for_good_ends_the_worker(worker: Worker, nsqd: NsqdProcess) -> None:
    worker.start("--processes=2")
    order(nsqd, 1, exit=True)
    assert worker.wait() == 1
    fatal = [line for line in worker.log().splitlines() if "FATAL" in line]
    assert len(fatal) == 1
    assert "SystemExit: no more" in fatal[0]


VERBS = {"run": (), "check": ("check",)}
BAD_APPS = {
    "no module": ("nowhere:app", "", "there is no module nowhere in"),
    "no name": ("shop:api", APP, "has no attribute 'api'; give the name of its App, as in shop:app"),
    "no app": ("shop:note", APP, "shop:note is not an App of nsqd_py.work but of the type function"),
    "no handlers": (
        "shop:app",
        "from nsqd_py.work import App\napp = App()\n",
        "shop:app has no handlers: declare some with @app.handler(...)",
    ),
    "a syntax error": ("shop:app", "app = (\n", "SyntaxError: '(' was never closed (line 1 of "),
    "a missing package": ("shop:app", "import not_there\n", "No module named 'not_there' (line 1 of "),
    "an error": (
        "shop:app",
        "app = None.x\n",
        "AttributeError: 'NoneType' object has no attribute 'x' (line 1 of ",
    ),
    "an exit": ("shop:app", "raise SystemExit(3)\n", "SystemExit: 3 (line 1 of "),
}


@pytest.mark.parametrize(("words", "app", "says"), BAD_APPS.values(), ids=BAD_APPS)
@pytest.mark.parametrize("verb", VERBS)
def test_an_app_that_cannot_be_imported_is_said_in_one_line(
    tmp_path: Path, words: str, app: str, says: str, verb: str
) -> None:
    worker = Worker(tmp_path, app=app)
    ended = worker.run(*VERBS[verb], words, "--processes=2")
    assert ended.returncode == 1
    assert says in ended.stderr.decode()
    assert ended.stderr.count(b"\n") == 1, ended.stderr.decode()


# ---- reload


def test_a_change_restarts_and_a_syntax_error_is_waited_out(worker: Worker, nsqd: NsqdProcess) -> None:
    worker.start("--reload", "--processes=2")
    order(nsqd, 1)
    worker.wait_for_note("done 1")
    worker.write(APP.replace("done", "billed"))
    worker.wait_for_log("shop.py has changed: restarting")
    wait_until(lambda: worker.log().count("runs as pid") == 4, what="two new processes")
    order(nsqd, 2)
    worker.wait_for_note("billed 2")

    worker.write("app = (\n")
    worker.wait_for_log("SyntaxError")
    assert "waiting for a change of a file" in worker.log()
    order(nsqd, 3)
    assert worker.process.poll() is None

    worker.write(APP)
    worker.wait_for_note("done 3")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
