"""A backend for `django.tasks` of Django 6, and for its backport django-tasks: tasks are messages of nsqd.

    TASKS = {"default": {"BACKEND": "nsqd_py.django.NsqBackend", "OPTIONS": {"nsqd_tcp_addresses": ["127.0.0.1:4150"]}}}
    INSTALLED_APPS = [..., "nsqd_py.django"]        # for `manage.py nsq_worker`

docs/work.md has the options. Nothing else of nsqd-py imports this package.

apps        the application of Django
backend     `NsqBackend`, which enqueues tasks
options     OPTIONS of a backend, read and checked
checks      the system check of a backend
bodies      tasks as bodies of messages
results     where results are stored: the database of django-tasks-db, or a cache
executing   one run of a task in a worker: its signals, and its result
queues      the App of nsqd_py.work that runs the tasks of a backend
worker      that App for the command nsq-worker
framework   the names of the framework
choice      which package has the framework
management  `manage.py nsq_worker`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsqd_py.django.backend import NsqBackend as NsqBackend

__all__ = ["NsqBackend"]


def __getattr__(name: str) -> Any:
    # Imported when a setting names it: Django imports this package before its applications are loaded.
    if name == "NsqBackend":
        from nsqd_py.django.backend import NsqBackend

        return NsqBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
