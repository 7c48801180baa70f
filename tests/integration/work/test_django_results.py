"""Results of tasks: in the table of django-tasks-db, in a cache, or nowhere; and what `manage.py check` says."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.django_project import DjangoProject, dead_letters, is_done
from tests.support.module_servers import delete_topics, module_embedded
from tests.support.nsqd_process import wait_until

pytest.importorskip("django")
pytestmark = pytest.mark.ours

DATABASE = pytest.param(
    "database", marks=pytest.mark.skipif(find_spec("django_tasks_db") is None, reason="needs django-tasks-db")
)
QUICK_RETRY = {"attempts": 2, "first_s": 0.05, "factor": 1}
SHOW = """
def show(task, id):
    result = task.get_result(id)
    return {
        "status": str(result.status),
        "value": result.return_value if str(result.status) == "SUCCESSFUL" else None,
        "errors": [[error.exception_class_path, error.traceback.splitlines()[-1]] for error in result.errors],
        "attempts": result.attempts,
        "began": result.started_at is not None,
        "ended": result.finished_at is not None,
        "args": result.args,
        "queue": result.task.queue_name,
    }
"""


nsqd = module_embedded("--msg-timeout=2s")


@pytest.fixture
def project(nsqd, tmp_path) -> Iterator[DjangoProject]:
    project = DjangoProject(tmp_path / "project", nsqd.tcp_address)
    yield project
    project.close()
    delete_topics(nsqd)


@pytest.fixture(params=[DATABASE, "cache"])
def stored(request, project) -> DjangoProject:
    """A project that stores results."""
    project.options |= {"results": request.param, "retry": QUICK_RETRY}
    if request.param == "database":
        project.apps = ["django_tasks_db"]
    project.migrate()
    return project


def enqueue(project: DjangoProject, call: str) -> str:
    """Enqueue a task, and return the id of its result."""
    return str(project.run(f"answer = tasks.{call}.id"))


def wait_for_status(project: DjangoProject, task: str, result_id: str, status: str) -> dict[str, object]:
    """Wait until the result has this status, in one process, and return it."""
    found = project.run(f"""{SHOW}
import time
until = time.monotonic() + 30
while (answer := show(tasks.{task}, {result_id!r}))["status"] != {status!r} and time.monotonic() < until:
    time.sleep(0.02)
""")
    assert found["status"] == status, found
    return dict(found)


def test_the_result_of_a_task(stored):
    result_id = enqueue(stored, "bill.using(queue_name='mails').enqueue(7)")
    ready = wait_for_status(stored, "bill", result_id, "READY")
    assert (ready["attempts"], ready["began"], ready["ended"], ready["errors"]) == (0, False, False, [])
    stored.worker()
    assert wait_for_status(stored, "bill", result_id, "SUCCESSFUL") == {
        "status": "SUCCESSFUL",
        "value": {"billed": 7},
        "errors": [],
        "attempts": 1,
        "began": True,
        "ended": True,
        "args": [7],
        "queue": "mails",
    }


def test_a_task_is_running_while_it_runs(stored):
    gate = stored.folder / "gate"
    result_id = enqueue(stored, f"slow.enqueue({str(gate)!r})")
    stored.worker()
    running = wait_for_status(stored, "slow", result_id, "RUNNING")
    assert (running["attempts"], running["began"], running["ended"]) == (1, True, False)
    stored.open("gate")
    wait_for_status(stored, "slow", result_id, "SUCCESSFUL")


def test_a_task_that_succeeds_at_its_second_attempt(stored):
    result_id = enqueue(stored, "flaky.enqueue(2)")
    stored.worker()
    result = wait_for_status(stored, "flaky", result_id, "SUCCESSFUL")
    assert (result["value"], result["attempts"]) == (2, 2)


def test_a_task_that_fails(stored):
    result_id = enqueue(stored, "flaky.enqueue(9)")
    stored.worker()
    result = wait_for_status(stored, "flaky", result_id, "FAILED")
    assert (result["attempts"], result["ended"]) == (2, True)
    assert result["errors"][-1] == ["builtins.ValueError", "ValueError: attempt 2 is too early"]


def test_a_value_that_json_does_not_have(stored):
    result_id = enqueue(stored, "returns_an_object.enqueue()")
    stored.worker()
    result = wait_for_status(stored, "returns_an_object", result_id, "FAILED")
    assert result["errors"][-1][0] == "builtins.TypeError"


def test_a_killed_worker_counts_as_an_attempt(stored):
    gate = stored.folder / "gate"
    result_id = enqueue(stored, f"slow.enqueue({str(gate)!r})")
    worker = stored.worker()
    wait_for_status(stored, "slow", result_id, "RUNNING")
    worker.kill()
    stored.open("gate")
    stored.worker()
    assert wait_for_status(stored, "slow", result_id, "SUCCESSFUL")["attempts"] == 2


def test_a_successful_task_does_not_run_again(nsqd, stored):
    """Its worker was killed after the result was stored, and before the message was finished."""
    result_id = enqueue(stored, "bill.enqueue(7)")
    stored.worker()
    wait_for_status(stored, "bill", result_id, "SUCCESSFUL")
    body = f'{{"id": "{result_id}", "task": "shop.tasks.bill", "args": [7], "kwargs": {{}}}}'
    nsqd.publish("django-default", body)
    enqueue(stored, "bill.enqueue(8)")
    stored.wait_for_effects(["bill 7 0", "bill 8 0"])


def test_the_result_of_a_task_that_nsqd_did_not_take(nsqd, stored):
    stored.options["nsqd_tcp_addresses"] = ["127.0.0.1:1"]
    answer = stored.run(f"""{SHOW}
