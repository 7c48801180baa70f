"""The messages of `tests.support.killed_work`: a thread that publishes them, and what its handlers have noted about them."""

from __future__ import annotations

import itertools
import sqlite3
import threading
import time
from collections import Counter
from pathlib import Path

from nsqd_py.client.errors import NsqClientError
from nsqd_py.work import App
from tests.support import killed_work as work

KINDS = (
    *("plain", "keyed", "batched", "asynchronous", "deferred", "retried"),
    *("plain", "identified", "batched", "asynchronous", "chained", "doomed"),
)
SLOW_EVERY = 300
ONCE = ("keyed", "identified")
# Some messages with a key are published twice.
TWICE_EVERY = 5
DEFERS_S = {"deferred": 1.0, "chained": 2 * work.LONGEST_DEFER_S}
TOPICS = {"chained": "deferred"}
PAUSE_S = 0.02  # between two messages of the publisher

Task = tuple[str, int]  # its kind and its number


class Effects:
    """What the handlers have done so far: when each message had its first effect, and how many it had."""

    def __init__(self, folder: Path) -> None:
        self.first_s: dict[Task, float] = {}
        self.counts: Counter[Task] = Counter()
        self.once: Counter[tuple[str, object]] = Counter()  # by what must be there once
        self.jobs_s: dict[str, float] = {}  # by occurrence
        self._path = folder / work.EFFECTS
        self._path.touch()
        self._offset = 0
        self._row = 0
        self._database = sqlite3.connect(folder / work.DATABASE, timeout=30)
        self._database.execute(work.TABLE)
        self._database.commit()

    def read(self) -> None:
        with self._path.open() as file:
            file.seek(self._offset)
            text = file.read()
        end = text.rfind("\n") + 1
        self._offset += end
        for line in text[:end].splitlines():
            kind, number, at_s = line.split()
            if kind == "job":
                self.jobs_s.setdefault(number, float(at_s))
            else:
                self._add((kind, int(number)), float(at_s))
        query = "SELECT rowid, kind, number, message, at FROM effects WHERE rowid > ? ORDER BY rowid"
        for row, kind, number, message, at_s in self._database.execute(query, [self._row]):
            self._row = row
            self._add((kind, number), at_s)
            self.once[kind, number if kind == "keyed" else message] += 1

    def _add(self, task: Task, at_s: float) -> None:
        self.first_s.setdefault(task, at_s)
        self.counts[task] += 1

    def close(self) -> None:
        self._database.close()


class Publisher:
    """A thread that publishes until it is stopped. `due_s` says when each accepted message can be delivered."""

    def __init__(self, address: str) -> None:
        self.due_s: dict[Task, float] = {}
        self.tried: set[Task] = set()
        self._app = App(work.NAME, nsqd_tcp_addresses=address, longest_defer_s=work.LONGEST_DEFER_S)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        kinds = itertools.cycle(KINDS)
        for number in itertools.count():
            if self._stopped.wait(PAUSE_S):
                return
            kind = next(kinds) if number % SLOW_EVERY else "slow"
            task = (kind, number)
            self.tried.add(task)
            self._publish(task)
            if kind == "keyed" and number % TWICE_EVERY == 0:
                self._publish(task)

    def _publish(self, task: Task) -> None:
        kind, number = task
        topic = TOPICS.get(kind, kind)
        defer_s = DEFERS_S.get(kind, 0.0)
        try:
            self._app.publish(topic, {"number": number}, defer_s=defer_s)
        except NsqClientError:
            return
        self.due_s.setdefault(task, time.time() + defer_s)

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._app.close()


def effect_of(task: Task) -> Task:
    """Return the kind and number under which the effect of a message is noted."""
    kind, number = task
    return TOPICS.get(kind, kind), number
