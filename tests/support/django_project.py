"""A small Django project in a folder of its own: an application `shop` with a model and tasks, and SQLite.

Its programs are processes with DJANGO_SETTINGS_MODULE, as those of a real project: `run` executes code, `manage` a command,
`worker` starts `manage.py nsq_worker`. They are forked from one that has imported Django.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from nsqd_py.testing.embedded import Nsqd
from tests.support.nsqd_process import REPOSITORY, wait_until
from tests.support.tool_process import ToolProcess, run_tool

DEADLINE_S = 60.0
TOPIC = "django-default"
_PROGRAM = "tests.support.django_program"

_SETTINGS = """
import json, os
from importlib.util import find_spec
from pathlib import Path

FOLDER = Path(__file__).parent
SECRET_KEY = "not secret"
USE_TZ = True
DEBUG = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["nsqd_py.django", "shop", *json.loads(os.environ.get("APPS", "[]"))]
if not find_spec("django.tasks"):
    INSTALLED_APPS.insert(0, "django_tasks")
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": FOLDER / "shop.db",
        "OPTIONS": {"timeout": 40, "transaction_mode": "IMMEDIATE"},
    }
}
CACHES = {"default": {"BACKEND": "django.core.cache.backends.filebased.FileBasedCache", "LOCATION": FOLDER / "cache"}}
TASKS = {
    "default": {
        "BACKEND": "nsqd_py.django.NsqBackend",
        "QUEUES": ["default", "mails"],
        "OPTIONS": json.loads(os.environ["TASK_OPTIONS"]),
    }
}
"""
_MODELS = """
from django.db import models

class Order(models.Model):
    customer = models.CharField(max_length=20)
"""
_TASKS = """
import asyncio, os, time
from pathlib import Path
from shop.models import Order

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

EFFECTS = Path(os.environ["EFFECTS"])

def note(*words):
    with EFFECTS.open("a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

@task
def bill(order_id):
    note("bill", order_id, Order.objects.filter(id=order_id).count())
    return {"billed": order_id}

@task
async def send(address):
    await asyncio.sleep(0)
    note("send", address, await Order.objects.acount())
    return address

@task(takes_context=True)
def flaky(context, good_attempt):
    note("flaky", context.attempt)
    if context.attempt < good_attempt:
        raise ValueError(f"attempt {context.attempt} is too early")
    return context.attempt

@task(takes_context=True)
def slow(context, gate):
    note("slow begins", context.attempt)
    while not Path(gate).exists():
        time.sleep(0.01)
    note("slow ends", context.attempt)

@task
def exits():
    note("exits")
    raise SystemExit("the task wants to end its worker")

@task
def returns_an_object():
    return object()

not_a_task = note
"""


class DjangoProject:
    """options  OPTIONS of the task backend; a test may change them before it starts a program."""

    def __init__(self, folder: Path, nsqd_tcp_address: str) -> None:
        self.folder = folder
        self.options: dict[str, Any] = {"nsqd_tcp_addresses": [nsqd_tcp_address]}
        self.apps: list[str] = []
        self._effects = folder / "effects"
        self._workers: list[ToolProcess] = []
        self._running = ExitStack()
        (folder / "shop").mkdir(parents=True)
        files = {
            "project_settings.py": _SETTINGS,
            "shop/__init__.py": "",
            "shop/models.py": _MODELS,
            "shop/tasks.py": _TASKS,
            "effects": "",
        }
        for name, text in files.items():
            (folder / name).write_text(text)

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "APPS": json.dumps(self.apps),
            "DJANGO_SETTINGS_MODULE": "project_settings",
            "EFFECTS": str(self._effects),
            "PYTHONPATH": os.pathsep.join(
                [str(REPOSITORY), str(REPOSITORY / "apps"), str(REPOSITORY / "tools"), *_added_path()]
            ),
            "TASK_OPTIONS": json.dumps(self.options),
        }

    def manage(self, *arguments: str, status: int = 0) -> str:
        """Run a command, which must end with this status, and return what it prints."""
        done = self._run("manage", *arguments, status=status)
        return done.stdout + done.stderr

    def _run(self, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        done = run_tool(_PROGRAM, *words, env=self.environment, directory=self.folder)
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def migrate(self) -> None:
        self.manage("migrate", "--run-syncdb", "--verbosity=0")

    def run(self, code: str) -> Any:
        """Run code after `django.setup()`; return the value of its variable `answer`, as JSON has it."""
        return json.loads(self._run("run", _PROLOGUE + code + _EPILOGUE).stdout.splitlines()[-1])

    def worker(self, *arguments: str) -> ToolProcess:
        tool = ToolProcess(
            _PROGRAM,
            "manage",
            "nsq_worker",
            *arguments,
            log_path=self.folder / f"worker{len(self._workers)}.log",
            stdout=subprocess.DEVNULL,
            directory=self.folder,
            environment=self.environment,
        )
        self._workers.append(self._running.enter_context(tool))
        return tool

    def effects(self) -> list[str]:
        """Return the lines that tasks have written, in order."""
        return self._effects.read_text().splitlines()

    def effects_at(self) -> float:
        """Return when a task has last written a line, in seconds since the epoch."""
        return self._effects.stat().st_mtime

    def wait_for_effects(self, expected: Sequence[str]) -> None:
        """Wait until tasks have written these lines, in any order, and no others."""
        try:
            wait_until(lambda: sorted(self.effects()) == sorted(expected), DEADLINE_S, "effects")
        except AssertionError as error:
            logs = "\n".join(worker.log_text() for worker in self._workers)
            raise AssertionError(f"expected {expected}, got {self.effects()}\n{logs}") from error

    def open(self, gate: str) -> None:
        """Let the task `slow` with this gate end."""
        (self.folder / gate).touch()

    def close(self) -> None:
        self._running.close()


# ---- what nsqd has of its tasks


def published(nsqd: Nsqd, topic: str = TOPIC) -> int:
    """Return how many messages the topic has got."""
    return sum(found["message_count"] for found in nsqd.stats(topic)["topics"] or ())


def dead_letters(nsqd: Nsqd) -> int:
    return published(nsqd, f"{TOPIC}.dead")


def is_done(nsqd: Nsqd) -> bool:
    """True if the channel of the queue has neither waiting nor unanswered nor deferred messages."""
    (topic,) = nsqd.stats(TOPIC)["topics"]
    (channel,) = topic["channels"]
    return not channel["depth"] + channel["in_flight_count"] + channel["deferred_count"]


_PROLOGUE = """
import json, os
import django
django.setup()
from datetime import timedelta
from django.db import transaction
from django.utils import timezone
from shop import tasks
from shop.models import Order
answer = None
"""
_EPILOGUE = "\nprint(json.dumps(answer))\n"


def _added_path() -> list[str]:
    """Return folders of packages that this interpreter got by PYTHONPATH."""
    return [
        path
        for path in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if path and str(REPOSITORY) not in path
    ]
