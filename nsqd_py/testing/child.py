"""`python -m nsqd_py.testing.child FILE MODULE FLAG...` runs a command's module until standard input ends.

The parent holds the other end of that pipe, so a daemon never outlives a parent that was killed. The daemon adds a line
to the file for each address on which it accepts connections: `TCP 127.0.0.1:4150`.
"""

from __future__ import annotations

import _thread
import os
import runpy
import signal
import sys
from functools import partial
from pathlib import Path

from nsqd_py.net.listeners import on_listening


def _stop_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _note_address(path: Path, name: str, address: str) -> None:
    with path.open("a") as file:
        file.write(f"{name} {address}\n")


def main() -> None:
    """Run the module that the second argument names, as `python -m` does, with the arguments behind it."""
    path = Path(sys.argv[1])
    sys.argv = sys.argv[2:]
    on_listening.append(partial(_note_address, path))
    # A thread of the system even after gevent has patched `threading`.
    _thread.start_new_thread(_stop_with_parent, ())
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