from nsqd_py.client import NoNsqd
from nsqd_py.django import backend
ids = []
backend.uuid4 = lambda new=backend.uuid4: ids.append(new()) or ids[-1]
try:
    tasks.bill.enqueue(7)
except NoNsqd:
    answer = show(tasks.bill, str(ids[0]))
""")
    assert answer["status"] == "FAILED"
    assert answer["errors"][0][0] == "nsqd_py.client.errors.NoNsqd"


def test_an_unknown_result(stored):
    assert stored.run("""
from nsqd_py.django.framework import TaskResultDoesNotExist
answer = []
for id in ("lost", "7c9e6679-7425-40de-944b-e07fc1f90ae7"):
    try:
        tasks.bill.get_result(id)
    except TaskResultDoesNotExist as error:
        answer.append(str(error))
""") == ["lost", "7c9e6679-7425-40de-944b-e07fc1f90ae7"]


@pytest.mark.skipif(find_spec("django_tasks_db") is None, reason="needs django-tasks-db")
def test_a_rollback_takes_the_result_back(project):
    project.options["results"] = "database"
    project.apps = ["django_tasks_db"]
    project.migrate()
    assert project.run("""
from django_tasks_db.models import DBTaskResult
answer = []
try:
    with transaction.atomic():
        tasks.bill.enqueue(1)
        answer.append(DBTaskResult.objects.count())
        raise ValueError
except ValueError:
    answer.append(DBTaskResult.objects.count())
""") == [1, 0]


@pytest.mark.skipif(find_spec("django_tasks_db") is None, reason="needs django-tasks-db")
def test_an_id_that_is_no_uuid_is_a_dead_letter_at_once(nsqd, project):
    """The table of django-tasks-db takes no other ids."""
    project.options |= {"results": "database", "retry": QUICK_RETRY}
    project.apps = ["django_tasks_db"]
    project.migrate()
    nsqd.publish("django-default", b'{"id": "notuuid", "task": "shop.tasks.bill", "args": [1], "kwargs": {}}')
    worker = project.worker()
    wait_until(lambda: dead_letters(nsqd) == 1, what="the dead letter")
    assert worker.stop() == 0
    assert worker.log_text().count("the id of a task is a UUID, not 'notuuid'") == 1


def test_without_a_place_results_are_not_stored(project):
    project.migrate()
    assert project.run("""
from nsqd_py.django.framework import task_backends
result = tasks.bill.enqueue(7)
try:
    result.refresh()
except NotImplementedError as error:
    answer = [str(error), task_backends["default"].supports_get_result]
