"""A replay, from the driver: what has to be known first, then the tasks, then what came of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from nsq_spark.replay.checkpoint import Checkpoint
from nsq_spark.replay.engine import Engine, JobFailed, as_context
from nsq_spark.replay.errors import Stopped
from nsq_spark.replay.look import Look, Looking
from nsq_spark.replay.outcome import Outcome
from nsq_spark.replay.planning import Plan
from nsq_spark.replay.progress import Board, Counts
from nsq_spark.replay.routes import Routes
from nsq_spark.replay.sinks import MakeSink, Sending
from nsq_spark.replay.work import Setup


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is. The share that is done is read_bytes / total_bytes; `phase` says what is done at the moment."""

    counts: Counts
    total_bytes: int
    seconds: float
    phase: str


OnProgress = Callable[[Progress], None]


def run(
    plan: Plan,
    spark: Any,
    on_progress: OnProgress | None = None,
    stop: threading.Event | None = None,
    checkpoint: Checkpoint | None = None,
) -> Outcome:
    """Send it all; `spark` is a SparkContext or a SparkSession.

    Blocks; calls `on_progress` a few times a second, and ends within 3 s once `stop` is set. What goes wrong with nsqd
    or with the archive is in the outcome. Raises BadJob (and BadPredicate) for what cannot be done.
    """
    outcome = Outcome(before=checkpoint.acknowledged if checkpoint is not None else 0)
    if checkpoint is not None and checkpoint.is_complete:
        return outcome
    _work(plan, spark, on_progress, stop or threading.Event(), checkpoint, Sending(), outcome)
    if checkpoint is not None and outcome.is_complete:
        if outcome.has_matched:
            checkpoint.completed()
        else:
            checkpoint.forget()
    return outcome


def preview(
    plan: Plan,
    spark: Any,
    on_progress: OnProgress | None = None,
    stop: threading.Event | None = None,
    first: int = 10,
    checkpoint: Checkpoint | None = None,
) -> tuple[Look, Outcome]:
    """What would be sent, without sending it; otherwise as `run`. The checkpoint stays as it is."""
    outcome, look = Outcome(), Look(first_count=first)
    work = partial(_work, plan, spark, on_progress, stop or threading.Event(), checkpoint, Looking(first), outcome)
    for found in work(is_dry=True):
        if found is not None:
            look.add(found)
    return look, outcome


def _work(
    plan: Plan,
    spark: Any,
    on_progress: OnProgress | None,
    stop: threading.Event,
    checkpoint: Checkpoint | None,
    make_sink: MakeSink,
    outcome: Outcome,
    *,
    is_dry: bool = False,
) -> list[Any]:
    """What the sinks found. The rest is added to the outcome."""
    context = as_context(spark)
    watch = _Watch(plan.size_bytes, on_progress)
    place = None if checkpoint is None or is_dry else checkpoint.place
    board = Board(context, None if place is None else place.directory)
    is_unsure = checkpoint is not None and not checkpoint.is_settled
    setup = Setup(plan.job, None, board.place, place, plan.done, is_unsure)
    engine = Engine(context, board, watch, stop)
    routes = Routes(plan, spark, engine, setup, checkpoint, partial(setattr, watch, "phase"))
    try:
        results = routes.run(make_sink)
        outcome.add(results)
        return [result.payload for result in results]
    except Stopped:
        outcome.is_stopped = True
    except JobFailed as error:
        outcome.failed(str(error))
    finally:
        outcome.seconds = watch.seconds
        board.close()
    if not outcome.counts.sent:
        outcome.counts = watch.last  # as far as it was heard of before it was ended by force
    return []


class _Watch:
    def __init__(self, total_bytes: int, on_progress: OnProgress | None) -> None:
        self._total_bytes = total_bytes
        self._on_progress = on_progress
        self._began_s = time.monotonic()
        self.phase = ""
        self.last = Counts()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began_s

    def __call__(self, counts: Counts) -> None:
        self.last = counts
        if self._on_progress is not None:
            self._on_progress(Progress(counts, self._total_bytes, self.seconds, self.phase))
