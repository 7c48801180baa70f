"""The commands of clients, as the parser returns them, and the table of checks that make them.

`body`, `count` and `stride` are those of `nsqd_py.protocol.batch.Batch`. The names of topics and channels are valid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nsqd_py.errors import BadBody, BadChannel, BadMessage, BadTopic, ClientError, Invalid
from nsqd_py.protocol.batch import SIZE_BYTES
from nsqd_py.protocol.frames import ID_LENGTH
from nsqd_py.protocol.multi_body import Part
from nsqd_py.protocol.names import is_valid_name, quote
from nsqd_py.protocol.session import STATE_CLOSING, STATE_INIT, STATE_STANDBY, STATE_SUBSCRIBED, Session

# The kinds of publishes.
PUB, MPUB, DPUB = range(3)

NO_MEMBERS = "cannot STANDBY: --accept-standbys is off"

# The body of a command.
NO_BODY = 0
SIZED_BODY = 1  # [4-byte size][body]
MULTI_BODY = 2  # [4-byte size][4-byte count], then count times [4-byte size][message]

# When the client's permission for a command is checked.
NEVER = 0
BEFORE_BODY = 1
AFTER_BODY = 2

_UINT64 = (1 << 64) - 1
_INT64_SIGN = 1 << 63


# ---- the commands


class Command:
    """A command of a client."""

    __slots__ = ()


@dataclass(slots=True)
class Identify(Command):
    """IDENTIFY with its JSON."""

    body: bytes


@dataclass(slots=True)
class Auth(Command):
    """AUTH with its secret."""

    secret: bytes


@dataclass(slots=True)
class Sub(Command):
    topic_name: bytes
    channel_name: bytes


@dataclass(slots=True)
class Rdy(Command):
    count: int


@dataclass(slots=True)
class Fin(Command):
    """One or more consecutive FINs."""

    message_ids: list[bytes]


@dataclass(slots=True)
class Req(Command):
    """A REQ. The delay is as the client sent it; it may be negative."""

    message_id: bytes
    delay_ns: int


@dataclass(slots=True)
class Touch(Command):
    message_id: bytes


class Cls(Command):
    __slots__ = ()


class Nop(Command):
    __slots__ = ()


@dataclass(slots=True)
class Publish(Command):
    """One or more consecutive PUBs, or DPUBs, with the same line; or one MPUB."""

    kind: int
    topic_name: bytes
    body: bytes
    count: int
    stride: int
    defer_ns: int = 0


@dataclass(slots=True)
class LargeMpub(Command):
    """An MPUB with more messages than fit into one batch; `count` is the number of all messages."""

    topic_name: bytes
    parts: list[Part]
    count: int


class SliceRead(Command):
    """No command: the parser has read one slice of a long MPUB, and other clients may run now."""

    __slots__ = ()


@dataclass(slots=True)
class PermissionRequest(Command):
    """The client wants to run the command `name`. Run `command` if that is permitted; None if it is not read yet."""

    name: str
    topic_name: bytes
    channel_name: bytes
    command: Command | None


@dataclass(slots=True)
class Member(Command):
    """MEMBER with its JSON: the client proves that it is an nsqd of the same group."""

    body: bytes


@dataclass(slots=True)
class Standby(Command):
    """STANDBY with a proof and JSON: a member wants to follow this nsqd, or fences it."""

    body: bytes


@dataclass(slots=True)
class Ack(Command):
    """The standby has written a round of what it was sent."""

    round_number: int


CLS = Cls()
NOP = Nop()
SLICE_READ = SliceRead()

Params = list[bytes]


# ---- the table of checks


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """One row of the table.

    read        returns the command, or None if its body follows; raises the same ClientError as Go's nsqd
    body        NO_BODY, SIZED_BODY or MULTI_BODY
    make        returns the command from the words of its line and its body behind its size; for a SIZED_BODY
    is_large    True if the body may be as large as an MPUB; JSON is limited to MAX_JSON_BYTES
    body_error  the error for a bad or missing body: BadBody or BadMessage
    permission  NEVER, BEFORE_BODY or AFTER_BODY: when the permission for its topic and channel is checked
    """

    name: str
    read: Callable[[Session, Params], Command | None]
    body: int = NO_BODY
    make: Callable[[Params, bytes], Command] | None = None
    is_large: bool = False
    body_error: type[ClientError] = BadBody
    permission: int = NEVER


def words(raw: bytes) -> str:
    """Return bytes of a client's command as text for an error."""
    return raw.decode("utf-8", "surrogateescape")


