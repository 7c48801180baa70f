"""What a task hands back to the driver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nsq_spark.archive.damage import Skipped
from nsq_spark.replay.progress import Counts


@dataclass(slots=True)
class TaskResult:
    """Of one task; an error that trying again would not mend is handed back, and does not fail Spark's task.

    payload              what the sink found
    damage               by path, what was passed over
    topics               what was sent, by the topic that it was sent to
    failures             what was said of messages that nsqd refused
    possible_duplicates  messages that may have been sent more than once
    """

    task: int
    counts: Counts
    payload: Any = None
    damage: dict[str, Skipped] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    possible_duplicates: int = 0
    error: Exception | None = None
    is_stopped: bool = False
