"""Which token runs. tests/property/test_schedules_model.py has many schedulers; here is one rule a test."""

from __future__ import annotations

from datetime import timedelta
from itertools import count

import pytest

from nsqd_py.work.timed.occurrences import Every
from nsqd_py.work.timed.tokens import (
    FOREIGN_S,
    LISTEN_S,
    MOST_ATTEMPTS,
    OVERDUE_S,
    SETTLE_S,
    BadToken,
    Drop,
    Renew,
    Run,
    Token,
    TokenBook,
    Wait,
)

NAME = "shop.clean"
LONGEST_S = 100.0
DUE_S = 1_000_200
NOW_S = float(DUE_S)


def rank(second: float, nonce: str = "a") -> tuple[int, str]:
    return int(second * 1e9), nonce


def token(due_s: int | None = DUE_S, after_s: int | None = None, nonce: str = "a", **more: float) -> Token:
    return Token(NAME, due_s, after_s, nonce, **more)


@pytest.fixture
def book() -> TokenBook:
    """The book of a scheduler of one nsqd, which has been there for a while, with one schedule of 200 s."""
    numbers = count()
    book = TokenBook({NAME: Every(timedelta(seconds=200))}, LONGEST_S, lambda: f"new{next(numbers)}")
    book.begin(NOW_S - 150, 1)
    return book


def heard(book: TokenBook, token: Token, at_s: float = NOW_S - 50) -> tuple[int, str]:
    """Let it hear the token; return its rank."""
    its_rank = rank(at_s, token.nonce)
    assert book.hear(token, its_rank, at_s) is None
    return its_rank


def test_a_token_waits_until_it_is_due_as_long_as_nsqd_allows(book: TokenBook) -> None:
    its_rank = heard(book, token())
    assert book.decide(token(), its_rank, 1, NOW_S - 20) == Wait(20)
    far = token(DUE_S + 1000)
    assert book.decide(far, heard(book, far), 1, NOW_S) == Wait(LONGEST_S)


def test_a_token_that_is_due_runs_and_its_follower_says_so(book: TokenBook) -> None:
    its_rank = heard(book, token())
    follower = token(DUE_S + 200, DUE_S, "new0")
    assert book.decide(token(), its_rank, 2, NOW_S + 0.5) == Run(NAME, DUE_S, 0.5, follower)
    book.ran(NAME, DUE_S)
    assert book.decide(token(), its_rank, 3, NOW_S + 1) == Drop()  # it comes again: FIN was lost


def test_what_was_missed_in_between_is_skipped(book: TokenBook) -> None:
    its_rank = heard(book, token())
    decision = book.decide(token(), its_rank, 2, NOW_S + 450)
    assert isinstance(decision, Run)
    assert (decision.late_s, decision.follower.due_s) == (450, DUE_S + 600)


def test_the_follower_of_an_occurrence_whose_next_one_has_a_token_is_a_notice(book: TokenBook) -> None:
    its_rank = heard(book, token())
    heard(book, token(DUE_S + 200, nonce="seed"))
    decision = book.decide(token(), its_rank, 2, NOW_S)
    assert isinstance(decision, Run)
    assert decision.follower == token(None, DUE_S, "new0")
    assert book.decide(decision.follower, rank(NOW_S), 1, NOW_S) == Drop()


def test_only_the_newest_token_of_an_occurrence_runs(book: TokenBook) -> None:
    older = heard(book, token(nonce="z"), NOW_S - 60)
    newer = heard(book, token(nonce="a"), NOW_S - 50)
    assert book.decide(token(nonce="z"), older, 1, NOW_S - 40) == Drop()
    assert isinstance(book.decide(token(nonce="a"), newer, 1, NOW_S), Run)


def test_a_token_that_was_not_heard_is_renewed_and_runs_when_all_have_heard_it(book: TokenBook) -> None:
    decision = book.decide(token(), rank(NOW_S - 999), 1, NOW_S)
    assert decision == Renew(token(nonce="new0", not_before_s=NOW_S + SETTLE_S))
    renewed = decision.token
    its_rank = heard(book, renewed, NOW_S)
    assert book.decide(renewed, its_rank, 1, NOW_S) == Wait(SETTLE_S)
    assert isinstance(book.decide(renewed, its_rank, 2, NOW_S + SETTLE_S), Run)


def test_who_knows_that_it_has_run_answers_a_renewed_token_with_a_notice(book: TokenBook) -> None:
    heard(book, token(DUE_S + 200, DUE_S))
    assert book.hear(token(nonce="again"), rank(NOW_S), NOW_S) == token(None, DUE_S, "new0")


def test_while_it_begins_it_decides_nothing(book: TokenBook) -> None:
    its_rank = heard(book, token())
    book.begin(NOW_S - 1, 1)  # a connection was lost, and is there again
    assert book.decide(token(), its_rank, 2, NOW_S) == Wait(SETTLE_S)
    assert list(book.missing(NOW_S)) == []
    assert isinstance(book.decide(token(), its_rank, 3, NOW_S - 1 + LISTEN_S), Renew)


