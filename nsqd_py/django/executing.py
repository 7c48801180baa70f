"""One run of a task in a worker: its signals, and its result."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from typing import Any

from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db import DataError, IntegrityError, close_old_connections
from django.utils import timezone

from nsqd_py.django.backend import NsqBackend
from nsqd_py.django.bodies import result_of
from nsqd_py.django.framework import (
    TaskContext,
    TaskResultStatus,
    normalize_json,
    task_backends,
    task_finished,
    task_started,
)
from nsqd_py.django.results import Results, error_of, set_fields
from nsqd_py.work import Message, Requeue, Retry, Undecodable
from nsqd_py.work.outcomes import DeadLetter, Dropped, decide

# Of an attempt that this worker knows of by nsqd's count only: no result is stored, or another worker was killed.
UNKNOWN_WORKER = "unknown"
NO_RETRY = Retry(attempts=1, first_s=0, most_s=0)
# How often a task may wait in nsqd before it begins: for a worker that has its code, or for the store of results. nsqd counts
# each of these as an attempt.
WAITS = 20
# While new code is deployed, its tasks may come to workers that do not have them yet: for 5 minutes.
_IMPORT_PAUSE_S = 15.0
# While the store of results is away, tasks wait for longer and longer, together for 17 minutes.
_FIRST_STORE_PAUSE_S = 5.0
_LONGEST_STORE_PAUSE_S = 60.0
# Those that have ended wait in the worker, for a shorter time.
_SAVE_PAUSE_S = 1.0
_LONGEST_SAVE_S = 20.0
# What a store raises because of this one task; it would do so again.
_OF_THE_TASK = (
    DataError,
    ImportError,
    IntegrityError,
    LookupError,
    TypeError,
    Undecodable,
    ValidationError,
    ValueError,
)
_LONGEST_HOST = 40  # django-tasks allows names of 64 characters for workers

_log = logging.getLogger("nsqd_py.django")


class TaskExited(RuntimeError):
    """A task raised SystemExit or the like, which would end the worker; it counts as a failure of the task."""


def execute(backend: NsqBackend, queue: str, body: bytes, message: Message) -> None:
    """Run the task of a message, and store its result. Raises what the task raised, for the rules of retries.

    A task whose result says that it was successful does not run again. A task does not begin while the store of results is
    away: it comes again later. Once it has ended, neither the store nor a receiver of `task_finished` makes it run again. A
    receiver of `task_started` that raises is a failure of the attempt, as in the database worker of django-tasks.
    """
    results = backend.store
    result = _task_of(backend, queue, body, message)
    if not _has_begun(results, result, message, backend.nsq.longest_defer_s):
        return  # its worker was killed, or lost its connection, before the message was finished
    try:
        task_started.send(type(backend), task_result=result)
        value = normalize_json(_call(result))
    except KeyboardInterrupt:
        raise
    except Exception as error:
        _failed(backend, results, result, error, message.attempts)
        raise
    except BaseException as error:
        _failed(backend, results, result, error, message.attempts)
        raise TaskExited(f"the task raised {type(error).__name__}: {error}") from error
    set_fields(result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now(), _return_value=value)
    _save_end(results, result)
    _tell_end(backend, result)


def _task_of(backend: NsqBackend, queue: str, body: bytes, message: Message) -> Any:
    """Return the TaskResult of a message. For a while, a task that cannot be imported waits for a newer worker."""
    try:
        return result_of(body, backend=backend.alias, queue=queue)
    except ImportError as error:
        if message.attempts >= WAITS:
            raise
        _log.warning("%s waits %g s for a worker that has its task: %s", message, _IMPORT_PAUSE_S, error)
        raise Requeue(_IMPORT_PAUSE_S, backoff=False) from error


def _has_begun(results: Results | None, result: Any, message: Message, longest_defer_s: float) -> bool:
    """Store that the task runs here. Return False if it was successful already. Raises Requeue if the store is away."""
    if results is None:
        _begin(result, None, message.attempts)
        return True
    try:
        stored = results.load(result.id)
        if stored is not None and stored.status == TaskResultStatus.SUCCESSFUL:
            return False
        _begin(result, stored, message.attempts)
        results.save(result)
    except _OF_THE_TASK:
        raise
    except Exception as error:
        pause_s = min(store_pause_s(message.attempts), longest_defer_s)
        _log.warning("%s waits %g s for the store of results: %r", message, pause_s, error)
        raise Requeue(pause_s) from error
    return True


def store_pause_s(attempts: int) -> float:
    """Return how long a task waits for the store of results, at this attempt by nsqd's count."""
    doubled = min(attempts - 1, WAITS)
    return min(_FIRST_STORE_PAUSE_S * 2.0**doubled, _LONGEST_STORE_PAUSE_S)


