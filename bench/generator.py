"""One load in a process of its own: `python -m bench.generator LOAD TCP_PORT HTTP_PORT PID SECONDS MESSAGES`.

Prints the run as JSON. Also useful by hand, under a profiler, against a server that is already running; a load
that wants it restarted prints `restart`, and reads its new pid and the time of its start.
"""

import gc
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from threading import Timer

from bench.loads import find
from bench.run import TOOL_COMMAND, Amount, Endpoint, LoadError, Run
from bench.wire import ProtocolError
from bench.workload import PUBLISHING, Publishing

_ROOT = Path(__file__).resolve().parent.parent
_LIMIT_S = 300.0
_RESTART = "restart\n"


def generate(
    load: str, endpoint: Endpoint, amount: Amount, tool: Sequence[str] = (), publishing: Publishing | None = None
) -> Run:
    """Run the load in a new process, with the command of a tool or what is published for those that want it.

    Raises LoadError with what it said when it fails.

    This process stays the parent of the server, and restarts it when the load says so.
    """
    process = subprocess.Popen(
        _command(load, endpoint, amount),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]),
            TOOL_COMMAND: shlex.join(tool),
            PUBLISHING: publishing.to_json() if publishing else "",
        },
        start_new_session=True,  # Ctrl-C reaches this process only, which then ends its children.
    )
    limit = Timer(_LIMIT_S, process.kill)
    limit.start()
    try:
        result = _converse(process, endpoint)
        _, errors = process.communicate()
    finally:
        limit.cancel()
        process.kill()
        process.wait()
    if process.returncode == -signal.SIGKILL:
        raise LoadError(f"{load}: no result within {_LIMIT_S:g} s, or killed")
    if process.returncode:
        raise LoadError(errors.strip().rpartition("\n")[2] or f"{load}: exit status {process.returncode}")
    return Run(**json.loads(result))


def _converse(process: subprocess.Popen[str], endpoint: Endpoint) -> str:
    """Restart the server as often as the load wants it; the result, or nothing if it failed."""
    assert process.stdin is not None and process.stdout is not None
    for line in process.stdout:
        if line != _RESTART:
            return line
        endpoint = endpoint.restart()
        print(endpoint.pid, endpoint.started_s, file=process.stdin, flush=True)
    return ""


def _command(load: str, endpoint: Endpoint, amount: Amount) -> list[str]:
    numbers = (endpoint.tcp_port, endpoint.http_port, endpoint.pid, amount.seconds, amount.messages)
    return [sys.executable, "-m", "bench.generator", load, *map(str, numbers)]


def main(arguments: list[str]) -> int:
    load, tcp_port, http_port, pid, seconds, messages = arguments

    def restart() -> Endpoint:
        print(_RESTART, end="", flush=True)
        new_pid, started_s = sys.stdin.readline().split()
        return Endpoint(int(tcp_port), int(http_port), int(new_pid), float(started_s), restart)

    endpoint = Endpoint(int(tcp_port), int(http_port), int(pid), time.perf_counter(), restart)
    gc.disable()
    try:
        run = find(load)(endpoint, Amount(float(seconds), int(messages)))
    except (LoadError, ProtocolError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(asdict(run)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