def parse_number(raw: bytes) -> int:
    """Return decimal digits as a signed 64-bit number that wraps; 0 for no digits. Raises ValueError."""
    if not raw:
        return 0
    if not raw.isdigit():
        raise ValueError(raw)
    if len(raw) <= 18:
        return int(raw)
    wrapped = 0
    for digit in raw:  # digit by digit, since int() refuses very long numbers
        wrapped = (wrapped * 10 + digit - 48) & _UINT64
    return wrapped - ((wrapped & _INT64_SIGN) << 1)


def _read_number(raw: bytes, what: str) -> int:
    try:
        return parse_number(raw)
    except ValueError:
        raise Invalid(f"{what} {words(raw)}") from None


def milliseconds_to_ns(milliseconds: int) -> int:
    """Return a signed 64-bit number of ns. It wraps for huge values, as in Go."""
    wrapped = milliseconds * 1_000_000 & _UINT64
    return wrapped - ((wrapped & _INT64_SIGN) << 1)


def defer_ns_of(params: Params) -> int:
    """Return the delay of a DPUB in ns, from the words of its line."""
    return milliseconds_to_ns(parse_number(params[2]))


def _require_state(session: Session, params: Params, *states: int) -> None:
    if session.state not in states:
        raise Invalid(f"cannot {words(params[0])} in current state")


def _require_words(params: Params, count: int, what: str = "parameters") -> None:
    if len(params) < count:
        raise Invalid(f"{words(params[0])} insufficient number of {what}")


def _check_topic(command: str, params: Params, prefix: str = "") -> None:
    if not is_valid_name(params[1]):
        raise BadTopic(f"{prefix}{command} topic name {quote(params[1])} is not valid")


def _check_identify(session: Session, params: Params) -> None:
    _require_state(session, params, STATE_INIT)


def _check_auth(session: Session, params: Params) -> None:
    _require_state(session, params, STATE_INIT)
    if len(params) != 1:
        raise Invalid("AUTH invalid number of parameters")


def _read_sub(session: Session, params: Params) -> Sub:
    _require_state(session, params, STATE_INIT)
    if session.heartbeat_interval_ms <= 0:
        raise Invalid("cannot SUB with heartbeats disabled")
    _require_words(params, 3)
    _check_topic("SUB", params)
    if not is_valid_name(params[2]):
        raise BadChannel(f"SUB channel name {quote(params[2])} is not valid")
    return Sub(params[1], params[2])


def _read_rdy(session: Session, params: Params) -> Rdy:
    if session.state == STATE_CLOSING:  # such an RDY is ignored, whatever its count
        return Rdy(0)
    _require_state(session, params, STATE_SUBSCRIBED)
    count = _read_number(params[1], "RDY could not parse count") if len(params) > 1 else 1
    if not 0 <= count <= session.limits.max_rdy_count:
        raise Invalid(f"RDY count {count} out of range 0-{session.limits.max_rdy_count}")
    return Rdy(count)


def _check_message_command(session: Session, params: Params, word_count: int) -> None:
    """Check FIN, REQ and TOUCH: the client is subscribed, and the message id has the right length."""
    _require_state(session, params, STATE_SUBSCRIBED, STATE_CLOSING)
    _require_words(params, word_count, "params")
    if len(params[1]) != ID_LENGTH:
        raise Invalid("invalid message ID")


