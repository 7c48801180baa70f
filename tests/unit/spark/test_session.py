"""How Spark is started and ended, without waiting for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytest.importorskip("pyspark")

from nsq_spark.java import JavaNotFound, find_java
from nsq_spark.replay.console import Stopping
from nsq_spark.session import SessionFailed, SparkStart, reason_in


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where sessions put what is theirs."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    try:
        find_java(os.environ)
    except JavaNotFound as error:
        pytest.skip(str(error))
    return tmp_path


def test_a_start_that_is_given_up_leaves_nothing(scratch: Path) -> None:
    before = set(psutil.Process().children())
    with SparkStart("local[1]") as session:
        assert not session.has_started(0.2)
    assert set(psutil.Process().children()) <= before
    assert list(scratch.iterdir()) == []


def test_a_session_that_never_began_leaves_nothing(scratch: Path) -> None:
    SparkStart("local[1]").close()
    assert list(scratch.iterdir()) == []


def test_another_session_of_this_process_goes_on(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import SparkContext

    class Gateway:
        def shutdown(self) -> None:
            raise AssertionError("somebody else's")

    gateway = Gateway()
    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    with SparkStart("local[1]") as session:
        assert not session.has_started(0.2)
    assert SparkContext._gateway is gateway


def test_a_start_that_fails_says_why(scratch: Path) -> None:
    with SparkStart("local[1]", {"spark.driver.memory": "1k"}) as session, pytest.raises(SessionFailed) as raised:
        session.context()
    assert str(raised.value) == "Spark does not start on local[1]: Too small maximum heap"


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("", ""),
        ("Java says\nToo small maximum heap\n\n", "Too small maximum heap"),
        ("Error: Unrecognized option: --x\nRun with --help for usage help\n", "Unrecognized option: --x"),
        (
            'Exception in thread "main" org.apache.spark.SparkException: Driver cores must be a positive number\n'
            "\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)\n",
            "Driver cores must be a positive number",
        ),
        ("a.B: x\n\tat y\nCaused by: java.net.ConnectException: Connection refused\n\tat z", "Connection refused"),
    ],
)
def test_the_reason_is_the_last_error_in_the_log(log: str, reason: str) -> None:
    assert reason_in(log) == reason


# ---- signals


def test_before_the_work_a_signal_interrupts() -> None:
    with Stopping() as stopping, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert stopping.asked.is_set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_at_work_a_signal_asks_for_an_end(number: signal.Signals) -> None:
    handler = signal.getsignal(number)
    with Stopping() as stopping:
        stopping.is_at_work = True
        assert not stopping.asked.is_set()
        signal.raise_signal(number)
        assert stopping.asked.is_set()
    assert signal.getsignal(number) is handler


def test_a_second_signal_ends_the_process() -> None:
    code = """
import signal
from nsq_spark.replay.console import Stopping
with Stopping() as stopping:
    stopping.is_at_work = True
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=40, check=False).returncode == 1