""") == [
        "This backend does not support retrieving or refreshing results. It stores none, as OPTIONS['results'] of "
        "TASKS['default'] is not set: set it to 'database' (django-tasks-db), or to 'cache'.",
        False,
    ]


def test_signals_of_a_task(project):
    """The receivers are in the application's module, so the worker has them too."""
    (project.folder / "shop" / "models.py").open("a").write("""
import os
from nsqd_py.django.framework import task_enqueued, task_finished, task_started

def receiver(name):
    def note(sender, task_result, **_):
        with open(os.environ["EFFECTS"], "a") as file:
            file.write(f"{name} {sender.__name__} {task_result.status} {task_result.attempts}\\n")
    return note

for signal, name in (task_enqueued, "enqueued"), (task_started, "started"), (task_finished, "finished"):
    signal.connect(receiver(name), weak=False)
""")
    project.options["retry"] = QUICK_RETRY
    project.migrate()
    project.run("tasks.flaky.enqueue(9)")
    project.worker()
    expected = [
        "enqueued NsqBackend READY 0",
        "started NsqBackend RUNNING 1",
        "flaky 1",
        "started NsqBackend RUNNING 2",
        "flaky 2",
        "finished NsqBackend FAILED 2",
    ]
    wait_until(lambda: len(project.effects()) == len(expected), what="all signals")
    assert project.effects() == expected


# ---- a store that is away


@pytest.fixture
def away(project) -> Path:
    """While this file exists, the store of the project's results fails."""
    file = project.folder / "away"
    (project.folder / "shop" / "caches.py").write_text(f"""
from pathlib import Path
from django.core.cache.backends.filebased import FileBasedCache

class Cache(FileBasedCache):
    def get(self, *args, **kwargs):
        self.refuse()
        return super().get(*args, **kwargs)

    def set(self, *args, **kwargs):
        self.refuse()
        return super().set(*args, **kwargs)

    def refuse(self):
        if Path({str(file)!r}).exists():
            raise ConnectionError("the store is away")
""")
    (project.folder / "project_settings.py").open("a").write(
        "\nCACHES['default']['BACKEND'] = 'shop.caches.Cache'\n"
    )
    project.options["results"] = "cache"
    project.migrate()
    return file


def test_a_task_waits_for_a_store_that_is_away(nsqd, project, away):
    result_id = enqueue(project, "bill.enqueue(7)")
    away.touch()
    worker = project.worker()
    wait_until(lambda: "waits 5 s for the store of results" in worker.log_text(), what="the warning")
    away.unlink()
    wait_for_status(project, "bill", result_id, "SUCCESSFUL")
    assert project.effects() == ["bill 7 0"]
    assert dead_letters(nsqd) == 0


def test_a_task_waits_for_the_store_for_longer_and_longer(project):
    project.options["results"] = "cache"
    project.migrate()
    *pauses_s, most_attempts = project.run("""
from nsqd_py.django.executing import WAITS, store_pause_s
from nsqd_py.django.queues import worker_app

answer = [*map(store_pause_s, range(1, WAITS + 1)), worker_app("default").handlers[0].most_attempts]
""")
    assert pauses_s == [5, 10, 20, 40, *[60] * 16]
    assert most_attempts == len(pauses_s) + 1  # without `retry`, a task has one attempt


def test_a_result_that_cannot_be_saved_is_saved_later(nsqd, project, away):
    result_id = enqueue(project, f"slow.enqueue({str(project.folder / 'gate')!r})")
    worker = project.worker()
    project.wait_for_effects(["slow begins 1"])
    away.touch()
    project.open("gate")
    wait_until(lambda: "saved again in" in worker.log_text(), what="the warning")
    away.unlink()
    wait_for_status(project, "slow", result_id, "SUCCESSFUL")
    wait_until(lambda: is_done(nsqd), what="the finished message")
    assert project.effects() == ["slow begins 1", "slow ends 1"]


