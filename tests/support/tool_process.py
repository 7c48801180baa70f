"""A tool as a child process, with its standard error in a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tests.support import forked
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
    """Runs from `with` to its end; killed there if it still runs. It is forked from a process that has imported it."""

    def __init__(
        self,
        module: str,
        *flags: str,
        log_path: Path,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        directory: Path = REPOSITORY,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`module` is that of the tool, nsq_apps, and the first flag that of the tool; `stdin` and `stdout` are as for Popen.

        directory    where it runs
        environment  that of the tests if None, with what a test has set since
        """
        self._log_path = log_path
        self._streams = stdin, stdout
        self._pipes: dict[int, IO[bytes]] = {}
        self._directory = directory
        self._environment = environment
        self._command = [sys.executable, "-m", module, *flags]

    def __enter__(self) -> Self:
        environment = self._environment or {**os.environ, "PYTHONPATH": ENVIRONMENT["PYTHONPATH"]}
        with ExitStack() as theirs:
            streams = [theirs.enter_context(self._opened(number)) for number in range(2)]
            streams.append(theirs.enter_context(self._log_path.open("wb")))
            descriptors = [stream.fileno() for stream in streams]
            self._process = forked.start(
                self._command, self._directory, descriptors, environment
            ) or subprocess.Popen(
                self._command,
                cwd=self._directory,
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
                env=environment,
            )
        return self

    def _opened(self, number: int) -> AbstractContextManager[IO[bytes]]:
        """Return what the tool gets as standard input, 0, or output, 1; of a pipe, the other end stays here."""
        stream = self._streams[number]
        if not isinstance(stream, int):
            return nullcontext(stream)
        if stream == subprocess.DEVNULL:
            return open(os.devnull, "r+b")
        assert stream == subprocess.PIPE
        reader, writer = os.pipe()
        ends = [os.fdopen(reader, "rb"), os.fdopen(writer, "wb")]
        self._pipes[number] = ends.pop(1 - number)
        return ends[0]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_running:
            self.kill()
        for pipe in self._pipes.values():
            with suppress(BrokenPipeError):
                pipe.close()
        if error is not None:
            print(self.log_text())  # pytest shows it with the failure

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self.wait()

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
        return self._pipes[0]

    def end_input(self) -> None:
        """It has read all that there will be."""
        self.stdin.close()

    @property
    def stdout(self) -> IO[bytes]:
        """What it writes, if that is a pipe."""
        return self._pipes[1]

    def output(self) -> bytes:
        """What it has written to standard output; only when it has ended."""
        return self.stdout.read()

    def log_text(self) -> str:
        return self._log_path.read_text("utf-8", "replace")

    def wait_for_log(self, text: str) -> None:
        wait_until(lambda: text in self.log_text(), what=f"{text!r} in the log")


def run_tool(
    module: str,
    *flags: str,
    input: Any = "",
    text: bool = True,
    env: Mapping[str, str] = os.environ,
    directory: Path = REPOSITORY,
    timeout_s: float = 60,
) -> subprocess.CompletedProcess[Any]:
    """Run one that ends by itself; the settings are those of `subprocess.run`."""
    command = [sys.executable, "-m", module, *flags]
    given = input.encode() if isinstance(input, str) else input
    if forked.can_start(command):
        done = forked.run(command, directory, env, given or b"", timeout_s)
    else:
        done = subprocess.run(
            command, cwd=directory, input=given, capture_output=True, env=env, timeout=timeout_s
        )
    if text:
        done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
    return done


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
