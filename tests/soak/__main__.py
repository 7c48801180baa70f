"""Put a cluster under mixed load and trouble. Exit status 1: something was lost, stuck, damaged, or grew."""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from bench.machine import commit, this_machine
from tests.soak.run import Plan, Result, soak

SECONDS_BETWEEN_LINES = 30.0


class Progress:
    """Shows one line that changes on a terminal, and a line each half minute elsewhere."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._next_s = 0.0

    def __call__(self, text: str) -> None:
        if self._is_terminal:
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() >= self._next_s:
            print(text, file=sys.stderr, flush=True)
            self._next_s = time.monotonic() + SECONDS_BETWEEN_LINES

    def end(self) -> None:
        if self._is_terminal:
            print(file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="length of the load (default: 30)")
    parser.add_argument(
        "--rate", type=float, default=500.0, help="messages published a second (default: 500)"
    )
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(2**32), help="of all choices"
    )
    parser.add_argument("--output", type=Path, help="write the result to OUTPUT.json")
    options = parser.parse_args()
    plan = Plan(options.minutes, options.rate, options.seed)
    directory = Path(tempfile.mkdtemp(prefix="soak-"))
    print(f"seed {plan.seed}, logs and data in {directory}", file=sys.stderr)
    progress = Progress()
    result = soak(plan, directory, progress)
    progress.end()
    output: Path = options.output or directory / "soak"
    write(result, plan, output)
    print(*result.problems, sep="\n", end="\n" * bool(result.problems))
    print(f"{result.summary(plan)}; see {output}.json")
    return 1 if result.problems else 0


def write(result: Result, plan: Plan, output: Path) -> None:
    """Write what the soak found."""
    made = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": commit(),
        "machine": str(this_machine()),
    }
    output.with_suffix(".json").write_text(
        json.dumps(made | result.document(plan), separators=(",", ":")) + "\n"
    )


if __name__ == "__main__":
    sys.exit(main())
