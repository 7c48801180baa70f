"""When nsqd refuses a consumer for good, so that trying again with the same settings does not help.

An auth server that does not answer for a moment looks to a client as one that refuses its secret: nsqd says E_AUTH_FAILED to
both, so this may heal, as a connection that fails, a standby, and a limit of consumers may. What nsqd, or its auth server, has
decided about these settings does not heal: the consumer ends once all its nsqds have said so for a few seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Protocol

from nsqd_py.client.consuming.subscription import ConsumerStats
from nsqd_py.client.errors import HandshakeFailed, NsqClientError, NsqdSaid

REFUSED_FOR_S = 5.0

_MAY_HEAL = frozenset(("E_AUTH_FAILED", "E_AUTH_ERROR"))
# What nsqd answers to SUB because of the settings of the consumer.
_OF_SUB = frozenset(
    ("E_AUTH_DISABLED", "E_AUTH_FIRST", "E_BAD_CHANNEL", "E_BAD_TOPIC", "E_INVALID", "E_UNAUTHORIZED")
)
_REMEDIES = {
    "E_BAD_CHANNEL": "give another channel",
    "E_BAD_TOPIC": "give another topic",
    "E_UNAUTHORIZED": "let the auth server permit this to the auth_secret of the app, or give another auth_secret",
}
_TLS_ONLY = "TLS required"  # at the end of an E_INVALID
_TLS_REMEDY = "give tls_v1=True in the options of the app"
_OTHER_REMEDY = "change the options of the app, or this nsqd"


class Watched(Protocol):
    """A consumer, as its watch sees it."""

    def unconnected(self) -> dict[str, NsqClientError | None]: ...

    def stats(self) -> ConsumerStats: ...


class ConsumerRefused(NsqClientError):
    """nsqd refuses a consumer for good. str() names the handler, its topic and channel, and the remedy."""


def is_refusal(error: NsqClientError | None) -> bool:
    """True if nsqd was connected and refused this consumer, be it for good or not."""
    return isinstance(error, HandshakeFailed | NsqdSaid)


def is_for_good(error: NsqClientError | None) -> bool:
    """True if the same settings will be refused again."""
    if isinstance(error, HandshakeFailed):
        return error.is_lasting and error.code not in _MAY_HEAL
    return isinstance(error, NsqdSaid) and error.code in _OF_SUB


def refused(whose: str, error: HandshakeFailed | NsqdSaid) -> ConsumerRefused:
    """Return the error that ends a consumer. `whose` names its handler, topic and channel."""
    remedy = _REMEDIES.get(error.code, _OTHER_REMEDY)
    if _TLS_ONLY in error.reason:
        remedy = _TLS_REMEDY
    return ConsumerRefused(f"{whose} is refused for good: {error}: {remedy}")


class RefusalWatch:
    """Since when all nsqds of one consumer refuse it for good."""

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._since_s: float | None = None

    def end_if_refused(self, consumer: Watched) -> None:
        """Raises ConsumerRefused if this consumer is refused for good at present."""
        refusal = self.check(
            consumer.unconnected(), monotonic(), is_connected=bool(consumer.stats().connections)
        )
        if refusal is not None:
            raise refusal

    def check(
        self, unconnected: Mapping[str, NsqClientError | None], now_s: float, *, is_connected: bool
    ) -> ConsumerRefused | None:
        """Return the error that ends the consumer, once it was refused for long enough; None before.

        unconnected   the nsqds that the consumer has no subscription on, with the last error of each
        is_connected  it has a subscription on another one
        now_s         by a steady clock
        """
        errors = list(unconnected.values())
        if is_connected or not errors or not all(map(is_for_good, errors)):
            self._since_s = None
            return None
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s < REFUSED_FOR_S:
            return None
        first = errors[0]
        assert isinstance(first, HandshakeFailed | NsqdSaid)
        return refused(self._whose, first)
