"""What can go wrong for a client. Every text says with which nsqd."""

from __future__ import annotations

from nsqd_py.errors import NsqdError
from nsqd_py.protocol.outgoing import BadName

__all__ = [
    "AuthFailed", "BadAddress", "BadClientOption", "BadName", "ConnectionFailed", "ConnectionLost", "HandshakeFailed",
    "NoNsqd", "NsqClientError", "NsqdSaid", "PublishFailed", "TimedOut",
]  # fmt: skip


class NsqClientError(NsqdError):
    """Base of all errors of `nsqd_py.client`."""


class BadClientOption(NsqClientError, ValueError):
    """An option that does not exist, or cannot have this value."""


class BadAddress(BadClientOption):
    """No address of an nsqd."""


class NoNsqd(NsqClientError):
    """There is no nsqd that could be asked."""


class AtAddress(NsqClientError):
    """Something with one nsqd.

    address  which, as `host:port`
    reason   the text without it
    """

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.reason = reason

    def __reduce__(self) -> tuple[type[AtAddress], tuple[str, str]]:
        # As it was made: Spark's executors send their errors to the driver.
        return type(self), (self.address, self.reason)


class ConnectionFailed(AtAddress):
    """There is no connection: refused, no such host, no answer in time."""


class HandshakeFailed(AtAddress):
    """Connected, but nsqd refused what was asked for, or what it said cannot be used (as its certificate)."""


class AuthFailed(HandshakeFailed):
    """nsqd wants a secret, or another one."""


class ConnectionLost(AtAddress):
    """A connection that was in use has ended."""


class TimedOut(AtAddress):
    """nsqd did not answer in time; whether it did what it was asked is unknown."""


class NsqdSaid(AtAddress):
    """An error that nsqd answered.

    code  such as `E_BAD_TOPIC`
    text  what follows it
    """

    def __init__(self, address: str, code: str, text: str) -> None:
        super().__init__(address, f"{code} {text}".rstrip())
        self.code = code
        self.text = text

    def __reduce__(self) -> tuple[type[AtAddress], tuple[str, ...]]:  # type: ignore[override]
        return type(self), (self.address, self.code, self.text)

    @property
    def is_fatal(self) -> bool:
        """True where nsqd closes the connection after it."""
        return self.code not in _HARMLESS


class PublishFailed(NsqdSaid):
    """nsqd did not take a message."""


# Those after which nsqd goes on with the connection.
_HARMLESS = frozenset(("E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"))
