"""The group of nsqds that may follow and fence each other: its secret, the names in its certificates, its addresses.

Without a secret and without names, the group consists of the processes of this machine.

`Handshakes` has the connections that want to join the group until they have proven that they belong to it. A refusal comes
a second late, so that guessing is slow.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from nsqd_py.broker.broker import Broker
from nsqd_py.errors import Invalid, NsqdError
from nsqd_py.net.addresses import host_of, is_loopback, is_loopback_address, split_address
from nsqd_py.net.tls_options import client_tls_of
from nsqd_py.pqueues.alarms import Alarm
from nsqd_py.protocol import frames
from nsqd_py.runtime.private_files import read_regular
from nsqd_py.server.options import NsqdOptions
from nsqd_py.settings.declaration import BadOptions
from nsqd_py.standby.messages import (
    FENCE,
    FETCH,
    NONCE_BYTES,
    BadStandbyMessage,
    GroupListener,
    NotMember,
    Offer,
    decode_offer,
)
from nsqd_py.standby.repairs.fetch_server import FetchServer

_FLAG = "--standby-secret-file"
_LEAST_SECRET_BYTES = 16
_MOST_FILE_BYTES = 64 * 1024
# Group members may read the file, as in containers; they may not write it. Others may do neither.
_FORBIDDEN_MODE = 0o027
# The secret of a group that needs none: it has certificates, or is on one machine.
NO_SECRET = b""
_SECOND_NS = 1_000_000_000
_HANDSHAKE_NS = 5 * _SECOND_NS
_REFUSAL_DELAY_NS = _SECOND_NS


# ---- secret, certificates and addresses


class BadSecretFile(BadOptions, NsqdError):
    """The file of --standby-secret-file cannot be used; the text says why, and what to do."""


def is_local(options: NsqdOptions) -> bool:
    """True if only processes of this machine are members, since nothing else proves membership."""
    return not options.standby_secret_file and not options.standby_tls_allowed_names


def secrets(options: NsqdOptions) -> tuple[bytes, ...]:
    """Return the secrets of the group: this nsqd proves its membership by the first, and accepts all.

    The file is read each time, so that the secret can change without a stop. Raises BadSecretFile.
    """
    path = options.standby_secret_file
    if path:
        return _read_secrets(path)
    return (NO_SECRET,)


def _read_secrets(path: str) -> tuple[bytes, ...]:
    try:
        text, mode = read_regular(path, _MOST_FILE_BYTES)
    except OSError as error:
        raise BadSecretFile(f"{_FLAG}: cannot read {path}: {error.strerror}") from error
    if mode & _FORBIDDEN_MODE:
        raise BadSecretFile(
            f"{_FLAG}: other users may use {path} (mode {stat.S_IMODE(mode):04o}); run: chmod 640 {path}"
        )
    found = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not found:
        raise BadSecretFile(f"{_FLAG}: {path} is empty; make a secret: openssl rand -base64 32 > {path}")
    if any(len(secret) < _LEAST_SECRET_BYTES for secret in found):
        raise BadSecretFile(
            f"{_FLAG}: a line of {path} has fewer than {_LEAST_SECRET_BYTES} bytes; make one: openssl rand -base64 32"
        )
    return found


def check_group(options: NsqdOptions) -> str:
    """Check what decides about membership, before nsqd starts; return a warning, or "".

    Raises BadOptions if a flag opens nsqd to standbys of other machines and nothing proves their membership, and
    BadOptions if the proofs cannot work.
    """
    secrets(options)
    if options.standby_tls_allowed_names:
        _check_certificates(options)
    opening = ("accept_standbys", "standby_acks", "standby_of", "lease")
    flag = next((f"--{name.replace('_', '-')}" for name in opening if getattr(options, name)), "")
    if not flag or not is_local(options):
        return ""
    other = next((address for address in _addresses(options) if not is_loopback_address(address)), None)
    if other is not None:
        raise BadOptions(
            f"{flag} needs {_FLAG} or --standby-tls-allowed-names, since {other} is no loopback address: without them, "
            "every host that reaches nsqd could read and replace its messages (docs/standby.md)"
        )
    return f"STANDBY: {flag} without {_FLAG}: each process of this machine may follow and fence this nsqd, and read all messages"


def _check_certificates(options: NsqdOptions) -> None:
    """Raise BadOptions unless both sides of each connection request and verify a certificate."""
    tls = client_tls_of(options, "standby")
    needed = {
        "--tls-cert": options.tls_cert,
        "--tls-root-ca-file": options.tls_root_ca_file,
        "--tls-client-auth-policy=require-verify": options.tls_client_auth_policy == "require-verify",
        "--standby-tls": options.standby_tls,
        "--client-tls-cert": tls.cert,
    }
    missing = [flag for flag, value in needed.items() if not value]
    if missing:
        raise BadOptions(
            f"--standby-tls-allowed-names needs {', '.join(missing)}: both sides show certificates"
        )
    if tls.insecure_skip_verify:
        peer = "standby" if options.standby_tls_insecure_skip_verify else "client"
        raise BadOptions(f"--standby-tls-allowed-names excludes --{peer}-tls-insecure-skip-verify")


def _addresses(options: NsqdOptions) -> Iterable[str]:
    """Yield the addresses at which this nsqd listens, is reached, and reaches others."""
    yield options.tcp_address
    yield options.http_address
    if options.tls_cert:
        yield options.https_address
    if options.lease or options.broadcast_address != type(options).settings["broadcast_address"].default:
        yield options.broadcast_address
    yield options.standby_of
    if options.lease:
        from nsqd_py.lease.store import parse_lease_url  # only a lease needs it

        yield from parse_lease_url(options.lease).addresses


def check_peer(options: NsqdOptions, peer: str) -> None:
    """Raise NotMember if the peer at this `host:port` cannot be a member, whatever it proves."""
    if is_local(options) and not is_loopback(host_of(peer)):
        raise NotMember(f"{_FLAG} is not set, and {peer} is on another machine")


def check_certificate(options: NsqdOptions, names: Iterable[str]) -> None:
    """Raise NotMember if the names in the peer's verified certificate are not those of a member."""
    allowed = {name.lower() for name in options.standby_tls_allowed_names}
    if allowed and allowed.isdisjoint(name.lower() for name in names):
        raise NotMember("the certificate has none of the names of --standby-tls-allowed-names")


