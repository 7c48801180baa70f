"""The loads by name. Each runs alone in a process of its own, against a server that is fresh."""

from bench.loads import heartbeats, http_pub, idle, latency, lookup, memory, mpub, pub, sub, ten_channels, transports
from bench.run import Load

LOADS: dict[str, Load] = {
    "mpub": mpub.load,
    "mpub-tls": transports.tls,
    "mpub-snappy": transports.snappy_load,
    "mpub-deflate": transports.deflate,
    "sub": sub.load,
    "pub-pipelined": pub.pipelined,
    "pub-single": pub.single,
    "http-pub": http_pub.load,
    "ten-channels": ten_channels.load,
    "latency": latency.load,
    "memory": memory.load,
    "idle-connections": idle.load,
    "idle-heartbeats": heartbeats.load,
    "lookup-register": lookup.one_at_a_time,
    "lookup-register-pipelined": lookup.pipelined,
    "lookup": lookup.closed_loop,
    "lookup-paced": lookup.paced,
    "lookup-memory": lookup.memory,
    "lookup-restart": lookup.restart,
    "lookup-restart-paced": lookup.paced_restart,
}
