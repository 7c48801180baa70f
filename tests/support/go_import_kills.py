"""Kills an import of Go's files before every file operation that changes something, once each, and finishes it.

`python -m tests.support.go_import_kills DIRECTORY WORK` prints a line of JSON for each kill: the operation before which
the process ended, and the directory in which the import was finished afterwards, a copy of DIRECTORY at first.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from nsqd_py.go_import.take_over import take_over
from nsqd_py.runtime.logs.daemon_log import Log

NOW_S = 1_700_000_000.0
_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir"}
_WRITING = os.O_WRONLY | os.O_RDWR
_KILLED = 9


class _Silent:
    def info(self, text: str, *args: object) -> None: ...

    error = info


def run_import(directory: Path) -> None:
    log: Log = _Silent()  # type: ignore[assignment]
    take_over(directory, 2000, log, NOW_S, lambda: None)


def run_until(directory: Path, most: int, reported: int) -> None:
    """Import, in a process that ends before its change number `most`; it writes which that was to `reported`."""
    left = most

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in _CHANGES or (event == "open" and int(str(arguments[2])) & _WRITING):
            if left == 0:
                os.write(reported, f"{event} {arguments[0]}".encode())
                os._exit(_KILLED)
            left -= 1

    sys.addaudithook(count)
    run_import(directory)
    os._exit(0)


def killed_at(directory: Path, most: int) -> str | None:
    """What the operation was; None when it was over before."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        run_until(directory, most, writing)
    os.close(writing)
    with open(reading, "rb") as reported:
        operation = reported.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, _KILLED), f"the import ended with {status}"
    return operation if status == _KILLED else None


def main(template: Path, work: Path) -> None:
    for number in range(10_000):
        directory = work / str(number)
        shutil.copytree(template, directory)
        operation = killed_at(directory, number)
        run_import(directory)
        print(json.dumps({"operation": operation, "directory": str(directory)}))
        if operation is None:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
