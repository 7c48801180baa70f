"""What is said on a new connection before it is of use: IDENTIFY, then TLS, compression and AUTH as agreed."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from nsqd_py.client.errors import AuthFailed, HandshakeFailed
from nsqd_py.client.options import ClientOptions
from nsqd_py.protocol.fields import INT64, Kind, decode_fields
from nsqd_py.protocol.incoming import ErrorFrame, Responses

HEARTBEAT = b"_heartbeat_"
_OK = b"OK"
_SECOND_MS = 1000
_OFF_MS = -1
_AUTH_CODES = frozenset(("E_AUTH_FAILED", "E_AUTH_ERROR", "E_AUTH_DISABLED", "E_UNAUTHORIZED"))


@dataclass(frozen=True, slots=True)
class Negotiated:
    """What nsqd and this client agreed on; the defaults are those of an nsqd that does not negotiate.

    max_msg_timeout_s  how long a message may be in flight in all, however often it is touched
    identity, identity_url, permission_count   what the auth server said, where one was asked
    """

    max_rdy_count: int = 2500
    version: str = ""
    msg_timeout_s: float = 60.0
    max_msg_timeout_s: float = 900.0
    tls_v1: bool = False
    deflate: bool = False
    deflate_level: int = 6
    snappy: bool = False
    sample_rate: int = 0
    auth_required: bool = False
    output_buffer_size: int = 16384
    output_buffer_timeout_s: float = 0.25
    topology_region: str = ""
    topology_zone: str = ""
    identity: str = ""
    identity_url: str = ""
    permission_count: int = 0


class Step(Enum):
    """What is to be done before the next answer comes."""

    WAIT = auto()
    START_TLS = auto()
    START_SNAPPY = auto()
    START_DEFLATE = auto()
    AUTHENTICATE = auto()
    FINISH = auto()


_IDENTITY_FIELDS: dict[str, Kind] = {
    "max_rdy_count": INT64,
    "version": str,
    "msg_timeout": INT64,
    "max_msg_timeout": INT64,
    "tls_v1": bool,
    "deflate": bool,
    "deflate_level": INT64,
    "snappy": bool,
    "sample_rate": INT64,
    "auth_required": bool,
    "output_buffer_size": INT64,
    "output_buffer_timeout": INT64,
    "topology_region": str,
    "topology_zone": str,
}
_AUTH_FIELDS: dict[str, Kind] = {"identity": str, "identity_url": str, "permission_count": INT64}
_IN_MS = ("msg_timeout", "max_msg_timeout", "output_buffer_timeout")


def identify_document(options: ClientOptions, hostname: str) -> bytes:
    """The JSON of IDENTIFY. `hostname` is that of this machine, for options that name none."""
    host = options.hostname or hostname
    client_id = options.client_id or host.partition(".")[0]
    document = {
        "client_id": client_id,
        "hostname": host,
        "short_id": client_id,  # the names of both in nsqd before 0.2.28
        "long_id": host,
        "user_agent": options.user_agent,
        "feature_negotiation": True,
        "heartbeat_interval": _milliseconds(options.heartbeat_interval_s),
        "output_buffer_size": options.output_buffer_size,
        "output_buffer_timeout": _milliseconds(options.output_buffer_timeout_s),
        "msg_timeout": _milliseconds(options.msg_timeout_s),
        "sample_rate": options.sample_rate,
        "tls_v1": options.tls_v1,
        "deflate": options.deflate,
        "deflate_level": options.deflate_level,
        "snappy": options.snappy,
        "topology_region": options.topology_region,
        "topology_zone": options.topology_zone,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _milliseconds(seconds: float) -> int:
    return _OFF_MS if seconds < 0 else round(seconds * _SECOND_MS)


class Handshake:
    """Takes the answers one by one, and says what follows each."""

    __slots__ = ("_address", "_options", "_steps", "_take", "negotiated")

    def __init__(self, address: str, options: ClientOptions) -> None:
        self._address = address
        self._options = options
        self._steps: deque[Step] = deque()
        self._take: Callable[[bytes], None] = self._take_identity
        self.negotiated = Negotiated()

    def answered(self, answer: Responses | ErrorFrame) -> Step:
        """What to do now. Raises HandshakeFailed, or AuthFailed."""
        if isinstance(answer, ErrorFrame):
            raise self._refusal(answer.data.decode("utf-8", "replace"))
        if answer.data == HEARTBEAT:
            return Step.WAIT
        self._take(answer.data)
        step = self._steps.popleft() if self._steps else Step.FINISH
        self._take = self._take_authentication if step is Step.AUTHENTICATE else self._take_ok
        return step

    def _refusal(self, text: str) -> HandshakeFailed:
        kind = AuthFailed if text.partition(" ")[0] in _AUTH_CODES else HandshakeFailed
        return kind(self._address, f"nsqd refused the handshake: {text}")

    def _take_identity(self, data: bytes) -> None:
        if data != _OK:  # which an nsqd says that negotiates nothing
            self.negotiated = _negotiated(self._decoded(data, _IDENTITY_FIELDS))
        agreed, options = self.negotiated, self._options
        if options.tls_v1 and not agreed.tls_v1:
            raise HandshakeFailed(self._address, "nsqd offers no TLS (it has no --tls-cert), but tls_v1 asks for it")
        if agreed.auth_required and not options.auth_secret:
            raise AuthFailed(self._address, "nsqd asks for a secret: give auth_secret")
        wanted = {
            Step.START_TLS: agreed.tls_v1,
            Step.START_SNAPPY: agreed.snappy,
            Step.START_DEFLATE: agreed.deflate,
            Step.AUTHENTICATE: agreed.auth_required,
        }
        self._steps.extend(step for step, is_wanted in wanted.items() if is_wanted)

    def _take_ok(self, data: bytes) -> None:
        if data != _OK:
            raise HandshakeFailed(self._address, f"nsqd answered {data[:80]!r} in place of OK")

    def _take_authentication(self, data: bytes) -> None:
        self.negotiated = replace(self.negotiated, **self._decoded(data, _AUTH_FIELDS))

    def _decoded(self, data: bytes, fields: dict[str, Kind]) -> dict[str, Any]:
        try:
            return decode_fields(data, fields)
        except ValueError as error:
            raise HandshakeFailed(self._address, f"nsqd answered {data[:80]!r}, which is no JSON: {error}") from error


def _negotiated(fields: dict[str, Any]) -> Negotiated:
    fields["deflate_level"] = min(max(fields["deflate_level"], 1), 9)  # zlib takes no other
    for name in _IN_MS:
        fields[f"{name}_s"] = fields.pop(name) / _SECOND_MS
    return Negotiated(**fields)
