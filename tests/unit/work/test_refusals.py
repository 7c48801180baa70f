"""What ends a consumer for good, and what may heal."""

from __future__ import annotations

import pytest

from nsqd_py.client.errors import (
    AuthFailed,
    ConnectionFailed,
    ConnectionLost,
    HandshakeFailed,
    NsqClientError,
    NsqdSaid,
)
from nsqd_py.work.refusals import REFUSED_FOR_S, RefusalWatch, is_for_good, is_refusal

A = "10.0.0.1:4150"
B = "10.0.0.2:4150"
BILL = "shop.bill of orders/billing"
UNAUTHORIZED = NsqdSaid(A, "E_UNAUTHORIZED", 'AUTH failed for SUB on "orders" "billing"')


def answered(code: str, text: str = "no") -> HandshakeFailed:
    return HandshakeFailed.lasting(A, f"nsqd refused the handshake: {code} {text}", code)


@pytest.mark.parametrize(
    "error",
    [
        UNAUTHORIZED,
        NsqdSaid(A, "E_BAD_TOPIC", "SUB topic name is not valid"),
        NsqdSaid(A, "E_BAD_CHANNEL", "SUB channel name is not valid"),
        NsqdSaid(A, "E_INVALID", "cannot SUB in current state (TLS required)"),
        answered("E_BAD_BODY", "IDENTIFY msg timeout (9) is invalid"),
        answered("E_UNAUTHORIZED", "AUTH no authorizations found"),
        AuthFailed.lasting(A, "nsqd asks for a secret: give auth_secret"),
        HandshakeFailed.lasting(A, "nsqd offers no TLS"),
    ],
    ids=str,
)
def test_what_nsqd_has_decided_about_the_settings_is_for_good(error: NsqClientError) -> None:
    assert is_for_good(error)
    assert is_refusal(error)


@pytest.mark.parametrize(
    "error",
    [
        answered("E_AUTH_FAILED", "AUTH failed"),  # or the auth server is away
        answered("E_AUTH_ERROR", "AUTH error"),
        HandshakeFailed(A, "nsqd closed the connection during the handshake"),
        NsqdSaid(A, "E_SUB_FAILED", "SUB failed: this nsqd is a standby"),
        NsqdSaid(A, "E_AUTH_FAILED", "AUTH failed"),
    ],
    ids=str,
)
def test_what_may_heal_is_not_for_good(error: NsqClientError) -> None:
    assert not is_for_good(error)
    assert is_refusal(error)


@pytest.mark.parametrize("error", [None, ConnectionFailed(A, "refused"), ConnectionLost(A, "gone")], ids=str)
def test_an_nsqd_that_is_away_refuses_nothing(error: NsqClientError | None) -> None:
    assert not is_for_good(error)
    assert not is_refusal(error)


def check(watch: RefusalWatch, now_s: float, *errors: NsqClientError | None, connected: bool = False) -> str:
    ended = watch.check(dict(zip((A, B), errors, strict=False)), now_s, is_connected=connected)
    return "" if ended is None else str(ended)


def test_a_refusal_that_lasts_ends_the_consumer_with_its_names_and_the_remedy() -> None:
    watch = RefusalWatch(BILL)
    assert not check(watch, 100, UNAUTHORIZED)
    assert not check(watch, 100 + REFUSED_FOR_S - 0.1, UNAUTHORIZED)
    assert check(watch, 100 + REFUSED_FOR_S, UNAUTHORIZED) == (
        f'{BILL} is refused for good: {A}: E_UNAUTHORIZED AUTH failed for SUB on "orders" "billing": let the auth server '
        "permit this to the auth_secret of the app, or give another auth_secret"
    )


@pytest.mark.parametrize(
    ("errors", "connected"),
    [((ConnectionFailed(A, "refused"),), False), ((UNAUTHORIZED,), True), ((), False), ((None,), False)],
    ids=["away", "connected", "no nsqd", "dialling"],
)
def test_anything_else_in_between_begins_again(
    errors: tuple[NsqClientError | None, ...], connected: bool
) -> None:
    watch = RefusalWatch(BILL)
    check(watch, 100, UNAUTHORIZED)
    assert not check(watch, 100 + REFUSED_FOR_S, *errors, connected=connected)
    assert not check(watch, 101 + REFUSED_FOR_S, UNAUTHORIZED)
    assert check(watch, 101 + 2 * REFUSED_FOR_S, UNAUTHORIZED)


def test_one_nsqd_that_may_take_the_consumer_is_enough() -> None:
    watch = RefusalWatch(BILL)
    for now_s in range(60):
        assert not check(watch, now_s, UNAUTHORIZED, answered("E_AUTH_FAILED"))
    assert not check(watch, 60, UNAUTHORIZED, UNAUTHORIZED)
    assert check(watch, 60 + REFUSED_FOR_S, UNAUTHORIZED, UNAUTHORIZED)
