"""The actions of the page, POST /api/v2/actions, and of Go's paths. Each is logged."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, NamedTuple

from werkzeug.wrappers import Request, Response

from nsqadmin_py.audit_trail import DONE, NOT_DONE, PARTLY
from nsqadmin_py.clusterinfo import Absent, Errors, NoAnswer, absent_topic, warning
from nsqadmin_py.permissions import ADMINISTER, PUBLISH
from nsqadmin_py.web import message_queries
from nsqadmin_py.web.access import WHO_PROMOTES
from nsqadmin_py.web.answers import MOST_BYTES, RequestRefused, as_json, object_in, reason_of, text_of, turn_of_body
from nsqadmin_py.web.app import Services
from nsqadmin_py.web.node_queries import answer_of_each, ask_nodes, errors_in
from nsqd_py.cluster.problems.of_channels import CHANNEL_OF_DEAD_LETTERS
from nsqd_py.cluster.problems.states import FAILED, OK, state_of
from nsqd_py.cluster.roles import KnownStandby
from nsqd_py.cluster.upstream import UpstreamError, parsed
from nsqd_py.cluster.values import Statistics
from nsqd_py.protocol.names import is_valid_name

_MOST_REQUEUED = 100_000
_UNAUTHORIZED, _FORBIDDEN, _CONFLICT = 401, 403, 409
_MOST_AUDITED = 100  # characters of each
# They concern all users, and so need an administrator of everything.
_WITHOUT_TOPIC = ("dismiss", "promote")
# The permission on the topic that an action needs; all others need ADMINISTER.
_PERMISSIONS = {"publish": PUBLISH}
_AUDITED = ("to", "target", "limit", "defer_ms", "message", "seq", "copy_of")
# Actions on a topic or a channel, and those that pass their name to nsqd.
_PASSED = ("pause", "unpause", "empty")
_OF_GO = ("create", "delete", *_PASSED)


class ActionRequest(NamedTuple):
    """A requested action. Fields that it does not need may be empty."""

    action: str
    topic: str
    channel: str = ""
    node: str = ""
    more: dict[str, Any] = {}

    @property
    def names(self) -> dict[str, str]:
        """The entry in the audit log, without the body of a message."""
        more = {name: str(self.more[name])[:_MOST_AUDITED] for name in _AUDITED if name in self.more}
        return {"topic": self.topic, "channel": self.channel, "node": self.node, **more}

    @property
    def place(self) -> dict[str, str]:
        """The query that names the channel."""
        return {"topic": self.topic, "channel": self.channel}


Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Actions:
    """Checks, performs and records actions."""

    services: Services

    def handle(self, request: Request) -> Response:
        """Raises RequestRefused."""
        self.services.access.check_token(request)
        self.services.access.check_may_act(request)
        with turn_of_body(request):
            order = _order(object_in(request, most_bytes=MOST_BYTES))
            try:
                return as_json(self.perform(request, order))
            except NoAnswer as error:
                if error.is_absence:  # Go's paths answer 502 to all actions but delete, as Go's nsqadmin does
                    raise absent_topic(order.topic) from error
                raise

    def perform(self, request: Request, order: ActionRequest) -> Result:
        """Raises RequestRefused, Absent, NoAnswer and UpstreamError."""
        services = self.services
        services.access.check_action(request, order.topic, _PERMISSIONS.get(order.action, ADMINISTER))
        if order.action == "promote":
            services.access.check_promotion(request)
        target = text_of(order.more, "target")
        if target:
            services.access.check_action(request, target, PUBLISH)
        handler = _HANDLERS.get(order.action)
        if handler is None:
            raise RequestRefused(400, "INVALID_ACTION")
        try:
            result = handler(self, order)
        except (RequestRefused, Absent, NoAnswer, UpstreamError) as error:
            self._record(request, order, NOT_DONE, str(error))
            raise
        except Exception:
            self._record(request, order, NOT_DONE, "INTERNAL_ERROR")
            raise
        if result["errors"]:
            self._record(request, order, PARTLY, "; ".join(result["errors"]))
        else:
            self._record(request, order, DONE, "ok")
        services.poller.poll_soon()
        return result

    def _record(self, request: Request, order: ActionRequest, state: str, result: str) -> None:
        audit_log = self.services.audit_log
        entry = audit_log.record(request, order.action, order.names, state, result)
        if order.action == "create" and order.channel and state != NOT_DONE:
            audit_log.notify(request, "create_topic", replace(entry, channel=""))
        audit_log.notify(request, _notice_name(order), entry)

    # ---- what Go's nsqadmin does too

    def _create(self, order: ActionRequest) -> Result:
        _check_topic(order.topic)
        if order.channel:
            _check_channel(order.channel)
        return _result(self.services.info().create(order.topic, order.channel))

    def _delete(self, order: ActionRequest) -> Result:
        return _result(self.services.info().delete(order.topic, order.channel))

    def _pass(self, order: ActionRequest) -> Result:
        return _result(self.services.info().act(order.action, order.topic, order.channel))

    def _tombstone(self, order: ActionRequest) -> Result:
        _check_topic(order.topic)
        _check_node(order)
        return _result(self.services.info().tombstone(order.topic, order.node))

    # ---- what it does not

    def _seek(self, order: ActionRequest) -> Result:
        """Move a channel to a time (RFC 3339), `earliest` or `latest`."""
        _check_channel(order.channel)
        to = text_of(order.more, "to")
        if not to:
            raise RequestRefused(400, "MISSING_ARG_TO")

        def seek(address: str) -> Statistics:
            body = self.services.upstream.post(address, "/channel/seek", {**order.place, "to": to})
            return parsed(address, body) if body else {}

        addresses = ask_nodes(self.services.cluster, order.topic, order.channel, order.node)
        nodes = answer_of_each(self.services.cluster, addresses, seek)
        return {"errors": errors_in(nodes), "nodes": nodes}

    def _publish(self, order: ActionRequest) -> Result:
        """Publish a test message to one nsqd."""
        _check_topic(order.topic)
        body = _message_body(order.more)
        query = {"topic": order.topic}
        defer = order.more.get("defer_ms", 0)
        if type(defer) is not int or defer < 0:
            raise RequestRefused(400, "INVALID_ARG_DEFER_MS")
        if defer:
            query["defer"] = str(defer)
        node = self._some_node(order)
        self.services.upstream.post(node, "/pub", query, body)
        return {"errors": [], "node": node}

    def _some_node(self, order: ActionRequest) -> str:
        """Return the requested nsqd, or the healthiest one, if possible one that has the topic."""
        known = self.services.cluster.nodes
        if order.node:
            if order.node not in known:
                raise RequestRefused(404, "NODE_NOT_FOUND")
            return order.node
        now_s = monotonic()
        ranks = {OK: 0, FAILED: 2}
        nodes = sorted(
            (node for node in known.values() if not isinstance(node.role, KnownStandby)),
            key=lambda node: (ranks.get(state_of(node, now_s), 1), order.topic not in node.topics, node.address),
        )
        if not nodes:
            raise RequestRefused(502, "UPSTREAM_ERROR: no nsqd is known")
        return nodes[0].address

    def _requeue_dead_letters(self, order: ActionRequest) -> Result:
        """Move at most `limit` messages from a channel of the dead-letter topic to the topic `target`."""
        target = _target(order)
        limit = order.more.get("limit", _MOST_REQUEUED)
        if type(limit) is not int or not 0 < limit <= _MOST_REQUEUED:
            raise RequestRefused(400, "INVALID_ARG_LIMIT")
        channel = order.channel or self._channel_of_dead_letters(order.topic)
        _check_channel(channel)
        addresses = ask_nodes(self.services.cluster, order.topic, "", order.node)
        source = order._replace(channel=channel).place
        return message_queries.requeue_all(self.services.upstream, addresses, source, target, limit)

    def _channel_of_dead_letters(self, topic: str) -> str:
        """Return the topic's only channel; without channels, a new one that gets all messages of the topic."""
        row = self.services.cluster.topics.get(topic)
        channels = list(row.channels) if row is not None else []
        if len(channels) > 1:
            raise RequestRefused(400, "MISSING_ARG_CHANNEL", channels=sorted(channels))
        return channels[0] if channels else CHANNEL_OF_DEAD_LETTERS

    def _requeue_message(self, order: ActionRequest) -> Result:
        """Publish one waiting message to the topic `target`, and finish it."""
        seq, message_id = self._message_of(order)
        return message_queries.requeue(self.services.upstream, order.node, order.place, seq, message_id, _target(order))

    def _discard_message(self, order: ActionRequest) -> Result:
        """Finish one waiting message without delivering it."""
        seq, message_id = self._message_of(order)
        self.services.upstream.post(order.node, "/channel/finish", {**order.place, "seq": str(seq), "id": message_id})
        return {"errors": [], "node": order.node}

    def _message_of(self, order: ActionRequest) -> tuple[int, str]:
        """Return the number of a message and its id. The number distinguishes it from others with the same id."""
        _check_channel(order.channel)
        seq = order.more.get("seq")
        if type(seq) is not int or seq < 0:
            raise RequestRefused(400, "INVALID_ARG_SEQ")
        message_id = text_of(order.more, "message")
        if not message_id:
            raise RequestRefused(400, "MISSING_ARG_MESSAGE")
        _check_node(order)
        ask_nodes(self.services.cluster, order.topic, order.channel, order.node)
        return seq, message_id

    def _dismiss(self, order: ActionRequest) -> Result:
        """Forget an nsqd that is gone."""
        _check_node(order)
        if not self.services.findings.memory.dismiss(order.node):
            raise RequestRefused(404, "NODE_NOT_FOUND")
        return {"errors": []}

    def _promote(self, order: ActionRequest) -> Result:
        """Make a standby the primary. It decides itself whether it can."""
        _check_node(order)
        if order.node not in self.services.cluster.nodes:
            raise RequestRefused(404, "NODE_NOT_FOUND")
        try:
            answer = parsed(order.node, self.services.upstream.post(order.node, "/promote", {}))
        except UpstreamError as error:
            if error.status == _CONFLICT:
                raise RequestRefused(409, error.message) from error
            hint = f"; {WHO_PROMOTES}" if error.status in (_UNAUTHORIZED, _FORBIDDEN) else ""
            raise RequestRefused(502, f"UPSTREAM_ERROR: {reason_of(error)}{hint}") from error
        return {"errors": [], "node": order.node, "answer": answer}


