"""nsqlookupd's TCP protocol: its parser, and the nsqds that send its commands. Pure.

LookupParser  bytes in, commands out: lines, and the body of IDENTIFY
Peer          a connected nsqd, as its IDENTIFY describes it
"""

from __future__ import annotations

from typing import Any

import orjson

from nsqd_py.errors import BadBody, Invalid
from nsqd_py.protocol.batch import SIZE_BYTES
from nsqd_py.protocol.session import INT64, Kind, decode_fields

MAX_LINE_BYTES = 16 * 1024
MAX_TEXT_LENGTH = 1000
MAX_BODY_BYTES = 64 * 1024  # a body of nested lists of this size takes 2 ms to read

REQUIRED_FIELDS = ("broadcast_address", "tcp_port", "http_port", "version")
# The fields of IDENTIFY in the order of their appearance in answers.
_FIELDS: dict[str, Kind] = {
    "hostname": str,
    "broadcast_address": str,
    "tcp_port": INT64,
    "http_port": INT64,
    "version": str,
    "topology_zone": str,
    "topology_region": str,
}

_SPACE = b" \t\n\v\f\r"


class LookupParser:
    """Parses the bytes of one connection after its magic."""

    def __init__(self) -> None:
        self._buffer = b""
        self._position = 0

    def feed(self, data: bytes) -> None:
        self._buffer = self._buffer[self._position :] + data
        self._position = 0

    def next_bytes(self, size: int) -> bytes | None:
        """Return the next bytes; None while fewer have arrived."""
        start = self._position
        end = start + size
        if len(self._buffer) < end:
            return None
        self._position = end
        return self._buffer[start:end]

    def next_line(self) -> list[str] | None:
        """Return the words of the next line; None while it is incomplete. Raises Invalid if it is too long.

        Bytes that are not UTF-8 become surrogates.
        """
        end = self._buffer.find(b"\n", self._position)
        if end < 0:
            if len(self._buffer) - self._position > MAX_LINE_BYTES:
                raise Invalid(f"the command is longer than {MAX_LINE_BYTES} bytes")
            return None
        line = self._buffer[self._position : end]
        self._position = end + 1
        return line.strip(_SPACE).decode("utf-8", "surrogateescape").split(" ")

    def next_body(self) -> bytes | None:
        """Return the data of `[4-byte size][data]`; None while they are incomplete. Raises BadBody."""
        start = self._position + SIZE_BYTES
        if len(self._buffer) < start:
            return None
        size = int.from_bytes(self._buffer[self._position : start], "big", signed=True)
        if not 0 <= size <= MAX_BODY_BYTES:
            raise BadBody("IDENTIFY failed to read body")
        if len(self._buffer) < start + size:
            return None
        self._position = start
        return self.next_bytes(size)

    def cut_short(self) -> BadBody:
        """Return the error for a body whose rest will not arrive."""
        missing = "body"
        if len(self._buffer) - self._position < SIZE_BYTES:
            missing = "body size"
        return BadBody(f"IDENTIFY failed to read {missing}")


class Peer:
    """One connected nsqd: a producer.

    fields          what it says about itself in IDENTIFY
    info_json       the same with `remote_address`, as JSON
    remote_address  `host:port` of its connection, and its id: an nsqd that connects twice counts twice
    http_address    its broadcast address and HTTP port
    node            the same as text, its name in a request for a tombstone
    updated_ns      time of its last IDENTIFY or PING
    topics          the topics that it registered, each with the number of its channels there
    tombstones      the times at which topics of it were tombstoned, by topic
    registrations   the number of its topics and channels
    is_leaving      True after its last heartbeat: it ends
    """

    __slots__ = (
        "fields",
        "http_address",
        "info_json",
        "is_leaving",
        "node",
        "registrations",
        "remote_address",
        "tombstones",
        "topics",
        "updated_ns",
    )

    def __init__(self, remote_address: str, fields: dict[str, Any], now_ns: int) -> None:
        self.remote_address = remote_address
        self.fields = fields
        self.info_json = orjson.dumps({"remote_address": remote_address, **fields})
        self.http_address: tuple[str, int] = (fields["broadcast_address"], fields["http_port"])
        self.node = f"{fields['broadcast_address']}:{fields['http_port']}"
        self.updated_ns = now_ns
        self.topics: dict[str, int] = {}
        self.tombstones: dict[str, int] = {}
        self.registrations = 0
        self.is_leaving = False


def identify(remote_address: str, body: bytes, now_ns: int) -> Peer:
    """Return the peer that an IDENTIFY body describes. Raises BadBody."""
    try:
        fields = decode_fields(body, _FIELDS)
    except ValueError as error:
        raise BadBody("IDENTIFY failed to decode JSON body") from error
    if not all(fields[name] for name in REQUIRED_FIELDS):
        raise BadBody("IDENTIFY missing fields")
    if any(kind is str and len(fields[name]) > MAX_TEXT_LENGTH for name, kind in _FIELDS.items()):
        raise BadBody(f"IDENTIFY has a text of more than {MAX_TEXT_LENGTH} characters")
    return Peer(remote_address, fields, now_ns)
