"""The actions of the page, POST /api/v2/actions, and of Go's paths. Each is logged."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from math import inf
from time import monotonic
from typing import Any, ClassVar, NamedTuple

from werkzeug.wrappers import Request

from nsqadmin_py.audit_trail import DONE, NOT_DONE, PARTLY
from nsqadmin_py.clusterinfo import Errors, NoAnswer, no_server_has, warning
from nsqadmin_py.permissions import ADMINISTER, PUBLISH
from nsqadmin_py.refusals import NotThere, RequestRefused
from nsqadmin_py.web.access import WHO_PROMOTES
from nsqadmin_py.web.answers import MOST_BYTES, object_in, reason_of, text_of, turn_of_body, upstream_failed
from nsqadmin_py.web.app import Handlers
from nsqadmin_py.web.node_queries import answer_of_each, ask_nodes, errors_in
from nsqadmin_py.web.requeueing import Requeueing
from nsqd_py.cluster.admin_client import UpstreamError, parsed
from nsqd_py.cluster.problems.of_channels import CHANNEL_OF_DEAD_LETTERS
from nsqd_py.cluster.problems.states import FAILED, OK, state_of
from nsqd_py.cluster.roles import KnownStandby
from nsqd_py.cluster.values import Statistics
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.runtime.threads import in_slices

_MOST_REQUEUED = 100_000
_UNAUTHORIZED = 401
_FORBIDDEN = 403
_CONFLICT = 409
_MOST_AUDITED = 100  # characters of each
# They concern all users, and so need an administrator of everything.
_WITHOUT_TOPIC = ("dismiss", "promote")
# The permission on the topic that an action needs; all others need ADMINISTER.
_PERMISSIONS = {"publish": PUBLISH}
_AUDITED = ("to", "target", "limit", "defer_ms", "message", "seq", "copy_of")
# Actions on a topic or a channel, and those that pass their name to nsqd.
_PASSED = ("pause", "unpause", "empty")
_OF_GO = ("create", "delete", *_PASSED)

Result = dict[str, Any]


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
    def channel_query(self) -> dict[str, str]:
        """The query that names the channel."""
        return {"topic": self.topic, "channel": self.channel}


class Actions(Handlers):
    """Checks, performs and records actions."""

    def handle(self, request: Request) -> Result:
        """Raises RequestRefused."""
        self.access.check_token(request)
        self.access.check_may_act(request)
        with turn_of_body(request):
            order = _order(object_in(request, most_bytes=MOST_BYTES))
            try:
                return self.perform(request, order)
            except NoAnswer as error:
                if error.is_absence:  # Go's paths answer 502 to all actions but delete, as Go's nsqadmin does
                    raise no_server_has(order.topic) from error
                raise

    def perform(self, request: Request, order: ActionRequest) -> Result:
        """Return `errors` of nsqds that failed, and what the action adds.

        Raises RequestRefused, NoAnswer and UpstreamError.
        """
        self.access.check_action(request, order.topic, _PERMISSIONS.get(order.action, ADMINISTER))
        if order.action == "promote":
            self.access.check_promotion(request)
        target = text_of(order.more, "target")
        if target:
            self.access.check_action(request, target, PUBLISH)
        handler = self._handlers.get(order.action)
        if handler is None:
            raise RequestRefused(400, "INVALID_ACTION")
        try:
            result: Result = {"errors": [], **handler(self, order)}
        except (RequestRefused, NoAnswer, UpstreamError) as error:
            self._record(request, order, NOT_DONE, str(error))
            raise
        except Exception:
            self._record(request, order, NOT_DONE, "INTERNAL_ERROR")
            raise
        errors = "; ".join(result["errors"])
        self._record(request, order, PARTLY if errors else DONE, errors or "ok")
        self.poller.poll_soon()
        return result

    def _record(self, request: Request, order: ActionRequest, state: str, result: str) -> None:
        entry = self.audit_log.record(request, order.action, order.names, state, result)
        if order.action == "create" and order.channel and state != NOT_DONE:
            self.audit_log.notify(request, "create_topic", replace(entry, channel=""))
        self.audit_log.notify(request, _notice_name(order), entry)

    # ---- what Go's nsqadmin does too

    def _create(self, order: ActionRequest) -> Result:
        _check_name("TOPIC", order.topic)
        if order.channel:
            _check_name("CHANNEL", order.channel)
        return _result(self.info().create(order.topic, order.channel))

    def _delete(self, order: ActionRequest) -> Result:
        return _result(self.info().delete(order.topic, order.channel))

    def _pass(self, order: ActionRequest) -> Result:
        return _result(self.info().act(order.action, order.topic, order.channel))

    def _tombstone(self, order: ActionRequest) -> Result:
        _check_name("TOPIC", order.topic)
        _check_node(order)
        return _result(self.info().tombstone(order.topic, order.node))

    # ---- what it does not

    def _seek(self, order: ActionRequest) -> Result:
        """Move a channel to a time (RFC 3339), or to "earliest" or "latest"."""
        _check_name("CHANNEL", order.channel)
        to = _text(order, "to")

        def seek(address: str) -> Statistics:
            body = self.upstream.post(address, "/channel/seek", {**order.channel_query, "to": to})
            return parsed(address, body, in_slices) if body else {}

        addresses = ask_nodes(self.cluster, order.topic, order.channel, order.node)
        nodes = answer_of_each(self.cluster, addresses, seek)
        return {"errors": errors_in(nodes), "nodes": nodes}

    def _publish(self, order: ActionRequest) -> Result:
        """Publish a test message to one nsqd."""
        _check_name("TOPIC", order.topic)
        body = _message_body(order.more)
        query = {"topic": order.topic}
        defer_ms = _integer(order, "defer_ms", 0)
        if defer_ms:
            query["defer"] = str(defer_ms)
        node = self._some_node(order)
        self.upstream.post(node, "/pub", query, body)
        return {"node": node}

    def _some_node(self, order: ActionRequest) -> str:
        """Return the requested nsqd, or the healthiest one, if possible one that has the topic."""
        if order.node:
            self._check_known(order)
            return order.node
        now_s = monotonic()
        ranks = {OK: 0, FAILED: 2}
        nodes = [node for node in self.cluster.nodes.values() if not isinstance(node.role, KnownStandby)]
        if not nodes:
            raise upstream_failed("no nsqd is known")
        return min(
            nodes,
            key=lambda node: (
                ranks.get(state_of(node, now_s), 1),
                order.topic not in node.topics,
                node.address,
            ),
        ).address

    def _check_known(self, order: ActionRequest) -> None:
        if order.node not in self.cluster.nodes:
            raise NotThere("NODE_NOT_FOUND")

    def _requeue_dead_letters(self, order: ActionRequest) -> Result:
        """Move at most `limit` messages from a channel of the dead-letter topic to the topic `target`."""
        target = _target(order)
        limit = _integer(order, "limit", _MOST_REQUEUED, 1, _MOST_REQUEUED)
        channel = order.channel or self._channel_of_dead_letters(order.topic)
        _check_name("CHANNEL", channel)
        addresses = ask_nodes(self.cluster, order.topic, "", order.node)
        source = order._replace(channel=channel).channel_query
        return Requeueing(self.upstream, source, target).all(addresses, limit)

    def _channel_of_dead_letters(self, topic: str) -> str:
        """Return the topic's only channel; without channels, a new one that gets all its messages."""
        row = self.cluster.topics.get(topic)
        channels = []
        if row is not None:
            channels = list(row.channels)
        if len(channels) > 1:
            raise RequestRefused(400, "MISSING_ARG_CHANNEL", channels=sorted(channels))
        return channels[0] if channels else CHANNEL_OF_DEAD_LETTERS

    def _requeue_message(self, order: ActionRequest) -> Result:
        """Publish one waiting message to the topic `target`, and finish it."""
        seq, message_id = self._message_of(order)
        return Requeueing(self.upstream, order.channel_query, _target(order)).one(order.node, seq, message_id)

    def _discard_message(self, order: ActionRequest) -> Result:
        """Finish one waiting message without delivering it."""
        seq, message_id = self._message_of(order)
        self.upstream.post(
            order.node, "/channel/finish", {**order.channel_query, "seq": str(seq), "id": message_id}
        )
        return {"node": order.node}

    def _message_of(self, order: ActionRequest) -> tuple[int, str]:
        """Return the number of a message and its id.

        The number distinguishes it from others with the same id.
        """
        _check_name("CHANNEL", order.channel)
        seq = _integer(order, "seq", None)
        message_id = _text(order, "message")
        _check_node(order)
        ask_nodes(self.cluster, order.topic, order.channel, order.node)
        return seq, message_id

    def _dismiss(self, order: ActionRequest) -> Result:
        """Forget an nsqd that is gone."""
        _check_node(order)
        if not self.findings.memory.dismiss(order.node):
            raise NotThere("NODE_NOT_FOUND")
        return {}

    def _promote(self, order: ActionRequest) -> Result:
        """Make a standby the primary. It decides itself whether it can."""
        _check_node(order)
        self._check_known(order)
        try:
            answer = parsed(order.node, self.upstream.post(order.node, "/promote", {}), in_slices)
        except UpstreamError as error:
            if error.status == _CONFLICT:
                raise RequestRefused(409, error.message) from error
            hint = ""
            if error.status in (_UNAUTHORIZED, _FORBIDDEN):
                hint = f"; {WHO_PROMOTES}"
            raise upstream_failed(f"{reason_of(error)}{hint}") from error
        return {"node": order.node, "answer": answer}

    # By the name of the action.
    _handlers: ClassVar[dict[str, Callable[[Actions, ActionRequest], Result]]] = {
        "create": _create,
        "delete": _delete,
        **dict.fromkeys(_PASSED, _pass),
        "tombstone": _tombstone,
        "seek": _seek,
        "publish": _publish,
        "requeue_dead_letters": _requeue_dead_letters,
        "requeue_message": _requeue_message,
        "discard_message": _discard_message,
        "dismiss": _dismiss,
        "promote": _promote,
    }


