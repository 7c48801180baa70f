"""Dead letters: messages that are given up, in a topic of their own, with their errors.

A dead letter is an envelope (`nsqd_py.protocol.envelope`) around the original body, with the headers that the message had,
and these:

error     the class and the text of the error, in printable ASCII
handler   the name of the handler that gave it up
topic, channel, id, attempts    of the message; `id` is the first one if it was a dead letter before
died      when it was given up, in ns since the epoch

One that is larger than nsqd's --max-msg-size has only `error`, cut, and `id`; the last resort is the body as it came.

Handlers of `nsqd_py.work` take envelopes off, so a dead letter may be published to its topic again as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from nsqd_py.client.message import Message
from nsqd_py.protocol.envelope import unwrap, wrap
from nsqd_py.protocol.names import dead_letter_topic
from nsqd_py.work.handlers import Handler

_MOST_ERROR_CHARACTERS = 2000
_SHORT_ERROR_CHARACTERS = 60
_NO_TEXT = "<exception str() failed>"  # as in Python's tracebacks
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_TOO_LARGE = ("E_BAD_MESSAGE", "E_BAD_BODY")
_REPEATED = "id"  # the first value stays
# The headers that a dead letter has in addition to those of its message.
OWN_HEADERS = frozenset(("error", "handler", "topic", "channel", _REPEATED, "attempts", "died"))


class Store(Protocol):
    """The part of a producer that dead letters need."""

    def publish_soon(self, topic: str, body: bytes, on_done: Any = None, *, defer_s: Any = 0) -> Any: ...


def dead_letter(
    handler: Handler, message: Message, body: bytes, error: BaseException, now_ns: int
) -> tuple[str, list[bytes]]:
    """Return the topic of the dead letter of a message, whose body came as `body`, and what to publish.

    That is the first one that nsqd does not refuse as too large: the last one has its size already.
    """
    original, headers = unwrap(body)
    own = {
        "error": describe(error),
        "handler": _printable(handler.name),
        "topic": message.topic,
        "channel": message.channel,
        "id": headers.get(_REPEATED, message.id.decode("latin-1")),
        "attempts": str(message.attempts),
        "died": str(now_ns),
    }
    topic = dead_letter_topic(message.topic)
    short = {"error": own["error"][:_SHORT_ERROR_CHARACTERS], _REPEATED: own[_REPEATED]}
    return topic, [_wrapped(original, headers, own), wrap(original, short), body]


def is_too_large(refused: Exception) -> bool:
    """True if nsqd refused a dead letter because of its size."""
    return getattr(refused, "code", "") in _TOO_LARGE


def _wrapped(body: bytes, headers: Mapping[str, str], own: Mapping[str, str]) -> bytes:
    try:
        return wrap(body, {**headers, **own})
    except ValueError:  # together they are larger than an envelope allows
        return wrap(body, own)


def describe(error: BaseException) -> str:
    """Return the class and the text of an error in one line of printable ASCII. It raises nothing: any code raises errors."""
    return _printable(f"{type(error).__name__}: {_text_of(error)}")[:_MOST_ERROR_CHARACTERS]


def _text_of(error: BaseException) -> str:
    try:
        return str(error)[:_MOST_ERROR_CHARACTERS]
    except Exception:  # noqa: BLE001 - its class has code of its own
        return _NO_TEXT


def _printable(text: str) -> str:
    """Return one line, with escapes for all but printable ASCII, which is what an envelope has."""
    line = " ".join(text.split())
    line = line.encode("ascii", "backslashreplace").decode()
    return _CONTROL.sub(_escaped, line)


def _escaped(control: re.Match[str]) -> str:
    return f"\\x{ord(control[0]):02x}"
