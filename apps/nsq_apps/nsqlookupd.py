"""The command nsqlookupd-py: the daemon that lists which nsqds have a topic."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqd_py.runtime.command import RELOAD, begin

if TYPE_CHECKING:
    from nsqd_py.runtime.logs.daemon_log import Log
    from nsqlookupd_py.options import NsqlookupdOptions


def _serve(options: NsqlookupdOptions, log: Log) -> int:
    from nsqlookupd_py.daemon import Nsqlookupd

    Nsqlookupd(options, log).run()
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsqlookupd until a signal ends it. Return the exit status: 1 if it could not start."""
    begin(RELOAD)  # before the imports, which take most of the start
    from nsq_apps.starting import run_daemon
    from nsqlookupd_py.options import LOG_PREFIX, check_options, read_options

    return run_daemon("nsqlookupd", LOG_PREFIX, read_options, check_options, _serve, argv=argv)


if __name__ == "__main__":
    sys.exit(main())