_HANDLERS: dict[str, Callable[[Actions, ActionRequest], Result]] = {
    "create": Actions._create,
    "delete": Actions._delete,
    **dict.fromkeys(_PASSED, Actions._pass),
    "tombstone": Actions._tombstone,
    "seek": Actions._seek,
    "publish": Actions._publish,
    "requeue_dead_letters": Actions._requeue_dead_letters,
    "requeue_message": Actions._requeue_message,
    "discard_message": Actions._discard_message,
    "dismiss": Actions._dismiss,
    "promote": Actions._promote,
}


def _order(document: dict[str, Any]) -> ActionRequest:
    action, topic, channel, node = (text_of(document, name) for name in ("action", "topic", "channel", "node"))
    if action in _WITHOUT_TOPIC:  # a topic would stand for the permissions of the user
        return ActionRequest(action, "", "", node, document)
    if not topic:
        raise RequestRefused(400, "MISSING_ARG_TOPIC")
    return ActionRequest(action, topic, channel, node, document)


def _result(errors: Errors) -> Result:
    return {"errors": [str(error) for error in errors], "message": warning(errors)}


def _message_body(document: dict[str, Any]) -> bytes:
    encoded = text_of(document, "body_base64")
    if not encoded:
        body = text_of(document, "body").encode()
    else:
        try:
            body = b64decode(encoded, validate=True)
        except binascii.Error as error:
            raise RequestRefused(400, "INVALID_ARG_BODY_BASE64") from error
    if not body:
        raise RequestRefused(400, "MISSING_ARG_BODY")
    return body


def _notice_name(order: ActionRequest) -> str:
    """Return the name that Go's nsqadmin gives an action in notifications."""
    if order.action == "tombstone":
        return "tombstone_topic_producer"
    return f"{order.action}_{'channel' if order.channel else 'topic'}" if order.action in _OF_GO else order.action


def _target(order: ActionRequest) -> str:
    """Return the topic that gets the messages. Raises RequestRefused."""
    target = text_of(order.more, "target")
    _check_topic(order.topic)
    _check_topic(target)
    if target == order.topic:
        raise RequestRefused(400, "INVALID_ARG_TARGET")
    return target


def _check_topic(topic: str) -> None:
    if not is_valid_name(topic.encode()):
        raise RequestRefused(400, "INVALID_TOPIC")


def _check_channel(channel: str) -> None:
    if not is_valid_name(channel.encode()):
        raise RequestRefused(400, "INVALID_CHANNEL")


def _check_node(order: ActionRequest) -> None:
    if not order.node:
        raise RequestRefused(400, "MISSING_ARG_NODE")
