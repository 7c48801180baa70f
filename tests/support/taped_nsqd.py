"""nsqd whose power can be cut: `python -m tests.support.taped_nsqd RULES TAPE DATA_PATH -- flags of nsqd`.

TAPE is a file that gets everything that is done to the disk. After a kill, the data path is put into a state in which a
power cut could have left it: see tests/support/power_cut.py. RULES are those of tests/support/faulty_nsqd.py.
"""

from __future__ import annotations

import itertools
import os
import pickle
import random
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.disk_calls import SYNCS, watched
from tests.support.faulty_nsqd import FaultyNsqd, Rules
from tests.support.network import LOOPBACK, Host
from tests.support.power_cut import Op, Platter, Tape

BALLAST = "ballast"


class TapedNsqd(FaultyNsqd):
    """An nsqd on a host, whose disk obeys `rules` and is on tape."""

    def __init__(
        self, data_path: Path, *flags: str, host: Host = LOOPBACK, ports: tuple[int, int] = (0, 0)
    ) -> None:
        self._tape_path = data_path.with_suffix(".tape")
        super().__init__(data_path, *flags, host=host, ports=ports)

    def _program(self) -> list[str]:
        return ["tests.support.taped_nsqd", str(self._rules), str(self._tape_path)]

    def fill_disk(self) -> None:
        """Leave no free space; the disk must be a small one."""
        with (self.data_path / BALLAST).open("wb", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue

    def free_disk(self) -> None:
        (self.data_path / BALLAST).unlink(missing_ok=True)

    def wipe_disk(self) -> None:
        """Remove all files, as with a new disk. It must not run."""
        for path in self.data_path.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def cut_power(self, chance: random.Random) -> None:
        """Kill it, and leave on its disk what was synced, with a random part of what came after that."""
        self.kill()
        platter = Platter(chance)
        with self._tape_path.open("rb") as tape:
            while True:
                try:
                    platter.do(pickle.load(tape))
                except (EOFError, pickle.UnpicklingError):  # the kill may have torn the last one
                    break
        state = chance.choice(list(platter.states(count=1)))
        for path in self.data_path.iterdir():
            if path.is_file() and path.name != BALLAST:
                path.unlink()
        for name, content in state.items():
            Path(name).parent.mkdir(exist_ok=True)  # the tape has no directories
            Path(name).write_bytes(content)


class _OpsFile:
    """The operations of a tape, in a file."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._write = os.write  # the real one: the file is not on the disk that is watched

    def append(self, op: Op) -> None:
        self._write(self._fd, pickle.dumps(op))


class _FileTape(Tape):
    """A tape in a file, for a process with threads.

    A sync brings only what was written before it began to the disk. What an earlier life of nsqd has written counts as
    synced.
    """

    def __init__(self, root: Path, path: Path) -> None:
        super().__init__(root)
        self.ops = ops = _OpsFile(path)  # type: ignore[assignment]
        self._lock = threading.RLock()  # noting a call may make others
        self._numbers = itertools.count()
        for number, file in enumerate(sorted(root.iterdir())):
            if file.is_file() and file.name != BALLAST:
                self._names[str(file)] = self._next_file = number + 1
                ops.append(("create", str(file), number + 1))
                ops.append(("write", number + 1, 0, file.read_bytes()))
                ops.append(("sync", number + 1))
        ops.append(("sync names",))

    def call(self, name: str, path: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if name in SYNCS:
            return self._sync(path, real, arguments)
        with self._lock:
            return self._instead(name, path, real, arguments)

    def _sync(self, path: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        with self._lock:
            file = self._files.get(arguments[0])
            number = next(self._numbers)
            if file is not None:
                self.ops.append(("sync began", number, file))
        result = real(*arguments)
        with self._lock:
            if file is not None:
                self.ops.append(("sync ended", number))
            elif path == str(self.root):
                self.ops.append(("sync names",))
        return result


def main() -> None:
    rules_path, tape_path, data_path, _, *flags = sys.argv[1:]
    sys.argv[1:] = flags
    tape = _FileTape(Path(data_path), Path(tape_path))
    rules = Rules(rules_path)
    from nsq_apps.nsqd import main as nsqd

    def instead(name: str, path: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if Path(path).name == BALLAST:
            return real(*arguments)
        return rules.instead(name, path, lambda *given: tape.call(name, path, real, given), arguments)

    with watched(Path(data_path), instead):
        nsqd()


if __name__ == "__main__":
    main()
