"""Publishers that wait for standbys: who is answered by which acknowledgement, and who has waited too long."""

from __future__ import annotations

from nsqd_py.standby.acks import HeldAnswers
from tests.unit.fakes import FakeClock, FakePublisher

TIMEOUT_NS = 100


def held(wanted: int, count: int) -> tuple[HeldAnswers, list[FakePublisher], FakeClock]:
    """Answers to `count` publishers, whose writes have the numbers from 1 on, 10 ns apart."""
    clock = FakeClock()
    answers = HeldAnswers(wanted, TIMEOUT_NS, clock)
    publishers = [FakePublisher() for _ in range(count)]
    for number, publisher in enumerate(publishers, 1):
        answers.hold(number, [(publisher, 0)])
        clock.now_ns += 10
    return answers, publishers, clock


def waiting(publishers: list[FakePublisher]) -> list[int]:
    return [publisher.holds for publisher in publishers]


def test_two_must_have_it() -> None:
    answers, publishers, _ = held(2, 3)
    answers.acknowledged([3])
    assert waiting(publishers) == [1, 1, 1]
    answers.acknowledged([3, 1, 0])
    assert waiting(publishers) == [0, 1, 1]
    answers.acknowledged([2, 3, 0])
    assert waiting(publishers) == [0, 0, 1]


def test_who_has_waited_too_long() -> None:
    answers, publishers, _ = held(1, 3)
    deadline_ns = answers.next_deadline_ns
    answers.refuse_overdue(deadline_ns - 1, TimeoutError())
    assert waiting(publishers) == [1, 1, 1]
    answers.refuse_overdue(deadline_ns + 10, TimeoutError())
    assert waiting(publishers) == [0, 0, 1]
    assert [len(publisher.failures) for publisher in publishers] == [1, 1, 0]
