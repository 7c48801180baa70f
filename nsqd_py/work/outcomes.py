"""What becomes of a message after its call: finished, tried again later, or given up. No I/O.

The server counts the attempts of a message, also those that ended with a killed process or a time-out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from nsqd_py.client.message import Requeue
from nsqd_py.client.options import seconds_of
from nsqd_py.errors import NsqdError


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


@dataclass(frozen=True, slots=True)
class Retry:
    """When a message whose handler has failed comes again.

    attempts  calls of the handler, with the first; after the last one the message becomes a dead letter. None: no limit.
              Attempts of which a time-out or a killed process was the end count too
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


def decide(error: BaseException, attempts: int, retry: Retry, chance: Callable[[], float]) -> Outcome:
    """Return what becomes of a message whose handler raised this error at its n-th attempt."""
    if isinstance(error, Drop):
        return Dropped(error.reason)
    if isinstance(error, Requeue):
        if error.delay_s is None:
            return RequeueAfter(retry.delay_s(attempts, chance()))
        return RequeueAfter(seconds_of(error.delay_s))
    if isinstance(error, (Undecodable, *retry.never)):
        return DeadLetter(error)
    if retry.attempts is not None and attempts >= retry.attempts:
        return DeadLetter(error)
    return RequeueAfter(retry.delay_s(attempts, chance()), error)
