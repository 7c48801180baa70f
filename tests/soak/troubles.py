"""What happens to the processes, one thing after the other: kills, restarts, hangs, bad disks, clocks that step.

The first nsqd and the first nsqlookupd are never ended, so that what they use can be watched.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Sequence

from tests.soak.cluster import Cluster, SoakNsqd
from tests.soak.workers import Workers
from tests.support.disk_calls import SYNCS, WRITES
from tests.support.nsqd_process import ServerProcess

PAUSE_S = (2.0, 8.0)
AWAY_S = (0.0, 4.0)
LASTS_S = (2.0, 6.0)
SLOW_S = (0.02, 0.3)
CLOCK_STEPS_S = (-3600, -5, 5, 3600)


class Troubles:
    """Makes trouble, step by step, and undoes it before the next one."""

    def __init__(self, cluster: Cluster, workers: Workers) -> None:
        self._cluster = cluster
        self._workers = workers
        self._kinds: list[Callable[[], None]] = [
            self._kill_nsqd,
            self._stop_nsqd,
            self._hang_nsqd,
            self._kill_lookupd,
            self._slow_disk,
            self._full_disk,
            self._failing_sync,
            self._step_clock,
        ]

    def start(self) -> None:
        self._workers.repeat(self._make_one)

    def _make_one(self) -> None:
        kind = random.choice(self._kinds)
        kind()
        self._workers.count(kind.__name__.strip("_").replace("_", " "))
        self._rest(PAUSE_S)

    def _rest(self, range_s: tuple[float, float]) -> None:
        self._workers.over.wait(random.uniform(*range_s))

    def _nsqd(self) -> SoakNsqd:
        return random.choice(self._cluster.nsqds)

    def _mortal_nsqd(self) -> SoakNsqd:
        return random.choice(self._cluster.nsqds[1:])

    # ---- processes

    def _kill_nsqd(self) -> None:
        nsqd = self._mortal_nsqd()
        nsqd.kill()
        self._come_back(nsqd)

    def _stop_nsqd(self) -> None:
        nsqd = self._mortal_nsqd()
        status = nsqd.stop()
        if status:
            self._workers.errors.append(f"{nsqd.data_path.name} ended with status {status} after SIGTERM")
        self._come_back(nsqd)

    def _kill_lookupd(self) -> None:
        lookupd = random.choice(self._cluster.lookupds[1:])
        lookupd.kill()
        self._come_back(lookupd)

    def _come_back(self, process: ServerProcess) -> None:
        self._rest(AWAY_S)
        process.start()

    def _hang_nsqd(self) -> None:
        nsqd = self._mortal_nsqd()
        nsqd.signal(signal.SIGSTOP)
        self._rest(LASTS_S)
        nsqd.signal(signal.SIGCONT)

    # ---- disks and clocks

    def _slow_disk(self) -> None:
        delay_s = random.uniform(*SLOW_S)
        self._spoil_disk(self._nsqd(), WRITES + SYNCS, delay_s=delay_s)

    def _full_disk(self) -> None:
        self._spoil_disk(self._nsqd(), (*WRITES, "posix_fallocate"), error="ENOSPC")

    def _failing_sync(self) -> None:
        self._spoil_disk(self._nsqd(), SYNCS, error="EIO", share=0.5)

    def _spoil_disk(self, nsqd: SoakNsqd, calls: Sequence[str], **rule: object) -> None:
        """Apply a rule of tests/support/faulty_nsqd.py to some calls of an nsqd for a while."""
        nsqd.set_rules(*({"call": call} | rule for call in calls))
        self._rest(LASTS_S)
        nsqd.set_rules()

    def _step_clock(self) -> None:
        nsqd = self._nsqd()
        nsqd.set_clock(random.choice(CLOCK_STEPS_S))
        self._rest(LASTS_S)
        nsqd.set_clock(0)
