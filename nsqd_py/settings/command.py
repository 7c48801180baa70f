"""How a daemon's command begins: options, log, a refusal in one line. Imports nothing that is slow."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nsqd_py.errors import StartError
from nsqd_py.runtime.logs import Log
from nsqd_py.settings.declaration import BadOptions, Options


@dataclass(frozen=True)
class DaemonCommand:
    """A command that serves until a signal ends it.

    read_options   from the command line; raises BadOptions
    check_options  raises BadOptions where the daemon cannot start with them
    serve          runs the daemon and returns the exit status; raises StartError. It imports what it needs itself,
                   so that --version, --help and a refusal do not wait for gevent
    instead        does what the options ask for in place of serving, and returns the exit status; None: serve
    """

    name: str
    log_prefix: str
    read_options: Callable[[Sequence[str]], Options]
    check_options: Callable[[Options], None]
    serve: Callable[[Options, Log], int]
    instead: Callable[[Options], int | None] = lambda options: None

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Runs until a signal ends it, and returns the exit status: 1 where it could not start."""
        try:
            options = self.read_options(sys.argv[1:] if argv is None else argv)
        except BadOptions as error:
            Log(self.log_prefix).fatal("%s", error)
            return 1
        status = self.instead(options)
        if status is not None:
            return status
        log = Log(options.log_prefix, options.log_level, form=options.log_format)
        try:
            self.check_options(options)
            for setting in options.without_effect():
                log.warning("--%s has no effect now: %s", setting.name, setting.step_note)
            return self.serve(options, log)
        except (BadOptions, StartError) as error:
            log.fatal("failed to instantiate %s - %s", self.name, error)
            return 1
        except Exception as error:  # a bug: its traceback goes where all log lines go, in their form
            log.exception("%s ends - %r", self.name, error)
            return 1
