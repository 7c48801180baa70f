"""A child as its parent sees it: its process, the socket to it, and what it has reported."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from nsq_tools.worker.reports import Lines, Report

# The signals that stop a worker: to the supervisor, to one child, or to all of them.
STOPS = (signal.SIGTERM, signal.SIGINT)

_CHILD = "nsq_tools.worker.child"
_READ_BYTES = 256 * 1024


class ChildSettings(NamedTuple):
    """What every child gets on its command line, as JSON."""

    stop_timeout_s: float
    log_level: int
    log_format: str
    log_prefix: str


class Child:
    """A process that runs the handlers. Only the thread of the supervisor uses it.

    number      from 1 on; the child that replaces it has the same
    reported_s  when its last report came, on the clock of the supervisor; None before the first one
    hung_s      since when it reports a handler that calls over their time limit keep from all work; None if there is none
    ending_by_s when it is killed unless it has ended; None as long as it need not end
    """

    def __init__(self, app: str, number: int, settings: ChildSettings, now_s: float) -> None:
        """Start it, as an interpreter that has nothing of this one. Raises OSError."""
        self.number = number
        self.started_s = now_s
        self.reported_s: float | None = None
        self.hung_s: float | None = None
        self.ending_by_s: float | None = None
        self.report = Report()
        self._lines = Lines()
        self.socket, its_end = socket.socketpair()
        with its_end:
            self._process = subprocess.Popen(
                _command(app, number, its_end.fileno(), settings),
                pass_fds=[its_end.fileno()],
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C reaches the parent only, which says what to do
            )
        self.socket.setblocking(False)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_run(self) -> bool:
        """True if its handlers were running at some time."""
        return self.reported_s is not None and bool(self.report.handlers)

    def read(self, now_s: float) -> bool:
        """Take the reports that have come. Return False at their end."""
        try:
            while data := self.socket.recv(_READ_BYTES):
                for line in self._lines.feed(data):
                    self.report = Report.decode(line)
                    self.reported_s = now_s
                    self._note_hung(now_s)
        except BlockingIOError:
            return True
        except (OSError, ValueError):
            return False
        return False

    def _note_hung(self, now_s: float) -> None:
        if not self.report.hung:
            self.hung_s = None
        elif self.hung_s is None:
            self.hung_s = now_s

    def ask_to_end(self, timeout_s: float, kill_at_s: float) -> None:
        """Let it finish what runs within `timeout_s`; it is killed at `kill_at_s`."""
        self.ending_by_s = kill_at_s
        with suppress(OSError):  # it has ended, or its socket is full of orders that say the same
            self.socket.send(json.dumps({"stop": timeout_s}).encode() + b"\n")

    def kill(self) -> None:
        self._process.kill()

    def poll(self) -> int | None:
        """Return its exit status, negative for a signal; None as long as it runs."""
        return self._process.poll()

    def close(self, now_s: float) -> None:
        """Take its last reports, after its end."""
        self.read(now_s)
        self.socket.close()


def _command(app: str, number: int, descriptor: int, settings: ChildSettings) -> Sequence[str]:
    # -P: a module of the current directory must not replace one of the standard library in our own imports.
    words = [sys.executable, "-P", "-m", _CHILD, app, str(number), str(descriptor)]
    return [*words, json.dumps(settings._asdict())]


def end_of(status: int) -> str:
    """Return how a process ended: `was ended by SIGKILL`, `ended with status 1`."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
