"""The command nsqadmin-py: the web console of a cluster."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqd_py.runtime.command import RELOAD, begin

if TYPE_CHECKING:
    from nsqadmin_py.options import NsqadminOptions
    from nsqd_py.runtime.logs.daemon_log import Log


def _check(options: NsqadminOptions) -> None:
    """Raise BadOptions if nsqadmin cannot start with these options."""
    from nsqadmin_py.options import check_options

    check_options(options)
    if options.http_client_token_file:
        from nsqadmin_py.upstream import headers_for

        headers_for(options)


def _serve(options: NsqadminOptions, log: Log) -> int:
    from nsqadmin_py.daemon import Nsqadmin

    Nsqadmin(options, log).run()
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsqadmin until a signal ends it. Return the exit status: 1 if it could not start."""
    begin(RELOAD)  # before the imports, which take most of the start
    from nsq_apps.starting import run_daemon
    from nsqadmin_py.options import LOG_PREFIX, read_options

    return run_daemon("nsqadmin", LOG_PREFIX, read_options, _check, _serve, argv=argv)


if __name__ == "__main__":
    sys.exit(main())