# ---- connections without a proof


@dataclass(slots=True)
class _Visit:
    """A handshake that is not complete. `alarm` ends it; then the client gets `refusal`, if there is one."""

    alarm: Alarm
    listener: GroupListener | None = None
    refusal: str = ""


class Handshakes:
    """Lets connections prove their membership, and returns the offers of those that have.

    `fetches` answers the requests of those that came to fetch; they may send more than one.
    """

    def __init__(self, broker: Broker, fetches: FetchServer) -> None:
        self._broker = broker
        self._fetches = fetches
        self._visits: dict[Any, _Visit] = {}
        self._fetching: dict[Any, GroupListener] = {}

    def member(self, client: Any, body: bytes) -> None:
        """Answer a MEMBER."""
        if client in self._fetching:
            raise Invalid("cannot MEMBER in current state")
        visit = self._visits.get(client)
        if visit is None:
            visit = _Visit(self._broker.alarms.alarm(partial(self._end, client)))
            self._visits[client] = visit
            visit.alarm.set(self._broker.clock() + _HANDSHAKE_NS)
        try:
            if visit.listener is None:
                visit.listener = self._listener(client)
            client.send(frames.response(visit.listener.answer(body)))
        except (NotMember, BadSecretFile) as error:
            self._refuse(client, visit, error)

    def _listener(self, client: Any) -> GroupListener:
        """Begin a handshake, if the peer can be a member. Raises NotMember and BadSecretFile."""
        options = self._broker.options
        check_peer(options, client.peer)
        names = ()
        if client.tls_info is not None:
            names = client.tls_info.names
        check_certificate(options, names)
        own = (f"{options.broadcast_address}:{options.broadcast_tcp_port}", client.local_address)
        return GroupListener(secrets(options), own, os.urandom(NONCE_BYTES))

    def admit(self, client: Any, body: bytes) -> Offer | None:
        """Return the offer in the body of a member's STANDBY. Raises Invalid.

        Return None if its sender is refused later, or wants to fetch.
        """
        visit = self._visits.get(client)
        if visit is not None:
            listener = visit.listener
        else:
            listener = self._fetching.get(client)
        if listener is None:
            raise Invalid(
                "cannot STANDBY: no proof of membership; all nsqds of a group need the same version and --standby-secret-file"
            )
        try:
            document = listener.document(body)
        except NotMember as error:
            if visit is None:
                raise Invalid(f"cannot STANDBY: {error}") from error
            self._refuse(client, visit, error)
            return None
        self._end_visit(client)
        if listener.purpose == FETCH:
            self._fetching[client] = listener
            self._fetches.answer(client, document)
            return None
        try:
            offer = decode_offer(document)
        except BadStandbyMessage as error:
            raise Invalid(f"cannot STANDBY: {error}") from error
        if (listener.purpose == FENCE) != bool(offer.fenced_by):
            raise Invalid("cannot STANDBY: the document has another purpose than the proof")
        if offer.fenced_by:
            self._check_new_primary(offer.fenced_by)
        return offer

    def _check_new_primary(self, address: str) -> None:
        if split_address(address) is None:
            raise Invalid(
                "cannot STANDBY: the new primary has no address to follow; set its --broadcast-address"
            )
        if is_local(self._broker.options) and not is_loopback_address(address):
            raise Invalid(
                f"cannot STANDBY: {address} is on another machine, and --standby-secret-file is not set"
            )

    def forget(self, client: Any) -> None:
        """Forget a connection that has ended."""
        self._end_visit(client)
        if self._fetching.pop(client, None) is not None:
            self._fetches.forget(client)

    def _end_visit(self, client: Any) -> None:
        """End the handshake of a connection, if it has one."""
        visit = self._visits.pop(client, None)
        if visit is not None:
            visit.alarm.close()

    # ---- refusals

    def _refuse(self, client: Any, visit: _Visit, error: NotMember | BadSecretFile) -> None:
        self._report(client, error)
        reason = "this nsqd cannot use its --standby-secret-file"
        if isinstance(error, NotMember):
            reason = str(error)
        visit.refusal = f"cannot STANDBY: {reason}"
        client.pause()
        visit.alarm.set(self._broker.clock() + _REFUSAL_DELAY_NS)

    def _end(self, client: Any, _now_ns: int) -> None:
        visit = self._visits.pop(client)
        if not visit.refusal:
            self._report(client, "no proof of membership in time")
            client.close("no proof of membership in time")
            return

        def answer() -> None:  # not as an error of the client, which would be another line in the log
            client.send(frames.error(Invalid(visit.refusal).wire))
            client.close_when_sent()

        client.go_on(answer)

    def _report(self, client: Any, reason: object) -> None:
        log = self._broker.log.of_clients
        log.warning("STANDBY: refused client(%s), which wants to join the group - %s", client.peer, reason)
