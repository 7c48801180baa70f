"""A load of another program: a neutral generator that limits neither server (`--load PATH`).

It takes `-addr HOST:PORT -seconds N` beside the arguments of the scenario, and prints one object of JSON, with
`published_s`, `consumed_s` (messages a second), `answer_p99_us`, `e2e_p99_us` and `errors`.
"""

import json
import os
import shlex
import subprocess
from typing import Any

from bench import procfs
from bench.run import TOOL_COMMAND, Amount, Endpoint, LoadError, Run, Stopwatch

_WARM_UP_S = 0.5
_MORE_S = 30.0  # that the generator may take to start and to end


def publish(endpoint: Endpoint, amount: Amount) -> Run:
    """Return messages published a second."""
    watch, found = _generate(endpoint, amount)
    return _run(endpoint, watch, found, found["published_s"])


def wait(endpoint: Endpoint, amount: Amount) -> Run:
    """Return the 99th percentile of the wait for an answer in ms, where publishes come at a fixed rate."""
    watch, found = _generate(endpoint, amount)
    return _run(endpoint, watch, found, found["answer_p99_us"] / 1000)


def _run(endpoint: Endpoint, watch: Stopwatch, found: dict[str, Any], value: float) -> Run:
    if found["errors"]:
        raise LoadError(f"{found['errors']} errors were answered")
    return watch.run(
        value,
        max(1, int(found["published_s"] * watch.elapsed_s)),
        published_per_s=found["published_s"],
        consumed_per_s=found["consumed_s"],
        e2e_p99_ms=found["e2e_p99_us"] / 1000,
        peak_rss_mb=procfs.peak_rss_bytes(endpoint.pid) / 1e6,
    )


def _generate(endpoint: Endpoint, amount: Amount) -> tuple[Stopwatch, dict[str, Any]]:
    """Run the generator once to warm up, on a topic of its own, and once to measure."""
    _call(endpoint, _WARM_UP_S, "-topic", "warm")
    watch = Stopwatch(endpoint.pid)
    found = _call(endpoint, amount.seconds)
    watch.stop()
    return watch, found


def _call(endpoint: Endpoint, seconds: float, *more: str) -> dict[str, Any]:
    command = [
        *shlex.split(os.environ[TOOL_COMMAND]), "-addr", f"127.0.0.1:{endpoint.tcp_port}", "-seconds", f"{seconds:g}",
        *more,
    ]  # fmt: skip
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds + _MORE_S, check=True)
        found: dict[str, Any] = json.loads(ended.stdout)
    except (subprocess.SubprocessError, ValueError) as error:
        raise LoadError(f"the load generator failed: {error}") from None
    return found
