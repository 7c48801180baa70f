"""A standalone cluster of Spark on this machine: a master and its workers, each a process of Spark's own classes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from nsq_spark.session import java_home

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_AT = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Successfully registered with master")
_START_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.05
# Daemons that only keep a list: they start sooner without the optimising compiler.
_LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

T = TypeVar("T")


class StandaloneFailed(Exception):
    """A daemon ended, or did not come up; the text is the end of its log."""


@dataclass(frozen=True)
class Standalone:
    """A cluster that is up: the directory of Spark, the URL of its master, and the process ids of its workers."""

    home: str
    master: str
    workers: tuple[int, ...]


@contextmanager
def standalone(directory: Path, *, workers: int) -> Iterator[Standalone]:
    """Each worker has one core and 1 GB of memory; everything listens on 127.0.0.1. Raises StandaloneFailed."""
    environment = _environment(directory)
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, words: list[str]) -> Path:
        log_path = directory / f"{name}.log"
        with log_path.open("wb") as log:
            command = [f"{environment['SPARK_HOME']}/bin/spark-class", *words, "--host", "127.0.0.1"]
            processes.append(
                # In a session of its own: its executors are in it too, and end with it.
                subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
            )
        return log_path

    try:
        log = start("master", [_MASTER, "--port", "0", "--webui-port", "0"])
        master = _wait_for(lambda: _AT.search(_text(log)), processes, log)[1]
        size = ["--cores", "1", "--memory", "1g"]
        logs = [
            start(
                f"worker{number}",
                [_WORKER, *size, "--webui-port", "0", "--work-dir", f"{directory}/work", master],
            )
            for number in range(workers)
        ]
        for log in logs:
            _wait_for(lambda log=log: _REGISTERED.search(_text(log)), processes, log)  # type: ignore[misc]
        yield Standalone(environment["SPARK_HOME"], master, tuple(process.pid for process in processes[1:]))
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _environment(directory: Path) -> dict[str, str]:
    from pyspark.find_spark_home import _find_spark_home

    return {
        **os.environ,
        "JAVA_HOME": java_home(os.environ, directory),
        "SPARK_HOME": _find_spark_home(),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(directory),
        "SPARK_LAUNCHER_OPTS": _LIGHT,
        "SPARK_DAEMON_JAVA_OPTS": _LIGHT,
        "SPARK_DAEMON_MEMORY": "256m",
    }


def _wait_for(look: Callable[[], T | None], processes: list[subprocess.Popen[bytes]], log: Path) -> T:
    deadline_s = time.monotonic() + _START_WITHIN_S
    while (found := look()) is None:
        if time.monotonic() > deadline_s or any(process.poll() is not None for process in processes):
            raise StandaloneFailed(f"{log.stem} did not come up: {_text(log)[-500:]}")
        time.sleep(_LOOK_EVERY_S)
    return found


def _text(log: Path) -> str:
    return log.read_text("utf-8", "replace")
