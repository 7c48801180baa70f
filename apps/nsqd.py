"""The command nsqd-py: the message queue daemon."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nsqd_py.logs import Log
from nsqd_py.options import LOG_PREFIX, BadOptions, check_options, read_options


def main(argv: Sequence[str] | None = None) -> int:
    """Runs nsqd until a signal ends it, and returns the exit status: 1 where it could not start."""
    try:
        options = read_options(sys.argv[1:] if argv is None else argv)
    except BadOptions as error:
        Log(LOG_PREFIX).fatal("%s", error)
        return 1
    log = Log(options.log_prefix, options.log_level)
    try:
        check_options(options)
    except BadOptions as error:
        return _refuse_to_start(log, error)
    for setting in options.without_effect():
        log.warning("--%s has no effect now: %s", setting.name, setting.step_note)

    # Imported here, so that --version, --help and a refusal do not wait for gevent.
    from nsqd_py.daemon import Daemon
    from nsqd_py.errors import StartError

    try:
        Daemon(options, log).run()
    except StartError as error:
        return _refuse_to_start(log, error)
    return 0


def _refuse_to_start(log: Log, reason: Exception) -> int:
    log.fatal("failed to instantiate nsqd - %s", reason)
    return 1


if __name__ == "__main__":
    sys.exit(main())
