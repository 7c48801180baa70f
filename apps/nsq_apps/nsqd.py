"""The command nsqd-py: the message queue daemon."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqd_py.runtime import early_signals

if TYPE_CHECKING:
    from nsqd_py.options import NsqdOptions
    from nsqd_py.runtime.logs import Log


def _serve(options: NsqdOptions, log: Log) -> int:
    from nsqd_py.standby.group import check_group

    warning = check_group(options)
    if warning:
        log.warning("%s", warning)
    from nsqd_py.daemon import Daemon

    if options.lease:
        from nsqd_py.runtime.systemd import Notifier
        from nsqd_py.standby.election import elect

        notifier = Notifier.from_environment()
        return elect(options, log, lambda role_options, election: Daemon(role_options, log, notifier, election))
    daemon = Daemon(options, log)
    status = daemon.run()
    while daemon.next_options is not None:  # it was promoted or fenced
        daemon = Daemon(daemon.next_options, log, daemon.notifier)
        status = daemon.run()
    return status


def _check(options: NsqdOptions) -> None:
    """Raise BadOptions, UsageError or StartError if nsqd cannot start with these options."""
    from nsqd_py.errors import StartError
    from nsqd_py.options import check_options
    from nsqd_py.standby.group import check_group

    check_options(options)
    if options.check_config or options.print_config:
        check_group(options)
        if not os.path.isdir(options.data_path or "."):
            raise StartError(f"--data-path={options.data_path} is not a directory")


def _work_offline(options: NsqdOptions) -> int | None:
    if not options.check_data and not options.repair and not options.export_to_go:
        return None
    early_signals.release()  # nothing to reload or drain: these signals end the command
    from nsqd_py.fsck.command import check_data, export_to_go

    return export_to_go(options) if options.export_to_go else check_data(options)


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsqd until a signal ends it. Return the exit status: 1 if it could not start, 2 if its settings are wrong, 3
    after a drain that left messages.
    """
    early_signals.hold(early_signals.RELOAD_AND_DRAIN)  # before the imports, which take most of the start
    from nsqd_py.options import LOG_PREFIX, read_options
    from nsqd_py.settings.program import DaemonCommand

    return DaemonCommand("nsqd", LOG_PREFIX, read_options, _check, _serve, _work_offline).main(argv)


if __name__ == "__main__":
    sys.exit(main())
