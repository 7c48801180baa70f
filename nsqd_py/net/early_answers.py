"""Answers that a connection queues before the write that they report has happened."""

from __future__ import annotations

from collections.abc import Callable

from nsqd_py.protocol.frames import Part

# The number of kinds of answers that a ticket can distinguish.
KINDS = 4


class EarlyAnswers:
    """The answers to publishes in the output of one connection.

    The answer is queued when the publish is in the publish buffer of its topic. The output is sent after the log is
    written, at the end of the event-loop iteration, or after the sync if publishers wait for one. If the write fails,
    the answer has not been sent yet, and is withdrawn. A successful write needs no extra work.

    A ticket combines the place of an answer in the output and its kind in one number. It is valid until the output is
    sent.
    """

    __slots__ = ("_out",)

    def __init__(self, out: list[Part]) -> None:
        self._out = out

    def ticket(self, kind: int = 0) -> int:
        """Return the ticket of the next answer; 0 <= kind < KINDS."""
        return len(self._out) * KINDS + kind

    @staticmethod
    def kind_of(ticket: int) -> int:
        """Return the kind that was passed to `ticket`."""
        return ticket % KINDS

    def replace(self, ticket: int, replacement: Callable[[bytes], bytes]) -> None:
        """Replace one answer with `replacement(answer)`."""
        place = ticket // KINDS
        self._out[place] = replacement(bytes(self._out[place]))

    def withdraw(self, ticket: int) -> None:
        """Remove the answer and all that follow it."""
        del self._out[ticket // KINDS :]
