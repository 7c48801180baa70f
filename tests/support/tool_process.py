"""A tool as a child process, with its standard error in a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tests.support.nsqd_process import REPOSITORY, NsqdProcess, wait_until
from tests.support.wire import mpub_body

# Flags of a consumer: what fails comes again soon.
SOON = (
    "--consumer-opt=default_requeue_delay,10ms",
    "--consumer-opt=backoff_multiplier,10ms",
    "--consumer-opt=max_backoff_duration,20ms",
)
STOP_DEADLINE_S = 40.0
# `python -m` finds the modules from any directory.
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(filter(None, (str(REPOSITORY), os.getenv("PYTHONPATH")))),
}


class ToolProcess:
    """Runs from `with` to its end; killed there if it still runs."""

    def __init__(
        self,
        module: str,
        *flags: str,
        log_path: Path,
        stdin: int | IO[bytes] | None = None,
        stdout: int | IO[bytes] = subprocess.PIPE,
        directory: Path = REPOSITORY,
    ) -> None:
        """`module` is that of the tool, nsq_apps, and the first flag that of the tool; `stdin` and `stdout` are as for Popen.

        directory  where it runs
        """
        self._log_path = log_path
        self._streams = stdin, stdout
        self._directory = directory
        self._command = [sys.executable, "-m", module, *flags]

    def __enter__(self) -> Self:
        with self._log_path.open("wb") as log:
            stdin, stdout = self._streams
            self._process = subprocess.Popen(
                self._command,
                cwd=self._directory,
                stdin=stdin,
                stdout=stdout,
                stderr=log,
                env={**os.environ, "PYTHONPATH": ENVIRONMENT["PYTHONPATH"]},  # with what a test has set since
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()
        if error is not None:
            print(self.log_text())  # pytest shows it with the failure

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """The exit status, when it has ended."""
        return self._process.wait(STOP_DEADLINE_S)

    def stop(self) -> int:
        """Ends it with SIGTERM; the exit status."""
        self.signal()
        return self.wait()

    @property
    def stdin(self) -> IO[bytes]:
        """Where it reads from, if that is a pipe."""
        return self._process.stdin

    def end_input(self) -> None:
        """It has read all that there will be."""
        self.stdin.close()
        self._process.stdin = None

    @property
    def stdout(self) -> IO[bytes]:
        """What it writes, if that is a pipe."""
        return self._process.stdout

    def output(self) -> bytes:
        """What it has written to standard output; only when it has ended."""
        return self.stdout.read()

    def log_text(self) -> str:
        return self._log_path.read_text("utf-8", "replace")

    def wait_for_log(self, text: str) -> None:
        wait_until(lambda: text in self.log_text(), what=f"{text!r} in the log")


def run_tool(module: str, *flags: str, **settings: Any) -> subprocess.CompletedProcess[Any]:
    """Run one that ends by itself; the settings are those of `subprocess.run`."""
    defaults = {"cwd": REPOSITORY, "capture_output": True, "text": True, "timeout": 60}
    return subprocess.run([sys.executable, "-m", module, *flags], **{**defaults, **settings})


def publish(nsqd: NsqdProcess, topic: str, *bodies: bytes) -> None:
    nsqd.post(f"/mpub?topic={topic}&binary=true", mpub_body(bodies))


def numbered(count: int) -> list[bytes]:
    return [b"message %d" % number for number in range(count)]


def wait_until_all_are_done(nsqd: NsqdProcess, topic: str = "t") -> int:
    """Until the tool, which has to run, has finished all that was published; how often messages were requeued."""

    def requeue_counts() -> list[int]:
        stats = nsqd.topic_stats(topic)
        assert stats
        channel = stats["channels"][0]
        finished = sum(client["finish_count"] for client in channel["clients"])
        return [channel["requeue_count"]] if finished == stats["message_count"] else []

    return wait_until(requeue_counts, what="all messages to be finished")[0]


def run_script(text: str, **names: object) -> subprocess.CompletedProcess[str]:
    """Run a program of Python in which these names have these values."""
    code = "\n".join([*(f"{name} = {value!r}" for name, value in names.items()), text])
    return subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=300
    )
