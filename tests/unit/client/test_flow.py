"""Back-off: one result a wait, longer waits up to a limit, one message to test, and out of it again."""

from __future__ import annotations

from nsqd_py.client.consuming.flow import ConsumerBackoff, Phase, exponential, full_jitter


def make(most_s: float = 120.0) -> ConsumerBackoff:
    return ConsumerBackoff(exponential(1.0), most_s)


def probe(backoff: ConsumerBackoff) -> float:
    """Let the wait pass; the time at which it is over."""
    over_s = backoff.until_s
    assert not backoff.expire(over_s - 0.001)
    assert backoff.expire(over_s)
    assert backoff.phase is Phase.PROBING
    return over_s


def test_waits_double_while_it_fails_and_halve_while_it_succeeds() -> None:
    backoff = make()
    now_s, waits = 0.0, []
    for result in (backoff.failed, backoff.failed, backoff.failed, backoff.succeeded, backoff.succeeded):
        result(now_s)
        waits.append(backoff.wait_s)
        now_s = probe(backoff)
    assert waits == [2.0, 4.0, 8.0, 4.0, 2.0]
    assert backoff.succeeded(now_s)
    assert backoff.phase is Phase.FLOWING


def test_a_level_whose_wait_is_too_long_is_not_reached() -> None:
    backoff = make(most_s=10.0)
    now_s, levels = 0.0, []
    for _ in range(5):
        backoff.failed(now_s)
        levels.append((backoff.level, backoff.wait_s))
        now_s = probe(backoff)
    assert levels == [(1, 2.0), (2, 4.0), (3, 8.0), (3, 8.0), (3, 8.0)]


def test_the_first_wait_is_cut_to_the_limit() -> None:
    backoff = make(most_s=1.5)
    assert backoff.failed(0.0)
    assert (backoff.level, backoff.wait_s) == (1, 1.5)


def test_a_message_that_is_put_off_repeats_the_wait() -> None:
    backoff = make()
    assert not backoff.continued(0.0)  # nothing failed: nothing to repeat
    backoff.failed(0.0)
    assert backoff.continued(probe(backoff))
    assert (backoff.phase, backoff.level, backoff.until_s) == (Phase.WAITING, 1, 4.0)


def test_full_jitter_is_a_share_of_the_exponential_wait() -> None:
    assert full_jitter(0.5, lambda: 0.25)(3) == 1.0
    assert exponential(0.5)(3) == 4.0
