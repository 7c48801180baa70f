"""Actions on one message that waits in a channel, such as a dead letter: publish it again, or discard it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from nsqadmin_py.messages.rows import body_of
from nsqadmin_py.web.answers import Refusal
from nsqadmin_py.web.bodies import text_of
from nsqadmin_py.web.node_queries import is_missing_path, reason_of
from nsqd_py.cluster.upstream import Upstream, UpstreamError
from nsqd_py.cluster.values import rows_in
from nsqd_py.protocol.names import is_valid_name

Result = dict[str, Any]


class Letter(NamedTuple):
    """A message of a channel on one nsqd. Its number tells it from others with the same id."""

    node: str
    topic: str
    channel: str
    seq: int
    message_id: str

    @property
    def query(self) -> dict[str, str]:
        return {"topic": self.topic, "channel": self.channel, "seq": str(self.seq)}


def requeue(upstream: Upstream, letter: Letter, target: str) -> Result:
    """Publish the message to `target` on its nsqd, then finish it in its channel. Raises Refusal.

    If nsqadmin ends in between, it may come twice; it is never lost.
    """
    if not is_valid_name(target.encode()):
        raise Refusal(400, "INVALID_TOPIC")
    if target == letter.topic:
        raise Refusal(400, "INVALID_ARG_TARGET")
    body = _asked(lambda: _body(upstream, letter))
    _asked(lambda: upstream.post(letter.node, "/pub", {"topic": target}, body))
    try:
        _finish(upstream, letter)
    except UpstreamError as error:
        text = f"{letter.node}: {target} has the message, but it stays in {letter.channel}: {reason_of(error)}"
        return {"errors": [text], "node": letter.node}
    return {"errors": [], "node": letter.node}


def discard(upstream: Upstream, letter: Letter) -> Result:
    """Finish the message in its channel. Raises Refusal."""
    _asked(lambda: _finish(upstream, letter))
    return {"errors": [], "node": letter.node}


def letter_of(document: Mapping[str, Any], node: str, topic: str, channel: str) -> Letter:
    """Return the message that an action names. Raises Refusal."""
    seq = document.get("seq")
    if type(seq) is not int or seq < 0:
        raise Refusal(400, "INVALID_ARG_SEQ")
    message_id = text_of(dict(document), "message")
    if not message_id:
        raise Refusal(400, "MISSING_ARG_MESSAGE")
    if not node:
        raise Refusal(400, "MISSING_ARG_NODE")
    return Letter(node, topic, channel, seq, message_id)


def _body(upstream: Upstream, letter: Letter) -> bytes:
    """Raises UpstreamError, Refusal."""
    answer = upstream.get(letter.node, "/channel/peek", letter.query)
    for row in rows_in(answer, "messages"):
        if row.get("id") == letter.message_id and row.get("seq") == letter.seq:
            return body_of(row)
    raise Refusal(404, "MESSAGE_NOT_QUEUED")


def _finish(upstream: Upstream, letter: Letter) -> None:
    upstream.post(letter.node, "/channel/finish", {**letter.query, "id": letter.message_id})


def _asked(ask: Callable[[], Any]) -> Any:
    """Return what `ask` returns. Raises Refusal."""
    try:
        return ask()
    except UpstreamError as error:
        if error.status == 404 and not is_missing_path(error):
            raise Refusal(404, error.message or "NOT_FOUND") from error
        raise Refusal(502, f"UPSTREAM_ERROR: {reason_of(error)}") from error
