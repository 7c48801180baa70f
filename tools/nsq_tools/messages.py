"""Messages in columns, as nsqd's logs and the client have them, and as JSON lines.

{"timestamp":1700000000123456789,"id":"0123456789abcdef","attempts":1,"topic":"t","channel":"c",
 "nsqd":"127.0.0.1:4150","body":"hello"}

`timestamp` is in ns since the epoch. A body that is not UTF-8 is in `body_base64` instead of `body`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from nsqd_py.client.message import MessageBatch
    from nsqd_py.diskqueue.messages import Messages

    Columns = Messages | MessageBatch  # messages of one topic, in columns of equal length


def json_lines(messages: Columns) -> Iterator[bytes]:
    """Return a line for each message. orjson checks and escapes text; `%` inserts the rest, in 0.6 us a line."""
    names = (orjson.dumps(name) for name in (messages.topic, messages.channel, messages.nsqd))
    topic, channel, nsqd = (name.replace(b"%", b"%%") for name in names)
    line = b'{"timestamp":%%d,"id":%%b,"attempts":%%d,"topic":%b,"channel":%b,"nsqd":%b,%%b}\n' % (
        topic,
        channel,
        nsqd,
    )
    ids = (orjson.dumps(message_id.decode("ascii", "backslashreplace")) for message_id in messages.ids)
    bodies = body_members(messages.bodies)
    return map(line.__mod__, zip(messages.timestamps_ns, ids, messages.attempts, bodies, strict=True))


def body_members(bodies: Sequence[bytes]) -> Iterator[bytes]:
    """Return `"body":"..."` or `"body_base64":"..."` for each body."""
    try:
        texts = list(map(bytes.decode, bodies))
    except UnicodeDecodeError:
        return map(_body_member, bodies)
    return map(b'"body":%b'.__mod__, map(orjson.dumps, texts))


def _body_member(body: bytes) -> bytes:
    try:
        return b'"body":' + orjson.dumps(body.decode())
    except UnicodeDecodeError:
        return b'"body_base64":"%b"' % base64.b64encode(body)
