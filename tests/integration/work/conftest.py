"""Which of these tests `make test` runs. They start real workers, and take seconds each; `make test-slow` runs all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.nsqd_process import NsqdProcess
from tests.support.worker import Worker

_HERE = Path(__file__).parent
# The tests of these files that are not slow.
_SAMPLES = {
    "test_celery.py": ("test_a_late_task_survives_the_loss_of_its_nsqd_and_runs_once",),
    "test_django_results.py": (
        "test_the_result_of_a_task",
        "test_a_task_waits_for_a_store_that_is_away",
        "test_bad_settings",
        "test_two_backends_with_the_same_topics",
    ),
    "test_django_tasks.py": (
        "test_a_task_runs_in_a_worker",
        "test_a_rollback_enqueues_nothing",
        "test_the_task_of_a_killed_worker_runs_again",
    ),
    "test_kombu.py": (
        "test_a_message_is_stored_when_publish_returns_and_finished_when_it_is_acknowledged",
        "test_what_is_not_acknowledged_comes_again_when_the_connection_closes",
        "test_an_eta_is_deferred_on_the_server",
        "test_what_nsq_cannot_do_is_refused",
        "test_a_secret_is_not_sent_without_tls",
    ),
    "test_later.py": (
        "test_an_nsqd_with_a_lower_limit_is_an_error_that_names_the_remedy",
        "test_a_time_without_a_zone_is_refused",
    ),
    "test_nsq_worker_commands.py": (
        "test_check_lists_the_handlers",
        "test_one_is_replayed_and_one_is_discarded",
        "test_all_are_replayed_and_those_that_die_again_are_left",
    ),
    "test_nsq_worker_health.py": (
        "test_a_process_that_hangs_or_ends_is_not_healthy",
        "test_a_handler_without_a_connection_is_not_ready_but_healthy",
    ),
    "test_nsq_worker_processes.py": (
        "test_one_signal_finishes_what_runs",
        "test_a_killed_process_is_started_again_and_its_messages_come_again",
        "test_processes_end_when_the_supervisor_is_killed_and_give_back",
    ),
    "test_refused.py": ("test_a_permission_that_lacks_ends_the_worker_with_one_line",),
    "test_schedules.py": ("test_after_kill_9_of_one_process_another_goes_on",),
    "test_taskiq.py": ("test_a_worker_without_tasks_stops",),
}


@pytest.fixture
def worker(tmp_path: Path, nsqd: NsqdProcess) -> Iterator[Worker]:
    """An nsq-worker that a test starts, with its app in a folder of its own."""
    folder = tmp_path / "shop"
    folder.mkdir()
    made = Worker(folder, nsqd)
    yield made
    made.destroy()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        samples = _SAMPLES.get(item.path.name)
        if item.path.parent == _HERE and samples is not None:
            name = getattr(item, "originalname", item.name)
            if name not in samples:
                item.add_marker(pytest.mark.slow)
