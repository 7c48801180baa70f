"""The loads by name. Each runs alone in a process of its own, against a server that is fresh."""

from functools import partial
from importlib import import_module

from bench.run import Load

CHANNEL_COUNTS = (1, 10, 100)

# A module, a function, and what that takes first: a process imports only the load that it makes.
_LOADS: dict[str, str] = {
    "mpub": "mpub load",
    "mpub-sync": "synced mpub",
    "mpub-tls": "transports tls",
    "mpub-snappy": "transports snappy_load",
    "mpub-deflate": "transports deflate",
    "sub": "sub load",
    "pub-pipelined": "pub pipelined",
    "pub-single": "pub single",
    "pub-sync": "synced pub",
    "http-pub": "http_pub load",
    "ten-channels": "ten_channels load",
    "latency": "latency load",
    "memory": "memory load",
    "idle-connections": "idle load",
    "idle-heartbeats": "heartbeats load",
    "lookup-register": "lookup one_at_a_time",
    "lookup-register-pipelined": "lookup pipelined",
    "lookup": "lookup closed_loop",
    "lookup-paced": "lookup paced",
    "lookup-memory": "lookup memory",
    "lookup-restart": "lookup restart",
    "lookup-restart-paced": "lookup paced_restart",
    "to-file": "tools to_file",
    "to-file-gzip": "tools to_file_gzip",
    "tail": "tools tail",
    "to-nsq": "tools to_nsq",
    "to-http": "tools to_http",
    "to-nsqd": "tools to_nsqd",
    "stat": "tools stat",
    "consume": "tools consume",
    "produce": "tools produce",
    "spark-to-sink": "spark to_sink",
    "spark-to-nsqd": "spark to_nsqd",
    "spark-cold-start": "spark cold_start",
    "spark-memory": "spark memory",
    "neutral": "neutral publish",
    "neutral-wait": "neutral wait",
    "publish": "publish throughput",
    "publish-consumed": "consumed load",
    "publish-latency": "publish latency",
    "publish-backlog": "publish backlog",
    "publish-start-up": "publish start_up",
    **{f"channels-{count}": f"sub channels {count}" for count in CHANNEL_COUNTS},
    "admin-list": "admin list_page",
    "admin-topic": "admin topic",
    "admin-counter": "admin counter",
    "admin-memory": "admin memory",
}


def find(name: str) -> Load:
    """Return the load with this name."""
    module, function, *numbers = _LOADS[name].split()
    load: Load = getattr(import_module(f"{__name__}.{module}"), function)
    return partial(load, *map(int, numbers)) if numbers else load
