"""`python -P -m nsq_tools.worker.child APP NUMBER DESCRIPTOR SETTINGS`: the consumers of one process, for nsq-worker.

The descriptor is a socket to the parent. It carries reports to it and orders from it, a line each. At its end the parent
has ended, whatever has ended it, and so does this process: unfinished messages come again at once.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from threading import Timer
from time import monotonic
from types import FrameType

from nsq_tools.worker.apps import load_app
from nsq_tools.worker.child_log import take_logging
from nsq_tools.worker.children import STOPS, ChildSettings
from nsq_tools.worker.durations import Durations, report_of
from nsq_tools.worker.reports import Lines, Report
from nsqd_py.client.errors import NsqClientError
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.settings.program import DONE, FAILED, ToolError
from nsqd_py.work.running import Running

REPORT_S = 1.0
# While it stops, it looks this often whether it has.
_STOPPING_S = 0.05
_READ_BYTES = 4096
# The time for what was published, and for the last report, when everything is over; and then for the end of the interpreter.
_CLOSE_S = 2.0
_EXIT_S = 5.0
# The child that runs the schedules.
FIRST = "1"


class Link:
    """The socket to the parent. A report that the parent does not take is left out: no handler waits for the parent."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        os.set_inheritable(sock.fileno(), False)  # programs that handlers start must not hold it
        self.socket = sock
        self._lines = Lines()
        self._unsent = b""

    def send(self, report: Report) -> None:
        """Send it, if what was sent before has left."""
        if not self._unsent:
            self._unsent = report.encode()
        with suppress(OSError):  # full, or the parent is gone: `orders` sees that
            self._unsent = self._unsent[self.socket.send(self._unsent) :]

    def send_last(self, report: Report, timeout_s: float) -> None:
        """Send it, and wait for a parent that is slow."""
        self.socket.settimeout(timeout_s)
        with suppress(OSError):
            self.socket.sendall(self._unsent + report.encode())

    def orders(self) -> list[float] | None:
        """Return how long handlers may still run, for each order to stop; None if the parent has ended."""
        try:
            data = self.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if data:
            return [float(json.loads(line)["stop"]) for line in self._lines.feed(data)]
        return None


def serve(link: Link, running: Running, durations: Durations, timeout_s: float) -> None:
    """Report to the parent and follow its orders until the consumers have ended."""
    signals = 0
    has_orders = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        """Stop; at the second signal to this process alone, at once. Once the parent has said when, only that counts."""
        nonlocal signals
        signals += 1
        if not has_orders:
            running.begin_to_stop(0.0 if signals > 1 else timeout_s)

    for each in STOPS:
        signal.signal(each, on_signal)
    report_at_s = 0.0
    while not running.wait(0):
        if running.failure is not None:
            running.begin_to_stop(timeout_s)
        if running.is_stopping and running.has_only_late:  # threads that hang are not waited for
            running.begin_to_stop(0.0)
        if monotonic() >= report_at_s:
            report_at_s = monotonic() + REPORT_S
            link.send(report_of(running, durations))
        pause_s = _STOPPING_S if running.is_stopping else REPORT_S
        select.select([link.socket], (), (), pause_s)
        orders = link.orders()
        if orders is None:  # the parent has ended
            running.begin_to_stop(0.0)
            running.wait(_CLOSE_S)
            return
        for order_s in orders:
            has_orders = True
            running.begin_to_stop(order_s)


def main() -> int:
    """Run the consumers until the parent says so, or ends. Return the exit status."""
    path, number, descriptor, encoded = sys.argv[1:]
    settings = ChildSettings(**json.loads(encoded))
    link = Link(socket.socket(fileno=int(descriptor)))
    prefix = f"{settings.log_prefix.rstrip(' ]')} {number}] "
    log = Log(prefix, settings.log_level, form=settings.log_format)
    durations = Durations()
    try:
        app = load_app(path)
        take_logging(log)
        app.watchers = (durations,)
        running = app.start(has_schedules=number == FIRST)
    except (ToolError, NsqClientError) as error:
        link.send_last(Report(failure=str(error)), _CLOSE_S)
        return FAILED
    log.info("%s runs as pid %d", path, os.getpid())
    serve(link, running, durations, settings.stop_timeout_s)
    try:
        app.close(_CLOSE_S)
    except NsqClientError as error:
        log.error("not all was published: %s", error)
    last = report_of(running, durations)
    link.send_last(last, _CLOSE_S)
    return FAILED if last.failure else DONE


def _leave_in_time() -> None:
    """End the process soon, whatever threads of the app still run, or what it does at its exit."""
    timer = Timer(_EXIT_S, os._exit, (FAILED,))
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    status = main()
    _leave_in_time()
    sys.exit(status)
