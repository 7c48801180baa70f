"""Connections that want to join the group of this nsqd, until they have proven that they belong to it.

A refusal comes a second late, so that guessing is slow, and refusals write at most one line a second to the log.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from nsqd_py.errors import Invalid
from nsqd_py.net.addresses import split_address
from nsqd_py.protocol import frames
from nsqd_py.standby import group
from nsqd_py.standby.group import BadSecretFile
from nsqd_py.standby.membership import FENCE, NONCE_BYTES, Listener, NotMember
from nsqd_py.standby.messages import BadMessage, Offer, decode_offer

if TYPE_CHECKING:
    from nsqd_py.broker.broker import Broker
    from nsqd_py.pqueues import Alarm
    from nsqd_py.tcp.connection import ClientConnection

_SECOND_NS = 1_000_000_000
_HANDSHAKE_NS = 5 * _SECOND_NS
_REFUSAL_DELAY_NS = _SECOND_NS


@dataclass(slots=True)
class _Visit:
    """A handshake that is not complete. `alarm` ends it; then the client gets `refusal`, if there is one."""

    alarm: Alarm
    listener: Listener | None = None
    refusal: str = ""


class Door:
    """Lets connections prove their membership, and returns the offers of those that have."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._visits: dict[Any, _Visit] = {}
        self._refused = 0
        self._reported_ns = 0

    def member(self, client: ClientConnection, body: bytes) -> None:
        """Answer a MEMBER."""
        visit = self._visits.get(client)
        if visit is None:
            visit = self._visits[client] = _Visit(self._broker.alarms.alarm(partial(self._end, client)))
            visit.alarm.set(self._broker.clock() + _HANDSHAKE_NS)
        try:
            if visit.listener is None:
                visit.listener = self._listener(client)
            client.send(frames.response(visit.listener.answer(body)))
        except (NotMember, BadSecretFile) as error:
            self._refuse(client, visit, error)

    def _listener(self, client: ClientConnection) -> Listener:
        """Raises NotMember and BadSecretFile."""
        options = self._broker.options
        group.check_peer(options, client.peer)
        group.check_certificate(options, client.tls_info.names if client.tls_info is not None else ())
        own = (f"{options.broadcast_address}:{options.broadcast_tcp_port}", client.local_address)
        return Listener(group.secrets(options), own, os.urandom(NONCE_BYTES))

    def admit(self, client: ClientConnection, body: bytes) -> Offer | None:
        """Return the offer in the body of a member's STANDBY; None if its sender is refused later. Raises Invalid."""
        visit = self._visits.get(client)
        if visit is None or visit.listener is None:
            raise Invalid(
                "cannot STANDBY: no proof of membership; all nsqds of a group need the same version and --standby-secret-file"
            )
        try:
            document = visit.listener.document(body)
        except NotMember as error:
            self._refuse(client, visit, error)
            return None
        self.forget(client)
        try:
            offer = decode_offer(document)
        except BadMessage as error:
            raise Invalid(f"cannot STANDBY: {error}") from error
        if (visit.listener.purpose == FENCE) != bool(offer.fenced_by):
            raise Invalid("cannot STANDBY: the document has another purpose than the proof")
        if offer.fenced_by:
            self._check_new_primary(offer.fenced_by)
        return offer

    def _check_new_primary(self, address: str) -> None:
        if split_address(address) is None:
            raise Invalid("cannot STANDBY: the new primary has no address to follow; set its --broadcast-address")
        if group.is_local(self._broker.options) and not group.is_loopback_address(address):
            raise Invalid(f"cannot STANDBY: {address} is on another machine, and --standby-secret-file is not set")

    def forget(self, client: Any) -> None:
        """End the handshake of a connection, if it has one."""
        visit = self._visits.pop(client, None)
        if visit is not None:
            visit.alarm.close()

    # ---- refusals

    def _refuse(self, client: ClientConnection, visit: _Visit, error: NotMember | BadSecretFile) -> None:
        self._report(client, error)
        reason = str(error) if isinstance(error, NotMember) else "this nsqd cannot use its --standby-secret-file"
        visit.refusal = f"cannot STANDBY: {reason}"
        client.pause()
        visit.alarm.set(self._broker.clock() + _REFUSAL_DELAY_NS)

    def _end(self, client: ClientConnection, _now_ns: int) -> None:
        visit = self._visits.pop(client)
        if not visit.refusal:
            self._report(client, "no proof of membership in time")
            client.close("no proof of membership in time")
            return

        def answer() -> None:  # not as an error of the client, which would be another line in the log
            client.send(frames.error(Invalid(visit.refusal).wire))
            client.close_when_sent()

        client.go_on(answer)

    def _report(self, client: ClientConnection, reason: object) -> None:
        self._refused += 1
        now_ns = self._broker.clock()
        if now_ns - self._reported_ns >= _SECOND_NS:
            self._reported_ns = now_ns
            self._broker.log.warning(
                "STANDBY: refused %d connections that want to join the group, the last of client(%s) - %s",
                self._refused,
                client.peer,
                reason,
            )
            self._refused = 0
