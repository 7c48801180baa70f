"""Tasks of a Django project over a real nsqd: enqueued by one process, run by `manage.py nsq_worker`."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import psutil
import pytest

from nsqd_py.testing.embedded import Nsqd
from tests.support.django_project import TOPIC, DjangoProject, dead_letters, is_done, published
from tests.support.module_servers import delete_topics, module_embedded
from tests.support.nsqd_process import wait_until

pytest.importorskip("django")
pytestmark = pytest.mark.ours

QUICK_RETRY = {"attempts": 3, "first_s": 0.05, "factor": 1}


# It delivers messages again soon after their worker was killed.
nsqd = module_embedded("--msg-timeout=2s")


@pytest.fixture
def project(nsqd, tmp_path) -> Iterator[DjangoProject]:
    project = DjangoProject(tmp_path / "project", nsqd.tcp_address)
    project.migrate()
    yield project
    project.close()
    delete_topics(nsqd)


def test_a_task_runs_in_a_worker(nsqd, project):
    enqueued = project.run("""
result = tasks.bill.enqueue(7)
answer = {"id": result.id, "status": str(result.status), "at": result.enqueued_at.isoformat(), "args": result.args}
""")
    assert (enqueued["status"], enqueued["args"]) == ("READY", [7])
    worker = project.worker()
    project.wait_for_effects(["bill 7 0"])
    wait_until(lambda: is_done(nsqd), what="the finished message")
    assert worker.stop() == 0
    assert project.effects() == ["bill 7 0"]


def test_the_body_is_json_for_any_language(nsqd, project):
    result = project.run("result = tasks.bill.enqueue(7, note='ü'); answer = {'id': result.id}")
    project.worker()
    (message,) = nsqd_messages(nsqd)
    at = message.pop("enqueued_at")
    assert message == {"id": result["id"], "task": "shop.tasks.bill", "args": [7], "kwargs": {"note": "ü"}}
    assert at.endswith("+00:00")


def nsqd_messages(nsqd: Nsqd) -> list[dict[str, object]]:
    """Return the bodies of a new channel of the topic, which gets all messages from its start."""
    from nsqd_py.client import Consumer

    with Consumer(TOPIC, "look", nsqd_tcp_addresses=nsqd.tcp_address) as consumer:
        message = consumer.next(10)
        assert message is not None
        return [json.loads(message.body)]


def test_a_coroutine_function_runs(project):
    project.run("Order.objects.create(customer='ann'); tasks.send.enqueue('ann@example.com')")
    project.worker()
    project.wait_for_effects(["send ann@example.com 1"])


def test_enqueued_from_coroutines(project):
    project.run("""
import asyncio

async def main():
    await asyncio.gather(*(tasks.bill.aenqueue(number) for number in range(20)))

asyncio.run(main())
""")
    project.worker("--threads=4")
    project.wait_for_effects([f"bill {number} 0" for number in range(20)])


def test_an_enqueue_waits_for_the_commit(nsqd, project):
    counts = project.run(f"""
from urllib.request import urlopen

def published():
    document = json.load(urlopen("http://{nsqd.http_address}/stats?format=json&topic={TOPIC}"))
    return sum(topic["message_count"] for topic in document["topics"] or ())

with transaction.atomic():
    order = Order.objects.create(customer="ann")
    tasks.bill.enqueue(order.id)
    with transaction.atomic():
        tasks.bill.enqueue(order.id)
    answer = [published()]
answer.append(published())
""")
    assert counts == [0, 2]
    project.worker()
    project.wait_for_effects(["bill 1 1"] * 2)


def test_a_rollback_enqueues_nothing(nsqd, project):
    project.run("""
try:
    with transaction.atomic():
        tasks.bill.enqueue(1)
        raise ValueError
except ValueError:
    pass
tasks.bill.enqueue(2)
""")
    assert published(nsqd) == 1
    project.worker()
    project.wait_for_effects(["bill 2 0"])


def test_on_commit_can_be_turned_off(nsqd, project):
    project.options["on_commit"] = False
    project.run("""
try:
    with transaction.atomic():
        tasks.bill.enqueue(1)
        raise ValueError
except ValueError:
    pass
""")
    assert published(nsqd) == 1


def test_run_after_is_a_delay_of_the_server(nsqd, project):
    worker = project.worker()
    wait_until(lambda: "django-default" in str(nsqd.stats()), what="the worker's topic")
    late_s = project.run("""
import time
from pathlib import Path
due = timezone.now() + timedelta(seconds=1.5)
tasks.bill.using(run_after=due).enqueue(1)
tasks.bill.enqueue(2)
lines = []
while "bill 1 0" not in lines:
    lines = tasks.EFFECTS.read_text().splitlines()
    time.sleep(0.005)
