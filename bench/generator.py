"""One load in a process of its own: `python -m bench.generator LOAD TCP_PORT HTTP_PORT PID SECONDS MESSAGES`.

Prints the run as JSON. Also useful by hand, under a profiler, against an nsqd that is already running.
"""

import gc
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from bench.loads import LOADS
from bench.run import Amount, Endpoint, LoadError, Run
from bench.wire import ProtocolError

_ROOT = Path(__file__).resolve().parent.parent
_LIMIT_S = 180.0


def generate(load: str, endpoint: Endpoint, amount: Amount) -> Run:
    """Run the load in a new process; raises LoadError with what it said when it fails."""
    process = subprocess.Popen(
        _command(load, endpoint, amount),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])},
        start_new_session=True,  # Ctrl-C reaches this process only, which then ends its children.
    )
    try:
        output, errors = process.communicate(timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise LoadError(f"{load}: no result within {_LIMIT_S:g} s") from None
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        raise LoadError(errors.strip().rpartition("\n")[2] or f"{load}: exit status {process.returncode}")
    return Run(**json.loads(output))


def _command(load: str, endpoint: Endpoint, amount: Amount) -> list[str]:
    numbers = (endpoint.tcp_port, endpoint.http_port, endpoint.pid, amount.seconds, amount.messages)
    return [sys.executable, "-m", "bench.generator", load, *map(str, numbers)]


def main(arguments: list[str]) -> int:
    load, tcp_port, http_port, pid, seconds, messages = arguments
    endpoint = Endpoint(int(tcp_port), int(http_port), int(pid))
    gc.disable()
    try:
        run = LOADS[load](endpoint, Amount(float(seconds), int(messages)))
    except (LoadError, ProtocolError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(asdict(run)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
