"""Examples of consumers: what they promise when handlers fail, wait, or are asked to stop."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import psutil
import pytest

from nsqd_py.testing.embedded import Nsqd
from tests.examples.conftest import BIN, EXAMPLES, importable_from
from tests.support.nsqd_process import wait_until
from tests.support.sweeps import sample

pytestmark = pytest.mark.ours

WORKER = EXAMPLES / "worker"
RUN_WORKER = (BIN / "nsq-worker", "worker:app", "--stop-timeout=45s")


def channels(nsqd: Nsqd, topic: str) -> list[dict[str, Any]]:
    return [channel for found in nsqd.stats(topic)["topics"] or () for channel in found["channels"]]


def channel(nsqd: Nsqd, topic: str) -> dict[str, Any]:
    """Return the statistics of the only channel of a topic."""
    (statistics,) = channels(nsqd, topic)
    return statistics


def wait_until_all_are_finished(nsqd: Nsqd, topic: str) -> None:
    """Wait until the topic has a channel, and no message waits in it, is in flight or deferred."""

    def is_over() -> bool:
        found = channels(nsqd, topic)
        return bool(found) and not any(
            one["depth"] or one["in_flight_count"] or one["deferred_count"] for one in found
        )

    wait_until(is_over, 40, f"the messages of {topic} to be finished")


def test_retries_end_in_the_topic_of_dead_letters(nsqd, start):
    nsqd.publish("orders", '{"amount": -1}', '{"amount": 7}')
    start("retry_then_dead_letters.py", FIRST_DELAY_S="0.01").wait_for("charged 7")
    nsqd.wait_for_depth("orders.dead", 1, timeout_s=40)
    wait_until_all_are_finished(nsqd, "orders")
    assert channel(nsqd, "orders")["requeue_count"] == 3
    dead = subprocess.run(
        [
            BIN / "nsq-worker",
            "dead",
            "list",
            "retry_then_dead_letters:app",
            f"--nsqd-http-address={nsqd.http_address}",
        ],
        env=os.environ | {"NSQD_TCP_ADDRESS": nsqd.tcp_address, "PYTHONPATH": importable_from(EXAMPLES)},
        capture_output=True,
        text=True,
        timeout=40,
        check=True,
    )
    assert "a negative amount" in dead.stdout


def test_the_rate_is_limited(nsqd, start):
    nsqd.publish("emails", *map(str, range(12)))
    example = start("rate_limited.py", PER_SECOND="10")
    wait_until(lambda: example.output().count("sent") == 12, 40, "12 emails")
    times_s = [float(found) for found in re.findall(r"(\S+) sent", example.output())]
    assert max(times_s) - min(times_s) > 0.6  # eleven intervals of 100 ms, if the first one was not late
    assert channel(nsqd, "emails")["requeue_count"] == 0


def test_a_message_is_deferred_until_its_time(nsqd, start):
    reader = start("scheduled.py", LONGEST_DEFER_S="0.2")
    wait_until(lambda: channels(nsqd, "reminders"), 40, "the reader")
    reader.wait_for("ten seconds are over")
    began_s = time.monotonic()
    assert start("scheduled.py", "1", "call Ann", LONGEST_DEFER_S="0.2").wait_for_end() == 0
    reader.wait_for("(?m)^call Ann$")
    assert time.monotonic() - began_s >= 1
    wait_until_all_are_finished(nsqd, "reminders")
    assert channel(nsqd, "reminders.later")["requeue_count"] >= 1


def test_a_caller_gets_its_reply(nsqd, start):
    start("request_reply.py", "serve")
    callers = [start("request_reply.py", "call", str(number), "4") for number in range(3)]
    assert [caller.wait_for_end() for caller in callers] == [0, 0, 0]
    assert [caller.output().strip() for caller in callers] == ["4", "5", "6"]
    wait_until(lambda: len(nsqd.stats()["topics"]) == 1, 40, "the topics of the callers to be deleted")


@pytest.mark.parametrize(
    "name",
    sample(
        "scheduled",
        "batches_to_polars",
        "exactly_once_sqlite",
        "outbox",
        "rate_limited",
        "retry_then_dead_letters",
    ),
)
def test_ctrl_c_ends_it_without_a_traceback(nsqd, start, name):
    example = start(f"{name}.py")
    wait_until(lambda: nsqd.stats()["topics"], 40, "its first command to arrive")
    example.end()
    assert "Traceback" not in example.output()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_the_worker_finishes_what_it_has(nsqd, start, number):
    nsqd.publish("orders", *map(str, range(6)))
    worker = start(*RUN_WORKER, PYTHONPATH=importable_from(WORKER), WORK_S="0.5")
    wait_until(lambda: worker.output().count("began") == 4, 40, "four handlers to begin")
    worker.send(number)
    assert worker.wait_for_end() == 0
    output = worker.output()
    assert output.count("finished") == output.count("began")
    statistics = channel(nsqd, "orders")
    assert statistics["depth"] == 6 - output.count("finished") and statistics["timeout_count"] == 0


def test_the_first_process_of_a_container_gets_the_signal(nsqd, start):
    """The kernel ignores signals to process 1 of a PID namespace for which it has no handler."""
    apart = ["unshare", "--pid", "--fork", "--kill-child"]
    if os.geteuid() != 0 or subprocess.run([*apart, "true"], check=False).returncode:
        pytest.skip("a PID namespace needs root")
    nsqd.publish("orders", "one")
    worker = start(*apart, *RUN_WORKER, PYTHONPATH=importable_from(WORKER), WORK_S="0.5")
    worker.wait_for("began one")
    (first,) = psutil.Process(worker.pid).children()
    first.send_signal(signal.SIGTERM)
    assert worker.wait_for_end() == 0
    assert "finished one" in worker.output()


def test_systemd_accepts_the_unit(tmp_path):
    unit = RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(WORKER / "nsq-worker.service")
    assert float(unit["Service"]["TimeoutStopSec"]) > worker_stop_timeout_s()
    if not Path("/usr/bin/systemd-analyze").exists():
        pytest.skip("without systemd-analyze, only the time-outs are compared")
    (tmp_path / "nsq-worker.service").write_text(
        (WORKER / "nsq-worker.service")
        .read_text()
        .replace("/opt/nsq-worker/venv/bin/nsq-worker", "/bin/true")
    )
    run = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / "nsq-worker.service"],
        capture_output=True,
        text=True,
    )
    assert [line for line in run.stderr.splitlines() if "nsq-worker" in line] == []


def worker_stop_timeout_s() -> float:
    return float(re.search(r"--stop-timeout=(\d+)s", (WORKER / "nsq-worker.service").read_text())[1])
