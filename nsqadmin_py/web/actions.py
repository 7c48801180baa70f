"""The actions of the page: POST /api/v2/actions. Each is logged."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable
from time import monotonic
from typing import Any, NamedTuple

from werkzeug.wrappers import Request, Response

from nsqadmin_py.cluster.metrics import FAILED, OK, state_of
from nsqadmin_py.cluster.problems import CHANNEL_OF_DEAD_LETTERS
from nsqadmin_py.clusterinfo import Errors, NobodyAnswered, joined
from nsqadmin_py.permissions import ADMINISTER, PUBLISH
from nsqadmin_py.web import message_queries
from nsqadmin_py.web.answers import Refusal, as_json, object_in, text_of
from nsqadmin_py.web.app import Services
from nsqadmin_py.web.node_queries import ask_nodes, reason_of
from nsqd_py.cluster.roles import KnownStandby
from nsqd_py.cluster.upstream import UpstreamError, ask_all, parsed
from nsqd_py.cluster.values import Statistics
from nsqd_py.protocol.names import is_valid_name

_MOST_REQUEUED = 100_000
_UNAUTHORIZED, _FORBIDDEN, _CONFLICT = 401, 403, 409
_WHO_PROMOTES = "; only its own machine may promote an nsqd, or nsqadmin with a token (--http-client-token-file)"
_MOST_AUDITED = 100  # characters of each
# They concern all users, and so need an administrator of everything.
_WITHOUT_TOPIC = ("dismiss", "promote")
# The permission on the topic that an action needs; all others need ADMINISTER.
_PERMISSIONS = {"publish": PUBLISH}
_AUDITED = ("to", "target", "limit", "defer_ms", "message", "seq", "copy_of")


class ActionRequest(NamedTuple):
    """A requested action. Fields that it does not need may be empty."""

    action: str
    topic: str
    channel: str
    node: str
    more: dict[str, Any]

    @property
    def names(self) -> dict[str, str]:
        """What the audit log says of it; not the body of a message."""
        more = {name: str(self.more[name])[:_MOST_AUDITED] for name in _AUDITED if name in self.more}
        return {"topic": self.topic, "channel": self.channel, "node": self.node, **more}


Result = dict[str, Any]


class Actions:
    """Checks, performs and records actions."""

    def __init__(self, services: Services) -> None:
        self._cluster = services.cluster
        self._memory = services.findings.memory
        self._info = services.info
        self._upstream = services.upstream
        self._access = services.access
        self._audit_log = services.audit_log
        self._poller = services.poller
        self._handlers: dict[str, Callable[[ActionRequest], Result]] = {
            "create": self._create,
            "delete": self._delete,
            "pause": self._act,
            "unpause": self._act,
            "empty": self._act,
            "tombstone": self._tombstone,
            "seek": self._seek,
            "publish": self._publish,
            "requeue_dead_letters": self._requeue_dead_letters,
            "requeue_message": self._requeue_message,
            "discard_message": self._discard_message,
            "dismiss": self._dismiss,
            "promote": self._promote,
        }

    def handle(self, request: Request) -> Response:
        """Raises Refusal."""
        self._access.check_token(request)
        self._access.check_may_act(request)
        order = _order(object_in(request))
        self._check_permissions(request, order)
        handler = self._handlers.get(order.action)
        if handler is None:
            raise Refusal(400, "INVALID_ACTION")
        try:
            result = handler(order)
        except Refusal as refusal:
            self._audit_log.record(request, order.action, refusal.message, **order.names)
            raise
        except NobodyAnswered as error:
            self._audit_log.record(request, order.action, str(error), **order.names)
            raise Refusal(502, f"UPSTREAM_ERROR: {error}") from error
        self._audit_log.record(request, order.action, "; ".join(result["errors"]) or "ok", **order.names)
        self._audit_log.notify(request, _notice_name(order), order.topic, order.channel, order.node)
        self._poller.hurry()
        return as_json(result)

    def _check_permissions(self, request: Request, order: ActionRequest) -> None:
        """Refuse an action on a topic for which the user has no permission, and one that publishes to such a topic."""
        self._access.check_action(request, order.topic, _PERMISSIONS.get(order.action, ADMINISTER))
        target = text_of(order.more, "target")
        if target:
            self._access.check_action(request, target, PUBLISH)

    # ---- what Go's nsqadmin does too

    def _create(self, order: ActionRequest) -> Result:
        _check_topic(order.topic)
        if order.channel:
            _check_channel(order.channel)
        return _result(self._info().create(order.topic, order.channel))

    def _delete(self, order: ActionRequest) -> Result:
        return _result(self._info().delete(order.topic, order.channel))

    def _act(self, order: ActionRequest) -> Result:
        return _result(self._info().act(order.action, order.topic, order.channel))

    def _tombstone(self, order: ActionRequest) -> Result:
        if not order.node:
            raise Refusal(400, "MISSING_ARG_NODE")
        return _result(self._info().tombstone(order.topic, order.node))

    # ---- what it does not

    def _seek(self, order: ActionRequest) -> Result:
        """Move a channel to a time (RFC 3339), `earliest` or `latest`."""
        _check_channel(order.channel)
        to = text_of(order.more, "to")
        if not to:
            raise Refusal(400, "MISSING_ARG_TO")
        query = {"topic": order.topic, "channel": order.channel, "to": to}
        addresses = ask_nodes(self._cluster, order.topic, order.channel, order.node)
        nodes = self._post_to_each(addresses, "/channel/seek", query)
        return _of_nodes(nodes)

    def _publish(self, order: ActionRequest) -> Result:
        """Publish a test message to one nsqd."""
        _check_topic(order.topic)
        body = _message_body(order.more)
        query = {"topic": order.topic}
        defer = order.more.get("defer_ms", 0)
        if type(defer) is not int or defer < 0:
            raise Refusal(400, "INVALID_ARG_DEFER_MS")
        if defer:
            query["defer"] = str(defer)
        node = self._some_node(order)
        try:
            self._upstream.post(node, "/pub", query, body)
        except UpstreamError as error:
            raise Refusal(502, f"UPSTREAM_ERROR: {reason_of(error)}") from error
        return {"errors": [], "node": node}

    def _some_node(self, order: ActionRequest) -> str:
        """Return the requested nsqd, or the healthiest one, if possible one that has the topic."""
        if order.node:
            if order.node not in self._cluster.nodes:
                raise Refusal(404, "NODE_NOT_FOUND")
            return order.node
        now_s = monotonic()
        ranks = {OK: 0, FAILED: 2}
        nodes = sorted(
            (node for node in self._cluster.nodes.values() if not isinstance(node.role, KnownStandby)),
            key=lambda node: (ranks.get(state_of(node, now_s), 1), order.topic not in node.topics, node.address),
        )
        if not nodes:
            raise Refusal(502, "UPSTREAM_ERROR: no nsqd is known")
        return nodes[0].address

    def _requeue_dead_letters(self, order: ActionRequest) -> Result:
        """Move at most `limit` messages from a channel of the dead-letter topic to the topic `target`."""
        target = text_of(order.more, "target")
        _check_topic(order.topic)
        _check_topic(target)
        if target == order.topic:
            raise Refusal(400, "INVALID_ARG_TARGET")
        limit = order.more.get("limit", _MOST_REQUEUED)
        if type(limit) is not int or not 0 < limit <= _MOST_REQUEUED:
            raise Refusal(400, "INVALID_ARG_LIMIT")
        channel = order.channel or self._channel_of_dead_letters(order.topic)
        _check_channel(channel)
        addresses = ask_nodes(self._cluster, order.topic, "", order.node)
        return message_queries.requeue_all(self._upstream, addresses, (order.topic, channel), target, limit)

    def _requeue_message(self, order: ActionRequest) -> Result:
        """Publish one waiting message to the topic `target`, and finish it."""
        return message_queries.requeue(self._upstream, self._dead_letter(order), text_of(order.more, "target"))

    def _discard_message(self, order: ActionRequest) -> Result:
        """Finish one waiting message without delivering it."""
        return message_queries.discard(self._upstream, self._dead_letter(order))

    def _dead_letter(self, order: ActionRequest) -> message_queries.DeadLetter:
        _check_channel(order.channel)
        found = message_queries.dead_letter_of(order.more, order.node, order.topic, order.channel)
        ask_nodes(self._cluster, order.topic, order.channel, order.node)
        return found

    def _channel_of_dead_letters(self, topic: str) -> str:
        """Return the topic's only channel; without channels, a new one that gets all messages of the topic."""
        row = self._cluster.topics.get(topic)
        channels = list(row.channels) if row is not None else []
        if len(channels) > 1:
            raise Refusal(400, "MISSING_ARG_CHANNEL", channels=sorted(channels))
        return channels[0] if channels else CHANNEL_OF_DEAD_LETTERS

    def _dismiss(self, order: ActionRequest) -> Result:
        """Forget an nsqd that is gone."""
        if not order.node:
            raise Refusal(400, "MISSING_ARG_NODE")
        if not self._memory.dismiss(order.node):
            raise Refusal(404, "NODE_NOT_FOUND")
        return {"errors": []}

    def _promote(self, order: ActionRequest) -> Result:
        """Make a standby the primary. It decides itself whether it can."""
        if not order.node:
            raise Refusal(400, "MISSING_ARG_NODE")
        if order.node not in self._cluster.nodes:
            raise Refusal(404, "NODE_NOT_FOUND")
        try:
            answer = parsed(order.node, self._upstream.post(order.node, "/promote", {}))
        except UpstreamError as error:
            if error.status == _CONFLICT:
                raise Refusal(409, error.message) from error
            hint = _WHO_PROMOTES if error.status in (_UNAUTHORIZED, _FORBIDDEN) else ""
            raise Refusal(502, f"UPSTREAM_ERROR: {reason_of(error)}{hint}") from error
        return {"errors": [], "node": order.node, "answer": answer}

    def _post_to_each(self, addresses: list[str], path: str, query: dict[str, str]) -> list[Statistics]:
        def post(address: str) -> Statistics:
            try:
                body = self._upstream.post(address, path, query)
                return {"node": address, "answer": parsed(address, body) if body else {}}
            except UpstreamError as error:
                return {"node": address, "error": reason_of(error)}

        return list(ask_all(addresses, post).good.values())


