"""Daemons that are forked from a process which has imported their modules: a start takes 0.04 CPU seconds, not 0.13.

A forked daemon has its own memory, descriptors, signals and environment, like one that is executed. Tests of what a
start itself does set `ServerProcess.is_executed`, and tools outside pytest execute all.

    python -m tests.support.forked MODULE     imports MODULE, and forks for each request on standard input, a socket
"""

from __future__ import annotations

import contextlib
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# The modules that a program imports when it begins to serve.
LATER = {
    "nsq_apps.nsqd": ("nsqd_py.broker.state_files", "nsqd_py.server.daemon"),
    "nsq_apps.nsqlookupd": ("nsqlookupd_py.daemon",),
    "nsq_apps.nsqadmin": ("nsqadmin_py.daemon",),
}
ALWAYS = ("nsq_apps.starting", "encodings.idna")
_MOST_BYTES = 1 << 20


class Forked:
    """A process, with those methods of `Popen` that ServerProcess uses."""

    def __init__(self, pid: int, ended: int) -> None:
        """`ended` is a descriptor from which its exit status can be read."""
        self.pid = pid
        self._ended = ended
        self._status: int | None = None
        self._is_read = threading.Lock()  # some tests ask from several threads

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
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


class Template:
    """A process that has imported a program, and forks itself for each start. One thread may ask at a time."""

    def __init__(self, module: str, directory: Path) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, module], cwd=directory, stdin=theirs
        )
        theirs.close()

    def start(self, flags: Sequence[str], output: int) -> Forked:
        os.umask(umask := os.umask(0))
        request = {"flags": flags, "environment": dict(os.environ), "umask": umask}
        ended, ends = os.pipe()
        with open(os.devnull) as nothing:
            socket.send_fds(
                self._socket, [json.dumps(request).encode()], [nothing.fileno(), output, output, ends]
            )
        os.close(ends)
        return Forked(int(self._socket.recv(20)), ended)


_templates: dict[str, Template | None] = {}


def fork_daemons() -> None:
    """From now on, `start` forks what it can."""
    _templates.update(dict.fromkeys(LATER))


def start(command: Sequence[str], directory: Path, output: int) -> Forked | None:
    """Return the started program; None if it has to be executed."""
    module = command[2] if command[:2] == [sys.executable, "-m"] else ""
    if module not in _templates:
        return None
    template = _templates[module] = _templates[module] or Template(module, directory)
    return template.start(command[3:], output)


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
                with contextlib.suppress(BrokenPipeError):
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


if __name__ == "__main__":
    name = sys.argv[1]
    program = importlib.import_module(name)
    for later in (*ALWAYS, *LATER.get(name, ())):
        importlib.import_module(later)
    request = serve(socket.socket(fileno=os.dup(0)))
    os.environ.clear()
    os.environ.update(request["environment"])
    os.umask(request["umask"])
    random.seed()  # not the sequence of all others
    sys.argv[:] = [str(program.__file__), *request["flags"]]
    sys.exit(program.main())
