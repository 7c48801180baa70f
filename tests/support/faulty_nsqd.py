"""nsqd on a disk that fails as a test says: `python -m tests.support.faulty_nsqd RULES DATA_PATH -- flags of nsqd`.

RULES is a JSON file, read again whenever it changes: a list of {"call", "path", "error", "bug", "delay_s", "share"}, all
but the first of which may be missing. The first rule that fits a call (path is a pattern) delays it, or makes it fail:
`error` is the name of an errno, `bug` that of an exception. `share` is the part of the calls that it holds for, by
chance. A delay ends when its rule is taken away.
"""

from __future__ import annotations

import builtins
import errno
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.support.disk_calls import watched
from tests.support.network import LOOPBACK, Host
from tests.support.nsqd_process import NsqdProcess, nsqd_command

DELAYED = ".delayed"


class FaultyNsqd(NsqdProcess):
    """An nsqd whose disk obeys `rules`."""

    def __init__(
        self, data_path: Path, *flags: str, host: Host = LOOPBACK, ports: tuple[int, int] = (0, 0)
    ) -> None:
        super().__init__(data_path, *flags, host=host, ports=ports)
        self._rules = data_path.with_suffix(".rules")
        self.set_rules()
        program = [sys.executable, "-m", *self._program(), str(data_path), "--"]
        start = len(host.command_prefix)
        self._command[start : start + len(nsqd_command())] = program

    def _program(self) -> list[str]:
        """Return the module to run, and its arguments before the data path."""
        return ["tests.support.faulty_nsqd", str(self._rules)]

    def set_rules(self, *rules: dict[str, Any]) -> None:
        """From now on."""
        temporary = self._rules.with_suffix(".new")
        temporary.write_text(json.dumps(rules))
        temporary.rename(self._rules)

    def delayed_calls(self) -> tuple[int, int]:
        """How many calls were delayed: on the event loop, and in threads."""
        lines = self.delays()
        return sum(line.startswith("loop") for line in lines), sum(
            line.startswith("thread") for line in lines
        )

    def delays(self) -> list[str]:
        """A line for the begin of each delay, as "loop write *" or "thread rename t.*", and one for its end: "end write *"."""
        return self._rules.with_suffix(DELAYED).read_text().splitlines()


class Rules:
    """What happens to calls."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._read_at = 0
        self._rules: list[dict[str, Any]] = []

    def instead(self, name: str, path: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        rule = self._find(name, Path(path).name)
        if random.random() >= rule.get("share", 1.0):
            rule = {}
        if "delay_s" in rule:
            self._delay(rule)
        if "error" in rule:
            number = getattr(errno, rule["error"])
            raise OSError(number, os.strerror(number))
        if "bug" in rule:
            raise getattr(builtins, rule["bug"])("pop from an empty deque")
        return real(*arguments)

    def _delay(self, rule: dict[str, Any]) -> None:
        self._note("loop" if threading.get_native_id() == os.getpid() else "thread", rule)
        end_s = time.monotonic() + rule["delay_s"]
        while rule in self._current() and (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(left_s, 0.02))
        self._note("end", rule)

    def _note(self, word: str, rule: dict[str, Any]) -> None:
        with Path(self._path).with_suffix(DELAYED).open("a") as file:
            file.write(f"{word} {rule['call']} {rule.get('path', '*')}\n")

    def _find(self, name: str, file_name: str) -> dict[str, Any]:
        fitting = (
            r for r in self._current() if r["call"] == name and fnmatchcase(file_name, r.get("path", "*"))
        )
        return next(fitting, {})

    def _current(self) -> list[dict[str, Any]]:
        changed_ns = os.stat(self._path).st_mtime_ns
        if changed_ns != self._read_at:
            self._rules = json.loads(Path(self._path).read_text())
            self._read_at = changed_ns  # last: another thread that sees it uses the rules
        return self._rules


def main() -> None:
    rules, data_path, _, *flags = sys.argv[1:]
    sys.argv[1:] = flags
    from nsq_apps.nsqd import main as nsqd

    with watched(Path(data_path), Rules(rules).instead):
        nsqd()


if __name__ == "__main__":
    main()
