"""What runs around each call of a handler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from nsqd_py.client.message import Message

if TYPE_CHECKING:
    from nsqd_py.work.handlers import Handler


class Call:
    """The rest of a call, for a middleware: it runs it with `call()`, or `await call()` around coroutine functions.

    handler   the handler that is called
    messages  its messages: one, or those of a batch
    """

    __slots__ = ("_run", "handler", "messages")

    def __init__(self, handler: Handler, messages: Sequence[Message], run: Callable[[], Any]) -> None:
        self.handler = handler
        self.messages = messages
        self._run = run

    def __call__(self) -> Any:
        return self._run()


class Middleware(Protocol):
    """What runs around each call of a handler. Derive from it, and override one method or both.

    They run `call` once, see what it raises, and may raise something else. `message` is the first one of a batch; the body
    of a message is as it was published, in its envelope if it has one. Without the call, the message is finished.
    """

    def around(self, message: Message, call: Call) -> None:
        """Run around a plain function."""
        call()

    async def around_async(self, message: Message, call: Call) -> None:
        """Run around a coroutine function."""
        await call()