answer = (timezone.now() - due).total_seconds()
""")
    assert 0 <= late_s < 1.5
    assert project.effects() == ["bill 2 0", "bill 1 0"]
    assert worker.stop() == 0


def test_a_delay_longer_than_nsqd_defers_is_chained(nsqd, project):
    project.options["longest_defer_s"] = 1
    late_s = project.run("""
due = timezone.now() + timedelta(seconds=2.5)
tasks.bill.using(run_after=due).enqueue(1)
answer = due.timestamp()
""")
    assert published(nsqd) == 0
    assert published(nsqd, "django.later") == 1
    project.worker()
    project.wait_for_effects(["bill 1 0"])
    assert 0 <= project.effects_at() - late_s < 20


def test_a_project_without_time_zones(project):
    """Its times are in the zone of the project, which is not that of the machine."""
    (project.folder / "project_settings.py").open("a").write("\nUSE_TZ = False\nTIME_ZONE = 'Asia/Tokyo'\n")
    project.worker()
    assert project.run("""
import time
due = timezone.now() + timedelta(seconds=1)
tasks.bill.using(run_after=due).enqueue(1)
tasks.bill.enqueue(2)
while "bill 1 0" not in tasks.EFFECTS.read_text():
    time.sleep(0.005)
answer = [due.tzinfo, timezone.now() >= due]
""") == [None, True]
    assert project.effects() == ["bill 2 0", "bill 1 0"]


def test_the_tests_of_a_project(project):
    """`TestCase` never commits: Django has a helper for that."""
    project.run("""
from django.test import TestCase
from django.test.utils import get_runner
from django.conf import settings

class EnqueueTest(TestCase):
    def test_it(self):
        with self.captureOnCommitCallbacks(execute=True) as callbacks:
            tasks.bill.enqueue(7)
        self.assertEqual(len(callbacks), 1)
        tasks.bill.enqueue(8)

import unittest
outcome = unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(EnqueueTest))
assert outcome.wasSuccessful()
""")
    project.worker()
    project.wait_for_effects(["bill 7 0"])


def test_enqueue_in_an_event_loop_names_aenqueue(project):
    assert project.run("""
import asyncio

async def view():
    try:
        tasks.bill.enqueue(7)
    except Exception as error:
        return [type(error).__name__, str(error)]

answer = asyncio.run(view())
""") == ["WrongPlace", "enqueue would block the event loop: await bill.aenqueue(...)"]


def test_queues_are_topics(nsqd, project):
    project.run("tasks.bill.using(queue_name='mails').enqueue(1); tasks.bill.enqueue(2)")
    assert published(nsqd, "django-mails") == published(nsqd, "django-default") == 1
    worker = project.worker("--queues=mails")
    project.wait_for_effects(["bill 1 0"])
    assert worker.stop() == 0
    project.worker()
    project.wait_for_effects(["bill 1 0", "bill 2 0"])


@pytest.mark.parametrize("value", ["float('nan')", "float('inf')"])
def test_a_number_that_json_does_not_have_is_refused(nsqd, project, value):
    kind = project.run(f"""
try:
    tasks.bill.enqueue({value})
except ValueError as error:
    answer = type(error).__name__
