"""What becomes of a message after its call."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd_py.client.message import Requeue
from nsqd_py.work.outcomes import (
    DeadLetter,
    Drop,
    Dropped,
    RequeueAfter,
    Retry,
    Undecodable,
    decide,
    request_in,
)
from tests.support.examples import examples

RETRY = Retry(attempts=4, first_s=1, factor=4, most_s=10, jitter=0)
ERROR = RuntimeError("no")


def outcome(error: BaseException, attempts: int = 1, retry: Retry = RETRY) -> Any:
    return decide(error, attempts, retry, lambda: 0.5)


def test_an_error_comes_again_after_a_growing_delay_until_it_is_dead() -> None:
    assert [outcome(ERROR, attempts) for attempts in (1, 2, 3, 4, 5)] == [
        RequeueAfter(1, ERROR),
        RequeueAfter(4, ERROR),
        RequeueAfter(10, ERROR),
        DeadLetter(ERROR),
        DeadLetter(ERROR),
    ]


def test_without_a_limit_of_attempts_it_comes_again_forever() -> None:
    forever = Retry(attempts=None, first_s=1, factor=4, most_s=10, jitter=0)
    assert outcome(ERROR, 65535, forever) == RequeueAfter(10, ERROR)


def test_some_errors_are_never_tried_again() -> None:
    retry = Retry(never=(LookupError,))
    assert outcome(KeyError("id"), retry=retry).__class__ is DeadLetter
    assert outcome(ERROR, retry=retry).__class__ is RequeueAfter
    assert outcome(Undecodable("no JSON"), retry=Retry(attempts=None)).__class__ is DeadLetter


def test_a_handler_decides_itself() -> None:
    assert outcome(Drop("old"), 9) == Dropped("old")
    assert outcome(Requeue(7), 9) == RequeueAfter(7)
    assert outcome(Requeue(timedelta(minutes=1)), 9) == RequeueAfter(60)
    assert outcome(Requeue(), 2) == RequeueAfter(4)


@settings(max_examples=examples(200))
@given(
    st.floats(0, 1000),
    st.floats(1, 1e6),
    st.floats(0, 1e6),
    st.floats(0, 1),
    st.integers(1, 65535),
    st.floats(0, 1),
)
def test_a_delay_is_within_its_bounds(
    first_s: float, factor: float, more_s: float, jitter: float, attempts: int, chance: float
) -> None:
    retry = Retry(first_s=first_s, factor=factor, most_s=first_s + more_s, jitter=jitter)
    delay_s = retry.delay_s(attempts, chance)
    assert first_s * (1 - jitter) * 0.999 <= delay_s <= retry.most_s


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"attempts": 0}, "attempts must be at least 1, or None for no limit, got 0"),
        ({"first_s": -1}, "first_s must be at least 0, got -1"),
        ({"factor": 0.5}, "factor must be at least 1, got 0.5"),
        ({"most_s": 0.5}, "most_s must be at least first_s, 1.0, got 0.5"),
        ({"first_s": float("nan")}, "first_s must be a finite number, got nan"),
        ({"most_s": "9"}, "most_s must be a finite number, got '9'"),
        ({"attempts": 2.5}, "attempts must be a whole number, or None for no limit, got 2.5"),
        ({"jitter": 2}, "jitter must be from 0 to 1, got 2"),
        ({"never": ValueError}, "never must be a tuple of classes"),
    ],
)
def test_a_wrong_retry_is_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError) as caught:
        Retry(**settings)
    assert text in str(caught.value)


AGAIN = Requeue(7)
FAILURE = ValueError("no")


@pytest.mark.parametrize(
    ("errors", "request_of_all"),
    [
        ([AGAIN], AGAIN),
        ([AGAIN, Requeue(7)], AGAIN),
        ([ExceptionGroup("inner", [AGAIN, Requeue(7)]), Requeue(7)], AGAIN),
        ([AGAIN, Requeue(8)], None),
        ([AGAIN, Requeue(7, backoff=False)], None),
        ([AGAIN, FAILURE], None),
        ([ExceptionGroup("inner", [FAILURE]), AGAIN], None),
        ([FAILURE], None),
        ([Drop("old"), AGAIN], None),
    ],
)
def test_a_group_of_the_same_request_is_that_request(errors, request_of_all) -> None:
    group = ExceptionGroup("of a task group", errors)
    assert request_in(group) is (request_of_all or group)


def test_any_other_error_is_itself() -> None:
    assert request_in(FAILURE) is FAILURE