def _read_fin(session: Session, params: Params) -> Fin:
    _check_message_command(session, params, 2)
    return Fin([params[1]])


def _read_req(session: Session, params: Params) -> Req:
    _check_message_command(session, params, 3)
    return Req(params[1], milliseconds_to_ns(_read_number(params[2], "REQ could not parse timeout")))


def _read_touch(session: Session, params: Params) -> Touch:
    _check_message_command(session, params, 2)
    return Touch(params[1])


def _read_cls(session: Session, params: Params) -> Command:
    _require_state(session, params, STATE_SUBSCRIBED)
    return CLS


def _read_nop(session: Session, params: Params) -> Command:
    """Allow NOP in every state."""
    return NOP


def _check_member(session: Session, params: Params) -> None:
    if not session.limits.takes_members:  # as a command that does not exist: its body is not waited for
        raise Invalid(NO_MEMBERS)
    _require_state(session, params, STATE_INIT, STATE_STANDBY)


def _read_ack(session: Session, params: Params) -> Ack:
    _require_state(session, params, STATE_STANDBY)
    _require_words(params, 2, "params")
    return Ack(_read_number(params[1], "ACK could not parse round"))


def _check_pub(session: Session, params: Params) -> None:
    _require_words(params, 2)
    _check_topic("PUB", params)


def _check_mpub(session: Session, params: Params) -> None:
    _require_words(params, 2)
    _check_topic("MPUB", params, prefix="E_BAD_TOPIC ")  # Go's nsqd doubles the code too


def _check_dpub(session: Session, params: Params) -> None:
    _require_words(params, 3)
    _check_topic("DPUB", params)
    timeout_ms = _read_number(params[2], "DPUB could not parse timeout")
    limit_ms = session.limits.max_defer_timeout_ms
    if not 0 <= milliseconds_to_ns(timeout_ms) <= limit_ms * 1_000_000:
        raise Invalid(f"DPUB timeout {timeout_ms & _UINT64} out of range 0-{limit_ms}")


def _sized(make: Callable[[bytes], Command]) -> Callable[[Params, bytes], Command]:
    return lambda params, body: make(body[SIZE_BYTES:])


def _make_pub(params: Params, body: bytes) -> Publish:
    return Publish(PUB, params[1], body, 1, len(body))


def _make_dpub(params: Params, body: bytes) -> Publish:
    return Publish(DPUB, params[1], body, 1, len(body), defer_ns_of(params))


COMMANDS: dict[bytes, CommandSpec] = {
    spec.name.encode(): spec
    for spec in (
        CommandSpec("IDENTIFY", _check_identify, SIZED_BODY, _sized(Identify)),
        CommandSpec("AUTH", _check_auth, SIZED_BODY, _sized(Auth)),
        CommandSpec("SUB", _read_sub, permission=BEFORE_BODY),
        CommandSpec("RDY", _read_rdy),
        CommandSpec("FIN", _read_fin),
        CommandSpec("REQ", _read_req),
        CommandSpec("TOUCH", _read_touch),
        CommandSpec("CLS", _read_cls),
        CommandSpec("NOP", _read_nop),
        CommandSpec("PUB", _check_pub, SIZED_BODY, _make_pub, body_error=BadMessage, permission=AFTER_BODY),
        CommandSpec("MPUB", _check_mpub, MULTI_BODY, is_large=True, permission=BEFORE_BODY),
        CommandSpec(
            "DPUB", _check_dpub, SIZED_BODY, _make_dpub, body_error=BadMessage, permission=AFTER_BODY
        ),
        CommandSpec("MEMBER", _check_member, SIZED_BODY, _sized(Member)),
        CommandSpec("STANDBY", _check_member, SIZED_BODY, _sized(Standby), is_large=True),
        CommandSpec("ACK", _read_ack),
    )
}