def _order(document: dict[str, Any]) -> ActionRequest:
    action, topic, channel, node = (text_of(document, name) for name in ("action", "topic", "channel", "node"))
    if action in _WITHOUT_TOPIC:  # a topic would stand for the permissions of the user
        return ActionRequest(action, "", "", node, document)
    order = ActionRequest(action, topic, channel, node, document)
    if not order.topic:
        raise Refusal(400, "MISSING_ARG_TOPIC")
    return order


def _result(errors: Errors) -> Result:
    return {"errors": [str(error) for error in errors], "message": f"WARNING: {joined(errors)}" if errors else ""}


def _of_nodes(nodes: list[Statistics]) -> Result:
    """Return the results of all nsqds. Raises Refusal if all failed."""
    errors = [f"{node['node']}: {node['error']}" for node in nodes if "error" in node]
    if len(errors) == len(nodes):
        raise Refusal(502, f"UPSTREAM_ERROR: {'; '.join(errors)}", nodes=nodes)
    return {"errors": errors, "nodes": nodes}


def _message_body(document: dict[str, Any]) -> bytes:
    encoded = text_of(document, "body_base64")
    if not encoded:
        body = text_of(document, "body").encode()
    else:
        try:
            body = b64decode(encoded, validate=True)
        except binascii.Error as error:
            raise Refusal(400, "INVALID_ARG_BODY_BASE64") from error
    if not body:
        raise Refusal(400, "MISSING_ARG_BODY")
    return body


def _notice_name(order: ActionRequest) -> str:
    """Return the name that Go's nsqadmin gives an action in notifications."""
    if order.action == "tombstone":
        return "tombstone_topic_producer"
    if order.action in ("create", "delete", "pause", "unpause", "empty"):
        return f"{order.action}_{'channel' if order.channel else 'topic'}"
    return order.action


def _check_topic(topic: str) -> None:
    if not is_valid_name(topic.encode()):
        raise Refusal(400, "INVALID_TOPIC")


def _check_channel(channel: str) -> None:
    if not is_valid_name(channel.encode()):
        raise Refusal(400, "INVALID_CHANNEL")
