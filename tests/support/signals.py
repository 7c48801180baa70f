"""Dispositions of signals that the programs under test start with."""

from __future__ import annotations

import signal
from types import FrameType

# `nohup` ignores SIGHUP; a shell without job control ignores SIGINT and SIGQUIT in what it starts with `&`.
_IGNORED_BY_SHELLS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


def start_children_with_default_signals() -> None:
    """Let programs that this process starts get the signals that a shell has reported this process to ignore.

    A program inherits an ignored signal, but not a handler: a handler that does nothing ignores the signal here,
    and the program begins with the default.
    """
    for number in _IGNORED_BY_SHELLS:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _do_nothing)


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    return None
