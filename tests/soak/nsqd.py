"""nsqd with a disk and a clock that the soak controls: `python -m tests.soak.nsqd RULES CLOCK DATA_PATH -- flags`.

RULES is a file as in tests/support/faulty_nsqd.py, CLOCK one as in tests/support/clock_moved.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.clock_moved import move_clock
from tests.support.disk_calls import watched
from tests.support.faulty_nsqd import Rules


def main() -> None:
    rules, clock, data_path, _, *flags = sys.argv[1:]
    sys.argv[1:] = flags
    move_clock(Path(clock))
    # After the clock: modules take functions of `time` when they are imported.
    from nsq_apps.nsqd import main as nsqd

    with watched(Path(data_path), Rules(rules).instead):
        nsqd()


if __name__ == "__main__":
    main()
