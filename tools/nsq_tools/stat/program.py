"""The program nsq-stat: its name, what it does, and examples for `--help` and the reference page."""

from __future__ import annotations

from nsq_tools.stat.options import StatOptions
from nsqd_py.settings.program import Program

PROGRAM = Program(
    "nsq_stat",
    "nsq-stat",
    "Show depths and rates of topics and channels of many nsqds. On a terminal it is a live table with a chart of "
    "each depth. Keys: the arrow keys, j and k select a line; Enter opens its topic with channels, nsqds and clients; / "
    "filters topics and channels by what you type (Enter keeps the filter, Esc clears it); p lists the problems that "
    "--check and nsqadmin list, with what to do and the runbook; s and r sort; ? explains keys, colours and columns; q goes "
    "back, and quits. A row with a problem has a letter and a colour: E for an error, W for a warning, i for planned work. "
    "On a narrow terminal, columns are hidden; numbers are never cut. In a pipe it writes the lines of Go's nsq_stat, or "
    "tables, CSV or JSON.",
    StatOptions,
    examples=(
        (
            "Watch a whole cluster, the largest depth first",
            "nsq-stat --lookupd-http-address=127.0.0.1:4161 --sort=depth",
            'run: until="orders" then="q"',
        ),
        (
            "All depths at this moment, for a script",
            "nsq-stat --lookupd-http-address=127.0.0.1:4161 --once --format=json",
        ),
        (
            "Is anything wrong? Exit status 1 for warnings, 2 for errors; what it is, is on standard error",
            "nsq-stat --lookupd-http-address=127.0.0.1:4161 --check >/dev/null || echo 'look at it'",
        ),
        (
            "Is a standby missing, or behind by more than five seconds? Exit status 1 if so",
            "nsq-stat --lookupd-http-address=127.0.0.1:4161 --standbys --max-standby-lag=5s --once",
        ),
    ),
)
