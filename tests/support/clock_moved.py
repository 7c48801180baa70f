"""An nsqd whose wall clock a test sets: `python clock_moved.py FILE [flags of nsqd]`.

The file holds by how many seconds the wall clock is wrong. The machine's monotonic clocks go on as they are.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

_RIGHT_NS = time.time_ns


def move_clock(file: Path) -> None:
    """Make the wall clock of this process wrong, from now on, by the seconds in the file."""

    def wrong_ns() -> int:
        return _RIGHT_NS() + int(file.read_text()) * 1_000_000_000

    time.time_ns = wrong_ns
    time.time = lambda: wrong_ns() / 1e9


if __name__ == "__main__":
    from nsq_apps.nsqd import main

    move_clock(Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
