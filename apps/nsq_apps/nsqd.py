"""The command nsqd-py: the message queue daemon."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nsqd_py.errors import StartError
from nsqd_py.runtime.command import RELOAD_AND_DRAIN, begin, raise_interrupts, unblock_signals

if TYPE_CHECKING:
    from nsqd_py.runtime.logs.daemon_log import Log
    from nsqd_py.server.options import NsqdOptions


def _check(options: NsqdOptions) -> None:
    """Raise BadOptions or StartError if nsqd cannot start with these options."""
    from nsqd_py.server.options import check_options

    check_options(options)
    if options.check_config or options.print_config:
        from nsqd_py.server.parts import warnings_about

        warnings_about(options)
        if not os.path.isdir(options.data_path or "."):
            raise StartError(f"--data-path={options.data_path} is not a directory")


def _instead(options: NsqdOptions) -> int | None:
    """Run the command of a part, such as --check-data, and return its exit status; None to serve."""
    from nsqd_py.server.parts import command_of

    command = command_of(options)
    if command is None:
        return None
    unblock_signals()  # nothing to reload or drain: these signals end the command
    raise_interrupts()
    return command(options)


def _serve(options: NsqdOptions, log: Log) -> int:
    from nsqd_py.server.parts import check_data_path, runner_of, warnings_about

    check_data_path(options)
    for warning in warnings_about(options):
        log.warning("%s", warning)
    from nsqd_py.server.daemon import Daemon

    run = runner_of(options)
    if run is not None:
        from nsqd_py.runtime.systemd import Notifier

        notifier = Notifier.from_environment()
        shared: dict[str, Any] = {}
        return run(options, log, shared, lambda of_role: Daemon(of_role, log, notifier, shared))
    daemon = Daemon(options, log)
    status = daemon.run()
    while daemon.next_options is not None:  # it has another role, or is loaded again
        daemon = Daemon(daemon.next_options, log, daemon.notifier, daemon.shared)
        status = daemon.run()
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsqd until a signal ends it. Return the exit status: 1 if it could not start, 2 if its settings are wrong, 3
    after a drain that left messages.
    """
    begin(RELOAD_AND_DRAIN)  # before the imports, which take most of the start
    from nsq_apps.starting import run_daemon
    from nsqd_py.server.options import LOG_PREFIX, read_options

    return run_daemon("nsqd", LOG_PREFIX, read_options, _check, _serve, _instead, argv=argv)


if __name__ == "__main__":
    sys.exit(main())
