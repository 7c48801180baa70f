"""A large first copy, and a standby that was away.

A primary has a large topic. Its standby copies them while a client publishes lone messages at a fixed
rate, then is stopped, misses many messages, and comes back. After each, the log files of both are equal byte for byte.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.support.background import Background
from tests.support.memory import resident_bytes
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.standby_processes import state_of, wait_until_it_has_all

TOPIC, OTHER, CHANNEL = "large", "other", "c"
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
                client.pub(OTHER, b"x" * 200)
                self.published += 1

    def _sample(self) -> None:
        while not self.is_over.wait(SAMPLE_S):
            for place, process in enumerate(self._processes):
                self.most_mb[place] = max(self.most_mb[place], resident_bytes(process) / 1e6)


@pytest.mark.slow
def test_a_copy_takes_little_memory_and_publishing_goes_on(start, follow, tmp_path):
    primary = start("a", "--accept-standbys")
    primary.create(TOPIC, CHANNEL)
    primary.create(OTHER, CHANNEL)
    for first in range(0, 80_000, 200):
        primary.publish(
            TOPIC, [b"%d " % number + b"x" * 5_000 for number in range(first, first + 200)], batch=200
        )
    standby = follow(primary, wait=False)
    copied = _until_it_follows(primary, standby)
    _check_equal(primary, tmp_path)
    standby.stop()
    primary.publish(TOPIC, [b"%d " % number + b"x" * 200 for number in range(50_000)], batch=2_000)
    standby.start()
    later = _until_it_follows(primary, standby)
    _check_equal(primary, tmp_path)
    assert max(*copied.most_mb, later.most_mb[0]) < 100
    assert later.most_mb[1] < 200  # a start maps one log file of 100 MB after the other
    assert copied.published
    assert later.published


def _until_it_follows(primary: NsqdProcess, standby: NsqdProcess) -> Watched:
    with Watched(primary, standby) as watched:
        wait_until(lambda: state_of(standby) == "following", DEADLINE_S, "the standby to follow")
    return watched


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
