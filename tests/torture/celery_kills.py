"""Kills of a broker under a Celery worker: `python -m tests.torture.celery_kills --kills 1000`.

Each bed has a broker, one worker with two processes, and a publisher. The broker is killed by SIGKILL at a random moment,
starts again, and the load goes on until the worker has run tasks again. At the end all that the broker accepted must have run.
nsqd-py, and Redis as Debian configures it (with appendonly off and on), run side by side.

lost   accepted tasks that have not run when the worker has run nothing for `--drain` seconds after the last kill. On Redis these
       are tasks that are gone, and tasks that a worker had and that wait for the visibility time-out of an hour
twice  tasks that ran more than once
ended  times that a worker ended by itself; it is then started again, as a supervisor would
stuck  times that a worker ran nothing for `--stuck` seconds although tasks were accepted; it is then killed and started again
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import click
import psutil

from nsqd_py.testing.embedded import Nsqd
from tests.support.network import free_ports

KINDS = ("early", "late", "eta")
BETWEEN_KILLS_S = (0.2, 0.7)
DOWN_S = (0.0, 0.3)
PAUSE_S = 0.01  # between two tasks of the publisher
QUICK_TASKS = 2000
QUICK_ETAS = 100
APP = "tests.support.celery_app"
REDIS_CONFIG = "/etc/redis/redis.conf"
DEADLINE_S = 60.0


class NsqdBroker:
    """An nsqd with its default settings."""

    def __init__(self, folder: Path) -> None:
        self._nsqd = Nsqd(data_path=folder)
        self._nsqd.wait_until_ready()
        self.url = f"nsq://{self._nsqd.tcp_address}"

    def kill(self) -> None:
        self._nsqd.kill()

    def start(self) -> None:
        self._nsqd.restart()

    def close(self) -> None:
        self._nsqd.close()


class RedisBroker:
    """Debian's redis-server with Debian's configuration, apart from its port and folder."""

    def __init__(self, folder: Path, *flags: str) -> None:
        (self._port,) = free_ports(1)
        self._flags = (*flags, "--dir", str(folder), "--port", str(self._port))
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self.start()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def start(self) -> None:
        command = ["redis-server", REDIS_CONFIG, *self._flags]
        command += ["--daemonize", "no", "--logfile", "", "--pidfile", "", "--supervised", "no"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for("redis-server answers", self._answers)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), 1) as sock:
                sock.sendall(b"PING\r\n")
                return sock.recv(100).startswith(b"+PONG")
        except OSError:
            return False

    def close(self) -> None:
        self.kill()


BROKERS: dict[str, Callable[[Path], NsqdBroker | RedisBroker]] = {
    "nsqd-py": NsqdBroker,
    "Redis": RedisBroker,
    "Redis, appendonly": lambda folder: RedisBroker(folder, "--appendonly", "yes"),
}


def wait_for(what: str, is_true: Callable[[], object], limit_s: float = DEADLINE_S) -> None:
    """Raises TimeoutError."""
    deadline_s = time.monotonic() + limit_s
    while not is_true():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not true within {limit_s:g} s: {what}")
        time.sleep(0.02)


@dataclass
class Figures:
    """What a bed has shown. `late_s` are the times from the ETA of a task to its effect, without kills."""

    kills: int = 0
    accepted: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    twice: Counter[str] = field(default_factory=Counter)
    ended: int = 0
    stuck: int = 0
    back_s: list[float] = field(default_factory=list)
    tasks_a_second: float = 0.0
    cpu_us: float = 0.0
    late_s: list[float] = field(default_factory=list)


class Bed:
    """A broker, a worker and a publisher. `run` kills the broker; `measure` does not."""

    def __init__(self, name: str, folder: Path, stuck_s: float, seed: int) -> None:
        self.name = name
        self.figures = Figures()
        self._folder = folder
        self._stuck_s = stuck_s
        self._random = random.Random(f"{seed} {name}")
        data = folder / "data"
        data.mkdir(parents=True)
        self._effects = folder / "effects"
        self._accepted = folder / "accepted"
        self._effects.touch()
        self._accepted.touch()
        self._log = (folder / "worker.log").open("ab")
        self.broker = BROKERS[name](data)
        self._worker = self._start_worker()

    # ---- processes

    def _environment(self) -> dict[str, str]:
        own = {"CELERY_BROKER": self.broker.url, "CELERY_EFFECTS": str(self._effects)}
        return os.environ | own

    def _start_worker(self) -> psutil.Popen:
        command = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            APP,
            "worker",
            "--concurrency=2",
            "--loglevel=WARNING",
        ]
        return psutil.Popen(
            command, env=self._environment(), stdout=self._log, stderr=self._log, start_new_session=True
        )

    def _kill_worker(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._worker.pid, signal.SIGKILL)
        self._worker.wait()

    def _effect_count(self) -> int:
        return self._effects.read_bytes().count(b"\n")

    def close(self) -> None:
        self._kill_worker()
        self.broker.close()
        self._log.close()

    # ---- without kills

    def measure(self) -> None:
        """Count tasks a second, CPU time a task of the worker, and the delay of tasks behind their ETA."""
        self._publish_here("early", QUICK_ETAS)
        self._wait_for_effects(QUICK_ETAS)  # the worker has started
        self._kill_worker()
        self._publish_here("early", QUICK_TASKS)
        self._worker = self._start_worker()
        self._wait_for_effects(QUICK_ETAS + 1)
        began_cpu_s = self._cpu_s()
        began_count = self._effect_count()
        self._wait_for_effects(QUICK_ETAS + QUICK_TASKS)
        self.figures.cpu_us = (self._cpu_s() - began_cpu_s) / (QUICK_ETAS + QUICK_TASKS - began_count) * 1e6
        times_s = [float(line.split()[-1]) for line in self._effects.read_text().splitlines()[QUICK_ETAS:]]
        self.figures.tasks_a_second = len(times_s) / (times_s[-1] - times_s[0])
        etas_s = self._publish_here("eta", QUICK_ETAS)
        self._wait_for_effects(2 * QUICK_ETAS + QUICK_TASKS)
        for line in self._effects.read_text().splitlines():
            kind, number, _, effect_s = line.split()
            if kind == "eta":
                self.figures.late_s.append(float(effect_s) - etas_s[int(number)])
        self._effects.write_text("")

    def _publish_here(self, kind: str, count: int) -> list[float]:
        """Publish tasks from a process of its own. Return their ETAs."""
        code = (
            f"import sys, time, json; from {APP} import app\n"
            f"task = app.tasks['{APP}.{kind}']; etas = []\n"
            f"for number in range({count}):\n"
            f"    countdown = 0.5 + number * 0.02 if {kind == 'eta'} else None\n"
            "    etas.append(time.time() + (countdown or 0))\n"
            "    task.apply_async((number,), countdown=countdown)\n"
            "print(json.dumps(etas))\n"
        )
        command = [sys.executable, "-c", code]
        answer = subprocess.run(command, env=self._environment(), capture_output=True, check=True)
        return [float(eta_s) for eta_s in json.loads(answer.stdout)]

    def _wait_for_effects(self, count: int) -> None:
        wait_for(f"{self.name}: {count} effects", lambda: self._effect_count() >= count)

    def _cpu_s(self) -> float:
        processes = [self._worker, *self._worker.children(recursive=True)]
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    # ---- with kills

    def run(self, kills: int, ends_s: float, drain_s: float) -> None:
        """Kill the broker until the count or the time is reached, and judge what ran."""
        code = f"from {APP} import publish; publish({str(self._accepted)!r}, {PAUSE_S})"
        command = [sys.executable, "-c", code]
        publisher = subprocess.Popen(command, env=self._environment(), stdin=subprocess.PIPE)
        assert publisher.stdin is not None
        self._wait_for_progress()
        while self.figures.kills < kills and time.monotonic() < ends_s:
            time.sleep(self._random.uniform(*BETWEEN_KILLS_S))
            self.broker.kill()
            self.figures.kills += 1
            time.sleep(self._random.uniform(*DOWN_S))
            self.broker.start()
            began_s = time.monotonic()
            self._wait_for_progress()
            self.figures.back_s.append(time.monotonic() - began_s)
        publisher.stdin.close()
        assert publisher.wait() == 0, f"the publisher of {self.name} failed"
        self._judge(drain_s)

    def _wait_for_progress(self) -> None:
        """Wait until the worker runs a task; replace it if it does not."""
        before = self._effect_count()

        def has_moved() -> bool:
            if self._worker.poll() is not None:
                self.figures.ended += 1
                self._worker = self._start_worker()
            return self._effect_count() > before

        try:
            wait_for("an effect", has_moved, self._stuck_s)
        except TimeoutError:
            self.figures.stuck += 1
            self._kill_worker()
            self._worker = self._start_worker()
            with suppress(TimeoutError):
                wait_for("an effect", has_moved, DEADLINE_S)

    def _judge(self, drain_s: float) -> None:
        accepted = {tuple(line.split()[:2]) for line in self._accepted.read_text().splitlines()}
        self.figures.accepted = len(accepted)
        moved_s = time.monotonic()
        ran = self._ran()
        while not accepted <= ran.keys() and time.monotonic() < moved_s + drain_s:
            time.sleep(1.0)
            before, ran = ran, self._ran()
            if len(ran) > len(before):
                moved_s = time.monotonic()
        self.figures.lost = Counter(kind for kind, _ in accepted - ran.keys())
        self.figures.twice = Counter(kind for (kind, _), count in ran.items() if count > 1)
        (self._folder / "lost").write_text("\n".join(map(" ".join, sorted(accepted - ran.keys()))))

    def _ran(self) -> Counter[tuple[str, ...]]:
        return Counter(tuple(line.split()[:2]) for line in self._effects.read_text().splitlines())


def row(name: str, figures: Figures) -> str:
    def by_kind(counts: Counter[str]) -> str:
        kinds = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind])
        return f"{counts.total()} ({kinds})" if kinds else "0"

    late_ms = [late_s * 1000 for late_s in figures.late_s] or [0.0]
    back_s = figures.back_s or [0.0]
    cells = [
        name,
        figures.kills,
        figures.accepted,
        by_kind(figures.lost),
        by_kind(figures.twice),
        figures.ended,
        figures.stuck,
        f"{statistics.median(back_s):.1f} / {max(back_s):.1f} s",
        f"{figures.tasks_a_second:.0f}",
        f"{figures.cpu_us:.0f} µs",
        f"{statistics.median(late_ms):.0f} / {max(late_ms):.0f} ms",
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


COLUMNS = (
    "broker",
    "kills",
    "accepted tasks",
    "lost",
    "ran twice",
    "worker ended",
    "worker stuck",
    "back after a kill, median / longest",
    "tasks a second",
    "CPU a task",
    "behind its ETA, median / longest",
)


@click.command()
@click.option("--kills", default=50, show_default=True, help="Kills of each broker.")
@click.option(
    "--minutes", default=60.0, show_default=True, help="End of the kills, even if there were fewer."
)
@click.option(
    "--brokers", default=";".join(BROKERS), show_default=True, help="Which ones, separated by semicolons."
)
@click.option(
    "--stuck",
    default=30.0,
    show_default=True,
    help="Seconds without an effect after which a worker is stuck.",
)
@click.option(
    "--drain",
    default=60.0,
    show_default=True,
    help="Seconds without an effect, after the last kill, until a task counts as lost.",
)
@click.option("--seed", default=1, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="Where logs and effects stay.")
@click.option("--measure/--no-measure", default=True, help="Measure speed before the kills.")
def main(
    kills: int,
    minutes: float,
    brokers: str,
    stuck: float,
    drain: float,
    seed: int,
    folder: Path | None,
    measure: bool,
) -> None:
    """Kill brokers under Celery workers, and print a table of what was lost, ran twice, or stood still."""
    place = folder or Path(tempfile.mkdtemp(prefix="celery-kills-"))
    beds = [Bed(name, place / str(number), stuck, seed) for number, name in enumerate(brokers.split(";"))]
    try:
        if measure:
            for bed in beds:  # one after the other: they would disturb each other
                bed.measure()
        ends_s = time.monotonic() + minutes * 60
        threads = [threading.Thread(target=bed.run, args=(kills, ends_s, drain)) for bed in beds]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(10)
            progress = ", ".join(f"{bed.name} {bed.figures.kills}/{bed.figures.stuck}" for bed in beds)
            print(f"kills/stuck: {progress}", file=sys.stderr, flush=True)
    finally:
        for bed in beds:
            bed.close()
    print("| " + " | ".join(COLUMNS) + " |")
    print("|---" * len(COLUMNS) + "|")
    for bed in beds:
        print(row(bed.name, bed.figures))
    ours = [bed.figures for bed in beds if isinstance(bed.broker, NsqdBroker)]
    if any(each.lost or each.twice["eta"] or each.stuck for each in ours):
        print(f"the files are in {place}", file=sys.stderr)
        sys.exit(1)
    if folder is None:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
