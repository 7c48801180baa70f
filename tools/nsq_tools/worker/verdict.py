"""The state of all processes, as others than the supervisor read it, and whether it is healthy. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nsq_tools.worker.reports import Counts, Report

# A child reports every second.
STUCK_S = 5.0


class ProcessState(NamedTuple):
    """One process.

    pid         0 if it does not run; then `why` says why
    reported_s  when its last report came; None before the first one
    """

    number: int
    pid: int
    why: str
    reported_s: float | None
    report: Report


class Board(NamedTuple):
    """All processes of an nsq-worker.

    counts    those of all processes, also of those that have ended
    restarts  how many processes were started because another one had ended by itself
    """

    processes: tuple[ProcessState, ...] = ()
    counts: Counts = {}
    restarts: int = 0
    is_stopping: bool = False


def problems_of(board: Board, now_s: float) -> list[str]:
    """Return a line for each reason why the worker is not healthy."""
    if board.is_stopping:
        return ["the worker is stopping"]
    if not board.processes:
        return ["the worker is starting"]
    return [problem for process in board.processes for problem in _of_process(process, now_s)]


def unconnected(board: Board) -> Iterator[str]:
    """Yield a line for each consumer without a connection, and for each nsqd that refuses it.

    It gets no message, although its process is healthy.
    """
    for process in board.processes:
        name = f"process {process.number} (pid {process.pid})"
        for counts in process.report.handlers.values():
            if process.pid and not counts.connections:
                yield f"{name}: {counts.handler} has no connection for {counts.topic}/{counts.channel}"
        for refusal in process.report.refused:
            yield f"{name}: {refusal}"


def _of_process(process: ProcessState, now_s: float) -> Iterator[str]:
    if not process.pid:
        yield f"process {process.number} does not run: {process.why}"
        return
    name = f"process {process.number} (pid {process.pid})"
    if process.report.failure:
        yield f"{name}: {process.report.failure}"
    elif process.reported_s is None:
        yield f"{name} is starting"
    elif now_s - process.reported_s > STUCK_S:
        yield f"{name} has not reported for {now_s - process.reported_s:.0f} s: it hangs, or has no processor time"
    for handler in process.report.stopped:
        yield f"{name}: the consumer of {handler} has stopped"
    for handler in process.report.hung:
        yield f"{name}: calls over their time limit take all places of {handler}"