def _begin(result: Any, stored: Any, attempts: int) -> None:
    """Mark the result as running here, at this attempt by nsqd's count."""
    before = result if stored is None else stored
    now = timezone.now()
    unknown = [UNKNOWN_WORKER] * (attempts - 1 - len(before.worker_ids))
    set_fields(
        result,
        status=TaskResultStatus.RUNNING,
        started_at=before.started_at or now,
        last_attempted_at=now,
        worker_ids=[*before.worker_ids, *unknown, worker_id()],
        errors=list(before.errors),
    )


def _call(result: Any) -> Any:
    context = []
    if result.task.takes_context:
        context.append(TaskContext(task_result=result))
    return result.task.call(*context, *result.args, **result.kwargs)


def _failed(
    backend: NsqBackend, results: Results | None, result: Any, error: BaseException, attempts: int
) -> None:
    """Record the error. The result has failed if nsqd_py.work will not try again; then receivers of signals learn it."""
    result.errors.append(error_of(error))
    retry = backend.nsq.retry or NO_RETRY
    if not isinstance(decide(error, attempts, retry, lambda: 0.5), DeadLetter | Dropped):
        set_fields(result, status=TaskResultStatus.READY)
        _save_end(results, result)
        return
    set_fields(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
    _save_end(results, result)
    _tell_end(backend, result)


def _save_end(
    results: Results | None,
    result: Any,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Store how a run has ended; try again for a while if that fails, and log an error in the end."""
    if results is None:
        return
    ends_s = clock() + _LONGEST_SAVE_S
    while True:
        try:
            results.save(result)
            return
        except Exception as error:  # noqa: BLE001 - the task has run, so nothing here makes it run again
            path = result.task.module_path
            if isinstance(error, _OF_THE_TASK) or clock() >= ends_s:
                _log.error("the result of %s, %s, is not stored: %r", path, result.id, error)
                return
            _log.warning(
                "the result of %s, %s, is saved again in %g s: %r", path, result.id, _SAVE_PAUSE_S, error
            )
        sleep(_SAVE_PAUSE_S)
        close_old_connections()


def _tell_end(backend: NsqBackend, result: Any) -> None:
    """Send `task_finished`. An error of a receiver is logged: the task has ended all the same."""
    for receiver, error in task_finished.send_robust(type(backend), task_result=result):
        if isinstance(error, Exception):
            _log.error("a receiver of task_finished has failed: %r", receiver, exc_info=error)


def worker_id() -> str:
    """Return the name of this process in results."""
    return f"{socket.gethostname()[:_LONGEST_HOST]}-{os.getpid()}"


def backend_of(alias: str) -> NsqBackend:
    """Return the backend with this alias, of this thread. Raises ImproperlyConfigured if there is none, or none of NSQ."""
    backend = task_backends[alias]
    if not isinstance(backend, NsqBackend):
        raise ImproperlyConfigured(
            f"TASKS[{alias!r}] has the backend {type(backend).__name__}: nsq_worker is for nsqd_py.django.NsqBackend"
        )
    return backend
