"""The system check of a backend: `manage.py check` names all that is wrong with TASKS, and the remedies.

nsqd_py.E001  no address of an nsqd or nsqlookupd
nsqd_py.E002  a malformed address
nsqd_py.E003  an unknown option
nsqd_py.E004  a bad value of an option
nsqd_py.E005  a queue whose name cannot be a topic
nsqd_py.E006  results go to a database or cache that is not there
nsqd_py.E007  another backend has the same topics
nsqd_py.W001  results go to a cache that other processes do not see
nsqd_py.W002  `nsqd_py.django` is not installed, so there is no `manage.py nsq_worker`
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.cache import InvalidCacheBackendError
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from nsqd_py.django.options import CACHE, BackendOptions, Problem, queue_problems

APP = "nsqd_py.django"
_OF_ONE_PROCESS = ("locmem.LocMemCache", "dummy.DummyCache")


def messages_of(
    alias: str,
    options: BackendOptions,
    problems: Sequence[Problem],
    queues: Collection[str],
    open_store: Callable[[], object],
) -> list[checks.CheckMessage]:
    """Return what is wrong with the settings of a backend: with its OPTIONS, its queues, and what these name."""
    errors = [*problems, *queue_problems(options, queues), *_of_places(options, open_store)]
    messages = [_message(checks.Error, alias, problem) for problem in errors]
    return messages + [_message(checks.Warning, alias, problem) for problem in _warnings(options)]


def _message(kind: Any, alias: str, problem: Problem) -> checks.CheckMessage:
    return kind(problem.text, hint=problem.hint or None, obj=f"TASKS[{alias!r}]", id=problem.id)


def _of_places(options: BackendOptions, open_store: Callable[[], object]) -> Iterator[Problem]:
    """Yield a problem for each database or cache that does not exist."""
    if options.on_commit and options.on_commit not in connections.settings:
        yield Problem(
            "nsqd_py.E004",
            f"OPTIONS['on_commit']: there is no database {options.on_commit!r}.",
            "Name an alias of DATABASES; False enqueues at once, without waiting for a commit.",
        )
    try:
        open_store()
    except (ImproperlyConfigured, InvalidCacheBackendError) as error:
        yield Problem("nsqd_py.E006", f"OPTIONS['results']: {error}.")


def _warnings(options: BackendOptions) -> Iterator[Problem]:
    place = options.results
    if place is not None and place.kind == CACHE:
        kind = settings.CACHES.get(place.alias, {}).get("BACKEND", "")
        if kind.endswith(_OF_ONE_PROCESS):
            yield Problem(
                "nsqd_py.W001",
                f"OPTIONS['results']: the cache {place.alias!r} is {kind}, whose entries other processes do not see.",
                "Results that a worker stores are read in other processes: use a shared cache, or 'database'.",
            )
    if not apps.is_installed(APP):
        yield Problem(
            "nsqd_py.W002",
            f"{APP!r} is not in INSTALLED_APPS, so there is no command `manage.py nsq_worker`.",
            f"Add {APP!r} to INSTALLED_APPS.",
        )