""")
    assert kind == "ValueError"
    assert published(nsqd) == 0


# ---- failures


def test_a_failed_task_is_not_tried_again_without_retry(nsqd, project):
    project.run("tasks.flaky.enqueue(2)")
    project.worker()
    wait_until(lambda: dead_letters(nsqd) == 1, what="the dead letter")
    assert project.effects() == ["flaky 1"]
    assert is_done(nsqd)


def test_a_failed_task_is_tried_again(nsqd, project):
    project.options["retry"] = QUICK_RETRY
    project.run("tasks.flaky.enqueue(3); tasks.flaky.enqueue(9)")
    project.worker()
    wait_until(lambda: dead_letters(nsqd) == 1, what="the dead letter")
    project.wait_for_effects(["flaky 1", "flaky 1", "flaky 2", "flaky 2", "flaky 3", "flaky 3"])


def test_a_task_that_exits_leaves_the_worker_running(nsqd, project):
    project.run("tasks.exits.enqueue(); tasks.bill.enqueue(1)")
    project.worker()
    project.wait_for_effects(["exits", "bill 1 0"])
    wait_until(lambda: dead_letters(nsqd) == 1, what="the dead letter")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"no JSON", "the body of a task is JSON"),
        (b"[]", "the body of a task is a JSON object, not list"),
        (b'{"id": "x", "args": [], "kwargs": {}}', "the body of a task has no 'task'"),
        (
            b'{"id": 7, "task": "shop.tasks.bill", "args": [], "kwargs": {}}',
            "'id' in the body of a task is a str",
        ),
        (
            b'{"id": "x", "task": "shop.tasks.bill", "args": null, "kwargs": {}}',
            "'args' in the body of a task is a list",
        ),
        (
            b'{"id": "x", "task": "shop.tasks.bill", "args": [], "kwargs": []}',
            "'kwargs' in the body of a task is a dict",
        ),
        (b'{"id": "x", "task": "shop.tasks.not_a_task", "args": [], "kwargs": {}}', "is no task"),
    ],
)
def test_a_body_that_is_no_task_is_a_dead_letter_at_once(nsqd, project, body, reason):
    project.options["retry"] = QUICK_RETRY
    nsqd.publish(TOPIC, body)
    worker = project.worker()
    wait_until(lambda: dead_letters(nsqd) == 1, what="the dead letter")
    assert worker.stop() == 0
    assert worker.log_text().count(reason) == 1


def test_a_task_that_a_worker_does_not_have_waits_for_another_one(nsqd, project):
    nsqd.publish(TOPIC, b'{"id": "x", "task": "shop.tasks.lost", "args": [], "kwargs": {}}')
    worker = project.worker()
    wait_until(lambda: "for a worker that has its task" in worker.log_text(), what="the warning")
    wait_until(
        lambda: nsqd.stats(TOPIC)["topics"][0]["channels"][0]["deferred_count"] == 1, what="the requeue"
    )
    assert dead_letters(nsqd) == 0


# ---- the end of workers


def test_sigterm_lets_a_running_task_end(nsqd, project):
    project.run(f"tasks.slow.enqueue({str(project.folder / 'gate')!r}); tasks.bill.enqueue(1)")
    worker = project.worker()
    project.wait_for_effects(["slow begins 1"])
    worker.signal(signal.SIGTERM)
    wait_until(
        lambda: nsqd.stats(TOPIC)["topics"][0]["channels"][0]["depth"] == 1, what="the other task to wait"
    )
    assert worker.is_running
    project.open("gate")
    assert worker.wait() == 0
    assert project.effects() == ["slow begins 1", "slow ends 1"]
    project.worker()
    project.wait_for_effects(["slow begins 1", "slow ends 1", "bill 1 0"])


def test_a_second_signal_returns_the_task(project):
    project.run(f"tasks.slow.enqueue({str(project.folder / 'gate')!r})")
    worker = project.worker()
    project.wait_for_effects(["slow begins 1"])
    worker.signal(signal.SIGINT)
    worker.signal(signal.SIGTERM)
    project.worker()  # gets it while the first one still has its thread
    project.wait_for_effects(["slow begins 1", "slow begins 2"])
    project.open("gate")
    worker.wait()


def test_the_task_of_a_killed_worker_runs_again(project):
    project.run(f"tasks.slow.enqueue({str(project.folder / 'gate')!r})")
    worker = project.worker()
    project.wait_for_effects(["slow begins 1"])
    worker.kill()
    project.open("gate")
    project.worker()
    project.wait_for_effects(["slow begins 1", "slow begins 2", "slow ends 2"])


def test_a_long_task_is_touched(project):
    """It runs for longer than --msg-timeout, and once."""
    project.run(f"tasks.slow.enqueue({str(project.folder / 'gate')!r})")
    project.worker()
    project.worker()
    project.wait_for_effects(["slow begins 1"])
    with pytest.raises(AssertionError):
        wait_until(lambda: len(project.effects()) > 1, 4.5, "a second run")
    project.open("gate")
    project.wait_for_effects(["slow begins 1", "slow ends 1"])


@pytest.fixture
def prepared(project) -> DjangoProject:
    pytest.importorskip("prometheus_client")
    return project


def test_several_processes(nsqd, prepared):
    """They are those of nsq-worker, which replaces one that was killed."""
    gate = str(prepared.folder / "gate")
    prepared.run(f"tasks.slow.enqueue({gate!r}); tasks.slow.enqueue({gate!r})")
    worker = prepared.worker("--processes=2", "--queues=default", "--stop-timeout=20")
    prepared.wait_for_effects(["slow begins 1"] * 2)
    first, *_ = psutil.Process(worker.pid).children()
    first.kill()
    prepared.wait_for_effects([*["slow begins 1"] * 2, "slow begins 2"])
    prepared.open("gate")
    prepared.wait_for_effects([*["slow begins 1"] * 2, "slow begins 2", "slow ends 1", "slow ends 2"])
    wait_until(lambda: is_done(nsqd), what="the finished messages")
    assert worker.stop() == 0


# ---- the command


def test_help_is_that_of_a_django_command(project):
    text = project.manage("nsq_worker", "--help")
    for option in ("--backend", "--queues", "--processes", "--threads", "--stop-timeout", "--settings"):
        assert option in text


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ["--queues=lost"],
            "TASKS['default'] has no queue 'lost' (there are default, mails): add it to QUEUES",
        ),
        (["--backend=lost"], "The connection 'lost' doesn't exist."),
        (["--processes=0"], "expected a number from 1 on, got '0'"),
    ],
)
def test_wrong_arguments(project, arguments, error):
    assert error in project.manage("nsq_worker", *arguments, status=2 if "0" in arguments[0] else 1)
