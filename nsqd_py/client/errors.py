"""The errors of a client. Every text names the nsqd."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from nsqd_py.errors import NsqdError
from nsqd_py.protocol.outgoing import BadName as BadName

# After these errors nsqd keeps the connection.
_HARMLESS = frozenset(("E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"))


class NsqClientError(NsqdError):
    """Base of all errors of `nsqd_py.client`."""


class BadClientOption(NsqClientError, ValueError):
    """An option that does not exist, or cannot have this value."""


class BadAddress(BadClientOption):
    """An invalid address of an nsqd."""


class WrongPlace(NsqClientError, RuntimeError):
    """A client was used where it cannot work: in an event loop, another thread, or its own callback; or after it was stopped."""


class NoNsqd(NsqClientError):
    """No nsqd could be connected. `reasons` are the last errors of those that were tried."""

    def __init__(self, text: str, reasons: Iterable[NsqClientError] = ()) -> None:
        super().__init__(text)
        self.reasons = tuple(reasons)


class AtAddress(NsqClientError):
    """An error of one nsqd.

    address  of the nsqd, as `host:port`; empty if none is known
    reason   the text without the address
    """

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}" if address else reason)
        self.address = address
        self.reason = reason

    def __reduce__(self) -> tuple[type[AtAddress], tuple[str, str]]:
        # Pickles as it was created: Spark's executors send their errors to the driver.
        return type(self), (self.address, self.reason)


class ConnectionFailed(AtAddress):
    """The connection failed: refused, unknown host, or no answer in time."""


class HandshakeFailed(AtAddress):
    """Connected, but nsqd refused the handshake, or its data cannot be used (such as its certificate).

    is_lasting  True if nsqd said so, or its certificate: trying again with these options hardly helps
    code        of nsqd's answer, such as `E_AUTH_FAILED`; empty if it has not answered with an error
    """

    is_lasting = False
    code = ""

    @classmethod
    def lasting(cls, address: str, reason: str, code: str = "") -> Self:
        error = cls(address, reason)
        error.is_lasting = True
        error.code = code
        return error


class AuthFailed(HandshakeFailed):
    """nsqd requires a secret, or another one."""


class ConnectionLost(AtAddress):
    """A connection that was in use has ended."""


class TimedOut(AtAddress):
    """nsqd did not answer in time; whether it did what it was asked is unknown."""


class NsqdSaid(AtAddress):
    """An error that nsqd answered.

    code  such as `E_BAD_TOPIC`
    text  the text after the code
    """

    def __init__(self, address: str, code: str, text: str) -> None:
        super().__init__(address, f"{code} {text}".rstrip())
        self.code = code
        self.text = text

    def __reduce__(self) -> tuple[type[AtAddress], tuple[str, ...]]:  # type: ignore[override]
        return type(self), (self.address, self.code, self.text)

    @property
    def is_fatal(self) -> bool:
        """True if nsqd closes the connection after it."""
        return self.code not in _HARMLESS


class PublishFailed(NsqdSaid):
    """nsqd did not store a message."""
