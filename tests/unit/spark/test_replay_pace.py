"""The pace of a replay, with a clock that is moved by hand."""

from __future__ import annotations

import numpy as np
import pytest

from nsq_spark.replay.task import Pace, PaceOfTask

SECOND_NS = 1_000_000_000


def sent_in(pace: Pace, seconds: float, times_ns: list[int] | None = None, left: int = 10**9) -> int:
    """How many leave when somebody sends all he may, and waits as long as he is notified."""
    now_s, count = 0.0, 0
    times = None if times_ns is None else np.array(times_ns)
    while left:
        rest = None if times is None else times[count:]
        ready = pace.ready(rest, left, now_s)
        pace.sent(ready)
        count += ready
        left -= ready
        if left and not ready:
            wait_s = pace.wait_s(rest, now_s)
            assert wait_s > 0
            now_s += wait_s
            if now_s > seconds:
                break
    return count


@pytest.mark.parametrize("rate", [0.5, 1.0, 7.0, 1000.0, 2_500_000.0])
def test_a_rate_is_kept(rate: float) -> None:
    assert sent_in(PaceOfTask(rate).begin(0.0, 0.0), 20.0) == pytest.approx(20 * rate, abs=1 + rate * 0.1)


def test_a_rate_makes_up_for_no_long_stop() -> None:
    bucket = PaceOfTask(1000.0).begin(0.0, 0.0)
    assert bucket.ready(None, 10**6, 3600.0) == 100


def test_the_gaps_of_the_archive_are_kept() -> None:
    pace = PaceOfTask(speed=1.0, origin_ns=500, start_s=10.0).begin(0.0, 0.0)
    times = np.array([500, 500 + SECOND_NS, 500 + 3 * SECOND_NS])
    assert pace.ready(times, 3, 9.9) == 0
    assert pace.ready(times, 3, 10.0) == 1
    assert pace.wait_s(times[1:], 10.0) == pytest.approx(1.0, abs=0.01)
    assert pace.ready(times, 3, 11.0) == 2
    assert pace.ready(times, 3, 13.0) == 3


def test_what_is_late_leaves_at_once_and_delays_nothing() -> None:
    pace = PaceOfTask(speed=1.0, origin_ns=0, start_s=0.0).begin(0.0, 0.0)
    times = np.array([0, SECOND_NS, 2 * SECOND_NS, 60 * SECOND_NS])
    assert pace.ready(times, 4, 30.0) == 3
    assert pace.wait_s(times[3:], 30.0) == pytest.approx(30.0, abs=0.01)


def test_messages_close_together_wait_once() -> None:
    times = [number * 1000 for number in range(100_000)]  # 0.1 s of the archive
    pace = PaceOfTask(speed=1.0, origin_ns=0, start_s=0.0).begin(0.0, 0.0)
    now_s, waits, count = 0.0, 0, 0
    while count < len(times):
        rest = np.array(times[count:])
        ready = pace.ready(rest, len(rest), now_s)
        count += ready
        if not ready:
            waits += 1
            now_s += pace.wait_s(rest, now_s)
    assert waits <= 25
    assert now_s == pytest.approx(0.1, abs=0.02)


def test_of_two_paces_the_slower_one_counts() -> None:
    times = [number * SECOND_NS // 1000 for number in range(1000)]
    for seconds, count in (2.0, 20), (20.0, 100):
        both = PaceOfTask(10.0, 1.0).begin(0.0, 0.0)
        assert sent_in(both, seconds, times, left=100) == pytest.approx(count, abs=2)


def test_a_task_that_begins_late_is_where_the_others_are() -> None:
    pace = PaceOfTask(speed=1.0, origin_ns=0, start_s=1_700_000_000.0).begin(now_s=50.0, wall_s=1_700_000_004.0)
    times = np.array([number * SECOND_NS for number in range(10)])
    assert pace.ready(times, 10, 50.0) == 5
