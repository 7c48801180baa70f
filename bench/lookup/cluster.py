"""What the nsqds of the cluster have: every one of them each topic, with each of its channels."""

import json
import struct
from dataclasses import dataclass
from functools import cached_property

MAGIC = b"  V1"
PING = b"PING\n"
OK = struct.pack(">i", 2) + b"OK"

Address = tuple[str, int, int]


@dataclass(frozen=True)
class Cluster:
    """The sizes that nsqlookupd is held to."""

    peers: int = 200
    topics: int = 500
    channels: int = 3

    @cached_property
    def topic_names(self) -> tuple[str, ...]:
        return tuple(f"topic_{number:03d}" for number in range(self.topics))

    @cached_property
    def channel_names(self) -> tuple[str, ...]:
        return tuple(f"channel_{number}" for number in range(self.channels))

    @cached_property
    def addresses(self) -> tuple[Address, ...]:
        """Broadcast address, TCP and HTTP port of each nsqd."""
        return tuple((f"10.0.{n // 250}.{n % 250 + 1}", 20_000 + n, 40_000 + n) for n in range(self.peers))

    @cached_property
    def registrations(self) -> tuple[bytes, ...]:
        """The commands that each nsqd sends, in their order."""
        return tuple(
            f"REGISTER {topic} {channel}\n".encode() for topic in self.topic_names for channel in self.channel_names
        )

    def identify(self, number: int) -> bytes:
        """The magic and the IDENTIFY of the n-th nsqd."""
        address, tcp_port, http_port = self.addresses[number]
        identity = {
            "version": "1.3.0",
            "tcp_port": tcp_port,
            "http_port": http_port,
            "hostname": f"nsqd-{number:03d}",
            "broadcast_address": address,
            "topology_zone": "",
            "topology_region": "",
        }
        body = json.dumps(identity).encode()
        return MAGIC + b"IDENTIFY\n" + struct.pack(">i", len(body)) + body
