"""Tasks as bodies of messages: JSON that other languages can write and read too.

    {"id": "7c9e…", "task": "shop.tasks.send_invoice", "args": [17], "kwargs": {}, "enqueued_at": "2026-11-30T08:00:00+00:00"}

`task` is the path of the task, `id` a UUID. `run_after` is there if the task has one.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from django.utils.module_loading import import_string

from nsqd_py.django.framework import Task, TaskResult, TaskResultStatus
from nsqd_py.work import Undecodable

_KINDS = {"id": str, "args": list, "kwargs": dict}


class BadTaskBody(Undecodable):
    """A body that is no task, or names none. To try it again does not help; str() has the reason."""


def body_of(result: Any) -> bytes:
    """Return the body for a TaskResult of a task that is enqueued. Raises TypeError or ValueError for what JSON cannot have."""
    task = result.task
    fields = {
        "id": result.id,
        "task": task.module_path,
        "args": result.args,
        "kwargs": result.kwargs,
        "enqueued_at": result.enqueued_at.isoformat(),
    }
    if task.run_after is not None:
        fields["run_after"] = task.run_after.isoformat()
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def result_of(body: bytes, *, backend: str, queue: str) -> Any:
    """Return the TaskResult, which is READY, of the task in this body.

    Raises BadTaskBody; and ImportError if the task cannot be imported, as in a worker that is older than the task.
    """
    fields = _fields_of(body)
    try:
        task_id, path, args, kwargs = (fields[name] for name in ("id", "task", "args", "kwargs"))
        times = {
            name: datetime.fromisoformat(fields[name])
            for name in ("enqueued_at", "run_after")
            if name in fields
        }
    except KeyError as error:
        raise BadTaskBody(f"the body of a task has no {error}") from None
    except (TypeError, ValueError) as error:
        raise BadTaskBody(f"the body of a task has a bad time: {error}") from None
    for name, kind in _KINDS.items():
        if not isinstance(fields[name], kind):
            raise BadTaskBody(f"{name!r} in the body of a task is a {kind.__name__}, not {fields[name]!r}")
    task = task_at(path).using(backend=backend, queue_name=queue, run_after=times.get("run_after"))
    return new_result(task, id=task_id, args=args, kwargs=kwargs, enqueued_at=times.get("enqueued_at"))


def new_result(task: Any, *, id: str, args: Any, kwargs: Any, enqueued_at: datetime | None) -> Any:
    """Return the TaskResult of a task that did not run yet."""
    return TaskResult(
        task=task,
        id=id,
        status=TaskResultStatus.READY,
        enqueued_at=enqueued_at,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=args,
        kwargs=kwargs,
        backend=task.backend,
        errors=[],
        worker_ids=[],
    )


def task_at(path: object) -> Any:
    """Return the task with this path. Raises BadTaskBody if something else is there, ImportError if nothing is."""
    if not isinstance(path, str):
        raise BadTaskBody(f"the path of a task is a str, not {type(path).__name__}: {path!r}")
    task = import_string(path)
    if not isinstance(task, Task):
        raise BadTaskBody(f"{path} is no task: decorate the function with @task")
    return task


def _fields_of(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except ValueError as error:
        raise BadTaskBody(f"the body of a task is JSON, but this is not: {error}") from None
    if not isinstance(fields, dict):
        raise BadTaskBody(f"the body of a task is a JSON object, not {type(fields).__name__}")
    return fields
