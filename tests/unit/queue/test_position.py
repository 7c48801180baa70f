"""What a position costs with many runs: a seek of 125,000 ended after minutes, in which nsqd did nothing else."""

import time

import pytest

from nsqd_py.diskqueue.journals.ranges import SeqRanges
from nsqd_py.queue.position import Position

RUNS = 30_000
END = 2 * RUNS
# Each run took 0.2 ms, since it sorted all others.
MOST_S = 2.0


def holed() -> Position:
    """Every second message is finished, and the others were requeued, one by one."""
    position = Position(END, END)
    position.finished = SeqRanges(0, [(seq, seq + 1) for seq in range(1, END, 2)])
    for seq in range(0, END, 2):
        position.requeue((seq, seq + 1, 1, None))
    return position


@pytest.mark.parametrize("seq", [0, RUNS, END])
def test_a_seek_takes_time_for_each_run_once(seq: int) -> None:
    position = holed()
    began_s = time.process_time()
    assert position.seek(seq, (), (), 0, ()) == 0
    assert time.process_time() - began_s < MOST_S
    assert position.requeued_count == RUNS
    assert position.finished.island_count == seq // 2


def test_deferred_ones_too() -> None:
    position = holed()
    waiting = [position.take_requeued(1) for _ in range(RUNS)]
    for due_ns, run in enumerate(reversed(waiting)):
        position.defer(due_ns, run)
    not_due = [(low, high, END) for low, high in position.finished.islands()[RUNS // 2 :]]
    began_s = time.process_time()
    position.seek(RUNS, not_due, (), 0, ())
    assert time.process_time() - began_s < MOST_S
    assert len(position.deferred) == RUNS + RUNS // 2


def test_lost_messages_that_are_found_again() -> None:
    position = Position(END, END)
    for seq in range(0, END, 2):
        position.lost.add(seq, seq + 1)
        position.lost_waits.append((seq, seq + 1, -1, 2))
    began_s = time.process_time()
    assert len(position.forget_lost([(0, RUNS)])) == RUNS // 2
    assert time.process_time() - began_s < MOST_S
    assert len(position.lost_waits) == RUNS // 2
