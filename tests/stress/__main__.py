"""Run tests on a machine on which threads meet at every bad moment, and print how to run them so again.

What follows the options goes to pytest in the place of the tests of the lane.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.hostile_machine import (
    SWITCH_INTERVAL_S,
    SlowDisk,
    compiled_shim,
    computing,
    drawn_seed,
    environment,
)

# The tests of processes and their clients. Those marked `alone`, `slow` or `calm` measure what this lane disturbs.
LANE = [
    *(
        f"tests/{folder}"
        for folder in ("stress", "wire", "integration", "faults", "crash", "torture", "standby")
    ),
    "tests/unit/client",
]
NOT_MARKED = "not slow and not alone and not calm"
PARALLEL = ["-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress", description=__doc__)
    parser.add_argument("--seed", type=int, default=drawn_seed(), help="of the slow disk")
    parser.add_argument(
        "--switch-interval", type=float, default=SWITCH_INTERVAL_S, metavar="S", help="of each Python"
    )
    parser.add_argument(
        "--computing", type=int, default=2, metavar="N", help="processes that compute (default: 2)"
    )
    parser.add_argument("--quick-disk", action="store_true", help="delay no call of the disk")
    options, rest = parser.parse_known_args()
    directory = Path(tempfile.mkdtemp(prefix="stress-"))
    shim = None if options.quick_disk else compiled_shim(directory)
    if shim is None and not options.quick_disk:
        print("Without a C compiler, the disk is not slowed down.")
    data = directory / "tests"
    hostile = environment(
        options.seed, data, shim=shim, disk=SlowDisk(), switch_interval_s=options.switch_interval
    )
    again = (
        f"--seed {options.seed} --computing {options.computing} --switch-interval {options.switch_interval}"
    )
    again += " --quick-disk" * options.quick_disk
    print(f"seed {options.seed}, logs and data in {data}")
    with computing(options.computing):
        status = run(command(rest, data), os.environ | hostile)
    if status:
        print(
            f"Again: make stress STRESS_ARGS={shlex.quote(again)} PYTEST_ARGS={shlex.quote(shlex.join(rest) or 'TEST')}"
        )
    else:
        shutil.rmtree(directory)
    return status


def run(words: list[str], variables: dict[str, str]) -> int:
    """Return the status of pytest. If this process is asked to end, pytest is, as by Ctrl-C, and ends what it started."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with subprocess.Popen(words, env=variables, start_new_session=True) as pytest:
        try:
            return pytest.wait()
        except KeyboardInterrupt:
            pytest.send_signal(signal.SIGINT)
            return pytest.wait()


def command(rest: list[str], data: Path) -> list[str]:
    """Return the call of pytest: what it is given narrows the lane."""
    are_named = any(Path(word.partition("::")[0]).exists() for word in rest)
    return [
        sys.executable,
        "-m",
        "pytest",
        *PARALLEL,
        f"--basetemp={data}",
        "-m",
        NOT_MARKED,
        *([] if are_named else LANE),
        *rest,
    ]


if __name__ == "__main__":
    sys.exit(main())
