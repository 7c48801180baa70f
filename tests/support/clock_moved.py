"""An nsqd whose wall clock a test sets: `python clock_moved.py FILE [flags of nsqd]`.

The file holds by how many seconds the wall clock is wrong. The machine's monotonic clocks go on as they are.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from nsq_apps.nsqd import main

_RIGHT_NS = time.time_ns


def _wrong_ns() -> int:
    return _RIGHT_NS() + int(_FILE.read_text()) * 1_000_000_000


if __name__ == "__main__":
    _FILE = Path(sys.argv[1])
    time.time_ns = _wrong_ns
    time.time = lambda: _wrong_ns() / 1e9
    sys.exit(main(sys.argv[2:]))
