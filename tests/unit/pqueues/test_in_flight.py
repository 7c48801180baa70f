"""What one client has in flight."""

from __future__ import annotations

from typing import Any

import pytest

from nsqd_py.pqueues.in_flight import Delivery, InFlightTable
from nsqd_py.protocol.frames import hex_ids
from nsqd_py.queue.latency import LatencyMeter
from tests.unit.fakes import MS, SECOND, START_NS, FakeClock, make_batch

BATCH = make_batch(0, *[b"x"] * 100)
TIMEOUT = 60
MAX_TIMEOUT = 100


DELIVERY = Delivery(BATCH, BATCH.timestamp_ns, 1, 0, TIMEOUT)


def deliver(table: InFlightTable, first: int, count: int) -> list[bytes]:
    ids = hex_ids(BATCH.base_id + first, count)
    table.add(ids, first, DELIVERY)
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
        assert not table.add(hex_ids(BATCH.base_id + low, count), 50, DELIVERY)
    assert sorted(seq for seq, _ in table.entries()) == [10, 11, 12]
    assert table.finish(ids) == ([10, 11, 12], [])
    assert table.add(ids, 50, DELIVERY)


# --- percentiles of the time from publish to finish: what counts, for how long, and how exactly


WINDOW_NS = 10 * SECOND


class Meter:
    """A meter with a clock that stands still until it is set."""

    def __init__(self, *percentiles: float, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self._meter = LatencyMeter(percentiles or (0.5,), WINDOW_NS, self.clock, self.clock)

    def finish_after(self, latency_ns: int, count: int = 1) -> None:
        """Messages that were published so long ago are finished now."""
        batch = make_batch(0, *[b"m"] * count)
        batch.timestamp_ns = self.clock.now_ns - latency_ns
        self._meter.finished({Delivery(batch, batch.timestamp_ns, 1, 0, 0): count})

    def statistics(self, *others: Meter) -> dict[str, Any]:
        return self._meter.statistics([other._meter for other in others])

    @property
    def count(self) -> Any:
        return self.statistics()["count"]


def test_percentiles_are_right_to_one_percent() -> None:
    meter = Meter(1.0, 0.99, 0.5, 0.01)
    for latency_ms in range(1, 1001):
        meter.finish_after(latency_ms * MS)
    statistics = meter.statistics()
    assert statistics["count"] == 1000
    values_ms = [entry["value"] / MS for entry in statistics["percentiles"]]
    assert values_ms == [pytest.approx(value, rel=0.012) for value in (1000, 990, 500, 10)]


def test_the_window_forgets_half_of_itself_at_a_time() -> None:
    meter = Meter()
    meter.finish_after(MS)
    meter.clock.now_ns = START_NS + WINDOW_NS // 2
    meter.finish_after(MS, count=2)
    for after_ns, count in ((WINDOW_NS - 1, 3), (WINDOW_NS, 2), (WINDOW_NS * 3 // 2, 0)):
        meter.clock.now_ns = START_NS + after_ns
        assert meter.count == count


def test_figures_of_several_meters_leave_each_as_it_was() -> None:
    one = Meter()
    other = Meter(clock=one.clock)
    one.finish_after(MS, count=2)
    other.finish_after(SECOND, count=3)
    assert one.statistics(other)["count"] == 5
    assert one.statistics(other)["percentiles"][0]["value"] == pytest.approx(SECOND, rel=0.02)
    assert (one.count, other.count) == (2, 3)


def test_a_wall_clock_that_was_set_back_gives_no_negative_latency() -> None:
    meter = Meter()
    meter.finish_after(-SECOND)
    assert meter.statistics() == {"count": 1, "percentiles": [{"quantile": 0.5, "value": 0.0}]}
