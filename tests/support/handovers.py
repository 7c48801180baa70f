"""Drives the disk threads at a hostile schedule, and compares what happens with a model.

    python -m tests.support.handovers --count 10000000

Each call is in a model of three sets: begun, run, and answered. At the end, each call that `begin` took has run exactly once
and was answered exactly once, with its own result or error; each thread is idle; and the loop has nothing to wait for.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import gevent

from nsqd_py.runtime.threads import DiskThreads, Job

HOSTILE_INTERVAL_S = 1e-6
_MOST_WAITING = 64
_MOST_AT_ONCE = 6
_DEADLINE_S = 40.0


class Planned(Exception):
    """The error of a call that was told to fail."""


class Findings(NamedTuple):
    """What went wrong; `threads` is the number of threads that were started."""

    problems: list[str]
    count: int
    threads: int


@dataclass
class _Model:
    """What is known of the calls; threads touch only `ran`, and each call only its own item."""

    ran: bytearray
    answered: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def work(self, number: int) -> int:
        """Run in a thread. It ends at once, or gives other threads the chance to run in the middle of a hand-over."""
        for _ in range(number % 4):
            os.getppid()
        self.ran[number] += 1
        if number % 13 == 0:
            raise Planned(number)
        return number

    def answer(self, number: int, job: Job) -> None:
        self.answered[number] += 1
        try:
            result = job.end()
        except Planned as error:
            result = error.args[0]
        if result != number:
            self.wrong.append(f"call {number} was answered with {result}")


def drive(count: int, threads: int, seed: int) -> Findings:
    """Begin `count` calls from the event loop and return the findings. The switch interval is that of the process."""
    chance = random.Random(seed)
    pool = DiskThreads(threads)
    pool.serve()
    model = _Model(bytearray(count))
    refused: list[str] = []
    begun = 0
    while begun < count:
        for _ in range(min(chance.randint(1, _MOST_AT_ONCE), count - begun)):
            number, begun = begun, begun + 1
            try:
                pool.begin(model.work, (number,), lambda job, number=number: model.answer(number, job))
            except Exception as error:  # noqa: BLE001 - each is a finding
                refused.append(f"begin refused call {number}: {error!r}")
        if chance.random() < 0.2:
            gevent.sleep(0)
        if begun - len(model.answered) > _MOST_WAITING and not _wait_for_answers(
            model, begun - _MOST_WAITING
        ):
            break
    problems = refused + model.wrong + _wait_for_all(pool, model, begun)
    problems += [
        f"call {number} ran {times} times" for number, times in enumerate(model.ran[:begun]) if times != 1
    ]
    problems += [
        f"call {number} was answered {times} times" for number, times in model.answered.items() if times != 1
    ]
    found = Findings(problems, begun, pool.thread_count)
    pool.stop()
    return found


def _wait_for_answers(model: _Model, count: int) -> bool:
    """Wait until so many calls are answered; return False if there is none for a long time."""
    answered, deadline_s = len(model.answered), time.monotonic() + _DEADLINE_S
    while len(model.answered) < count:
        if len(model.answered) > answered:
            answered, deadline_s = len(model.answered), time.monotonic() + _DEADLINE_S
        elif time.monotonic() > deadline_s:
            return False
        gevent.sleep(0)
    return True


def _wait_for_all(pool: DiskThreads, model: _Model, begun: int) -> list[str]:
    """Wait until each call is answered and each thread is idle; return what is missing."""
    _wait_for_answers(model, begun)
    deadline_s = time.monotonic() + _DEADLINE_S
    while len(model.answered) < begun or pool.idle_count < pool.thread_count:
        if time.monotonic() > deadline_s:
            silent = begun - len(model.answered)
            busy = pool.thread_count - pool.idle_count
            return [
                f"{silent} calls were never answered",
                f"{busy} of {pool.thread_count} threads never became idle",
            ]
        gevent.sleep(0.001)
    return []


def main() -> int:
    parser = argparse.ArgumentParser(description="Drive the disk threads at a hostile schedule.")
    parser.add_argument("--count", type=int, default=10_000_000)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    chosen = parser.parse_args()
    sys.setswitchinterval(HOSTILE_INTERVAL_S)
    began_s = time.monotonic()
    found = drive(chosen.count, chosen.threads, chosen.seed)
    took_s = time.monotonic() - began_s
    print(
        f"{found.count} hand-overs to {found.threads} threads in {took_s:.0f} s, seed {chosen.seed}: {len(found.problems)} wrong"
    )
    for problem in found.problems[:20]:
        print(f"    {problem}")
    return 1 if found.problems else 0


if __name__ == "__main__":
    sys.exit(main())
