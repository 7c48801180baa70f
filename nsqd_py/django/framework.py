"""The names of `django.tasks`, which Django 6 has, or else of its backport django-tasks, which are the same but for a few."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from nsqd_py.django.choice import IN_DJANGO, either, framework_name

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
