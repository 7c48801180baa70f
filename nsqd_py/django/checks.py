"""The system check of a backend: `manage.py check` names all that is wrong with TASKS, and the remedies.

nsqd_py.E001  no address of an nsqd or nsqlookupd
nsqd_py.E002  a malformed address
nsqd_py.E003  an unknown option
nsqd_py.E004  a bad value of an option
nsqd_py.E005  a queue whose name cannot be a topic
nsqd_py.E006  results go to a database or cache that is not there
nsqd_py.W001  results go to a cache that other processes do not see
nsqd_py.W002  `nsqd_py.django` is not installed, so there is no `manage.py nsq_worker`
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.cache import InvalidCacheBackendError
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from nsqd_py.django.options import CACHE, Problem, queue_problems

if TYPE_CHECKING:
    from nsqd_py.django.backend import NsqBackend

APP = "nsqd_py.django"
_OF_ONE_PROCESS = ("locmem.LocMemCache", "dummy.DummyCache")


def messages_of(backend: NsqBackend) -> list[checks.CheckMessage]:
    """Return what is wrong with the settings of a backend."""
    errors = [*backend.problems, *queue_problems(backend.nsq, backend.queues), *_of_places(backend)]
    messages: list[checks.CheckMessage] = [_message(checks.Error, backend, problem) for problem in errors]
    messages += [_message(checks.Warning, backend, problem) for problem in _warnings(backend)]
    return messages


def _message(kind: Any, backend: NsqBackend, problem: Problem) -> checks.CheckMessage:
    return kind(problem.text, hint=problem.hint or None, obj=f"TASKS[{backend.alias!r}]", id=problem.id)


def _of_places(backend: NsqBackend) -> Iterator[Problem]:
    """Yield a problem for each alias of a database or cache that does not exist."""
    options = backend.nsq
    if not isinstance(backend.options, dict):
        yield Problem("nsqd_py.E004", f"OPTIONS is a dict, not {type(backend.options).__name__}.")
    if options.on_commit and options.on_commit not in connections.settings:
        yield Problem(
            "nsqd_py.E004",
            f"OPTIONS['on_commit']: there is no database {options.on_commit!r}.",
            "Name an alias of DATABASES; False enqueues at once, without waiting for a commit.",
        )
    try:
        backend.store  # noqa: B018 - opens the store
    except (ImproperlyConfigured, InvalidCacheBackendError) as error:
        yield Problem("nsqd_py.E006", f"OPTIONS['results']: {error}.")


def _warnings(backend: NsqBackend) -> Iterator[Problem]:
    place = backend.nsq.results
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
