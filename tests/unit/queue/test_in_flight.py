"""What one client has in flight."""

from __future__ import annotations

from typing import Any

import pytest

from nsqd_py.protocol.frames import hex_ids
from nsqd_py.queue.in_flight import Delivery, InFlightTable, LatencyMeter
from tests.unit.fakes import MS, SECOND, START_NS, FakeClock, make_batch

BATCH = make_batch(0, *[b"x"] * 100)
TIMEOUT = 60
MAX_TIMEOUT = 100


def deliver(table: InFlightTable, first: int, count: int, now_ns: int = 0, attempts: int = 1) -> list[bytes]:
    ids = hex_ids(BATCH.base_id + first, count)
    table.add(ids, first, Delivery(BATCH, BATCH.timestamp_ns, attempts, now_ns, now_ns + TIMEOUT))
    return ids


def test_touching_without_end_holds_bounded_memory() -> None:
    table = InFlightTable()
    ids = deliver(table, 0, 10)
    for now_ns in range(1000):
        for message_id in ids:
            assert table.touch(message_id, now_ns, TIMEOUT, 1 << 40)
    assert len(table._touch_heap) <= 2 * len(ids) + 64 + 1
    assert table.expire(999 + TIMEOUT - 1) == []
    assert sorted(seq for seq, _ in table.expire(999 + TIMEOUT)) == list(range(10))


def test_an_earlier_touch_rings_nothing() -> None:
    table = InFlightTable()
    (only,) = deliver(table, 10, 1)
    table.touch(only, 10, TIMEOUT, MAX_TIMEOUT)  # until 70
    table.touch(only, 30, TIMEOUT, MAX_TIMEOUT)  # until 90
    assert table.expire(70) == []
    assert [seq for seq, _ in table.expire(90)] == [10]


def test_an_id_that_is_in_flight_is_not_added_again() -> None:
    table = InFlightTable()
    ids = deliver(table, 10, 3)
    table.touch(ids[1], 10, TIMEOUT, MAX_TIMEOUT)
    for low, count in ((12, 2), (10, 1), (11, 1), (9, 2)):
        again = hex_ids(BATCH.base_id + low, count)
        assert not table.add(again, 50, Delivery(BATCH, BATCH.timestamp_ns, 1, 0, TIMEOUT))
    assert sorted(seq for seq, _ in table.entries()) == [10, 11, 12]
    assert table.finish(ids) == ([10, 11, 12], [])
    assert table.add(ids, 50, Delivery(BATCH, BATCH.timestamp_ns, 1, 0, TIMEOUT))


# --- percentiles of the time from publish to finish: what counts, for how long, and how exactly


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
