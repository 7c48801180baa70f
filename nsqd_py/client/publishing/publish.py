"""One publish: a command that nsqd answers with OK or an error, its state, and its errors. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any

from nsqd_py.client.errors import BadClientOption, NsqClientError, PublishFailed
from nsqd_py.client.options import Delay, milliseconds_of
from nsqd_py.errors import IS_STANDBY
from nsqd_py.protocol import outgoing

# Called with None if it is stored, else with the reason why it is not, or may not be.
Done = Callable[["NsqClientError | None"], object]

Body = bytes | bytearray | memoryview

# A body of this size is sent separately: copying it would take longer than another call.
_LARGE_BYTES = 32 * 1024

WAITING = "waiting"  # no connection has it
SENT = "sent"  # a connection has it, and its answer is due
DONE = "done"
FAILED = "failed"


class PendingPublish:
    """A publish is always in exactly one state.

    head, body   the command, in two parts so that a large body is not copied; `body` may be empty
    size_bytes   of both
    deadline_s   when it fails, whatever its state
    on_done      called with the result; may be None
    losses       how many connections were lost while its answer was due
    refusals     how many nsqds could not store it
    error        why it failed
    """

    __slots__ = (
        "body",
        "deadline_s",
        "error",
        "head",
        "losses",
        "on_done",
        "refusals",
        "size_bytes",
        "state",
    )

    def __init__(self, head: bytes, body: bytes, deadline_s: float, on_done: Done | None = None) -> None:
        self.head = head
        self.body = body
        self.size_bytes = len(head) + len(body)
        self.deadline_s = deadline_s
        if on_done is not None and not callable(on_done):
            raise BadClientOption(f"on_done must be a function, got {on_done!r}")
        self.on_done = on_done
        self.state = WAITING
        self.losses = 0
        self.refusals = 0
        self.error: NsqClientError | None = None

    @property
    def is_over(self) -> bool:
        """True if it is stored or has failed."""
        return self.state is DONE or self.state is FAILED

    def fail(self, error: NsqClientError) -> None:
        # Before the state: a thread that sees it failed reads the error, without a lock.
        self.error = error
        self.state = FAILED


def commands(publishes: Iterable[PendingPublish]) -> list[bytes]:
    """Return the bytes of all publishes, in pieces to be sent one after the other."""
    pieces = []
    parts = []
    for publish in publishes:
        parts.append(publish.head)
        if len(publish.body) >= _LARGE_BYTES:
            pieces += [b"".join(parts), publish.body]
            parts = []
        elif publish.body:
            parts.append(publish.body)
    if parts:
        pieces.append(b"".join(parts))
    return pieces


class BadBody(NsqClientError, ValueError):
    """A body that cannot be published; nsqd was not asked."""


class FlushFailed(PublishFailed):
    """Some publishes without `on_done` failed.

    count  how many
    first  the error of the first; `address`, `code` and `text` are copied from it if it has them
    """

    def __init__(self, count: int, first: NsqClientError) -> None:
        super().__init__(
            getattr(first, "address", ""), getattr(first, "code", ""), getattr(first, "text", str(first))
        )
        self.args = (f"{count} publish{'es' if count > 1 else ''} failed, the first because of {first}",)
        self.count = count
        self.first = first

    def __reduce__(self) -> tuple[type[FlushFailed], tuple[Any, ...]]:
        return type(self), (self.count, self.first)


class Failures:
    """Failed publishes, until an error reports them. One thread adds them; others may raise the error."""

    def __init__(self) -> None:
        self._count = 0
        self._reported = 0
        self._first: NsqClientError | None = None  # of those that are not reported
        self._last: NsqClientError | None = None

    def add(self, error: NsqClientError) -> None:
        self._last = error
        if self._first is None:
            self._first = error
        self._count += 1

    def raise_new(self) -> None:
        """Raise FlushFailed for those that no error has reported. An exception of a signal handler does not hide it."""
        count = self._count
        first = self._first or self._last
        if first is not None and count > self._reported:
            try:
                raise FlushFailed(count - self._reported, first)
            finally:
                self._reported = count
                self._first = None


def ignore_result(result: object) -> None:
    """The `on_done` of a publish whose caller checks its result."""


class Verdict(Enum):
    """The meaning of an error answer, for its publish and for those sent behind it over the same connection.

    All these errors end the connection.
    """

    AT_FAULT = "the command itself was at fault; nsqd has read nothing behind it"
    NOT_STORED = "this nsqd could not store it, or could not check the permission"
    STANDBY = "this nsqd is a standby; its primary may store it, also later, when the standby is the primary"
    UNKNOWN = "an error with another code"

    @property
    def is_for_another(self) -> bool:
        """True if another nsqd may store it."""
        return self is Verdict.NOT_STORED or self is Verdict.STANDBY

    @property
    def is_rest_unread(self) -> bool:
        """True if what was sent behind it is certainly not stored."""
        return self is Verdict.AT_FAULT or self is Verdict.STANDBY


_VERDICTS = {
    "E_INVALID": Verdict.AT_FAULT,
    "E_BAD_TOPIC": Verdict.AT_FAULT,
    "E_BAD_MESSAGE": Verdict.AT_FAULT,
    "E_BAD_BODY": Verdict.AT_FAULT,
    "E_AUTH_FIRST": Verdict.AT_FAULT,
    "E_UNAUTHORIZED": Verdict.AT_FAULT,
    "E_AUTH_FAILED": Verdict.NOT_STORED,
    "E_PUB_FAILED": Verdict.NOT_STORED,
    "E_MPUB_FAILED": Verdict.NOT_STORED,
    "E_DPUB_FAILED": Verdict.NOT_STORED,
}


def verdict_on(code: str, text: str) -> Verdict:
    """Return the meaning of an error answer."""
    verdict = _VERDICTS.get(code, Verdict.UNKNOWN)
    if verdict is Verdict.NOT_STORED and IS_STANDBY in text:
        return Verdict.STANDBY
    return verdict


# ---- commands, after checks. Each has a head and a body, so that a large body is not copied.


def single(topic: str, body: Body, defer_s: Delay = 0) -> bytes:
    """Return a PUB, or a DPUB if it is deferred.

    Raises BadName, BadBody, TypeError, and ValueError if `defer_s` cannot be.
    """
    if not defer_s:
        return outgoing.pub(topic, _checked(body))
    return outgoing.dpub(topic, milliseconds_of(defer_s), _checked(body))


def several(topic: str, bodies: Sequence[Body]) -> tuple[bytes, bytes]:
    """Return the two parts of an MPUB. Raises BadName, BadBody, TypeError."""
    if isinstance(bodies, str | bytes | bytearray | memoryview):
        raise TypeError("multi_publish takes a list of messages, not one")
    checked = list(map(_checked, bodies))
    if not checked:
        raise BadBody("there is nothing to publish")
    body = outgoing.mpub_body(checked)
    return outgoing.mpub_head(topic, len(body)), body


def finished(topic: str, body: bytes, count: int) -> tuple[bytes, bytes]:
    """Return the two parts of an MPUB whose body of `count` messages is complete. Raises BadName, BadBody."""
    if int.from_bytes(body[:4], "big") != count:
        raise BadBody(f"the body of an MPUB begins with the number of its messages, {count}")
    return outgoing.mpub_head(topic, len(body)), body


def _checked(body: Body) -> bytes:
    if type(body) is not bytes:
        body = _bytes_of(body)
    if not body:
        raise BadBody("nsqd takes no empty message")
    return body


def _bytes_of(body: object) -> bytes:
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    hint = ": encode it first, as in text.encode()" if isinstance(body, str) else ""
    raise TypeError(f"a message is bytes, not {type(body).__name__}{hint}")
