"""The errors of nsqd, with the form in which clients see them.

A `ClientError` has the code that is sent to the client (`E_BAD_TOPIC`), its text, and whether the connection is closed
after it. An `HttpError` has a status and the `message` of its JSON body.
"""

from __future__ import annotations

import errno
from importlib.util import find_spec
from typing import ClassVar
from zlib import crc32

# Followed by the address of its primary; clients recognize it in errors over TCP.
IS_STANDBY = "nsqd is a standby of "


class NsqdError(Exception):
    """Base of all errors of this package."""


def is_full(error: OSError) -> bool:
    """True if the disk, or the quota of this user, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def missing_package(module: str, extra: str) -> str:
    """Return what to install for a module of an extra; "" if it is installed."""
    if find_spec(module) is not None:
        return ""
    return f"it needs {module}: pip install 'nsqd-py[{extra}]'"


def bug_number(bug: BaseException) -> str:
    """Return a number of six hexadecimal digits for the kind of a bug, and the line of code that raised it.

    The same bug has the same number each time, so that a log that repeats few of its lines has the number of each.
    """
    level = bug.__traceback__
    while level is not None and level.tb_next is not None:
        level = level.tb_next
    where = ""
    if level is not None:
        where = f"{level.tb_frame.f_code.co_filename}:{level.tb_lineno}"
    return f"{crc32(f'{type(bug).__qualname__} {where}'.encode()) & 0xFFFFFF:06x}"


class InternalError(OSError):
    """The error that clients get for a bug: a sentence with its number, and not a word of Python.

    The log has a line with the same number and the traceback; see `nsqd_py.runtime.logs.bugs`. It is an OSError, as it stands
    instead of the result of a write or a read. It does not hold the bug, whose frames may hold messages.
    """

    def __init__(self, bug: BaseException) -> None:
        super().__init__(f"internal error {bug_number(bug)}, see the server's log")


class StartError(NsqdError):
    """nsqd cannot start; the text says why, and what to do."""


class LayerError(NsqdError):
    """Received bytes are not encrypted or compressed as agreed; the connection is closed."""


class LineTooLong(NsqdError):
    """A line is longer than a client may send: the connection ends without an answer."""


class ClientError(NsqdError):
    """An error that is answered to a client of the TCP protocol.

    The text may hold undecodable bytes of the client's command as surrogates; they are sent back unchanged.
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
    """nsqd creates no topic or channel now; `reason` is the text for clients of the TCP protocol."""

    def __init__(self, status: int, message: str, reason: str) -> None:
        super().__init__(status, message)
        self.reason = reason


class Draining(Refusal):
    """nsqd drains, and accepts no new messages, topics or channels."""

    def __init__(self) -> None:
        super().__init__(503, "DRAINING", "nsqd is draining")


class IsStandby(Refusal):
    """nsqd is a standby: clients must use its primary."""

    def __init__(self, primary: str) -> None:
        super().__init__(503, "STANDBY", IS_STANDBY + primary)


class TooManyTopics(Refusal):
    """--max-topics is reached. The status is not 503, since a retry does not help until a topic is deleted."""

    def __init__(self, most: int) -> None:
        super().__init__(403, "TOO_MANY_TOPICS", f"topics exceed limit of {most}")


class TooManyNewTopics(Refusal):
    """The clients of an address create topics or channels too fast."""

    def __init__(self, most_per_s: int) -> None:
        reason = (
            f"new topics and channels exceed limit of {most_per_s} a second (--max-new-topics-per-second)"
        )
        super().__init__(429, "TOO_MANY_NEW_TOPICS", reason)


class TooManyChannels(Refusal):
    """--max-channels-per-topic is reached."""

    def __init__(self, topic: str, most: int) -> None:
        super().__init__(403, "TOO_MANY_CHANNELS", f"channels of {topic} exceed limit of {most}")
