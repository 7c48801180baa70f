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


def numbers(table: InFlightTable) -> list[int]:
    return sorted(seq for seq, _ in table.entries())


def test_finish_names_the_ids_that_are_missing() -> None:
    table = InFlightTable()
    ids = deliver(table, 10, 3)
    unknown = b"f" * 16
    assert table.finish([ids[0], unknown, ids[2]]) == ([10, 12], [unknown])
    assert table.finish([unknown]) == ([], [unknown])
    assert numbers(table) == [11]


def test_finish_the_same_id_twice_in_a_run() -> None:
    table = InFlightTable()
    ids = deliver(table, 10, 2)
    assert table.finish([ids[0], ids[0]]) == ([10], [ids[0]])
    assert numbers(table) == [11]


def test_finish_touched_ones_among_others() -> None:
    table = InFlightTable()
    ids = deliver(table, 10, 3)
    assert table.touch(ids[1], 5, TIMEOUT, MAX_TIMEOUT)
    assert len(table) == 3
    assert ids[1] in table
    assert table.finish(ids) == ([10, 11, 12], [])
    assert len(table) == 0


def test_expiry_in_order_of_delivery() -> None:
    table = InFlightTable()
    deliver(table, 10, 2, now_ns=0)
    deliver(table, 20, 2, now_ns=5)
    assert table.next_deadline_ns == 60
    assert table.expire(59) == []
    assert [seq for seq, _ in table.expire(60)] == [10, 11]
    assert table.next_deadline_ns == 65
    assert [seq for seq, _ in table.expire(1000)] == [20, 21]
    assert table.next_deadline_ns is None
    assert len(table) == 0


def test_a_touched_one_expires_later_than_its_neighbours() -> None:
    table = InFlightTable()
    ids = deliver(table, 10, 3, attempts=2)
    assert table.touch(ids[0], 30, TIMEOUT, MAX_TIMEOUT)
    assert [seq for seq, _ in table.expire(60)] == [11, 12]
    assert table.next_deadline_ns == 90
    assert table.expire(89) == []
    ((seq, delivery),) = table.expire(90)
    assert (seq, delivery.attempts, delivery.delivered_ns, delivery.batch) == (10, 2, 0, BATCH)


def test_touch_never_goes_past_the_most_since_delivery() -> None:
    table = InFlightTable()
    (only,) = deliver(table, 10, 1)
    for now_ns in (50, 80, 95):
        assert table.touch(only, now_ns, TIMEOUT, MAX_TIMEOUT)
    assert table.next_deadline_ns == 100
    assert table.expire(99) == []
    assert [seq for seq, _ in table.expire(100)] == [10]


def test_an_earlier_touch_rings_nothing() -> None:
    table = InFlightTable()
    (only,) = deliver(table, 10, 1)
    table.touch(only, 10, TIMEOUT, MAX_TIMEOUT)  # until 70
    table.touch(only, 30, TIMEOUT, MAX_TIMEOUT)  # until 90
    assert table.expire(70) == []
    assert [seq for seq, _ in table.expire(90)] == [10]


def test_a_finished_touch_leaves_no_deadline_behind() -> None:
    table = InFlightTable()
    ids = deliver(table, 10, 2)
    table.touch(ids[0], 10, TIMEOUT, MAX_TIMEOUT)  # until 70
    table.finish([ids[0]])
    assert [seq for seq, _ in table.expire(70)] == [11]
    assert table.next_deadline_ns is None


def test_touching_without_end_holds_bounded_memory() -> None:
    table = InFlightTable()
    ids = deliver(table, 0, 10)
    for now_ns in range(1000):
        for message_id in ids:
            assert table.touch(message_id, now_ns, TIMEOUT, 1 << 40)
    assert len(table._touch_heap) <= 2 * len(ids) + 64 + 1
    assert table.expire(999 + TIMEOUT - 1) == []
    assert sorted(seq for seq, _ in table.expire(999 + TIMEOUT)) == list(range(10))
