"""One publish: a command that nsqd answers with OK or an error, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nsqd_py.client.errors import NsqClientError

# What `on_done` gets: None when it is stored, else why it is not (or may not be).
Done = Callable[["NsqClientError | None"], object]

# A body of this size leaves by itself: to copy it would take longer than one more call.
_LARGE_BYTES = 32 * 1024

WAITING = "waiting"  # no connection has it
SENT = "sent"  # a connection has it, and its answer is due
DONE = "done"
FAILED = "failed"


class Publish:
    """At any moment in exactly one state.

    head, body   the command, in two parts so that a large body is not copied; `body` may be empty
    size_bytes   of both
    deadline_s   when it fails, whatever its state
    on_done      who is told, or None
    losses       how many connections were lost while its answer was due
    refusals     how many nsqds could not store it
    error        why it failed
    """

    __slots__ = ("body", "deadline_s", "error", "head", "losses", "on_done", "refusals", "size_bytes", "state")

    def __init__(self, head: bytes, body: bytes, deadline_s: float, on_done: Done | None = None) -> None:
        self.head = head
        self.body = body
        self.size_bytes = len(head) + len(body)
        self.deadline_s = deadline_s
        self.on_done = on_done
        self.state = WAITING
        self.losses = 0
        self.refusals = 0
        self.error: NsqClientError | None = None

    @property
    def is_over(self) -> bool:
        """Whether it is known what became of it."""
        return self.state is DONE or self.state is FAILED

    def fail(self, error: NsqClientError) -> None:
        self.state = FAILED
        self.error = error


def commands(publishes: Iterable[Publish]) -> list[bytes]:
    """All of them as they go over the wire, in pieces to be sent one after the other."""
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
