"""The command nsqlookupd-py: the daemon that knows where topics are."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nsqd_py.logs import Log
from nsqd_py.settings import Options
from nsqd_py.starting import DaemonCommand
from nsqlookupd_py.options import LOG_PREFIX, check_options, read_options


def _serve(options: Options, log: Log) -> None:
    from nsqlookupd_py.daemon import Daemon

    Daemon(options, log).run()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs nsqlookupd until a signal ends it, and returns the exit status: 1 where it could not start."""
    return DaemonCommand("nsqlookupd", LOG_PREFIX, read_options, check_options, _serve).main(argv)


if __name__ == "__main__":
    sys.exit(main())
