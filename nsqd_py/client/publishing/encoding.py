"""The commands of publishes, after checks. Each has a head and a body, so that a large body is not copied."""

from __future__ import annotations

from collections.abc import Sequence

from nsqd_py.client.keywords import Delay, seconds_of
from nsqd_py.client.publishing.publish import BadBody
from nsqd_py.protocol import outgoing

Body = bytes | bytearray | memoryview


def single(topic: str, body: Body, defer_s: Delay = 0) -> bytes:
    """Return a PUB, or a DPUB if it is deferred.

    Raises BadName, BadBody, TypeError, and ValueError if `defer_s` is negative.
    """
    if not defer_s:
        return outgoing.pub(topic, _checked(body))
    seconds = seconds_of(defer_s)
    if seconds < 0:
        raise ValueError(f"a message cannot be deferred by {seconds} s")
    return outgoing.dpub(topic, round(seconds * 1000), _checked(body))


def several(topic: str, bodies: Sequence[Body]) -> tuple[bytes, bytes]:
    """Return the two parts of an MPUB. Raises BadName, BadBody, TypeError."""
    if isinstance(bodies, str | bytes | bytearray | memoryview):
        raise TypeError("multi_publish takes a list of messages, not one")
    checked = list(map(_checked, bodies))
    if not checked:
        raise BadBody("there is nothing to publish")
    body = outgoing.mpub_body(checked)
    return outgoing.mpub_head(topic, len(body)), body


def finished(topic: str, body: bytes, count: int) -> tuple[bytes, bytes]:
    """Return the two parts of an MPUB whose body of `count` messages is complete. Raises BadName, BadBody."""
    if int.from_bytes(body[:4], "big") != count:
        raise BadBody(f"the body of an MPUB begins with the number of its messages, {count}")
    return outgoing.mpub_head(topic, len(body)), body


def _checked(body: Body) -> bytes:
    if type(body) is not bytes:
        body = _bytes_of(body)
    if not body:
        raise BadBody("nsqd takes no empty message")
    return body


def _bytes_of(body: object) -> bytes:
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    hint = ": encode it first, as in text.encode()" if isinstance(body, str) else ""
    raise TypeError(f"a message is bytes, not {type(body).__name__}{hint}")
