"""Where results of tasks are stored, if a project names a place. Each store keeps the latest state of a TaskResult."""

from __future__ import annotations

from dataclasses import asdict
from traceback import format_exception
from typing import Any, Protocol

from django.apps import apps
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured, ValidationError

from nsqd_py.django.bodies import BadTaskBody, new_result, task_at
from nsqd_py.django.framework import TaskError, TaskResultStatus
from nsqd_py.django.options import DATABASE, BackendOptions

# Both django-tasks-db and its predecessor in django-tasks before 0.12 have this label.
DATABASE_APP = "django_tasks_database"
_DATABASE_MODEL = "DBTaskResult"
_KEY = "nsqd_py.task:{}"


class Results(Protocol):
    """A store of results. `is_transactional`: what is saved in a transaction of the database is gone after a rollback."""

    is_transactional: bool

    def save(self, result: Any) -> None:
        """Store the state of a TaskResult."""

    def load(self, result_id: str) -> Any:
        """Return the TaskResult with this id, or None."""


def results_of(options: BackendOptions) -> Results | None:
    """Return the store that the options name, or None."""
    place = options.results
    if place is None:
        return None
    if place.kind == DATABASE:
        return DatabaseResults()
    return CacheResults(place.alias, options.results_for_s)


class DatabaseResults:
    """The table of django-tasks-db, which has admin pages. It keeps one error of a task."""

    is_transactional = True

    def __init__(self) -> None:
        if not any(config.label == DATABASE_APP for config in apps.get_app_configs()):
            raise ImproperlyConfigured(
                "OPTIONS['results'] is 'database', but no model for results is installed: "
                "pip install django-tasks-db, and add 'django_tasks_db' to INSTALLED_APPS"
            )
        self._rows: Any = apps.get_model(DATABASE_APP, _DATABASE_MODEL).objects

    def save(self, result: Any) -> None:
        fields = _fields_of(result)
        try:
            row = self._rows.filter(id=result.id)
        except ValidationError:
            raise BadTaskBody(
                f"the id of a task is a UUID, not {result.id!r}, if its result is stored in a database"
            ) from None
        if row.update(**fields):
            return
        self._rows.create(
            id=result.id,
            args_kwargs={"args": result.args, "kwargs": result.kwargs},
            priority=result.task.priority,
            task_path=result.task.module_path,
            queue_name=result.task.queue_name,
            run_after=result.task.run_after,
            backend_name=result.backend,
            **fields,
        )

    def load(self, result_id: str) -> Any:
        try:
            row = self._rows.filter(id=result_id).first()
        except ValidationError:  # it is no UUID
            return None
        return None if row is None else row.task_result


def _fields_of(result: Any) -> dict[str, Any]:
    """Return the columns that change."""
    has_failed = result.status == TaskResultStatus.FAILED and bool(result.errors)
    error = result.errors[-1] if has_failed else None
    return {
        "status": result.status,
        "started_at": result.started_at,
        "finished_at": result.finished_at,
        "worker_ids": result.worker_ids,
        "return_value": result._return_value,
        "exception_class_path": error.exception_class_path if error else "",
        "traceback": error.traceback if error else "",
    }


class CacheResults:
    """A cache of Django, which keeps each result for some time and may drop it earlier."""

    is_transactional = False

    def __init__(self, alias: str, seconds: float) -> None:
        self._cache: Any = caches[alias]
        self._seconds = seconds

    def save(self, result: Any) -> None:
        task = result.task
        value = {
            "task": task.module_path,
            "queue": task.queue_name,
            "run_after": task.run_after,
            "backend": result.backend,
            "args": result.args,
            "kwargs": result.kwargs,
            "status": str(result.status),
            "enqueued_at": result.enqueued_at,
            "started_at": result.started_at,
            "finished_at": result.finished_at,
            "last_attempted_at": result.last_attempted_at,
            "errors": [asdict(error) for error in result.errors],
            "worker_ids": list(result.worker_ids),
            "return_value": result._return_value,
        }
        self._cache.set(_KEY.format(result.id), value, self._seconds)

    def load(self, result_id: str) -> Any:
        value = self._cache.get(_KEY.format(result_id))
        if value is None:
            return None
        task = task_at(value["task"]).using(
            backend=value["backend"], queue_name=value["queue"], run_after=value["run_after"]
        )
        result = new_result(
            task, id=result_id, args=value["args"], kwargs=value["kwargs"], enqueued_at=value["enqueued_at"]
        )
        set_fields(
            result,
            status=TaskResultStatus(value["status"]),
            started_at=value["started_at"],
            finished_at=value["finished_at"],
            last_attempted_at=value["last_attempted_at"],
            errors=[TaskError(**error) for error in value["errors"]],
            worker_ids=value["worker_ids"],
            _return_value=value["return_value"],
        )
        return result


def error_of(error: BaseException) -> Any:
    """Return the TaskError of an exception."""
    kind = type(error)
    path = f"{kind.__module__}.{kind.__qualname__}"
    return TaskError(exception_class_path=path, traceback=_storable("".join(format_exception(error))))


def _storable(text: str) -> str:
    """Return the text with escapes for what no database stores in one: NULs (PostgreSQL) and halves of surrogate pairs."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def set_fields(result: Any, **values: Any) -> None:
    """Change a TaskResult, which is a frozen dataclass: backends of the framework do it in this way."""
    for name, value in values.items():
        object.__setattr__(result, name, value)