def test_a_result_that_is_lost_is_an_error_of_the_log_only(project):
    project.options["results"] = "cache"
    project.migrate()
    lines = project.run("""
import logging
from nsqd_py.django import executing

class Away:
    saves = 0

    def save(self, result):
        self.saves += 1
        raise ConnectionError("the store is away")

class Lines(logging.Handler):
    def emit(self, record):
        answer.append(f"{record.levelname} {record.getMessage()}")

answer, away, ticks = [], Away(), iter(range(0, 1000, 10))
logging.getLogger("nsqd_py.django").addHandler(Lines())
executing._save_end(away, tasks.bill.enqueue(7), clock=lambda: next(ticks), sleep=lambda _: None)
answer.append(away.saves)
""")
    *warnings, error, saves = lines
    assert saves == len(warnings) + 1 > 1
    assert all(line.startswith("WARNING") for line in warnings)
    assert error.startswith("ERROR the result of shop.tasks.bill, ")
    assert "the store is away" in error


def test_a_receiver_of_task_finished_that_raises(nsqd, project):
    """The task has ended well, so it is no dead letter."""
    (project.folder / "shop" / "models.py").open("a").write("""
from nsqd_py.django.framework import task_finished

def receiver(**_):
    raise ValueError("of the receiver")

task_finished.connect(receiver)
""")
    project.migrate()
    project.run("tasks.bill.enqueue(7)")
    worker = project.worker()
    wait_until(lambda: "of the receiver" in worker.log_text(), what="the line of the log")
    wait_until(lambda: is_done(nsqd), what="the finished message")
    assert project.effects() == ["bill 7 0"]
    assert dead_letters(nsqd) == 0


def test_a_receiver_of_task_started_that_raises(nsqd, project):
    """The attempt has failed, as with the database worker of django-tasks."""
    (project.folder / "shop" / "models.py").open("a").write("""
from nsqd_py.django.framework import task_started

def receiver(task_result, **_):
    if task_result.attempts == 1:
        raise ValueError("of the receiver")

task_started.connect(receiver)
""")
    project.options["retry"] = QUICK_RETRY
    project.migrate()
    project.run("tasks.bill.enqueue(7)")
    worker = project.worker()
    wait_until(lambda: project.effects() == ["bill 7 0"], what="the second attempt")
    wait_until(lambda: is_done(nsqd), what="the finished message")
    assert "attempt 1: ValueError: of the receiver" in worker.log_text()
    assert dead_letters(nsqd) == 0


# ---- manage.py check


def test_good_settings(project):
    assert "no issues" in project.manage("check")


@pytest.mark.parametrize(
    ("options", "id", "text"),
    [
        ({}, "nsqd_py.E001", "A task backend needs the address of an nsqd"),
        ({"nsqd_tcp_addresses": ["localhost"]}, "nsqd_py.E002", '"localhost" has no port: give host:port'),
        ({"nsqd_tcp_addresses": []}, "nsqd_py.E002", "the list is empty"),
        ({"lookupd_http_addresses": "127.0.0.1"}, "nsqd_py.E002", "127.0.0.1"),
        ({"nsqd_tcp_adresses": ["x:1"]}, "nsqd_py.E003", "Did you mean 'nsqd_tcp_addresses'?"),
        ({"color": "red"}, "nsqd_py.E003", "There are nsqd_tcp_addresses, "),
        ({"prefix": "a b"}, "nsqd_py.E004", "'a b' cannot begin a topic"),
        ({"prefix": "x" * 60}, "nsqd_py.E005", "Queue 'default' cannot be a topic of nsqd"),
        ({"on_commit": "lost"}, "nsqd_py.E004", "there is no database 'lost'"),
        ({"on_commit": 7}, "nsqd_py.E004", "expected True, False or the alias of a database, got 7"),
        ({"retry": {"attempts": 0}}, "nsqd_py.E004", "attempts must be at least 1"),
        ({"retry": {"tries": 3}}, "nsqd_py.E004", "nsqd_py.work.Retry has no argument 'tries'"),
        ({"retry": {"most_s": 900}, "longest_defer_s": 60}, "nsqd_py.E004", "Lower most_s"),
        ({"retry": 3}, "nsqd_py.E004", "expected the arguments of nsqd_py.work.Retry as a dict, got 3"),
        ({"time_limit_s": -1}, "nsqd_py.E004", "expected a number of seconds above 0, got -1"),
        ({"client": {"snapy": True}}, "nsqd_py.E004", 'there is no client option "snapy"'),
        (
            {"results": "redis"},
            "nsqd_py.E004",
            "expected 'database', 'cache' or 'cache:<alias>', got 'redis'",
        ),
        ({"results": "database"}, "nsqd_py.E006", "pip install django-tasks-db"),
        ({"results": "cache:lost"}, "nsqd_py.E006", "lost"),
    ],
)
def test_bad_settings(project, options, id, text):
    project.options = options if not options or "addresses" in str(options) else project.options | options
    printed = " ".join(project.manage("check", status=1).split())
    assert id in printed
    assert text in printed


