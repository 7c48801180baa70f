"""Every error that nsqd can meet, with the form in which a client sees it.

A `ClientError` carries the code that goes over the wire (`E_BAD_TOPIC`), its text, and whether the
connection ends after it. `HttpError` carries a status and the `message` of its JSON body.
"""

from __future__ import annotations

import errno
from typing import ClassVar


class NsqdError(Exception):
    """Base of all errors of this package."""


def is_full(error: OSError) -> bool:
    """True when the disk, or what this user may have of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class StartError(NsqdError):
    """nsqd cannot start; the text says why and how to mend it."""


class LayerError(NsqdError):
    """What arrived is not encrypted or compressed as agreed; the connection ends."""


class ClientError(NsqdError):
    """An error that is answered to a client of the TCP protocol.

    `text` may hold undecodable bytes of the client's own command as surrogates; they leave as they came.
    """

    code: ClassVar[str] = "E_INVALID"
    fatal: ClassVar[bool] = True

    @property
    def wire(self) -> bytes:
        """The data of the error frame: code, a space, text."""
        return f"{self.code} {self}".encode("utf-8", "surrogateescape")


class Invalid(ClientError):
    code = "E_INVALID"


class BadTopic(ClientError):
    code = "E_BAD_TOPIC"


class BadChannel(ClientError):
    code = "E_BAD_CHANNEL"


class BadBody(ClientError):
    code = "E_BAD_BODY"


class IdentifyFailed(ClientError):
    code = "E_IDENTIFY_FAILED"


class BadMessage(ClientError):
    code = "E_BAD_MESSAGE"


class AuthDisabled(ClientError):
    code = "E_AUTH_DISABLED"


class AuthFailed(ClientError):
    code = "E_AUTH_FAILED"


class AuthFirst(ClientError):
    code = "E_AUTH_FIRST"


class AuthError(ClientError):
    code = "E_AUTH_ERROR"


class Unauthorized(ClientError):
    code = "E_UNAUTHORIZED"


class SubFailed(ClientError):
    code = "E_SUB_FAILED"


class PubFailed(ClientError):
    code = "E_PUB_FAILED"


class MpubFailed(ClientError):
    code = "E_MPUB_FAILED"


class DpubFailed(ClientError):
    code = "E_DPUB_FAILED"


class FinFailed(ClientError):
    code = "E_FIN_FAILED"
    fatal = False


class ReqFailed(ClientError):
    code = "E_REQ_FAILED"
    fatal = False


class TouchFailed(ClientError):
    code = "E_TOUCH_FAILED"
    fatal = False


class HttpError(NsqdError):
    """An HTTP answer other than 200: `status` and the `message` of its JSON body."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Refusal(HttpError):
    """nsqd makes no topic or channel now; `reason` says why, to clients of the TCP protocol."""

    def __init__(self, status: int, message: str, reason: str) -> None:
        super().__init__(status, message)
        self.reason = reason


class Draining(Refusal):
    """nsqd is going out of service, and takes no new messages, topics or channels."""

    def __init__(self) -> None:
        super().__init__(503, "DRAINING", "nsqd is draining")


class TooManyTopics(Refusal):
    """--max-topics are there. Not 503: another attempt does not help before somebody deletes one."""

    def __init__(self, most: int) -> None:
        super().__init__(403, "TOO_MANY_TOPICS", f"topics exceed limit of {most}")


class TooManyChannels(Refusal):
    """The topic has --max-channels-per-topic."""

    def __init__(self, topic: str, most: int) -> None:
        super().__init__(403, "TOO_MANY_CHANNELS", f"channels of {topic} exceed limit of {most}")
