"""`NsqBackend`: enqueues tasks of Django as messages of nsqd, after the commit of the transaction that is open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from threading import Lock
from typing import Any
from uuid import uuid4

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.utils import timezone

from nsqd_py.client.errors import NsqClientError, WrongPlace
from nsqd_py.django.bodies import body_of, new_result
from nsqd_py.django.checks import messages_of
from nsqd_py.django.framework import (
    DEFAULT_TASK_PRIORITY,
    BaseTaskBackend,
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
)
from nsqd_py.django.options import BackendOptions, Problem, queue_problem, read_options, shared_problems
from nsqd_py.django.results import Results, error_of, results_of, set_fields
from nsqd_py.work import App, Middleware

_NO_PRIORITY = (
    "Backend does not support setting priority of tasks. nsqd delivers the tasks of a queue in their order: give urgent "
    "tasks a queue of their own, as in @task(queue_name='urgent')."
)
_NO_RESULTS = (
    "This backend does not support retrieving or refreshing results. It stores none, as OPTIONS['results'] of TASKS[{!r}] "
    "is not set: set it to 'database' (django-tasks-db), or to 'cache'."
)

# The Apps through which this process publishes, by the options that they were made with; all threads share them.
_publishing: dict[BackendOptions, App] = {}
_publishing_lock = Lock()


class NsqBackend(BaseTaskBackend):
    """A task is one message; a queue is the topic `<prefix><queue>`, whose channel all workers share.

    nsq       the OPTIONS
    problems  what is wrong with them; the backend refuses to enqueue then, but it can be made, so that checks can run

    Django makes one of these for each thread. Those with the same OPTIONS publish through one App of nsqd_py.work.
    """

    supports_defer = True
    supports_async_task = True
    supports_priority = False

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.nsq, self.problems = read_options(self.options)

    @property
    def supports_get_result(self) -> bool:
        """True if the project names a place for results."""
        return self.nsq.results is not None

    @property
    def store(self) -> Results | None:
        """Return the store of results, or None. Raises ImproperlyConfigured if what it needs is not installed."""
        return results_of(self.nsq)

    def refuse_problems(self) -> None:
        """Raise ImproperlyConfigured, with the first one, if the OPTIONS have problems."""
        if self.problems:
            first = self.problems[0]
            raise ImproperlyConfigured(f"TASKS[{self.alias!r}]: {first.text} {first.hint}".rstrip())

    def validate_task(self, task: Any) -> None:
        """Raise InvalidTask, with the reason, for a task that cannot be enqueued here."""
        if task.priority != DEFAULT_TASK_PRIORITY:
            raise InvalidTask(_NO_PRIORITY)
        super().validate_task(task)
        problem = queue_problem(self.nsq, task.queue_name)
        if problem:
            raise InvalidTask(problem)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Publish the task, or have it published when the open transaction commits; return its TaskResult.

        Raises InvalidTask; TypeError or ValueError for arguments that JSON cannot have; ImproperlyConfigured for bad
        OPTIONS; and the errors of a publish, which come from the commit if the publish waits for it.
        """
        self.validate_task(task)
        self.refuse_problems()
        result = new_result(task, id=str(uuid4()), args=args, kwargs=kwargs, enqueued_at=timezone.now())
        body = body_of(result)
        results = self.store
        if results is not None and results.is_transactional:
            results.save(result)  # here, so that a rollback takes it back
            results = None
        publish = partial(self._publish, result, body, results)
        connection = self._open_transaction()
        if connection is None:
            publish()
        else:
            connection.on_commit(publish)
        return result

    def _open_transaction(self) -> Any:
        """Return the connection to the database whose open transaction must commit first, or None."""
        if not self.nsq.on_commit:
            return None
        connection = transaction.get_connection(self.nsq.on_commit)
        return connection if connection.in_atomic_block else None

    def _publish(self, result: Any, body: bytes, unsaved: Results | None) -> None:
        """Publish the body, after its result is saved: a worker may be quick."""
        if unsaved is not None:
            unsaved.save(result)
        topic = self.nsq.topic(result.task.queue_name)
        run_after = result.task.run_after
        app = publishing_app(self.nsq)
        try:
            if run_after is None:
                app.publish(topic, body)
            else:
                app.publish(topic, body, at=_aware(run_after))
        except WrongPlace as error:
            name = result.task.name
            raise WrongPlace(f"enqueue would block the event loop: await {name}.aenqueue(...)") from error
        except NsqClientError as error:
            self._not_enqueued(result, error)
            raise
        task_enqueued.send(type(self), task_result=result)

    def _not_enqueued(self, result: Any, error: NsqClientError) -> None:
        """Mark the stored result as failed. If nsqd has the task nevertheless, a worker marks it as running."""
        results = self.store
        if results is not None:
            result.errors.append(error_of(error))
            set_fields(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
            results.save(result)

    def get_result(self, result_id: str) -> Any:
        """Return the TaskResult with this id.

        Raises NotImplementedError if the project names no place for results, and TaskResultDoesNotExist.
        """
        results = self.store
        if results is None:
            raise NotImplementedError(_NO_RESULTS.format(self.alias))
        result = results.load(result_id)
        if result is None:
            raise TaskResultDoesNotExist(result_id)
        return result

    def check(self, **kwargs: Any) -> Iterable[checks.CheckMessage]:
        """Return what is wrong with TASKS, for `manage.py check`."""
        problems = [*self.problems, *self._shared_topics()]
        return messages_of(self.alias, self.nsq, problems, self.queues, lambda: self.store)

    def _shared_topics(self) -> Iterator[Problem]:
        """Yield a problem for each backend before this one in TASKS that has a topic of it."""
        for alias in task_backends:
            if alias == self.alias:
                return
            other = task_backends[alias]
            if isinstance(other, NsqBackend):
                yield from shared_problems(alias, (other.nsq, other.queues), (self.nsq, self.queues))


def publishing_app(options: BackendOptions) -> App:
    """Return the App through which this process publishes with these options."""
    with _publishing_lock:
        if options not in _publishing:
            _publishing[options] = make_app(options)
        return _publishing[options]


def make_app(options: BackendOptions, middleware: Sequence[Middleware] = ()) -> App:
    """Return a new App for these options, without handlers."""
    return App(
        options.app_name,
        middleware=middleware,
        nsqd_tcp_addresses=options.nsqd_tcp_addresses,
        lookupd_http_addresses=options.lookupd_http_addresses,
        options=options.client,
        longest_defer_s=options.longest_defer_s,
    )


def _aware(time: datetime) -> datetime:
    """Return a time with its zone: if USE_TZ is False, times have none, and are in the zone of the project."""
    if timezone.is_naive(time):
        return timezone.make_aware(time)
    return time
