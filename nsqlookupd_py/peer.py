"""An nsqd that registered itself."""

from __future__ import annotations

from typing import Any

import orjson

from nsqd_py.errors import BadBody
from nsqd_py.protocol.fields import INT64, Kind, decode_fields

# In the order of the answers.
_TEXTS = ("hostname", "broadcast_address")
_PORTS = ("tcp_port", "http_port")
_DETAILS = ("version", "topology_zone", "topology_region")
_FIELDS: dict[str, Kind] = {
    **dict.fromkeys(_TEXTS, str),
    **dict.fromkeys(_PORTS, INT64),
    **dict.fromkeys(_DETAILS, str),
}
_REQUIRED = ("broadcast_address", "tcp_port", "http_port", "version")


class Peer:
    """One connected nsqd.

    remote_address  where its connection comes from, which is also its id: an nsqd that connects twice counts twice
    node            `broadcast address:HTTP port`, how it is named when it is tombstoned
    updated_ns      when it was last heard from
    topics          the topics that it is registered for, each with the number of its channels there
    registrations   the number of its topics and channels
    node_view       what /nodes says of it, kept by the registry
    """

    __slots__ = ("info", "info_json", "node", "node_view", "registrations", "remote_address", "topics", "updated_ns")

    def __init__(self, remote_address: str, fields: dict[str, Any], now_ns: int) -> None:
        self.remote_address = remote_address
        self.info = {"remote_address": remote_address, **fields}
        self.info_json = orjson.dumps(self.info)
        self.node = f"{fields['broadcast_address']}:{fields['http_port']}"
        self.node_view: NodeView | None = None
        self.updated_ns = now_ns
        self.topics: dict[str, int] = {}
        self.registrations = 0


class NodeView:
    """What /nodes says of a peer beside `info`, until `valid_until_ns` or its next change.

    encoded  the answer's bytes, kept by who makes them if they are few
    """

    __slots__ = ("encoded", "tombstones", "topics", "valid_until_ns")

    def __init__(self, topics: list[str], tombstones: list[bool], valid_until_ns: int) -> None:
        self.topics = topics
        self.tombstones = tombstones
        self.valid_until_ns = valid_until_ns
        self.encoded: bytes | None = None


def identify(remote_address: str, body: bytes, now_ns: int) -> Peer:
    """The peer that an IDENTIFY body describes. Raises BadBody."""
    try:
        fields = decode_fields(body, _FIELDS)
    except ValueError as error:
        raise BadBody("IDENTIFY failed to decode JSON body") from error
    if not all(fields[name] for name in _REQUIRED):
        raise BadBody("IDENTIFY missing fields")
    return Peer(remote_address, fields, now_ns)
