"""The command nsqd-py: the message queue daemon."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqd_py.errors import StartError
from nsqd_py.runtime.command import RELOAD_AND_DRAIN, begin, unblock_signals

if TYPE_CHECKING:
    from nsqd_py.runtime.logs.daemon_log import Log
    from nsqd_py.server.options import NsqdOptions


def _check(options: NsqdOptions) -> None:
    """Raise BadOptions or StartError if nsqd cannot start with these options."""
    from nsqd_py.server.options import check_options

    check_options(options)
    if options.check_config or options.print_config:
        _group_warning(options)
        if not os.path.isdir(options.data_path or "."):
            raise StartError(f"--data-path={options.data_path} is not a directory")


def _group_warning(options: NsqdOptions) -> str:
    """Check the group of standbys, if nsqd has one; return a warning, or "". Raises BadOptions."""
    flags = (options.accept_standbys, options.standby_acks, options.standby_of, options.lease)
    if not any((*flags, options.standby_secret_file, options.standby_tls_allowed_names)):
        return ""
    from nsqd_py.standby.group import check_group  # with hashes and messages, 20 ms of a start

    return check_group(options)


def _instead(options: NsqdOptions) -> int | None:
    """Check or export a data path, make or restore a backup, and return the exit status; None to serve."""
    if options.export_to_go:
        from nsqd_py.fsck.command import export_to_go as command
    elif options.check_data:
        from nsqd_py.fsck.command import check_data as command
    elif options.backup_to or options.restore_from:
        from nsqd_py.standby.backup import run as command
    else:
        return None
    unblock_signals()  # nothing to reload or drain: these signals end the command
    return command(options)


def _refuse_backup(options: NsqdOptions) -> None:
    """Raise StartError if the data path is a backup."""
    from nsqd_py.broker.state_files import BACKUP_FILE

    data_path = options.data_path or "."
    if os.path.exists(os.path.join(data_path, BACKUP_FILE)):
        raise StartError(
            f"{os.path.abspath(data_path)} is a backup, or was not restored completely: restore it into "
            "a new directory, with --restore-from and --data-path"
        )


def _serve(options: NsqdOptions, log: Log) -> int:
    _refuse_backup(options)
    if warning := _group_warning(options):
        log.warning("%s", warning)
    if options.lease:
        return _serve_elected(options, log)
    from nsqd_py.server.daemon import Daemon

    daemon = Daemon(options, log)
    status = daemon.run()
    while daemon.next_options is not None:  # it was promoted or fenced, or is loaded again
        daemon = Daemon(daemon.next_options, log, daemon.notifier, asked=daemon.asked)
        status = daemon.run()
    return status


def _serve_elected(options: NsqdOptions, log: Log) -> int:
    """Run nsqd in the roles that the lease gives it, one after the other."""
    from nsqd_py.runtime.systemd import Notifier
    from nsqd_py.server.daemon import Asked, Daemon
    from nsqd_py.standby.election import elect

    notifier = Notifier.from_environment()
    asked = Asked()
    return elect(
        options, log, lambda role_options, election: Daemon(role_options, log, notifier, election, asked)
    )


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