@pytest.mark.parametrize(("nsqd_count", "kind"), [(1, Run), (2, Renew)])
def test_with_several_nsqds_it_does_not_note_what_it_hears_at_first(
    book: TokenBook, nsqd_count: int, kind: type
) -> None:
    book.begin(NOW_S - 20, nsqd_count)
    its_rank = heard(book, token(), NOW_S - 19)
    assert isinstance(book.decide(token(), its_rank, 2, NOW_S), kind)


def test_a_late_occurrence_is_skipped_if_the_next_one_is_due(book: TokenBook) -> None:
    its_rank = heard(book, token())
    next_rank = heard(book, token(DUE_S + 200))
    decision = book.decide(token(), its_rank, 2, NOW_S + 201)
    assert decision == Drop(f"schedule {NAME}: late by 201 s, skipped since the next occurrence is due")
    assert isinstance(book.decide(token(DUE_S + 200), next_rank, 2, NOW_S + 201), Run)


# ---- other versions of the program


@pytest.mark.parametrize(
    "foreign",
    [Token("shop.other", DUE_S, None, "a"), Token(NAME, DUE_S - 1, None, "a")],
    ids=["name", "time"],
)
def test_an_occurrence_of_another_version_waits_for_it_and_is_dropped_at_last(
    book: TokenBook, foreign: Token
) -> None:
    def decide(late_s: float, attempts: int = 1) -> object:
        assert foreign.due_s is not None
        return book.decide(foreign, rank(NOW_S), attempts, foreign.due_s + late_s)

    assert decide(-10) == Wait(10)
    assert decide(0) == Wait(1)
    assert decide(80) == Wait(10)
    assert decide(3000) == Wait(60)
    dropped = decide(FOREIGN_S + 1)
    assert isinstance(dropped, Drop)
    assert "no process has had its occurrence for 3601 s" in dropped.warning
    renewed = decide(10, MOST_ATTEMPTS)
    assert isinstance(renewed, Renew)
    assert renewed.token.due_s == foreign.due_s


def test_a_token_is_published_again_before_it_has_too_many_attempts(book: TokenBook) -> None:
    far = token(DUE_S + 1000)
    its_rank = heard(book, far)
    assert book.decide(far, its_rank, MOST_ATTEMPTS - 1, NOW_S) == Wait(LONGEST_S)
    decision = book.decide(far, its_rank, MOST_ATTEMPTS, NOW_S)
    assert isinstance(decision, Renew)
    assert decision.token.due_s == far.due_s


# ---- what is missing


def test_a_schedule_without_a_token_gets_one_that_is_not_too_soon(book: TokenBook) -> None:
    assert [each.due_s for each in book.missing(NOW_S - SETTLE_S - 1)] == [DUE_S]
    assert list(book.missing(NOW_S - SETTLE_S - 0.5)) == [], "it is on its way"
    book.begin(NOW_S - LISTEN_S, 1)
    assert [each.due_s for each in book.missing(NOW_S)] == [DUE_S + 200]


def test_an_overdue_token_is_published_again(book: TokenBook) -> None:
    heard(book, token())
    heard(book, token(DUE_S + 200))
    assert list(book.missing(NOW_S + OVERDUE_S)) == []
    late_s = NOW_S + OVERDUE_S + 1
    assert list(book.missing(late_s)) == [token(nonce="new0", not_before_s=late_s + SETTLE_S)]
    assert list(book.missing(late_s + 1)) == []


def test_a_token_of_a_wrong_clock_stands_for_nothing(book: TokenBook) -> None:
    year_s = 200 * 157_680
    heard(book, token(DUE_S + year_s, DUE_S + year_s - 200))
    assert [each.due_s for each in book.missing(NOW_S - 10)] == [DUE_S]
    its_rank = heard(book, token(nonce="b"), NOW_S - 5)
    assert isinstance(book.decide(token(nonce="b"), its_rank, 1, NOW_S), Run)


def test_the_clock_of_nsqd_does_not_count_for_what_is_overdue(book: TokenBook) -> None:
    assert book.hear(token(), rank(NOW_S + 86_400), NOW_S - 50) is None
    assert DUE_S in [each.due_s for each in book.missing(NOW_S + OVERDUE_S + 1)]


# ---- as a message


def test_a_token_is_a_json_object() -> None:
    original = token(DUE_S, DUE_S - 200, not_before_s=NOW_S + 2)
    assert Token.from_body(original.to_body()) == original
    notice = token(None, DUE_S)
    assert Token.from_body(notice.to_body()) == notice


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        token().to_body()[:-1],
        token().to_body().replace(b"1000200", b"1e999"),
        token().to_body().replace(b"1000200", b"-1"),
        token().to_body().replace(b"1000200", b"99999999999999999999"),
        token().to_body().replace(b"1000200", b'"soon"'),
        token().to_body().replace(b"0.0", b"null"),
    ],
)
def test_what_is_no_token_is_refused(body: bytes) -> None:
    with pytest.raises(BadToken, match="is no token of a schedule"):
        Token.from_body(body)
