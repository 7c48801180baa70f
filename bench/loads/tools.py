"""Tools and client libraries at work on a server that is the same for all. Messages per second.

Those that consume empty a channel that was filled before, and are timed from the first message that they finished
(so their start does not count) to the last but two windows. Those that publish are timed until the server has all.
"""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from bench import procfs
from bench.admin import Admin, channels_hold
from bench.loads.http_sink import http_sink
from bench.loads.mpub import fill
from bench.run import TOOL_COMMAND, Amount, Endpoint, LoadError, Run, Stopwatch
from bench.server import NSQD, Server
from bench.wire import BODY, CHANNEL, TOPIC

IN_FLIGHT = 2500
_STALLED_S = 30.0
_LOOK_EVERY_S = 0.02
_END_WITHIN_S = 60.0


class Child:
    """The tool, while it runs; what it says on standard error is kept for a failure."""

    def __init__(self, arguments: Sequence[str], directory: Path, **streams: Any) -> None:
        self._errors = directory / "errors"
        with self._errors.open("wb") as errors:
            command = [*shlex.split(os.environ[TOOL_COMMAND]), *arguments]
            self.process = subprocess.Popen(command, stderr=errors, **streams)

    def check(self) -> None:
        if self.process.poll() not in (None, 0):
            last_words = self._errors.read_text(errors="replace").strip()[-300:]
            raise LoadError(f"the tool ended with status {self.process.returncode}: {last_words}")

    def stop(self) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise LoadError(f"the tool did not stop within {_END_WITHIN_S:g} s") from None


@contextmanager
def running(arguments: Sequence[str], directory: Path, **streams: Any) -> Iterator[Child]:
    child = Child(arguments, directory, **streams)
    try:
        yield child
    finally:
        child.stop()


def _source(endpoint: Endpoint) -> list[str]:
    return [f"--nsqd-tcp-address=127.0.0.1:{endpoint.tcp_port}", f"--topic={TOPIC}", f"--channel={CHANNEL}"]


# ---- those that consume


def _drain(endpoint: Endpoint, amount: Amount, arguments: Sequence[str], output: IO[bytes] | None = None) -> Run:
    """Run the tool until the channel is empty."""
    admin = Admin(endpoint.http_port)
    admin.create()
    messages = fill(endpoint, amount.messages)
    admin.wait_for(channels_hold(messages), within_s=60)
    with tempfile.TemporaryDirectory(prefix="bench-tool-") as name:
        directory = Path(name)
        words = [word.replace("DIRECTORY", name) for word in arguments]
        stdout = output or subprocess.DEVNULL
        with running(words, directory, stdin=subprocess.DEVNULL, stdout=stdout) as child:
            return _time_draining(endpoint, admin, child, messages)


def _time_draining(endpoint: Endpoint, admin: Admin, child: Child, messages: int) -> Run:
    before = _finished(admin, child, messages, above=0)
    watch = Stopwatch(endpoint.pid)
    cpu_s = procfs.cpu_s(child.process.pid)
    # The rest may wait for a time-out: of an output buffer, or until the next sync.
    enough = messages - 2 * IN_FLIGHT
    done = before
    while done < enough:
        done = _finished(admin, child, messages, above=done)
    cpu_s = procfs.cpu_s(child.process.pid) - cpu_s
    watch.stop()
    watch.others_cpu_s = max(watch.others_cpu_s - cpu_s, 0)
    watch.client_cpu_s = cpu_s
    return watch.rate(done - before)


def _finished(admin: Admin, child: Child, messages: int, *, above: int) -> int:
    """How many are finished, as soon as it is more than `above`."""
    deadline_s = time.monotonic() + _STALLED_S
    while True:
        channel = admin.topic()["channels"][0]
        finished: int = messages - channel["depth"] - channel["in_flight_count"] - channel["deferred_count"]
        if finished > above:
            return finished
        child.check()
        if time.monotonic() > deadline_s:
            raise LoadError(f"no message finished for {_STALLED_S:g} s, {finished} of {messages} so far")
        time.sleep(_LOOK_EVERY_S)


def to_file(endpoint: Endpoint, amount: Amount) -> Run:
    return _drain(endpoint, amount, _to_file(endpoint))


def to_file_gzip(endpoint: Endpoint, amount: Amount) -> Run:
    return _drain(endpoint, amount, [*_to_file(endpoint), "--gzip"])


