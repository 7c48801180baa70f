"""The command: each target for some time; status 1 where something was found."""

from __future__ import annotations

import argparse
import re
import sys

from tests.fuzz.engines import best_engine, fuzz
from tests.fuzz.targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=600.0, help="time for each target (default: ten minutes)"
    )
    parser.add_argument("--only", default="", help="targets whose names this regular expression finds")
    parser.add_argument("--engine", choices=("atheris", "hypothesis"), default=best_engine())
    options = parser.parse_args()
    names = [name for name in TARGETS if re.search(options.only, name)]
    results = [fuzz(name, options.seconds, options.engine) for name in names]
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
