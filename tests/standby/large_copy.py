"""A large first copy, and a standby that was away.

A primary has a large topic. Its standby copies them while a client publishes lone messages at a fixed
rate, then is stopped, misses many messages, and comes back. After each, the log files of both are equal byte for byte.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.support.background import Background
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.standby_processes import figures_of, standby_of, wait_until_it_has_all

TOPIC, OTHER, CHANNEL = "large", "other", "c"
BODY_BYTES, BATCH = 5_000, 200
SMALL_BYTES, SMALL_BATCH = 200, 2_000
PAUSE_S = 0.005  # between two lone publishes
SAMPLE_S = 0.1
DEADLINE_S = 1800.0
_PIECE = 1 << 20


class Watched(Background):
    """Publishes lone messages and samples the memory of both processes.

    most_mb  the most that was seen of the primary and of the standby
    """

    def __init__(self, primary: NsqdProcess, standby: NsqdProcess) -> None:
        super().__init__(self._publish, self._sample)
        self.published = 0
        self.most_mb = [0.0, 0.0]
        self._processes = primary, standby

    def _publish(self) -> None:
        with self._processes[0].connect() as client:
            while not self.is_over.wait(PAUSE_S):
                client.pub(OTHER, b"x" * SMALL_BYTES)
                self.published += 1

    def _sample(self) -> None:
        while not self.is_over.wait(SAMPLE_S):
            for place, process in enumerate(self._processes):
                self.most_mb[place] = max(self.most_mb[place], _resident_mb(process.pid))


def run(directory: Path, size_bytes: int, missed: int) -> list[Watched]:
    """Raises AssertionError if the copies differ."""
    primary = NsqdProcess(directory / "a", "--accept-standbys").start()
    standby = None
    try:
        primary.create(TOPIC, CHANNEL)
        primary.create(OTHER, CHANNEL)
        _publish(primary, size_bytes // BODY_BYTES, BODY_BYTES, BATCH)
        standby = standby_of(primary, directory / "b", wait=False)
        first = _until_it_follows(primary, standby)
        _check_equal(primary, directory)
        standby.stop()
        _publish(primary, missed, SMALL_BYTES, SMALL_BATCH)
        standby.start()
        return [first, _until_it_follows(primary, standby, directory)]
    finally:
        for process in (primary, standby):
            if process is not None:
                process.destroy()


def _until_it_follows(primary: NsqdProcess, standby: NsqdProcess, compared_in: Path | None = None) -> Watched:
    with Watched(primary, standby) as watched:
        wait_until(lambda: figures_of(standby)["state"] == "following", DEADLINE_S, "the standby to follow")
    if compared_in is not None:
        _check_equal(primary, compared_in)
    return watched


def _publish(nsqd: NsqdProcess, count: int, size_bytes: int, batch: int) -> None:
    with nsqd.connect() as client:
        for start in range(0, count, batch):
            numbers = range(start, min(start + batch, count))
            client.mpub(TOPIC, [b"%d " % number + b"x" * size_bytes for number in numbers])


def _check_equal(primary: NsqdProcess, directory: Path) -> None:
    """Compare the log files, which nobody writes any more. The primary's have allocated space at their ends."""
    wait_until_it_has_all(primary)
    names = sorted(path.name for path in (directory / "a").glob("*.log"))
    assert names
    for name in names:
        ours, copy = directory / "a" / name, directory / "b" / name
        size = copy.stat().st_size
        assert _digest(ours, size) == _digest(copy, size), name
        with ours.open("rb") as file:
            file.seek(size)
            assert not any(file.read(_PIECE)), name


def _digest(path: Path, size: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(min(_PIECE, size - file.tell())):
            digest.update(piece)
    return digest.hexdigest()


def _resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024
