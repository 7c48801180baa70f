"""What becomes of a message after its call: finished, tried again later, or given up. No I/O.

The server counts the attempts of a message, also those that ended with a killed process or a time-out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from nsqd_py.client.message import Requeue
from nsqd_py.client.options import seconds_of
from nsqd_py.errors import NsqdError

# A message is called this many times more than its handler's retry allows if its attempts ended without an answer: a stop, a
# lost connection or a kill of another handler's process may have been the reason, and not its own call.
UNANSWERED_ATTEMPTS = 3


def is_whole(value: object) -> bool:
    """True for an int that is no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_finite(value: object) -> bool:
    """True for a finite number that is no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


class Drop(Exception):
    """A handler raises this to finish a message whose work is not needed. The reason is logged."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class BatchFailed(Exception):
    """A handler of batches raises this if some of its values failed: their indexes, with their errors. The others are finished.

    The errors may be `Requeue` and `Drop` too.
    """

    def __init__(self, errors: Mapping[int, BaseException]) -> None:
        super().__init__(dict(errors))
        self.errors = dict(errors)


def request_in(error: BaseException) -> BaseException:
    """Return the `Requeue` or `Drop` that is meant by a group, as a TaskGroup raises it; any other error as it is.

    It is meant if all errors of the group are the same request. Others together are an error.
    """
    if not isinstance(error, ExceptionGroup):
        return error
    first, *others = _leaves(error)
    is_request = isinstance(first, (Requeue, Drop))
    is_same = all(type(other) is type(first) and other.args == first.args for other in others)
    return first if is_request and is_same else error


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


class Undecodable(NsqdError):
    """The body of a message is not what its handler expects. The message goes to the dead letters at once."""


class TimeLimitExceeded(NsqdError, TimeoutError):
    """A handler ran longer than its time limit."""


class Unanswered(NsqdError):
    """A message came more often than its handler's retry allows. The handler is not called: it may have ended its process."""

    def __init__(self, attempts: int, most: int) -> None:
        super().__init__(
            f"it came at attempt {attempts}, after the last one that is allowed, {most}: its last attempts ended without an "
            "answer, by a killed process, a lost connection or a time-out, or were given back"
        )


class TransactionEnded(NsqdError, RuntimeError):
    """A handler with `Once` has ended the transaction. The message goes to the dead letters at once: a part is committed."""


class RequeueRefused(NsqdError):
    """A handler raised a `Requeue` that is not possible. It counts as a failure."""


@dataclass(frozen=True, slots=True)
class Retry:
    """When a message whose handler has failed comes again.

    attempts  calls of the handler, with the first; after the last one the message becomes a dead letter. None: no limit.
              nsqd counts them: those that end with a time-out, a killed process, a message that is given back, or
              `Requeue` count too. A message that comes more than three times after the last one becomes a dead letter
              without a call
    first_s   the delay after the first attempt
    factor    each delay is this many times as long as the one before
    most_s    the longest delay
    jitter    the part of a delay by which it is shortened or prolonged at random, from 0 to 1
    never     errors after which the message becomes a dead letter at once

    Raises ValueError, with the name of the field.
    """

    attempts: int | None = 5
    first_s: float = 1.0
    factor: float = 4.0
    most_s: float = 900.0
    jitter: float = 0.1
    never: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        if self.attempts is not None and not is_whole(self.attempts):
            raise ValueError(f"attempts must be a whole number, or None for no limit, got {self.attempts!r}")
        for name in ("first_s", "factor", "most_s", "jitter"):
            if not is_finite(getattr(self, name)):
                raise ValueError(f"{name} must be a finite number, got {getattr(self, name)!r}")
        if self.attempts is not None and self.attempts < 1:
            raise ValueError(f"attempts must be at least 1, or None for no limit, got {self.attempts}")
        if self.first_s < 0:
            raise ValueError(f"first_s must be at least 0, got {self.first_s}")
        if self.factor < 1:
            raise ValueError(f"factor must be at least 1, got {self.factor}")
        if self.most_s < self.first_s:
            raise ValueError(f"most_s must be at least first_s, {self.first_s}, got {self.most_s}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter must be from 0 to 1, got {self.jitter}")
        if not isinstance(self.never, tuple):
            raise ValueError(f"never must be a tuple of classes, such as (ValueError,), got {self.never!r}")

    def within(self, longest_s: float) -> Retry:
        """Return the same with delays that are not longer than this."""
        return replace(self, first_s=min(self.first_s, longest_s), most_s=min(self.most_s, longest_s))

    def delay_s(self, attempts: int, chance: float) -> float:
        """Return the delay after this many attempts. `chance`, from 0 to 1, places it within its jitter."""
        try:
            delay_s = self.first_s * float(self.factor) ** (
                attempts - 1
            )  # of a whole number it would take long
        except OverflowError:
            delay_s = self.most_s
        spread = 1 + self.jitter * (2 * chance - 1)
        return min(delay_s * spread, self.most_s)


class Finished(NamedTuple):
    """The handler has returned."""

    error: None = None


class RequeueAfter(NamedTuple):
    """The message comes again after this delay: because of an error, or because the handler asked for it (None)."""

    delay_s: float
    error: BaseException | None = None


class DeadLetter(NamedTuple):
    """The message is moved to the dead letters with this error."""

    error: BaseException


class Dropped(NamedTuple):
    """The message is finished without its work."""

    reason: str
    error: None = None


Outcome: TypeAlias = Finished | RequeueAfter | DeadLetter | Dropped


def decide(
    error: BaseException,
    attempts: int,
    retry: Retry,
    chance: Callable[[], float],
    *,
    most_attempts: int | None = None,
    longest_defer_s: float = math.inf,
) -> Outcome:
    """Return what becomes of a message whose handler raised this error at its n-th attempt.

    most_attempts    the attempts after which no `Requeue` is possible
    longest_defer_s  the longest delay that nsqd takes. A message with a longer one comes again after this, as a failure
    """
    if isinstance(error, Drop):
        return Dropped(error.reason)
    if isinstance(error, Requeue):
        if most_attempts is not None and attempts >= most_attempts:
            return DeadLetter(_refused_at_the_last(attempts))
        if error.delay_s is None:
            return RequeueAfter(retry.delay_s(attempts, chance()))
        delay_s = seconds_of(error.delay_s)
        if delay_s > longest_defer_s:
            return RequeueAfter(longest_defer_s, _refused_as_too_long(delay_s, longest_defer_s))
        return RequeueAfter(delay_s)
    if isinstance(error, (Undecodable, TransactionEnded, *retry.never)):
        return DeadLetter(error)
    if retry.attempts is not None and attempts >= retry.attempts:
        return DeadLetter(error)
    return RequeueAfter(retry.delay_s(attempts, chance()), error)


def _refused_at_the_last(attempts: int) -> RequeueRefused:
    return RequeueRefused(
        f"Requeue at the last attempt, {attempts}: each Requeue counts as an attempt. Give the handler "
        "Retry(attempts=…) for as many as it needs, or attempts=None"
    )


def _refused_as_too_long(delay_s: float, longest_s: float) -> RequeueRefused:
    return RequeueRefused(
        f"Requeue(delay_s={delay_s:g}) is longer than the longest_defer_s of the app: the message comes again after "
        f"{longest_s:g} s. Publish it with App.publish(…, defer_s=…), which takes any delay, or raise longest_defer_s and "
        "nsqd's --max-req-timeout"
    )
