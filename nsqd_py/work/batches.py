"""Messages that are collected for one call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Batch:
    """A handler gets lists: of up to `most` messages, and no later than `within_s` after the first one came.

    Raises ValueError, with the name of the field.
    """

    most: int
    within_s: float = 0.5

    def __post_init__(self) -> None:
        if self.most < 1:
            raise ValueError(f"most must be at least 1, got {self.most}")
        if self.within_s < 0:
            raise ValueError(f"within_s must be at least 0, got {self.within_s}")


class BatchFailed(Exception):
    """A handler of batches raises this if some of its values failed: their indexes, with their errors. The others are finished.

    The errors may be `Requeue` and `Drop` too.
    """

    def __init__(self, errors: Mapping[int, BaseException]) -> None:
        super().__init__(dict(errors))
        self.errors = dict(errors)
