"""Handlers that get their work from nsqd: values instead of bodies, retries, dead letters, time limits.

    from nsqd_py.work import App, Retry

    app = App(nsqd_tcp_addresses=["127.0.0.1:4150"])

    @app.handler("orders", channel="billing", concurrency=8, retry=Retry(attempts=6))
    def bill(order: Order) -> None: ...

    app.publish("orders", Order(id=1), defer_s=3 * 3600)

Only the command nsq-worker and the worker of Django import this room. The files, in the order in which a message meets them:

app           `App`: the handlers that were declared, and publishing
handlers      `Handler`: one declared function, and what its calls pass to it
running       `Running`: the consumers of one process
refusals      which refusals of nsqd end a consumer for good
batches       messages that are collected for one call
pacing        when a call may begin, and when it is over its limit
calling       the calls of one handler: middleware, decoding, and the answers to messages
values        bodies as values, by the annotation of a parameter
once          `Once`: the id of a message and its work in one transaction
middleware    what runs around each call: tracing, metrics, connections of Django, reports of errors
outcomes      what becomes of a message after its call                          pure
dead_letters  the messages that are given up, with their errors
timed         schedules, and delays that are longer than nsqd takes
testing       handlers without a server

Threads
App  any thread makes its producer, and `dict.setdefault` keeps one; what is declared does not change while it runs
Running._stop_by_s  the thread that stops or waits, and its signal handlers; it only becomes earlier
Calls  each thread that calls the handler adds and removes its messages in `_running`, each in one call of a dict; the thread that
    stops copies it in one step, and sets `_returns_all`. An answer to a message that another thread has answered is refused
Counts  any thread that calls the handler, and that reads answers of nsqds, under its lock
Pace  threads that call the handler, under `_changed`
TimeLimits._running, _wakes_s, _is_closed  threads that run handlers add and remove their calls, and the thread of the limits
    removes those that are over their limit, under `_changed`: the one that removes a call answers its messages
Collector  the thread of the consumer adds messages, its own threads take them, under `_changed`; each sets `failure` at its end
Once._of_thread  each thread has its connection
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsqd_py.client.message import Message as Message
    from nsqd_py.client.message import Requeue as Requeue
    from nsqd_py.work.app import App as App
    from nsqd_py.work.handlers import BadHandler as BadHandler
    from nsqd_py.work.handlers import Batch as Batch
    from nsqd_py.work.handlers import Handler as Handler
    from nsqd_py.work.handlers import Headers as Headers
    from nsqd_py.work.middleware import Middleware as Middleware
    from nsqd_py.work.once import Once as Once
    from nsqd_py.work.outcomes import BatchFailed as BatchFailed
    from nsqd_py.work.outcomes import Drop as Drop
    from nsqd_py.work.outcomes import Retry as Retry
    from nsqd_py.work.outcomes import TimeLimitExceeded as TimeLimitExceeded
    from nsqd_py.work.outcomes import Undecodable as Undecodable
    from nsqd_py.work.refusals import ConsumerRefused as ConsumerRefused
    from nsqd_py.work.running import Running as Running

_HOMES = {
    "App": "work.app",
    "BadHandler": "work.handlers",
    "Batch": "work.handlers",
    "BatchFailed": "work.outcomes",
    "ConsumerRefused": "work.refusals",
    "Drop": "work.outcomes",
    "Handler": "work.handlers",
    "Headers": "work.handlers",
    "Message": "client.message",
    "Middleware": "work.middleware",
    "Once": "work.once",
    "Requeue": "client.message",
    "Retry": "work.outcomes",
    "Running": "work.running",
    "TimeLimitExceeded": "work.outcomes",
    "Undecodable": "work.outcomes",
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"nsqd_py.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
