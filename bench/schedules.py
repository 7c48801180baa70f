"""What schedules cost nsqd, and how punctual deferred tasks are.

    python -m bench.schedules cost                     10,000 schedules of 5 minutes, for 5 minutes
    python -m bench.schedules cost --schedules 1000 --period-s 60
    python -m bench.schedules deferred                 20,000 tasks over 6 minutes
    python -m bench.schedules deferred --tasks 100000 --over-s 3600

`cost` runs an app with schedules, and an app without any, each with an nsqd: at the same time, so that a busy machine is
the same for both. It prints the processor time of both nsqds as a part of a core. Starting is not counted: the tokens of
the schedules are on the nsqd before the measurement begins. `deferred` prints by how much tasks were late. Tasks that are
due beyond the longest delay of nsqd, an hour, wait in the topic `bench.later`, as those of any app do.
"""

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Callable
from threading import Lock

from bench.procfs import cpu_s
from bench.server import OURS, Nsqd
from nsqd_py.work import App

_STARTED_S = 15  # until tokens are published
_DRAINED_S = 30  # after the last task is due
_IN_TIME_S = 1.0
_PUBLISHED_AT_ONCE = 1000


def make_app(nsqd: Nsqd) -> App:
    return App("bench", nsqd_tcp_addresses=f"127.0.0.1:{nsqd.tcp_port}")


def cost(count: int, period_s: int) -> None:
    with Nsqd(OURS) as nsqd, Nsqd(OURS) as idle_nsqd:
        app, idle_app = make_app(nsqd), make_app(idle_nsqd)
        called = [0]
        for number in range(count):
            app.every(seconds=period_s)(_counting(f"schedule{number}", called))
        with app.start(), idle_app.start():
            _wait_for_the_start(period_s)
            apps_s = time.process_time()
            before_s = [cpu_s(each.pids[0]) for each in (nsqd, idle_nsqd)]
            called[0] = 0
            time.sleep(period_s)
            used_s = [cpu_s(each.pids[0]) - before_s[i] for i, each in enumerate((nsqd, idle_nsqd))]
            apps_s = time.process_time() - apps_s
        app.close()
        idle_app.close()
    print(f"{count} schedules of {period_s} s, {called[0]} calls in {period_s} s")
    for name, each_s in zip(
        ("with schedules", "without", "difference"), (*used_s, used_s[0] - used_s[1]), strict=True
    ):
        print(f"  nsqd {name:<15} {each_s:6.2f} s CPU, {100 * each_s / period_s:5.2f} % of a core")
    print(f"  apps                 {apps_s:6.2f} s CPU, {100 * apps_s / period_s:5.2f} % of a core")


def _wait_for_the_start(period_s: int) -> None:
    """Wait until all tokens are published, and no occurrence is near."""
    time.sleep(_STARTED_S)
    while not period_s * 0.2 < time.time() % period_s < period_s * 0.9:
        time.sleep(1)


def _counting(name: str, called: list[int]) -> Callable[[], None]:
    def call() -> None:
        called[0] += 1

    call.__qualname__ = call.__name__ = name
    return call


def deferred(count: int, over_s: float) -> None:
    late_s: list[float] = []
    lock = Lock()
    with Nsqd(OURS) as nsqd:
        app = make_app(nsqd)

        @app.handler("tasks", concurrency=8, max_in_flight=200)
        def task(due: str) -> None:
            with lock:
                late_s.append(time.time() - float(due))

        with app.start():
            began_s = time.time() + _STARTED_S
            dues_s = [began_s + random.uniform(0, over_s) for _ in range(count)]
            asyncio.run(_publish(app, dues_s))
            published_s = time.time() - began_s + _STARTED_S
            chained = sum(due_s - began_s + _STARTED_S > app.longest_defer_s for due_s in dues_s)
            print(
                f"published {count} in {published_s:.1f} s, {chained} of them beyond the longest delay of nsqd"
            )
            until_s = max(dues_s) + _DRAINED_S
            while len(late_s) < count and time.time() < until_s:
                time.sleep(1)
            used_s = cpu_s(nsqd.pids[0])
        app.close()
    if len(late_s) < 2:
        sys.exit(f"{len(late_s)} of {count} tasks fired: that is too few for figures")
    late_s.sort()
    percentiles = statistics.quantiles(late_s, n=1000)
    print(f"{len(late_s)} of {count} tasks over {over_s:.0f} s fired; nsqd used {used_s:.1f} s CPU")
    print(
        f"  late by {1000 * percentiles[499]:.1f} ms (median), {1000 * percentiles[989]:.1f} ms (99 %), "
        f"{1000 * percentiles[998]:.1f} ms (99.9 %), {1000 * late_s[-1]:.1f} ms (most); earliest {1000 * late_s[0]:.1f} ms"
    )
    print(f"  {sum(each_s > _IN_TIME_S for each_s in late_s)} were late by more than {_IN_TIME_S:.0f} s")


async def _publish(app: App, dues_s: list[float]) -> int:
    """Publish a task for each time. Return how many wait in `bench.later`, when nsqd has stored all."""
    chained = 0
    for start in range(0, len(dues_s), _PUBLISHED_AT_ONCE):
        publishes = [_publish_one(app, due_s) for due_s in dues_s[start : start + _PUBLISHED_AT_ONCE]]
        chained += sum(await asyncio.gather(*publishes))
    return chained


async def _publish_one(app: App, due_s: float) -> bool:
    """Publish a task. Return True if it is due later than nsqd defers a message."""
    defer_s = max(0.0, due_s - time.time())
    await app.publish_async("tasks", b"%.4f" % due_s, defer_s=defer_s)
    return defer_s > app.longest_defer_s


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    modes = parser.add_subparsers(dest="mode", required=True)
    mode = modes.add_parser("cost")
    mode.add_argument("--schedules", type=int, default=10_000)
    mode.add_argument("--period-s", type=int, default=300)
    mode = modes.add_parser("deferred")
    mode.add_argument("--tasks", type=int, default=20_000)
    mode.add_argument("--over-s", type=float, default=360)
    given = parser.parse_args(words)
    if given.mode == "cost":
        cost(given.schedules, given.period_s)
    else:
        deferred(given.tasks, given.over_s)


if __name__ == "__main__":
    main(sys.argv[1:])
