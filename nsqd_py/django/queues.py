"""The application of `nsqd_py.work` for a backend: a handler for each queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from django.core.exceptions import ImproperlyConfigured

from nsqd_py.django.backend import make_app
from nsqd_py.django.executing import NO_RETRY, WAITS, backend_of, execute
from nsqd_py.work import App, Message
from nsqd_py.work.handlers import Handler
from nsqd_py.work.middleware import DjangoConnections

# Of the environment of `worker`, which nsq-worker imports in each process.
BACKEND_VARIABLE = "NSQ_DJANGO_BACKEND"
QUEUES_VARIABLE = "NSQ_DJANGO_QUEUES"
THREADS_VARIABLE = "NSQ_DJANGO_THREADS"


def worker_app(alias: str, queues: Iterable[str] = (), threads: int = 1) -> App:
    """Return an App with a handler for each of these queues; without any, for all of the backend.

    Raises ImproperlyConfigured for bad settings of the backend, and for queues that it does not have.
    """
    backend = backend_of(alias)
    backend.refuse_problems()
    options = backend.nsq
    app = make_app(options, [DjangoConnections()])
    for queue in _queues(alias, list(queues), backend.queues):
        handler = Handler(
            function=_handler(alias, queue),
            topic=options.topic(queue),
            channel=options.channel,
            concurrency=threads,
            time_limit_s=options.time_limit_s or None,
            retry=options.retry or NO_RETRY,
            longest_defer_s=app.longest_defer_s,
            spare_attempts=WAITS,
        )
        app.add(handler)
    return app


def _queues(alias: str, wanted: list[str], declared: Iterable[str]) -> list[str]:
    """Return the queues to work on. Raises ImproperlyConfigured."""
    known = sorted(declared)
    if not known and not wanted:
        raise ImproperlyConfigured(
            f"TASKS[{alias!r}] has QUEUES = [], which allows any: name the queues of this worker with --queues"
        )
    unknown = [queue for queue in wanted if known and queue not in known]
    if unknown:
        raise ImproperlyConfigured(
            f"TASKS[{alias!r}] has no queue {unknown[0]!r} (there are {', '.join(known)}): add it to QUEUES"
        )
    return wanted or known


def _handler(alias: str, queue: str) -> Callable[[bytes, Message], None]:
    def run_task(body: bytes, message: Message) -> None:
        execute(backend_of(alias), queue, body, message)  # the backend of this thread

    run_task.__qualname__ = (
        queue  # logs, dead letters and metrics name the handler nsqd_py.django.queues.<queue>
    )
    return run_task
