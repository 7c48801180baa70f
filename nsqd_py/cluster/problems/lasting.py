"""Leaves out problems that may be over in a moment. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from nsqd_py.cluster.problems.kinds import Problem

# Problems of these kinds are listed when they have lasted for this long: an nsqd that starts, ends or goes on after a stop is
# not yet, or not any more, at its nsqlookupds. What the first round finds is listed at once.
LISTED_AFTER_S = {
    "node_failed": 3.0,
    "node_gone": 3.0,
    "node_unlisted": 20.0,
    "node_half_listed": 30.0,
    "same_address": 20.0,
    "standby_away": 3.0,
    "standby_refused": 3.0,
}


def lasting(
    found: Iterable[Problem], before: Mapping[str, float] | None, now_s: float
) -> tuple[list[Problem], dict[str, float]]:
    """Return the problems that have lasted long enough; and for the next round, when each was found first, by key.

    `before` is that of the last round, or None in the first one. A problem that was listed stays so while it is found.
    """
    listed = []
    begun_s: dict[str, float] = {}
    for problem in found:
        if before is None:
            begin_s = -inf
        else:
            begin_s = before.get(problem.key, now_s)
        if now_s - begin_s >= LISTED_AFTER_S.get(problem.kind, 0.0):
            listed.append(problem)
            begin_s = -inf
        begun_s[problem.key] = begin_s
    return listed, begun_s
