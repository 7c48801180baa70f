"""The commands of clients, as the parser returns them: complete, checked, and with numbers for words.

`body`, `count` and `stride` are those of `nsqd_py.batch.Batch`. The names of topics and channels are valid.
"""

from __future__ import annotations

from dataclasses import dataclass

from nsqd_py.protocol.multi_body import Part


@dataclass(slots=True)
class Identify:
    """IDENTIFY with its JSON."""

    body: bytes


@dataclass(slots=True)
class Auth:
    """AUTH with its secret."""

    secret: bytes


@dataclass(slots=True)
class Sub:
    topic_name: bytes
    channel_name: bytes


@dataclass(slots=True)
class Rdy:
    count: int


@dataclass(slots=True)
class Fin:
    """One or more consecutive FINs."""

    message_ids: list[bytes]


@dataclass(slots=True)
class Req:
    """A REQ. The delay is as the client sent it; it may be negative."""

    message_id: bytes
    delay_ns: int


@dataclass(slots=True)
class Touch:
    message_id: bytes


class Cls:
    __slots__ = ()


class Nop:
    __slots__ = ()


@dataclass(slots=True)
class Pub:
    """One or more consecutive PUBs to one topic."""

    topic_name: bytes
    body: bytes
    count: int
    stride: int


@dataclass(slots=True)
class Dpub:
    """One or more consecutive DPUBs with the same line."""

    topic_name: bytes
    body: bytes
    count: int
    stride: int
    defer_ns: int


@dataclass(slots=True)
class Mpub:
    topic_name: bytes
    body: bytes
    count: int
    stride: int


@dataclass(slots=True)
class LargeMpub:
    """An MPUB with more messages than fit into one batch; `count` is the number of all messages."""

    topic_name: bytes
    parts: list[Part]
    count: int


class SliceRead:
    """No command: the parser has read one slice of a long MPUB, and other clients may run now."""

    __slots__ = ()


@dataclass(slots=True)
class PermissionRequest:
    """The client wants to run the command `name`. Run `command` if that is permitted; None if it is not read yet."""

    name: str
    topic_name: bytes
    channel_name: bytes
    command: Command | None


@dataclass(slots=True)
class Member:
    """MEMBER with its JSON: the client proves that it is an nsqd of the same group."""

    body: bytes


@dataclass(slots=True)
class Standby:
    """STANDBY with a proof and JSON: a member wants to follow this nsqd, or fences it."""

    body: bytes


@dataclass(slots=True)
class Ack:
    """The standby has written a round of what it was sent."""

    round_number: int


CLS = Cls()
NOP = Nop()
SLICE_READ = SliceRead()

Command = (
    Identify
    | Auth
    | Sub
    | Rdy
    | Fin
    | Req
    | Touch
    | Cls
    | Nop
    | Pub
    | Dpub
    | Mpub
    | LargeMpub
    | SliceRead
    | PermissionRequest
    | Member
    | Standby
    | Ack
)
