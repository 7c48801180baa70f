"""IDENTIFY to nsqlookupd: the command, and the parsed answer."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from nsqd_py.lookup.connection import BadResponse
from nsqd_py.version import NSQ_VERSION

if TYPE_CHECKING:
    from nsqd_py.options import NsqdOptions


def identify(options: NsqdOptions, tcp_port: int, http_port: int) -> bytes:
    """Return the IDENTIFY command of an nsqd that listens on these ports."""
    body = orjson.dumps(
        {
            "version": NSQ_VERSION,
            "tcp_port": options.broadcast_tcp_port or tcp_port,
            "http_port": options.broadcast_http_port or http_port,
            "hostname": socket.gethostname(),
            "broadcast_address": options.broadcast_address,
            "topology_zone": options.topology_zone,
            "topology_region": options.topology_region,
        }
    )
    return b"IDENTIFY\n" + len(body).to_bytes(4, "big") + body


@dataclass(frozen=True)
class PeerInfo:
    """The answer to IDENTIFY. `http_port` is 0 if the nsqlookupd has no HTTP port."""

    tcp_port: int
    http_port: int
    version: str
    broadcast_address: str


def parse_peer_info(response: bytes) -> PeerInfo:
    """Parse the answer to IDENTIFY. Raises BadResponse."""
    if response.startswith(b"E_"):
        raise BadResponse(f"lookupd returned {response.decode(errors='replace')}")
    try:
        fields = orjson.loads(response)
        return PeerInfo(
            _port(fields, "tcp_port"),
            _port(fields, "http_port"),
            _text(fields, "version"),
            _text(fields, "broadcast_address"),
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise BadResponse(f"parsing response - {response[:200].decode(errors='replace')}") from error


def _port(fields: Any, name: str) -> int:
    value = fields.get(name) or 0
    if not isinstance(value, int) or value > 65535:
        raise TypeError(name)
    return max(0, value)


def _text(fields: Any, name: str) -> str:
    value = fields.get(name) or ""
    if not isinstance(value, str):
        raise TypeError(name)
    return value
