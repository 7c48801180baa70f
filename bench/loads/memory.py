"""Resident memory of nsqd, in MB, with a million messages of 200 bytes queued in one channel."""

import time

from bench import procfs
from bench.admin import Admin, channels_hold
from bench.loads.mpub import fill
from bench.run import Amount, Endpoint, Run, Stopwatch

_SETTLE_S = 1.0


def load(endpoint: Endpoint, amount: Amount) -> Run:
    before_bytes = procfs.rss_bytes(endpoint.pid)
    admin = Admin(endpoint.http_port)
    admin.create()
    watch = Stopwatch(endpoint.pid)
    messages = fill(endpoint, amount.messages)
    admin.wait_for(channels_hold(messages), within_s=60)
    watch.stop()
    time.sleep(_SETTLE_S)
    rss_bytes = procfs.rss_bytes(endpoint.pid)
    return watch.run(
        rss_bytes / 1e6,
        messages,
        empty_mb=before_bytes / 1e6,
        bytes_per_message=(rss_bytes - before_bytes) / messages,
    )
