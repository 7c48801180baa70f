"""When a lease may be taken: looks at it, and the times at which they were asked and answered."""

from __future__ import annotations

from nsqd_py.lease.store import LeaseState
from nsqd_py.lease.succession import Succession

TTL_S = 10.0
NUMBER = 7
HELD = LeaseState(NUMBER, "lease", "a:1", turn=NUMBER)
GONE = LeaseState(turn=NUMBER)


def see(succession: Succession, state: LeaseState, at_s: float) -> None:
    succession.saw(state, at_s, at_s)


def watching(*lives_s: float | None) -> Succession:
    """One that has looked at a held lease each second since 0.0, and found that it lives so long."""
    succession = Succession(TTL_S)
    see(succession, HELD, -1.0)
    for at_s, each_s in enumerate(lives_s):
        see(succession, HELD._replace(lives_s=each_s), float(at_s))
    return succession


def free_from_s(succession: Succession) -> float:
    """Return the first tenth of a second, from -10 s on, in which it is free."""
    return next(tenth / 10 for tenth in range(-100, 1000) if succession.is_free(tenth / 10))


def test_one_that_knows_nothing_waits_for_a_whole_time_to_live() -> None:
    succession = Succession(TTL_S)
    see(succession, LeaseState(), 5.0)
    assert free_from_s(succession) == 15.0
    see(succession, LeaseState(), 6.0)
    assert free_from_s(succession) == 15.0, "nothing has changed since"


def test_a_released_lease_is_free_at_once() -> None:
    succession = watching(10.0)
    see(succession, LeaseState(turn=NUMBER + 1, is_released=True), 1.0)
    assert succession.is_free(1.0)


def test_a_release_of_an_earlier_holder_says_nothing() -> None:
    succession = Succession(TTL_S)
    # Of a version that does not say that it took it.
    see(succession, HELD._replace(turn=NUMBER - 1, is_released=True), 0.0)
    see(succession, LeaseState(turn=NUMBER - 1, is_released=True), 1.0)
    assert free_from_s(succession) == 11.0


def test_a_lease_that_ends_by_itself_is_free_at_once() -> None:
    succession = watching(*(float(left_s) for left_s in range(10, 0, -1)))
    assert not succession.is_free(9.0)
    see(succession, GONE, 10.0)
    assert succession.is_free(10.0)


def test_a_key_that_goes_before_its_lease_ends_is_waited_for() -> None:
    succession = watching(10.0, 9.0, 8.0)
    see(succession, GONE, 3.0)
    assert free_from_s(succession) == 13.0


def test_a_lease_that_was_renewed_near_its_end_lives_on() -> None:
    succession = watching(4.0, 3.0, 10.0)  # renewed with a second and a half left
    see(succession, GONE, 3.0)
    assert free_from_s(succession) == 13.0


def test_a_lease_of_which_the_store_does_not_say_how_long_it_lives_is_waited_for() -> None:
    succession = watching(3.0, None)
    see(succession, GONE, 2.0)
    assert free_from_s(succession) == 12.0


def test_a_lease_that_has_ended_and_holds_its_key_still_is_free_when_that_goes() -> None:
    succession = watching(None, 0.0)
    assert not succession.is_free(1.5)
    see(succession, GONE, 2.0)
    assert succession.is_free(2.0)


def test_another_holder_between_two_looks_is_waited_for() -> None:
    succession = Succession(TTL_S)
    see(succession, GONE, 0.0)
    see(succession, LeaseState(turn=NUMBER + 1), 9.0)
    assert free_from_s(succession) == 19.0


def test_the_last_holder_itself_need_not_wait() -> None:
    for gone in (GONE, LeaseState()):  # also where everything was deleted
        succession = Succession(TTL_S)
        succession.ended(NUMBER, 8.0)
        see(succession, gone, 1.0)
        assert succession.is_free(1.0)
    see(succession, LeaseState(turn=NUMBER + 1), 2.0)
    assert free_from_s(succession) == 12.0, "another one was holder"


def test_the_last_holder_that_was_suspended_waits_where_everything_was_deleted() -> None:
    succession = Succession(TTL_S)
    succession.ended(NUMBER, 8.0)
    see(succession, LeaseState(), 9.0)
    assert free_from_s(succession) == 19.0


def test_a_key_without_a_lease_holds_nothing() -> None:
    succession = watching(10.0)
    see(succession, LeaseState(NUMBER + 1, stranger="its value is 'x', without a lease", turn=NUMBER), 1.0)
    assert free_from_s(succession) == 11.0


def test_a_lease_that_should_have_been_renewed_is_watched_closely() -> None:
    assert not watching(10.0, 9.0).is_overdue(2.0)
    assert watching(10.0, 9.0, 8.0, 7.0, 6.0, 5.0).is_overdue(6.0)
