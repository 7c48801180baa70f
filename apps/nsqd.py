"""The command nsqd-py: the message queue daemon."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nsqd_py.logs import Log
from nsqd_py.options import LOG_PREFIX, Options, check_options, read_options
from nsqd_py.starting import DaemonCommand


def _serve(options: Options, log: Log) -> None:
    from nsqd_py.daemon import Daemon

    Daemon(options, log).run()


def _check_data(options: Options) -> int | None:
    if not options.check_data and not options.repair:
        return None
    from nsqd_py.checking.command import check_data

    return check_data(options)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs nsqd until a signal ends it, and returns the exit status: 1 where it could not start."""
    return DaemonCommand("nsqd", LOG_PREFIX, read_options, check_options, _serve, _check_data).main(argv)


if __name__ == "__main__":
    sys.exit(main())