def _to_file(endpoint: Endpoint) -> list[str]:
    return [*_source(endpoint), "--output-dir=DIRECTORY", f"--max-in-flight={IN_FLIGHT}"]


def tail(endpoint: Endpoint, amount: Amount) -> Run:
    with tempfile.TemporaryFile() as output:
        run = _drain(endpoint, amount, [*_source(endpoint), f"--max-in-flight={IN_FLIGHT}"], output)
        expected = run.messages * (len(BODY) + 1)
        if output.seek(0, os.SEEK_END) < expected:
            raise LoadError(f"{output.tell()} bytes were written, expected about {expected}")
    return run


def consume(endpoint: Endpoint, amount: Amount) -> Run:
    return _drain(endpoint, amount, [f"127.0.0.1:{endpoint.tcp_port}", TOPIC, CHANNEL])


def to_http(endpoint: Endpoint, amount: Amount) -> Run:
    with http_sink() as port:
        words = [f"--post=http://127.0.0.1:{port}/", "--n=100", "--status-every=0"]
        return _drain(endpoint, amount, [*_source(endpoint), f"--max-in-flight={IN_FLIGHT}", *words])


def to_nsqd(endpoint: Endpoint, amount: Amount) -> Run:
    with Server(NSQD, [sys.executable, "-m", NSQD.module]) as destination:
        words = [f"--destination-nsqd-tcp-address=127.0.0.1:{destination.endpoint.tcp_port}", "--status-every=0"]
        run = _drain(endpoint, amount, [*_source(endpoint), f"--max-in-flight={IN_FLIGHT}", *words])
        arrived = Admin(destination.endpoint.http_port).topic()["message_count"]
        if arrived < run.messages:
            raise LoadError(f"the other nsqd has {arrived} messages, expected {run.messages}")
        return run


# ---- those that publish


def to_nsq(endpoint: Endpoint, amount: Amount) -> Run:
    """A file of lines on standard input; its start counts, as it does for whoever waits for it."""
    with tempfile.TemporaryDirectory(prefix="bench-tool-") as name:
        lines = Path(name) / "lines"
        lines.write_bytes((BODY + b"\n") * amount.messages)
        arguments = [f"--nsqd-tcp-address=127.0.0.1:{endpoint.tcp_port}", f"--topic={TOPIC}"]
        with lines.open("rb") as stdin:
            child = Child(arguments, Path(name), stdin=stdin, stdout=subprocess.DEVNULL)
            return _time_publishing(endpoint, child, amount.messages)


def stat(endpoint: Endpoint, amount: Amount) -> Run:
    """Return the processor time in seconds of ten reports."""
    Admin(endpoint.http_port).create()
    arguments = [f"--nsqd-http-address=127.0.0.1:{endpoint.http_port}", f"--topic={TOPIC}", f"--channel={CHANNEL}"]
    with tempfile.TemporaryDirectory(prefix="bench-tool-") as name:
        words = [*arguments, "--interval=100ms", "--count=10"]
        child = Child(words, Path(name), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        watch = Stopwatch(endpoint.pid)
        _wait_for_end(child, watch)
        return watch.run(watch.client_cpu_s, 10)


def produce(endpoint: Endpoint, amount: Amount) -> Run:
    with tempfile.TemporaryDirectory(prefix="bench-tool-") as name:
        arguments = [f"127.0.0.1:{endpoint.tcp_port}", TOPIC, str(amount.messages)]
        child = Child(arguments, Path(name), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.process.stdin is not None and child.process.stdout is not None
        child.process.stdout.readline()
        child.process.stdin.write(b"go\n")
        child.process.stdin.flush()
        return _time_publishing(endpoint, child, amount.messages)


def _time_publishing(endpoint: Endpoint, child: Child, messages: int) -> Run:
    watch = Stopwatch(endpoint.pid)
    _wait_for_end(child, watch)
    count = Admin(endpoint.http_port).topic()["message_count"]
    if count != messages:
        raise LoadError(f"the server has {count} messages, {messages} were to be published")
    return watch.rate(messages)


def _wait_for_end(child: Child, watch: Stopwatch) -> None:
    """Stop the watch, whose client is the child. Raises LoadError if that failed."""
    _, status, used = os.wait4(child.process.pid, 0)
    watch.stop()
    child.process.returncode = os.waitstatus_to_exitcode(status)
    child.check()
    cpu_s = used.ru_utime + used.ru_stime
    watch.others_cpu_s, watch.client_cpu_s = max(watch.others_cpu_s - cpu_s, 0), cpu_s
