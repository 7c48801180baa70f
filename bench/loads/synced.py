"""Publishers that wait for the disk: what `--sync-every=1` costs, and what sharing an fsync gains.

`mpub` is MPUBs of 200 messages on 16 connections. `pub` is single PUBs on 64 connections, each after the answer to the
last, as a multiple of the fsyncs that the same disk does in a second when each PUB's bytes get one of their own.
"""

import os
import tempfile
import time
from pathlib import Path

from bench import wire
from bench.loads.mpub import MESSAGES_PER_MPUB, WINDOW
from bench.pipeline import Pipeline
from bench.run import Amount, Endpoint, LoadError, Run, Stopwatch

MPUB_CONNECTIONS = 16
PUB_CONNECTIONS = 64
_FSYNCS_FOR_S = 1.0
_FLAG = b"--data-path="


def mpub(endpoint: Endpoint, amount: Amount) -> Run:
    command = wire.mpub(MESSAGES_PER_MPUB)
    pipeline = Pipeline.to_nsqd(endpoint.tcp_port, command, connections=MPUB_CONNECTIONS, window=WINDOW)
    watch = Stopwatch(endpoint.pid)
    commands = pipeline.send(commands=amount.messages // MESSAGES_PER_MPUB, seconds=amount.seconds)
    watch.stop()
    pipeline.close()
    return watch.rate(commands * MESSAGES_PER_MPUB)


def pub(endpoint: Endpoint, amount: Amount) -> Run:
    directory = _data_path(endpoint.pid)
    before = fsyncs_per_s(directory)
    pipeline = Pipeline.to_nsqd(endpoint.tcp_port, wire.pub(), connections=PUB_CONNECTIONS, window=1)
    watch = Stopwatch(endpoint.pid)
    messages = pipeline.send(commands=amount.messages, seconds=amount.seconds)
    watch.stop()
    pipeline.close()
    fsyncs = (before + fsyncs_per_s(directory)) / 2  # the disk may be slower at one time than at another
    return watch.run(messages / watch.elapsed_s / fsyncs, messages, fsyncs_per_s=fsyncs)


def fsyncs_per_s(directory: Path) -> float:
    """How many PUBs a second could be answered one by one: each written behind the last, then synced as by nsqd."""
    command = wire.pub()
    with tempfile.TemporaryFile(dir=directory) as file:
        os.posix_fallocate(file.fileno(), 0, 64 * 1024 * 1024)
        os.fsync(file.fileno())
        count = 0
        started_s = now_s = time.perf_counter()
        while now_s - started_s < _FSYNCS_FOR_S:
            os.pwrite(file.fileno(), command, count * len(command))
            os.fdatasync(file.fileno())
            count += 1
            now_s = time.perf_counter()
    return count / (now_s - started_s)


def _data_path(pid: int) -> Path:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    for word in words:
        if word.startswith(_FLAG):
            return Path(os.fsdecode(word.removeprefix(_FLAG)))
    raise LoadError("the server has no data path")
