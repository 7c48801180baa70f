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


def main(argv: Sequence[str] | None = None) -> int:
    """Runs nsqd until a signal ends it, and returns the exit status: 1 where it could not start."""
    return DaemonCommand("nsqd", LOG_PREFIX, read_options, check_options, _serve).main(argv)


if __name__ == "__main__":
    sys.exit(main())
