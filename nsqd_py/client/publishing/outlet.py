"""One nsqd as a producer sees it."""

from __future__ import annotations

from typing import Any, Protocol

from nsqd_py.client.errors import NsqClientError
from nsqd_py.client.publishing.window import Window, WindowLimits


class Pause(Protocol):
    """How long to leave an nsqd alone; `nsqd_py.runtime.outages.Backoff` is one."""

    def failed(self, now_s: float) -> None: ...

    def reset(self) -> None: ...

    def wait_s(self, now_s: float) -> float: ...


class Outlet:
    """An nsqd, its connection if there is one, and what is under way to it.

    pause           until when it is left alone after a failure
    is_open         whether publishes may be sent
    failure         why it could not be connected the last time, or was lost; None once it is open
    is_rest_unread  whether nsqd refused a command in a way that tells that it read nothing behind it
    has_refused     whether it answered with an error: it is about to close the connection
    is_wanted       False for one that nsqlookupd does not know any more
    """

    __slots__ = (
        "address", "connection", "failure", "has_refused", "is_open", "is_rest_unread", "is_wanted", "pause", "window",
    )  # fmt: skip

    def __init__(self, address: str, limits: WindowLimits, pause: Pause) -> None:
        self.address = address
        self.window = Window(limits)
        self.pause = pause
        self.connection: Any = None  # the shell's
        self.is_open = False
        self.is_wanted = True
        self.failure: NsqClientError | None = None
        self.is_rest_unread = False
        self.has_refused = False
