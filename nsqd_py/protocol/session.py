"""The JSON of a client, and its session: what it has negotiated with IDENTIFY, and its state."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nsqd_py.errors import BadBody, IdentifyFailed

# The type of a field: str, bool, or the range of an integer.
Kind = type | range

INT32 = range(-(1 << 31), 1 << 31)
INT64 = range(-(1 << 63), 1 << 63)

# The values of a client's state in /stats.
STATE_INIT = 0
STATE_SUBSCRIBED = 3
STATE_CLOSING = 4
STATE_STANDBY = 5

DEFAULT_OUTPUT_BUFFER_SIZE = 16384
_DEFAULT_DEFLATE_LEVEL = 6
_MS = 1_000_000  # ns
# Of each name by which a client describes itself; the rest is cut off. Names of hosts have at most 255 bytes.
MOST_NAME_BYTES = 1024
_MOST_CHARACTER_BYTES = 4
_SURROGATE = re.compile("[\ud800-\udfff]")

_IDENTIFY_FIELDS: dict[str, Kind] = {
    "client_id": str,
    "hostname": str,
    "heartbeat_interval": INT64,
    "output_buffer_size": INT64,
    "output_buffer_timeout": INT64,
    "feature_negotiation": bool,
    "tls_v1": bool,
    "deflate": bool,
    "deflate_level": INT64,
    "snappy": bool,
    "sample_rate": INT32,
    "user_agent": str,
    "msg_timeout": INT64,
    "topology_region": str,
    "topology_zone": str,
    "wants_http_port": bool,
}


# ---- JSON of a client


def decode_fields(body: bytes, fields: Mapping[str, Kind]) -> dict[str, Any]:
    """Return all `fields`. One that is absent or null has the zero value of its type; other keys are ignored.

    The case of the keys does not matter. Raises ValueError if the body is not an object, or a value has another type.
    """
    values: dict[str, Any] = {name: 0 if isinstance(kind, range) else kind() for name, kind in fields.items()}
    for key, value in _decode_object(body).items():
        name = key.lower()
        kind = fields.get(name)
        if kind is None or value is None:
            continue
        if not _fits(value, kind):
            raise ValueError(f"{name} is of another type")
        # Half a surrogate pair cannot be written to logs or answers.
        values[name] = _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value) if kind is str else value
    return values


def _fits(value: object, kind: Kind) -> bool:
    if isinstance(kind, range):
        return type(value) is int and value in kind
    return type(value) is kind


def _decode_object(body: bytes) -> dict[str, Any]:
    try:
        decoded = json.loads(body.decode("utf-8", "replace"), parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("too deep") from error
    if decoded is None:
        return {}
    if not isinstance(decoded, dict):
        raise ValueError("no object")
    return decoded


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


# ---- the session


class Limits(NamedTuple):
    """The limits of a server for its clients; all times in ms, sizes in bytes.

    takes_members  False if this nsqd is in no group, and so refuses MEMBER and STANDBY
    """

    max_msg_size: int = 1 << 20
    max_body_size: int = 5 << 20
    max_rdy_count: int = 2500
    max_defer_timeout_ms: int = 3_600_000
    msg_timeout_ms: int = 60_000
    max_msg_timeout_ms: int = 900_000
    heartbeat_interval_ms: int = 30_000
    max_heartbeat_interval_ms: int = 60_000
    output_buffer_timeout_ms: int = 250
    min_output_buffer_timeout_ms: int = 25
    max_output_buffer_timeout_ms: int = 30_000
    max_output_buffer_size: int = 65_536
    max_deflate_level: int = 6
    deflate_enabled: bool = True
    snappy_enabled: bool = True
    tls_enabled: bool = False
    tls_required: bool = False
    auth_required: bool = False
    version: str = ""
    topology_region: str = ""
    topology_zone: str = ""
    takes_members: bool = True

    @classmethod
    def of(cls, options: Any, version: str) -> Limits:
        """Return the limits that nsqd's options set. Most have the names of their options, whose times are in ns."""
        given = vars(options)
        limits = {name: given[name] for name in cls._fields if name in given}
        limits |= {name: given[f"{name[:-2]}ns"] // _MS for name in cls._fields if f"{name[:-2]}ns" in given}
        limits |= {"deflate_enabled": options.deflate, "snappy_enabled": options.snappy, "version": version}
        limits |= {"tls_enabled": bool(options.tls_cert), "tls_required": bool(options.tls_required)}
        return cls(**limits, auth_required=bool(options.auth_http_address))


class Upgrades(NamedTuple):
    """The agreed encoding of a connection. `deflate_level` 0 means no deflate."""

    tls: bool = False
    snappy: bool = False
    deflate_level: int = 0


@dataclass(slots=True)
class Session:
    """The state of one client: identity and negotiated values."""

    limits: Limits
    client_id: str = ""
    hostname: str = ""
    user_agent: str = ""
    topology_region: str = ""
    topology_zone: str = ""
    heartbeat_interval_ms: int = field(init=False)
    msg_timeout_ms: int = field(init=False)
    output_buffer_size: int = DEFAULT_OUTPUT_BUFFER_SIZE
    output_buffer_timeout_ms: int = field(init=False)
    sample_rate: int = 0
    state: int = STATE_INIT
    needs_tls: bool = field(init=False)
    upgrades: Upgrades = field(init=False)
    upgraded: Upgrades = Upgrades()  # those that the connection uses

    def __post_init__(self) -> None:
        self.needs_tls = self.limits.tls_required
        self.upgrades = Upgrades()
        self.heartbeat_interval_ms = self.limits.heartbeat_interval_ms
        self.msg_timeout_ms = self.limits.msg_timeout_ms
        self.output_buffer_timeout_ms = self.limits.output_buffer_timeout_ms

    def identify(self, body: bytes, http_port: int = 0) -> bytes:
        """Apply the body of an IDENTIFY, and return the data of the response. `upgrades` has the agreed encodings.

        The response has `http_port` if the client asks for it: clients may expect exactly the keys of Go's nsqd.

        Raises BadBody if the body is not a JSON object of the right types, or asks for something that is not allowed.
        """
        requested = _decode_identify(body)
        for name in ("client_id", "hostname", "user_agent", "topology_region", "topology_zone"):
            setattr(self, name, _cut(requested[name]))
        self._set_heartbeat_interval(requested["heartbeat_interval"])
        self._set_output_buffer(requested["output_buffer_size"], requested["output_buffer_timeout"])
        if not 0 <= requested["sample_rate"] <= 99:
            raise BadBody(f"IDENTIFY sample rate ({requested['sample_rate']}) is invalid")
        self.sample_rate = requested["sample_rate"]
        self._set_msg_timeout(requested["msg_timeout"])
        if requested["feature_negotiation"]:
            return self._negotiated(requested, http_port)
        return b"OK"

    def _set_heartbeat_interval(self, interval_ms: int) -> None:
        if interval_ms == -1:
            self.heartbeat_interval_ms = 0
        elif interval_ms != 0:
            if not 1000 <= interval_ms <= self.limits.max_heartbeat_interval_ms:
                raise BadBody(f"IDENTIFY heartbeat interval ({interval_ms}) is invalid")
            self.heartbeat_interval_ms = interval_ms

    def _set_output_buffer(self, size: int, timeout_ms: int) -> None:
        limits = self.limits
        if timeout_ms == -1:
            self.output_buffer_timeout_ms = 0
        elif timeout_ms != 0:
            if not limits.min_output_buffer_timeout_ms <= timeout_ms <= limits.max_output_buffer_timeout_ms:
                raise BadBody(f"IDENTIFY output buffer timeout ({timeout_ms}) is invalid")
            self.output_buffer_timeout_ms = timeout_ms
        if size == -1:
            self.output_buffer_size = 1
            self.output_buffer_timeout_ms = 0
        elif size != 0:
            if not 64 <= size <= limits.max_output_buffer_size:
                raise BadBody(f"IDENTIFY output buffer size ({size}) is invalid")
            self.output_buffer_size = size

    def _set_msg_timeout(self, timeout_ms: int) -> None:
        if timeout_ms != 0:
            if not 1000 <= timeout_ms <= self.limits.max_msg_timeout_ms:
                raise BadBody(f"IDENTIFY msg timeout ({timeout_ms}) is invalid")
            self.msg_timeout_ms = timeout_ms

    def _negotiated(self, requested: dict[str, Any], http_port: int) -> bytes:
        limits = self.limits
        may_upgrade = self.upgraded == Upgrades()
        deflate = requested["deflate"] and limits.deflate_enabled and may_upgrade
        snappy = requested["snappy"] and limits.snappy_enabled and may_upgrade
        if deflate and snappy:
            raise IdentifyFailed("cannot enable both deflate and snappy compression")
        level = requested["deflate_level"]
        if not deflate or level <= 0:
            level = _DEFAULT_DEFLATE_LEVEL
        level = min(level, limits.max_deflate_level)
        tls = requested["tls_v1"] and limits.tls_enabled and may_upgrade
        deflate_level = level if deflate else 0
        self.upgrades = Upgrades(tls, snappy, deflate_level)
        answer = {
            "max_rdy_count": limits.max_rdy_count,
            "version": limits.version,
            "max_msg_timeout": limits.max_msg_timeout_ms,
            "msg_timeout": self.msg_timeout_ms,
            "tls_v1": tls,
            "deflate": deflate,
            "deflate_level": level,
            "max_deflate_level": limits.max_deflate_level,
            "snappy": snappy,
            "sample_rate": self.sample_rate,
            "auth_required": limits.auth_required,
            "output_buffer_size": self.output_buffer_size,
            "output_buffer_timeout": self.output_buffer_timeout_ms,
            "topology_region": limits.topology_region,
            "topology_zone": limits.topology_zone,
        }
        if requested["wants_http_port"]:
            answer["http_port"] = http_port
        return json.dumps(answer, separators=(",", ":"), ensure_ascii=False).encode()


def _cut(name: str) -> str:
    """Return the beginning of a name, of at most MOST_NAME_BYTES in UTF-8."""
    if len(name) * _MOST_CHARACTER_BYTES <= MOST_NAME_BYTES:
        return name
    return name.encode()[:MOST_NAME_BYTES].decode(errors="ignore")


def _decode_identify(body: bytes) -> dict[str, Any]:
    try:
        return decode_fields(body, _IDENTIFY_FIELDS)
    except ValueError as error:
        raise BadBody("IDENTIFY failed to decode JSON body") from error
