"""Commands that are forked from a process which has imported their modules: a start takes 0.04 CPU seconds, not 0.13.

A forked command has its own memory, descriptors, signals and environment, like one that is executed. Tests of what a
start itself does set `ServerProcess.is_executed`, and tools outside pytest execute all.

    python -m tests.support.forked MODULE     imports MODULE, and forks for each request on standard input, a socket
"""

from __future__ import annotations

import importlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

REPOSITORY = Path(__file__).resolve().parents[2]

# The modules that a program imports when it begins to work.
LATER: dict[str, tuple[str, ...]] = {
    "nsq_apps.nsqd": ("nsqd_py.broker.state_files", "nsqd_py.server.daemon"),
    "nsq_apps.nsqlookupd": ("nsqlookupd_py.daemon",),
    "nsq_apps.nsqadmin": ("nsqadmin_py.daemon",),
    "nsq_apps.nsq_cat": ("nsq_tools.cat.program", "nsq_tools.cat.reading"),
    "nsq_apps.nsq_stat": ("nsq_tools.stat.program", "nsq_tools.stat.checking", "nsq_tools.stat.reports"),
    "nsq_apps.nsq_tail": ("nsq_tools.tail.program", "nsq_tools.tail.tailing"),
    "nsq_apps.nsq_to_file": ("nsq_tools.to_file.program", "nsq_tools.to_file.service"),
    "nsq_apps.nsq_to_http": ("nsq_tools.to_http.program", "nsq_tools.to_http.run"),
    "nsq_apps.nsq_to_nsq": ("nsq_tools.nsq_to_nsq.program", "nsq_tools.nsq_to_nsq.forwarder"),
    "nsq_apps.nsq_worker": ("nsq_tools.worker.program", "nsq_tools.worker.commands"),
    "nsq_apps.to_nsq": ("nsq_tools.to_nsq.program", "nsq_tools.to_nsq.publisher"),
    "tests.support.django_program": (
        "django.core.cache.backends.filebased",
        "django.core.management.commands.check",
        "django.core.management.commands.migrate",
        "django.db.backends.sqlite3.base",
        "nsqd_py.client.blocking.consumer",
        "nsqd_py.django.backend",
        "nsqd_py.django.management.commands.nsq_worker",
    ),
}
ALWAYS = ("nsq_apps.starting", "nsqd_py.runtime.process", "encodings.idna")
_MOST_BYTES = 1 << 20


class Forked:
    """A process, with those methods of `Popen` that tests use."""

    def __init__(self, pid: int, ended: int) -> None:
        """`ended` is a descriptor from which its exit status can be read."""
        self.pid = pid
        self._ended = ended
        self._status: int | None = None
        self._is_read = threading.Lock()  # some tests ask from several threads

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self._status

    def wait(self, timeout_s: float) -> int:
        if self._status is None and not select.select([self._ended], [], [], timeout_s)[0]:
            raise subprocess.TimeoutExpired(str(self.pid), timeout_s)
        with self._is_read:
            if self._status is None:
                self._status = int(os.read(self._ended, 20))
            return self._status

    def __del__(self) -> None:
        os.close(self._ended)

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Template:
    """A process that has imported a program, and forks itself for each start. One thread may ask at a time."""

    def __init__(self, module: str) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, module], cwd=REPOSITORY, stdin=theirs
        )
        theirs.close()

    def start(
        self, flags: Sequence[str], directory: Path, streams: Sequence[int], environment: Mapping[str, str]
    ) -> Forked:
        os.umask(umask := os.umask(0))
        request = {
            "flags": flags,
            "directory": str(directory),
            "environment": dict(environment),
            "umask": umask,
        }
        ended, ends = os.pipe()
        socket.send_fds(self._socket, [json.dumps(request).encode()], [*streams, ends])
        os.close(ends)
        return Forked(int(self._socket.recv(20)), ended)


_templates: dict[str, Template | None] = {}


def fork_commands() -> None:
    """From now on, `start` forks what it can."""
    _templates.update(dict.fromkeys(LATER))


def can_start(command: Sequence[str]) -> bool:
    return _program_of(command)[0] in _templates


def start(
    command: Sequence[str],
    directory: Path,
    streams: Sequence[int],
    environment: Mapping[str, str] = os.environ,
) -> Forked | None:
    """Start a program with descriptors for its three standard streams. Return None if it has to be executed."""
    module, flags = _program_of(command)
    if module not in _templates:
        return None
    template = _templates[module] = _templates[module] or Template(module)
    return template.start(flags, directory, streams, environment)


def _program_of(command: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the module of the program, and its flags; no module if the command is not one of this Python."""
    match command:
        case [sys.executable, "-m", "nsq_apps", name, *flags]:
            return f"nsq_apps.{name}", flags
        case [sys.executable, "-m", module, *flags]:
            return module, flags
    return "", command


def run(
    command: Sequence[str], directory: Path, environment: Mapping[str, str], given: bytes, timeout_s: float
) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end, with these bytes in a pipe as its standard input."""
    reader, writer = os.pipe()
    with TemporaryFile() as output, TemporaryFile() as errors:
        streams = (reader, output.fileno(), errors.fileno())
        process = start(command, directory, streams, environment)
        os.close(reader)
        assert process is not None
        threading.Thread(target=_write, args=(writer, given), daemon=True).start()
        try:
            status = process.wait(timeout_s)
        finally:
            process.kill()
        return subprocess.CompletedProcess(command, status, _content(output), _content(errors))


def _write(descriptor: int, data: bytes) -> None:
    with suppress(BrokenPipeError), open(descriptor, "wb") as pipe:
        pipe.write(data)


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


# ---- in the template


def serve(requests: socket.socket) -> dict[str, Any]:
    """Fork for each request, and report how each child ends. Return the request in the child; SystemExit at the end."""
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    children: dict[int, tuple[int, int]] = {}
    while True:
        for ready, _ in poll.poll():
            if ready in children:
                pid, ends = children.pop(ready)
                poll.unregister(ready)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with suppress(BrokenPipeError):
                    os.write(ends, b"%d" % status)
                os.close(ends)
                os.close(ready)
                continue
            data, descriptors, _, _ = socket.recv_fds(requests, _MOST_BYTES, 4)
            if not data:
                sys.exit()
            *streams, ends = descriptors
            pid = os.fork()
            if not pid:
                for number, descriptor in enumerate(streams):
                    os.dup2(descriptor, number)
                requests.detach()
                os.closerange(3, 1024)
                return json.loads(data)
            for descriptor in streams:
                os.close(descriptor)
            ended = os.pidfd_open(pid)
            children[ended] = pid, ends
            poll.register(ended, select.POLLIN)
            requests.send(b"%d" % pid)


def open_streams() -> None:
    """Open the standard streams as Python does at its start: output to a terminal is written after each line."""
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)


if __name__ == "__main__":
    name = sys.argv[1]
    program = importlib.import_module(name)
    for later in (*ALWAYS, *LATER.get(name, ())):
        importlib.import_module(later)
    request = serve(socket.socket(fileno=os.dup(0)))
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    os.umask(request["umask"])
    open_streams()
    random.seed()  # not the sequence of all others
    sys.argv[:] = [str(program.__file__), *request["flags"]]
    sys.exit(program.main())