def _order(document: dict[str, Any]) -> ActionRequest:
    action, topic, channel, node = (
        text_of(document, name) for name in ("action", "topic", "channel", "node")
    )
    if action in _WITHOUT_TOPIC:  # a topic would stand for the permissions of the user
        return ActionRequest(action, "", "", node, document)
    if not topic:
        raise RequestRefused(400, "MISSING_ARG_TOPIC")
    return ActionRequest(action, topic, channel, node, document)


def _result(errors: Errors) -> Result:
    return {"errors": [str(error) for error in errors], "message": warning(errors)}


def _message_body(document: dict[str, Any]) -> bytes:
    encoded = text_of(document, "body_base64")
    try:
        body = b64decode(encoded, validate=True) or text_of(document, "body").encode()
    except ValueError as error:
        raise RequestRefused(400, "INVALID_ARG_BODY_BASE64") from error
    if not body:
        raise RequestRefused(400, "MISSING_ARG_BODY")
    return body


def _notice_name(order: ActionRequest) -> str:
    """Return the name that Go's nsqadmin gives an action in notifications."""
    if order.action == "tombstone":
        return "tombstone_topic_producer"
    if order.action not in _OF_GO:
        return order.action
    if order.channel:
        return f"{order.action}_channel"
    return f"{order.action}_topic"


def _target(order: ActionRequest) -> str:
    """Return the topic that gets the messages. Raises RequestRefused."""
    target = text_of(order.more, "target")
    _check_name("TOPIC", order.topic)
    _check_name("TOPIC", target)
    if target == order.topic:
        raise RequestRefused(400, "INVALID_ARG_TARGET")
    return target


def _check_name(kind: str, name: str) -> None:
    if not is_valid_name(name.encode()):
        raise RequestRefused(400, f"INVALID_{kind}")


def _text(order: ActionRequest, name: str) -> str:
    """Return an argument that must not be empty. Raises RequestRefused."""
    text = text_of(order.more, name)
    if not text:
        raise RequestRefused(400, f"MISSING_ARG_{name.upper()}")
    return text


def _integer(order: ActionRequest, name: str, default: int | None, least: int = 0, most: float = inf) -> int:
    """Return a number; None as `default` if it must be given. Raises RequestRefused."""
    value = order.more.get(name, default)
    if type(value) is not int or not least <= value <= most:
        raise RequestRefused(400, f"INVALID_ARG_{name.upper()}")
    return value


def _check_node(order: ActionRequest) -> None:
    if not order.node:
        raise RequestRefused(400, "MISSING_ARG_NODE")
