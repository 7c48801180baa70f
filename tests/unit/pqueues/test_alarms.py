"""Deferred runs and alarms."""

import weakref
from collections.abc import Callable

import pytest

from nsqd_py.pqueues.alarms import Alarm, Alarms
from nsqd_py.pqueues.deferred import DeferredQueue, Run


def run(low: int, high: int, attempts: int = 0) -> Run:
    return low, high, attempts, None


# --- deferred


def test_the_next_deferred_are_seen_by_time_and_stay() -> None:
    queue = DeferredQueue()
    for due_ns in (50, 10, 40, 20, 30, 1 << 30, 1 << 40):
        queue.push(due_ns, run(due_ns, due_ns + 2))
    assert queue.first(5) == [(10, run(10, 12)), (20, run(20, 22)), (30, run(30, 31))]
    assert [due_ns for due_ns, _ in queue.first(100)] == [10, 20, 30, 40, 50, 1 << 30, 1 << 40]
    assert queue.first(0) == []
    assert queue.count == 14


# --- alarms


class Bell:
    """Keeps when its alarm rang; may do something then."""

    def __init__(self, alarms: Alarms, then: Callable[[int], None] | None = None) -> None:
        self.rang: list[int] = []
        self._then = then
        self.alarm: Alarm = alarms.alarm(self._ring)

    def _ring(self, now_ns: int) -> None:
        self.rang.append(now_ns)
        if self._then is not None:
            self._then(now_ns)


@pytest.mark.parametrize(
    ("settings", "looks", "rang"),
    [
        ([10, 20], [15, 20], [20]),
        ([20, 10], [10, 20], [10]),
        ([10, None, 12], [10, 12], [12]),
        ([10, None, 10], [10, 30], [10]),
        ([10, None], [10, 30], []),
    ],
    ids=["later", "earlier", "stopped and set again", "stopped and set to the same time", "stopped"],
)
def test_an_alarm_rings_at_its_last_setting_only(
    settings: list[int | None], looks: list[int], rang: list[int]
) -> None:
    alarms = Alarms()
    bell = Bell(alarms)
    for due_ns in settings:
        bell.alarm.set(due_ns)
    alarms.ring_due(looks[0])
    assert alarms.next_due_ns in (None, looks[1])
    alarms.ring_due(looks[1])
    assert (bell.rang, alarms.next_due_ns) == (rang, None)


def test_set_no_later() -> None:
    alarms = Alarms()
    bell = Bell(alarms)
    bell.alarm.set_no_later(20)
    bell.alarm.set_no_later(30)
    assert bell.alarm.due_ns == 20
    bell.alarm.set_no_later(10)
    alarms.ring_due(10)
    assert bell.rang == [10]


def test_an_alarm_may_set_itself_while_it_rings() -> None:
    alarms = Alarms()
    bell = Bell(alarms, then=lambda now_ns: bell.alarm.set(now_ns + 10))
    bell.alarm.set(10)
    alarms.ring_due(10)
    assert bell.rang == [10]
    alarms.ring_due(25)
    assert bell.rang == [10, 25]
    assert alarms.next_due_ns == 35


def test_an_alarm_may_stop_another_of_the_same_time() -> None:
    alarms = Alarms()
    second = Bell(alarms)
    first = Bell(alarms, then=lambda _: second.alarm.set(None))
    first.alarm.set(10)
    second.alarm.set(10)
    alarms.ring_due(10)
    assert (first.rang, second.rang) == ([10], [])


def test_alarms_ring_in_order_of_time() -> None:
    alarms = Alarms()
    order = []
    for name, due_ns in (("c", 30), ("a", 10), ("b", 20)):
        alarms.alarm(lambda _, name=name: order.append(name)).set(due_ns)  # type: ignore[misc]
    alarms.ring_due(30)
    assert order == ["a", "b", "c"]


def test_on_earlier_is_called_for_a_new_earliest_only() -> None:
    alarms = Alarms()
    earlier = []
    alarms.on_earlier = earlier.append
    first, second = Bell(alarms).alarm, Bell(alarms).alarm
    first.set(20)
    second.set(30)
    second.set(10)
    first.set(25)
    assert earlier == [20, 10]


@pytest.mark.parametrize(
    ("moves", "most"), [(range(10, 10_001), 1), (range(10_000, 10, -1), 2000)], ids=["later", "earlier"]
)
def test_many_moves_leave_few_entries(moves: range, most: int) -> None:
    alarms = Alarms()
    bell = Bell(alarms)
    for due_ns in moves:
        bell.alarm.set(due_ns)
    assert len(alarms._heap) <= most
    alarms.ring_due(10_000)
    assert bell.rang == [10_000]
    assert alarms.next_due_ns is None


def test_a_closed_alarm_is_silent_and_keeps_nothing() -> None:
    alarms = Alarms()
    bell = Bell(alarms)
    bell.alarm.set(10)
    bell.alarm.close()
    bell.alarm.set(20)  # its owner may not know yet
    owner, rang = weakref.ref(bell), bell.rang
    del bell
    assert owner() is None, "the heap, or a cycle, still refers to it"
    alarms.ring_due(30)
    assert rang == []


def test_many_closed_alarms_leave_few_entries() -> None:
    alarms = Alarms()
    bells = [Bell(alarms) for _ in range(5000)]
    for due_ns, bell in enumerate(bells, 10):
        bell.alarm.set(due_ns)
    for bell in bells[:4000]:
        bell.alarm.close()
    assert len(alarms._heap) <= 2000
    alarms.ring_due(10_000)
    assert [bell.rang for bell in bells] == [[]] * 4000 + [[10_000]] * 1000
    assert alarms.next_due_ns is None
