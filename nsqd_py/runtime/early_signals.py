"""Hold back signals that a program handles only once it has started. The default action of the kernel would end it.

A command calls `hold` before it imports anything that takes long, and `release` when its handlers are in place.
A signal that arrives in between stays pending in the kernel, and is delivered by `release`.
"""

from __future__ import annotations

import signal

# SIGHUP reloads or reopens files, SIGUSR1 drains nsqd. SIGTERM and SIGINT end a start as they end a running program.
RELOAD = (signal.SIGHUP,)
RELOAD_AND_DRAIN = (signal.SIGHUP, signal.SIGUSR1)


def hold(signals: tuple[signal.Signals, ...]) -> None:
    """Block `signals` in this thread and in those that it starts later."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)


def release() -> None:
    """Let the signals through that `hold` may have blocked."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, RELOAD_AND_DRAIN)
