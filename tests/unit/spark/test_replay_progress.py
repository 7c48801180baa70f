"""How the driver hears of tasks while they run, and tasks of an end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from nsq_spark.replay.errors import Stopped
from nsq_spark.replay.progress import Board, BoardPlace, ReplayCounts, TaskLine


class PlayedContext:
    """A SparkContext, as far as a board needs one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def getConf(self) -> dict[str, str]:
        return {"spark.local.dir": str(self._directory)}

    def accumulator(self, value: Any, param: Any) -> PlayedAccumulator:
        return PlayedAccumulator(param)


class PlayedAccumulator:
    def __init__(self, param: Any) -> None:
        self._param = param
        self.value = param.zero([])

    def add(self, value: Any) -> None:
        self.value = self._param.addInPlace(self.value, value)


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(PlayedContext(tmp_path))  # type: ignore[arg-type]


def test_the_last_try_of_each_task_counts(board: Board, tmp_path: Path) -> None:
    board.begin_job()
    times = iter(range(100))
    for attempt, sent in (0, 10), (1, 4):
        line = TaskLine(board.place, "send", 0, attempt, clock=lambda: float(next(times)))
        line.counts.sent = sent
        line.look()
    other = TaskLine(board.place, "read", 0, 0)
    other.counts.read = 7
    other.end()
    assert board.totals() == ReplayCounts(read=7, sent=4)
    board.begin_job()
    assert board.totals() == ReplayCounts()
    board.close()
    assert list(tmp_path.iterdir()) == []


def test_a_failure_is_heard_of_and_a_stop_too(board: Board) -> None:
    board.begin_job()
    TaskLine(board.place, "send", 0, 0).end("nsqd said no")
    board.totals()
    assert board.failure == "nsqd said no"
    line = TaskLine(board.place, "send", 1, 0)
    line.look()
    board.stop()
    with pytest.raises(Stopped):
        line.rest(1.0)


def test_executors_that_do_not_see_the_directory_tell_in_the_end(board: Board) -> None:
    board.begin_job()
    line = TaskLine(BoardPlace("/no/such/place", board.place.ended), "send", 3, 0)
    line.counts.sent = 5
    line.look()
    assert board.totals() == ReplayCounts()
    line.end()
    assert board.totals() == ReplayCounts(sent=5)
