"""`python -m nsqd_py.testing.child MODULE FLAG...` runs a command's module until standard input ends.

The parent holds the other end of that pipe, so a daemon never outlives a parent that was killed.
"""

from __future__ import annotations

import _thread
import os
import runpy
import signal
import sys


def _stop_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Run the module that the first argument names, as `python -m` does, with the other arguments."""
    sys.argv = sys.argv[1:]
    # A thread of the system even after gevent has patched `threading`.
    _thread.start_new_thread(_stop_with_parent, ())
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
