"""Percentiles of the time from publish to finish: what counts, for how long, and how exactly."""

from __future__ import annotations

from typing import Any

import pytest

from nsqd_py.queue.in_flight import Delivery, LatencyMeter
from tests.unit.fakes import MS, SECOND, START_NS, FakeClock, make_batch

WINDOW_NS = 10 * SECOND


def make_meter(clock: FakeClock, *percentiles: float) -> LatencyMeter:
    return LatencyMeter(percentiles or (0.5,), WINDOW_NS, clock, clock)


def finish_after(meter: LatencyMeter, clock: FakeClock, latency_ns: int, count: int = 1) -> None:
    """Messages that were published so long ago are finished now."""
    batch = make_batch(0, *[b"m"] * count)
    batch.timestamp_ns = clock.now_ns - latency_ns
    meter.finished({Delivery(batch, batch.timestamp_ns, 1, 0, 0): count})


def count(meter: LatencyMeter) -> Any:
    return meter.statistics()["count"]


def test_percentiles_are_right_to_one_percent() -> None:
    clock = FakeClock()
    meter = make_meter(clock, 1.0, 0.99, 0.5, 0.01)
    for latency_ms in range(1, 1001):
        finish_after(meter, clock, latency_ms * MS)
    statistics = meter.statistics()
    assert statistics["count"] == 1000
    values_ms = [entry["value"] / MS for entry in statistics["percentiles"]]
    assert values_ms == [pytest.approx(value, rel=0.012) for value in (1000, 990, 500, 10)]


def test_the_window_forgets_half_of_itself_at_a_time() -> None:
    clock = FakeClock()
    meter = make_meter(clock)
    finish_after(meter, clock, MS)
    clock.now_ns = START_NS + WINDOW_NS // 2
    finish_after(meter, clock, MS)
    finish_after(meter, clock, MS)
    clock.now_ns = START_NS + WINDOW_NS - 1
    assert count(meter) == 3
    clock.now_ns += 1
    assert count(meter) == 2
    clock.now_ns = START_NS + WINDOW_NS * 3 // 2
    assert count(meter) == 0


def test_figures_of_several_meters_leave_each_as_it_was() -> None:
    clock = FakeClock()
    one, other = make_meter(clock), make_meter(clock)
    finish_after(one, clock, MS, count=2)
    finish_after(other, clock, SECOND, count=3)
    assert one.statistics([other])["count"] == 5
    assert one.statistics([other])["percentiles"][0]["value"] == pytest.approx(SECOND, rel=0.02)
    assert (count(one), count(other)) == (2, 3)


def test_a_wall_clock_that_was_set_back_gives_no_negative_latency() -> None:
    clock = FakeClock()
    meter = make_meter(clock)
    finish_after(meter, clock, -SECOND)
    assert meter.statistics() == {"count": 1, "percentiles": [{"quantile": 0.5, "value": 0.0}]}
