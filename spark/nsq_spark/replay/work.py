"""What every process that works on a job is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nsq_spark.replay.checkpoint import CheckpointPlace
from nsq_spark.replay.job import Job
from nsq_spark.replay.marks import Mark, Range
from nsq_spark.replay.progress import BoardPlace


@dataclass(frozen=True, slots=True)
class Setup:
    """The same for all tasks.

    cut          the last mark that is within the limit, where there is one
    line         where tasks write down how far they are
    checkpoint   where what is acknowledged is written down, where it is
    done         what is acknowledged already, by lane
    is_unsure    an earlier run was killed: what it had on the way may be there as well
    """

    job: Job
    cut: Mark | None = None
    line: BoardPlace | None = None
    checkpoint: CheckpointPlace | None = None
    done: Mapping[str, tuple[Range, ...]] = field(default_factory=dict)
    is_unsure: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a task: Spark tries again where an executor is lost. `id` is unique in the run."""

    task: int
    id: int = 0
    number: int = 0
