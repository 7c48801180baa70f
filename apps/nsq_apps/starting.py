"""The start and the end of every daemon and tool. Imports nothing that is slow.

The exit status is 0 on success, 1 on failure and 2 for wrong settings. A tool writes data to standard output and log lines
to standard error; if the reader of standard output goes away (`| head`), it ends silently with status 0.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from nsqd_py.errors import StartError
from nsqd_py.net.addresses import is_loopback_address, split_address
from nsqd_py.runtime.command import complain, raise_interrupts, with_streams
from nsqd_py.runtime.logs.daemon_log import Log, one_line
from nsqd_py.settings.declaration import BadOptions, Options
from nsqd_py.settings.flags import config_warnings, effective_config
from nsqd_py.settings.program import BAD_USAGE, DONE, FAILED, LogOptions, Program, ProgramOptions, ToolError

OptionsT = TypeVar("OptionsT", bound=ProgramOptions)
DaemonT = TypeVar("DaemonT", bound=LogOptions)
# `check` raises BadOptions if the options contradict each other, or ToolError; it has no side effects. `run` does the work and
# returns the exit status; it raises ToolError.
Work = tuple[Callable[[OptionsT], None], Callable[[OptionsT, Log], int]]
# With one of them, not everyone who reaches a port may use it.
_LOCKS = ("auth_http_address", "http_auth_file", "tls_cert", "acl_http_header_from")
_PORTS = ("tcp_address", "http_address")
_LISTEN_AT = (*_PORTS, "https_address", "unix_socket", "http_unix_socket")


def _config_answer(options: object) -> str:
    """Return what --check-config or --print-config prints, once the options are checked; "" if neither is given."""
    assert isinstance(options, ProgramOptions)
    if options.print_config:
        return effective_config(options)
    return "The settings are valid.\n" if options.check_config else ""


def _open_log(options: Options, prefix: str) -> Log:
    """Return a log on standard error, with the log settings of the program if it has some."""
    log = Log(prefix)
    if isinstance(options, LogOptions):
        log = Log(options.log_prefix, options.log_level, form=options.log_format)
    log.hide = options.without_secrets
    return log


def run_daemon(
    name: str,
    log_prefix: str,
    read_options: Callable[[Sequence[str]], DaemonT],
    check_options: Callable[[DaemonT], None],
    serve: Callable[[DaemonT, Log], int],
    instead: Callable[[DaemonT], int | None] = lambda options: None,
    argv: Sequence[str] | None = None,
) -> int:
    """Run a daemon until a signal ends it. Return the exit status.

    read_options   read the command line. Raises BadOptions
    check_options  raise BadOptions if the daemon cannot start with them
    serve          run the daemon and return the exit status. Raises StartError and BadOptions. It imports what it needs
                   when it is called, so that --version, --help and errors do not wait for gevent
    instead        do what the options ask for instead of serving, and return the exit status; None to serve
    """

    def run() -> int:
        try:
            options = read_options(sys.argv[1:] if argv is None else argv)
        except BadOptions as error:
            Log(log_prefix).fatal("%s", error)
            return BAD_USAGE
        answer = _config_answer(options)
        try:
            status = None if answer else instead(options)
        except KeyboardInterrupt:
            return FAILED
        if status is not None:
            return status
        log = _open_log(options, log_prefix)
        try:
            check_options(options)
            for setting in options.without_effect():
                log.warning("--%s has no effect now: %s", setting.name, setting.step_note)
            _warn_of_open_doors(options, log)
            if not answer:
                return serve(options, log)
            _check_socket_directories(options)
        except (BadOptions, StartError) as error:
            log.fatal("failed to instantiate %s - %s", name, error)
            if isinstance(error, BadOptions) or answer:
                return BAD_USAGE
            return FAILED
        except Exception as error:  # a bug: its traceback is logged in the form of all log lines
            log.exception("%s ends - %r", name, error)
            return FAILED
        print(answer, end="")
        return DONE

    return with_streams(name, run)


def _check_socket_directories(options: LogOptions) -> None:
    """Raise StartError if a unix socket cannot be made where it shall be: a start finds that out when it listens."""
    for setting in options.settings.values():
        address = getattr(options, setting.attribute)
        if setting.attribute not in _LISTEN_AT or not address or split_address(address) is not None:
            continue
        directory = os.path.dirname(address) or "."
        if not os.path.isdir(directory):
            raise StartError(f"--{setting.name}={address}: {directory} is not a directory")


def _warn_of_open_doors(options: LogOptions, log: Log) -> None:
    """Log a warning if everyone may use the ports, and those of the config file."""
    if not any(getattr(options, name, None) for name in _LOCKS):
        addresses = [getattr(options, name) for name in _PORTS if hasattr(options, name)]
        reachable = ", ".join(address for address in addresses if not is_loopback_address(address))
        if reachable:
            log.warning(
                "everyone who can reach %s may use it, because there is no AUTH, TLS or password: docs/security.md",
                reachable,
            )
    path = getattr(options, "config", "")
    if path:
        for line in config_warnings(path, options.settings.values(), options.obsolete_keys):
            log.warning("%s: %s", path, line)


def run_tool(
    program: Program[OptionsT], work: Callable[[], Work[OptionsT]], argv: Sequence[str] | None = None
) -> int:
    """Run a tool until it ends. Return the exit status.

    `work` imports what the tool needs when it is called, so that --help does not wait for it.
    """

    def run_checked() -> int:
        options = program.defaults()
        try:
            raise_interrupts()
            options = program.read(sys.argv[1:] if argv is None else argv)
            options.check_values()
            check, run = work()
            check(options)
            answer = _config_answer(options)
            if answer:
                print(answer, end="")
                return DONE
            return run(options, _open_log(options, f"[{program.name}] "))
        except (BadOptions, ToolError) as error:
            complain(*map(one_line, f"{program.command}: {options.without_secrets(str(error))}".split("\n")))
            if isinstance(error, BadOptions) or _config_answer(options):
                return BAD_USAGE
            return FAILED
        except KeyboardInterrupt:  # the tool has not installed its signal handlers yet, or has none
            return FAILED

    return with_streams(program.command, run_checked)
