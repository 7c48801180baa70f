"""Kills of nsq-worker and of its nsqd: `python -m tests.torture.worker_kills --kills 1000`.

An nsqd with a short --msg-timeout, an nsq-worker with several processes that runs `tests.support.killed_work`, and a publisher.
Rounds of kills follow each other at random moments: SIGKILL of nsqd, of the supervisor, of one process, of all, or of nsqd
together with one of these; and signals that stop, once or twice. Each round ends with a calm: when everything that was killed
runs again, all that was accepted before must have had its effect within the time-out of a message plus a second.

lost       accepted messages without their effect at the end
repeated   messages with `Once` that have two effects
stuck      messages that were not handled within the limit after everything ran again
odd ends   supervisors that did not end as the signal says
left over  processes that run after the end, or zombies
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

import click
import psutil

from nsqd_py.client import Consumer, Message
from nsqd_py.protocol.envelope import unwrap
from nsqd_py.testing.embedded import Nsqd
from nsqd_py.work.timed.scheduler import DUE_HEADER, due_topic
from tests.support import killed_work as work
from tests.support.killed_messages import ONCE, Effects, Publisher, Task, effect_of
from tests.support.nsqd_process import REPOSITORY, wait_until
from tests.support.signals import start_children_with_default_signals
from tests.torture.worker_figures import LIMIT_S, MSG_TIMEOUT_S, Figures, report

# The time that handlers of these kinds take themselves.
OWN_S = {"slow": work.SLOW_S, "retried": work.RETRIES * (work.RETRY_S + work.LONGEST_CALL_S)}

KILLS_OF_A_ROUND = (6, 14)
BETWEEN_KILLS_S = (0.05, 0.7)
DOWN_S = (0.0, 0.3)
# In each of these rounds, the calm lasts until a schedule has run.
SCHEDULE_EVERY = 3
LONGEST_UP_S = 60.0
LONGEST_CALM_S = 30.0
LONGEST_STOP_S = 40.0
LONGEST_ORPHAN_S = 12.0
POLL_S = 0.05
AUDIT = "audit"
STOP_TIMEOUT_S = 10
MARK = "KILLS_FOLDER"

_DROPPED = f"identified/{work.NAME} dropped "
_RUNS = re.compile(r" runs as pid (\d+)$", re.MULTILINE)


class Orphan:
    """A process whose supervisor was just killed. A thread watches how long it lives."""

    def __init__(self, process: psutil.Process) -> None:
        self.pid = process.pid
        self._process = process
        self._lived_s = 0.0
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        began_s = time.monotonic()
        with suppress(AssertionError):
            wait_until(lambda: not is_running(self._process), LONGEST_ORPHAN_S)
        self._lived_s = time.monotonic() - began_s

    def wait(self) -> float:
        """Return how long it lived, or a little more than `LONGEST_ORPHAN_S`."""
        self._thread.join()
        return self._lived_s


class Campaign:
    """An nsqd, an nsq-worker and a publisher. `run` kills, and `finish` judges."""

    def __init__(self, folder: Path, processes: int, seed: int, limit_s: float = LIMIT_S) -> None:
        self.figures = Figures()
        self._limit_s = limit_s
        self._folder = folder
        self._random = random.Random(seed)
        self._processes = processes
        (folder / "data").mkdir(parents=True)
        self._log_path = folder / "worker.log"
        self._log = self._log_path.open("ab")
        self._log_offset = 0
        self._running: set[int] = set()  # children whose handlers run, or did
        self._orphans: list[Orphan] = []
        self._calms: list[tuple[float, float]] = []
        self.nsqd = Nsqd(f"--msg-timeout={MSG_TIMEOUT_S:g}s", data_path=folder / "data")
        self.nsqd.wait_until_ready()
        for topic in (due_topic(work.NAME), "doomed.dead"):
            self.nsqd.post(f"/topic/create?topic={topic}")
            self.nsqd.post(f"/channel/create?topic={topic}&channel={AUDIT}")
        self._effects = Effects(folder)
        self._publisher = Publisher(self.nsqd.tcp_address)
        self._worker = self._start_worker()
        self._actions: dict[str, tuple[int, Callable[[], None]]] = {
            "nsqd": (25, self._kill_nsqd),
            "supervisor": (20, lambda: self._kill_worker()),
            "a process": (25, self._kill_child),
            "all processes": (10, self._kill_children),
            "nsqd and supervisor": (10, lambda: self._kill_nsqd(self._end_worker, self._replace_worker)),
            "nsqd and all processes": (10, lambda: self._kill_nsqd(self._kill_children)),
        }
        self._stops: dict[str, Callable[[], None]] = {
            "SIGTERM": lambda: self._stop([signal.SIGTERM], 0),
            "SIGINT": lambda: self._stop([signal.SIGINT], 0),
            "two signals": lambda: self._stop([signal.SIGTERM, signal.SIGTERM], 1),
            "SIGTERM of a process": lambda: self._signal_child(signal.SIGTERM),
        }

    # ---- processes

    def _start_worker(self) -> psutil.Popen:
        command = [sys.executable, "-m", "nsq_apps.nsq_worker", "tests.support.killed_work:app"]
        command += [f"--processes={self._processes}", f"--stop-timeout={STOP_TIMEOUT_S}s"]
        own = {"KILLS_NSQD": self.nsqd.tcp_address, MARK: str(self._folder)}
        return psutil.Popen(
            command,
            cwd=REPOSITORY,
            env=os.environ | own,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def _children(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            found: list[psutil.Process] = self._worker.children()
            return [child for child in found if child.status() != psutil.STATUS_ZOMBIE]
        return []

    def _end_worker(self) -> None:
        children = self._children()
        self._worker.kill()
        self._orphans += [Orphan(child) for child in children]
        self._worker.wait()

    def _replace_worker(self) -> None:
        self._worker = self._start_worker()

    def _pause(self) -> None:
        time.sleep(self._random.uniform(*DOWN_S))

    def _kill_worker(self) -> None:
        self._end_worker()
        self._pause()
        self._replace_worker()

    def _kill_child(self) -> None:
        children = self._children()
        if children:
            kill(self._random.choice(children))

    def _kill_children(self) -> None:
        for child in self._children():
            kill(child)

    def _kill_nsqd(self, *others: Callable[[], None]) -> None:
        """Kill nsqd, then do the first of the others at once, and the next ones when nsqd runs again."""
        self.nsqd.kill()
        for other in others[:1]:
            other()
        self._pause()
        self.nsqd.restart()
        for other in others[1:]:
            other()

    def _stop(self, numbers: list[signal.Signals], expected: int) -> None:
        """Stop the supervisor by signals, and start another one. Before it handles signals, any end is good."""
        is_up = self._is_up()
        for number in numbers:
            self._worker.send_signal(number)
            time.sleep(POLL_S)
        try:
            status = self._worker.wait(LONGEST_STOP_S)
        except psutil.TimeoutExpired:
            self.figures.odd_ends.append(f"{numbers}: no end after {LONGEST_STOP_S:g} s")
            self._end_worker()
            status = expected
        if is_up and status not in {expected, 0}:
            self.figures.odd_ends.append(f"{numbers}: status {status}")
        self._worker = self._start_worker()

    def _signal_child(self, number: signal.Signals) -> None:
        children = [child for child in self._children() if child.pid in self._running]
        if children:
            with suppress(psutil.NoSuchProcess):
                self._random.choice(children).send_signal(number)

    def _is_up(self) -> bool:
        """True if the handlers of all processes run."""
        with self._log_path.open(errors="replace") as file:
            file.seek(self._log_offset)
            text = file.read()
        end = text.rfind("\n") + 1
        self._log_offset += len(text[:end].encode(errors="replace"))
        self._running.update(int(pid) for pid in _RUNS.findall(text[:end]))
        children = {child.pid for child in self._children()}
        return len(children) == self._processes and children <= self._running

    # ---- rounds

    def run(self, kills: int, ends_s: float) -> None:
        """Kill until the count or the time is reached."""
        self._wait_until_up()
        while self.figures.kill_count < kills and time.monotonic() < ends_s:
            self._kill_some(min(self._random.randint(*KILLS_OF_A_ROUND), kills - self.figures.kill_count))
            self.figures.rounds += 1
            self._wait_for_calm()

    def _kill_some(self, count: int) -> None:
        names = list(self._actions)
        weights = [weight for weight, _ in self._actions.values()]
        for _ in range(count):
            time.sleep(self._random.uniform(*BETWEEN_KILLS_S))
            [name] = self._random.choices(names, weights)
            self.figures.kills[name] += 1
            self._actions[name][1]()
        if self._random.random() < 0.5:
            time.sleep(self._random.uniform(*BETWEEN_KILLS_S))
            name = self._random.choice(list(self._stops))
            self.figures.signals[name] += 1
            self._stops[name]()

    def _wait_until_up(self) -> None:
        began_s = time.monotonic()
        wait_until(self._is_up, LONGEST_UP_S, "all processes of the worker")
        self.figures.ups_s.append(time.monotonic() - began_s)

    def _wait_for_calm(self) -> None:
        """Wait until everything runs, and until what could be delivered then has had its effect."""
        self._wait_until_up()
        began_s = time.time()
        open_tasks = {
            effect_of(task) for task, due_s in self._publisher.due_s.copy().items() if due_s <= began_s
        }

        def is_settled() -> bool:
            self._effects.read()
            open_tasks.difference_update([task for task in open_tasks if task in self._effects.first_s])
            return not any(kind != "doomed" for kind, _ in open_tasks)

        with suppress(AssertionError):  # counted at the end
            wait_until(is_settled, LONGEST_CALM_S)
        if self.figures.rounds % SCHEDULE_EVERY == 0:
            self._wait_for_tick(began_s)
        self._check_orphans()
        self._calms.append((began_s, time.time()))

    def _wait_for_tick(self, began_s: float) -> None:
        """Wait for the next occurrence of the schedule: the scheduler first listens for some seconds."""

        def has_run() -> bool:
            self._effects.read()
            return any(at_s > began_s for at_s in self._effects.jobs_s.values())

        try:
            wait_until(has_run, LONGEST_CALM_S)
        except AssertionError:
            self.figures.stuck["schedule"] += 1
        self.figures.ticks_s.append(time.time() - began_s)

    def _check_orphans(self) -> None:
        """Wait for the processes whose supervisor was killed, which end by themselves."""
        for orphan in self._orphans:
            lived_s = orphan.wait()
            self.figures.orphans_s.append(lived_s)
            if lived_s > LONGEST_ORPHAN_S:
                self.figures.left_over.append(f"pid {orphan.pid}, whose supervisor was killed")
        self._orphans.clear()
        for child in self._worker.children(recursive=True):
            if is_zombie(child):
                with suppress(AssertionError):
                    wait_until(lambda: not is_zombie(child), LIMIT_S)  # noqa: B023 - called here
                if is_zombie(child):
                    self.figures.left_over.append(f"pid {child.pid}, a zombie")

    # ---- the end

    def finish(self) -> Figures:
        """Let everything be handled, stop the worker, and judge."""
        self._publisher.close()
        due_s = self._publisher.due_s
        others = {effect_of(task) for task in due_s if task[0] != "doomed"}

        def is_done() -> bool:
            self._effects.read()
            return others <= self._effects.first_s.keys() and self._is_all_handled()

        with suppress(AssertionError):
            wait_until(is_done, LONGEST_CALM_S)
        self._worker.send_signal(signal.SIGTERM)
        if (status := self._worker.wait(LONGEST_STOP_S)) != 0:
            self.figures.odd_ends.append(f"the last SIGTERM: status {status}")
        self._effects.read()
        self._count_left_over()
        self.figures.dropped = self._log_path.read_text(errors="replace").count(_DROPPED)
        self._judge_tasks(due_s)
        self._judge_dead()
        self._judge_jobs()
        return self.figures

    def _is_all_handled(self) -> bool:
        """True if no message waits in the channels of the handlers."""
        for topic in self.nsqd.stats()["topics"]:
            if topic["topic_name"].endswith((".due", ".dead", ".schedules")):
                continue
            for channel in topic["channels"]:
                if channel["depth"] or channel["in_flight_count"] or channel["deferred_count"]:
                    return False
        return True

    def _count_left_over(self) -> None:
        def left() -> list[psutil.Process]:
            return list(processes_of(self._folder))

        with suppress(AssertionError):
            wait_until(lambda: not left(), LONGEST_ORPHAN_S)
        self.figures.left_over += [f"pid {each.pid}" for each in left()]

    def _judge_tasks(self, due_s: dict[Task, float]) -> None:
        figures = self.figures
        effects = self._effects
        figures.accepted = len(due_s)
        for task, at_s in due_s.items():
            kind, _ = task
            if kind == "doomed":
                continue
            effect_s = effects.first_s.get(effect_of(task))
            if effect_s is None:
                figures.lost[kind] += 1
                effect_s = time.time()
            else:
                figures.longest_s = max(figures.longest_s, effect_s - at_s)
            wait_s = max((self._waited_s(calm, at_s, effect_s) for calm in self._calms), default=0.0)
            wait_s = max(0.0, wait_s - OWN_S.get(kind, 0.0))
            if wait_s:
                figures.waits_s.append(wait_s)
            if wait_s > self._limit_s:
                figures.stuck[kind] += 1
        for (kind, _), count in effects.once.items():
            if count > 1:
                figures.repeated[kind] += 1
        figures.again = sum(count - 1 for (kind, _), count in effects.counts.items() if kind not in ONCE)

    def _waited_s(self, calm: tuple[float, float], due_s: float, effect_s: float) -> float:
        """Return how long a message waited in a calm."""
        began_s, ended_s = calm
        return min(ended_s, effect_s) - max(began_s, due_s)

    def _judge_dead(self) -> None:
        """Compare the dead letters with those that were meant."""
        numbers = set()
        for body in self._audited("doomed.dead"):
            original, _ = unwrap(body)
            numbers.add(int(re.findall(rb"\d+", original)[0]))
        meant = {number for kind, number in self._publisher.tried if kind == "doomed"}
        accepted = {number for kind, number in self._publisher.due_s if kind == "doomed"}
        self.figures.dead = len(numbers)
        self.figures.odd_dead = len(numbers - meant)
        lost = len(accepted - numbers)
        if lost:
            self.figures.lost["doomed"] = lost
        for topic in self.nsqd.stats()["topics"]:
            name = topic["topic_name"]
            if name.endswith(".dead") and name != "doomed.dead":
                self.figures.odd_dead += topic["message_count"] or topic["depth"] or 1

    def _judge_jobs(self) -> None:
        published = {unwrap(body)[1][DUE_HEADER] for body in self._audited(due_topic(work.NAME))}
        self.figures.jobs = len(published)
        waiting = self.nsqd.depth(due_topic(work.NAME), work.NAME)
        lost = published - self._effects.jobs_s.keys()
        # Jobs that were published during the last stop wait for the next worker.
        self.figures.lost_jobs = max(0, len(lost) - waiting)

    def _audited(self, topic: str) -> list[bytes]:
        """Return the bodies that were published to a topic."""
        bodies: list[bytes] = []

        def take(message: Message) -> None:
            bodies.append(message.body)

        with Consumer(topic, AUDIT, take, nsqd_tcp_addresses=self.nsqd.tcp_address, max_in_flight=500):
            wait_until(lambda: self._is_empty(topic), what=f"all messages of {topic}")
        return bodies

    def _is_empty(self, topic: str) -> bool:
        [found] = self.nsqd.stats(topic, AUDIT)["topics"]
        [channel] = found["channels"]
        return not (channel["depth"] or channel["in_flight_count"] or channel["deferred_count"])

    def close(self) -> None:
        self._publisher.close()
        for process in processes_of(self._folder):
            kill(process)
        self._effects.close()
        self.nsqd.close()
        self._log.close()


def kill(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.kill()


def is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_zombie(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def processes_of(folder: Path) -> Iterator[psutil.Process]:
    """Yield the processes that were started for a campaign, or by others of it, and still run."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(MARK) == str(folder):
                yield process


