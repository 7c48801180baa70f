"""The command nsqadmin-py: a console over all nsqd and nsqlookupd of a cluster."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nsqadmin_py.options import LOG_PREFIX, check_options, read_options
from nsqd_py.logs import Log
from nsqd_py.settings import Options
from nsqd_py.starting import DaemonCommand


def _serve(options: Options, log: Log) -> None:
    from nsqadmin_py.daemon import Daemon

    Daemon(options, log).run()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs nsqadmin until a signal ends it, and returns the exit status: 1 where it could not start."""
    return DaemonCommand("nsqadmin", LOG_PREFIX, read_options, check_options, _serve).main(argv)


if __name__ == "__main__":
    sys.exit(main())
