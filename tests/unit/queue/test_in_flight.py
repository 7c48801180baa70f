"""What one client has in flight."""

from nsqd_py.protocol.frames import hex_ids
from nsqd_py.queue.in_flight import Delivery, InFlightTable
from tests.unit.fakes import make_batch

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
