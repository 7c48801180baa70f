"""The loads by name. Each runs alone in a process of its own, against an nsqd that is fresh."""

from bench.loads.http_pub import http_pub
from bench.loads.idle import idle_connections
from bench.loads.latency import latency
from bench.loads.memory import memory
from bench.loads.mpub import mpub
from bench.loads.pub import pub_pipelined, pub_single
from bench.loads.sub import sub
from bench.loads.ten_channels import ten_channels
from bench.run import Load

LOADS: dict[str, Load] = {
    "mpub": mpub,
    "sub": sub,
    "pub-pipelined": pub_pipelined,
    "pub-single": pub_single,
    "http-pub": http_pub,
    "ten-channels": ten_channels,
    "latency": latency,
    "memory": memory,
    "idle-connections": idle_connections,
}