SECOND_BACKEND = """
OPTIONS = TASKS["default"]["OPTIONS"]
TASKS["kept"] = {{**TASKS["default"], "OPTIONS": {{**OPTIONS, **{options!r}}}, **{settings!r}}}
"""


@pytest.mark.parametrize(
    ("options", "settings", "is_wrong"),
    [
        ({"results": "cache"}, {}, True),
        ({"channel": "others"}, {"QUEUES": ["mails", "lost"]}, True),
        ({"prefix": "django-mai"}, {"QUEUES": ["ls"]}, True),
        ({"results": "cache"}, {"QUEUES": []}, True),
        ({"results": "cache", "prefix": "kept-"}, {}, False),
        ({"results": "cache"}, {"QUEUES": ["kept"]}, False),
        ({"results": "cache", "nsqd_tcp_addresses": ["127.0.0.1:2"]}, {}, False),
        ({"on_commit": False}, {}, False),
    ],
)
def test_two_backends_with_the_same_topics(project, options, settings, is_wrong):
    """A worker of one would run the tasks of the other, by its own options."""
    (project.folder / "project_settings.py").open("a").write(
        SECOND_BACKEND.format(options=options, settings=settings)
    )
    printed = " ".join(project.manage("check", status=int(is_wrong)).split())
    assert printed.count("nsqd_py.E007") == is_wrong
    assert ("TASKS['default'] has the same topic" in printed) == is_wrong


def test_bad_settings_refuse_tasks(project):
    """Tasks can be declared, so that `manage.py check` can run; they are refused when they are enqueued."""
    project.options["nsqd_tcp_adresses"] = ["127.0.0.1:4150"]
    assert project.run("""
try:
    tasks.bill.enqueue(1)
except Exception as error:
    answer = [type(error).__name__, str(error)]
""") == [
        "ImproperlyConfigured",
        "TASKS['default']: OPTIONS['nsqd_tcp_adresses'] is no option of nsqd_py.django. Did you mean 'nsqd_tcp_addresses'?",
    ]
    assert "nsqd_tcp_adresses" in project.manage("nsq_worker", status=1)


def test_a_cache_that_other_processes_do_not_see(project):
    (project.folder / "project_settings.py").open("a").write(
        "\nCACHES = {'default': {'BACKEND': 'django.core.cache.backends.locmem.LocMemCache'}}\n"
    )
    project.options["results"] = "cache"
    assert "nsqd_py.W001" in project.manage("check")


def test_the_application_is_missing(project):
    (project.folder / "project_settings.py").open("a").write("\nINSTALLED_APPS.remove('nsqd_py.django')\n")
    (project.folder / "shop" / "apps.py").write_text("""
from django.apps import AppConfig

class ShopConfig(AppConfig):
    name = "shop"

    def ready(self):
        import shop.tasks
""")
    assert "nsqd_py.W002" in project.manage("check")


@pytest.mark.parametrize(
    ("task", "text"),
    [
        (
            "bill.using(priority=5)",
            "nsqd delivers the tasks of a queue in their order: give urgent tasks a queue",
        ),
        ("bill.using(queue_name='lost')", "Queue 'lost' is not valid for backend."),
        ("bill.using(run_after=timezone.now().replace(tzinfo=None))", "run_after must be an aware datetime."),
    ],
)
def test_tasks_that_are_refused(project, task, text):
    kind, refusal = project.run(f"""
try:
    tasks.{task}
except Exception as error:
    answer = [type(error).__name__, str(error)]
""")
    assert kind.startswith("InvalidTask")
    assert text in refusal
