"""Statistics of the process: a histogram, the lag of the loop, pauses of the garbage collector."""

from __future__ import annotations

from math import inf

import pytest

from nsqd_py.debug import memory
from nsqd_py.runtime.pacing import INTERVAL_NS, Histogram, LoopLag
from tests.unit.fakes import MS, World


def test_a_histogram_counts_up_to_each_bound() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 7.0):
        histogram.observe(value)
    assert histogram.cumulative() == [(1.0, 2), (2.0, 3), (inf, 4)]
    assert (histogram.count, histogram.total) == (4, 10.0)


def test_lag_is_by_how_much_the_alarm_rings_too_late() -> None:
    world = World()
    lag = LoopLag(world.alarms, world.clock)
    lag.start()
    world.pass_time(2 * INTERVAL_NS)  # in time
    assert (lag.lags_s.count, lag.lags_s.total) == (2, 0.0)
    world.clock.now_ns += INTERVAL_NS + 30 * MS  # the loop was busy
    world.alarms.ring_due(world.clock.now_ns)
    assert (lag.lags_s.count, round(lag.lags_s.total, 6)) == (3, 0.03)
    lag.stop()
    world.pass_time(10 * INTERVAL_NS)
    assert lag.lags_s.count == 3


@pytest.mark.parametrize(
    ("part", "ordered", "expected"),
    [(1.0, [1, 2, 3], 3), (0.5, list(range(100)), 50), (0.95, [7], 7), (0.99, [], 0)],
)
def test_percentiles_of_few_values(part: float, ordered: list[int], expected: int) -> None:
    assert memory.percentile(part, ordered) == expected