@click.command()
@click.option("--kills", default=50, show_default=True, help="Number of kills.")
@click.option(
    "--minutes", default=60.0, show_default=True, help="End of the kills, even if there were fewer."
)
@click.option("--processes", default=3, show_default=True, help="Processes of nsq-worker.")
@click.option("--seed", default=1, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="Where logs and effects stay.")
def main(kills: int, minutes: float, processes: int, seed: int, folder: Path | None) -> None:
    """Kill nsq-worker and its nsqd, and print what was lost, repeated or stuck."""
    start_children_with_default_signals()
    place = (folder or Path(tempfile.mkdtemp(prefix="worker-kills-"))).resolve()
    campaign = Campaign(place, processes, seed)
    ends_s = time.monotonic() + minutes * 60
    stopped = threading.Event()

    def show_progress() -> None:
        while not stopped.wait(30):
            found = campaign.figures
            print(f"{datetime.now(UTC):%H:%M:%S} {found.kill_count} kills", file=sys.stderr, flush=True)

    threading.Thread(target=show_progress, daemon=True).start()
    with closing(campaign):
        campaign.run(kills, ends_s)
        figures = campaign.finish()
    stopped.set()
    print(report(figures))
    if figures.problems():
        print(f"{figures.problems()}\nthe files are in {place}", file=sys.stderr)
        sys.exit(1)
    if folder is None:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
