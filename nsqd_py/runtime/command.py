"""The frame of every command: standard streams that are closed or full, signals that come early."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

# Files and sockets that a program uses report their errors themselves.
_NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)

# SIGHUP reloads or reopens files, SIGUSR1 drains nsqd. SIGTERM and SIGINT end a start as they end a running program.
RELOAD = (signal.SIGHUP,)
RELOAD_AND_DRAIN = (signal.SIGHUP, signal.SIGUSR1)

# By default, the collector examines new objects each time that there are 700 more. What a start makes stays: that would
# be a tenth of --version. The start of a tool makes 40,000.
_NEW_OBJECTS = 50_000


def with_streams(command: str, run: Callable[[], int]) -> int:
    """Return the status of `run`; 1 after a line if standard output cannot be written, 0 if its reader is gone."""
    _reserve()
    # The interpreter would search for cycles at its end: 13 of 100 ms of a short run.
    atexit.register(gc.freeze)
    try:
        try:
            return run()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()
        return 0
    except OSError as error:
        if error.errno not in _NOT_WRITTEN or error.filename is not None:
            raise
        _forget_output()
        complain(f"{command}: cannot write to standard output: {error.strerror}")
        return 1


def complain(*lines: str) -> None:
    """Write lines to standard error. Does nothing if it is closed or full."""
    with suppress(OSError):
        print(*lines, sep="\n", file=sys.stderr, flush=True)


def is_terminal(stream: IO[Any]) -> bool:
    """True if the stream is a terminal. False for a closed stream."""
    try:
        return stream.isatty()
    except (ValueError, AttributeError):
        return False


def wants_colour() -> bool:
    """True for a terminal that can show colours, unless the user has disabled them (https://no-color.org)."""
    if not is_terminal(sys.stdout):
        return False
    return os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")


def _reserve() -> None:
    """Open closed streams, or the next file or socket would get their numbers. Reads and writes of them fail."""
    for descriptor, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, flags)  # the lowest free descriptor, which is this one
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)


def _forget_output() -> None:
    """Redirect standard output to /dev/null, because Python flushes it at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


# ---- the first thing that a command does, before it imports anything that takes long
#
# Signals that a program handles only once it has started would end it before, by the default action of the kernel. They
# stay pending in the kernel from `begin` until `unblock_signals`, which the program calls when its handlers are set.


def begin(held: tuple[signal.Signals, ...] = ()) -> None:
    """Block the signals `held` in this thread and in those that it starts later; let the cycle collector run rarely.

    SIGINT ends the start as SIGTERM does: a KeyboardInterrupt in the middle of an import would print its traceback.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, held)
    _replace_interrupt(signal.default_int_handler, signal.SIG_DFL)
    gc.set_threshold(_NEW_OBJECTS)


def raise_interrupts() -> None:
    """Let SIGINT raise KeyboardInterrupt again, which the caller handles. If it is ignored, that stays."""
    _replace_interrupt(signal.SIG_DFL, signal.default_int_handler)


def _replace_interrupt(old: Any, new: Any) -> None:
    if signal.getsignal(signal.SIGINT) == old:
        with suppress(ValueError):  # in another thread than the first, only that one can change it
            signal.signal(signal.SIGINT, new)


def unblock_signals() -> None:
    """Let the signals through that `begin` may have blocked."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, RELOAD_AND_DRAIN)
