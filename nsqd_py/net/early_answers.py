"""Answers that a connection queues before the write that they report has happened."""

from __future__ import annotations

from collections.abc import Callable

# Kinds of answers that a ticket can tell apart.
KINDS = 4


class EarlyAnswers:
    """The answers to publishes in the output of one connection.

    A publish is answered when it is in the publish buffer of its topic. The output leaves after the log is written, at
    the end of the event-loop iteration, or after the sync where publishers wait for one: so the answer to a publish
    that could not be written is still here, and is withdrawn. Success costs nothing.

    A ticket is the place of an answer in the output and its kind in one number, valid until the output leaves.
    """

    __slots__ = ("_out",)

    def __init__(self, out: list[bytes]) -> None:
        self._out = out

    def ticket(self, kind: int = 0) -> int:
        """Return the ticket of the answer that is queued next; 0 <= kind < KINDS."""
        return len(self._out) * KINDS + kind

    @staticmethod
    def kind_of(ticket: int) -> int:
        """Return the kind that the ticket was made with."""
        return ticket % KINDS

    def replace(self, ticket: int, replacement: Callable[[bytes], bytes]) -> None:
        """Put `replacement(answer)` in the place of the answer; all others stay."""
        place = ticket // KINDS
        self._out[place] = replacement(self._out[place])

    def withdraw(self, ticket: int) -> None:
        """Remove the answer and all that follow it."""
        del self._out[ticket // KINDS :]
