"""The names of `django.tasks`, which Django 6 has, or else of its backport django-tasks, which are the same but for a few."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.core.exceptions import ImproperlyConfigured

IN_DJANGO = "django.tasks"
BACKPORT = "django_tasks"


def framework_name(find: Callable[[str], object] = find_spec) -> str:
    """Return the package of the framework. Django's own is preferred.

    Raises ImproperlyConfigured if there is none.
    """
    for name in (IN_DJANGO, BACKPORT):
        if find(name) is not None:
            return name
    raise ImproperlyConfigured(
        "nsqd_py.django needs django.tasks: use Django 6, or install the backport, pip install django-tasks"
    )


def either(module: Any, *names: str) -> Any:
    """Return the first of these names that the module has: some have been renamed. Raises ImproperlyConfigured."""
    for name in names:
        if hasattr(module, name):
            return getattr(module, name)
    raise ImproperlyConfigured(
        f"{module.__name__} has none of {', '.join(names)}: nsqd_py.django does not know this version"
    )


NAME = framework_name()
_base = import_module(f"{NAME}.base")
_exceptions = import_module(f"{NAME}.exceptions")
_signals = import_module(f"{NAME}.signals")
_json = import_module("django.utils.json" if NAME == IN_DJANGO else f"{NAME}.utils")

# Without types, as Django is.
task_backends: Any = import_module(NAME).task_backends
BaseTaskBackend: Any = import_module(f"{NAME}.backends.base").BaseTaskBackend
Task: Any = _base.Task
TaskContext: Any = _base.TaskContext
TaskError: Any = _base.TaskError
TaskResult: Any = _base.TaskResult
TaskResultStatus: Any = _base.TaskResultStatus
DEFAULT_TASK_BACKEND_ALIAS: str = _base.DEFAULT_TASK_BACKEND_ALIAS
DEFAULT_TASK_PRIORITY: int = _base.DEFAULT_TASK_PRIORITY
InvalidTask: Any = either(_exceptions, "InvalidTask", "InvalidTaskError")
InvalidTaskBackend: Any = either(_exceptions, "InvalidTaskBackend", "InvalidTaskBackendError")
TaskResultDoesNotExist: Any = _exceptions.TaskResultDoesNotExist
task_enqueued: Any = _signals.task_enqueued
task_started: Any = _signals.task_started
task_finished: Any = _signals.task_finished
normalize_json: Callable[[Any], Any] = _json.normalize_json
