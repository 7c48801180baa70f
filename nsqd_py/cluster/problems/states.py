"""The state of an nsqd, as of its last answers. Pure."""

from __future__ import annotations

from nsqd_py.cluster.model import Node

# An nsqd whose answer takes this long is slow. The poller marks it as late earlier.
_SLOW_AFTER_S = 5.0

# FAILED is also the state of a standby that does not answer, see `nsqd_py.cluster.roles`.
# GONE and STOPPED are nsqds that are no part of the cluster any more: a STOPPED one has ended on purpose.
OK = "ok"
SLOW = "slow"
FAILED = "failed"
NEW = "new"
GONE = "gone"
STOPPED = "stopped"


def state_of(node: Node, now_s: float) -> str:
    """Return ok, slow (its metrics are old), failed (an error, or no answer for long) or new (not asked yet)."""
    age_s = node.age_s(now_s)
    if node.failure or (age_s is not None and not node.is_whole):  # its metrics are in no sum any more
        return FAILED
    if age_s is None:
        return SLOW if node.is_slow else NEW
    is_awaited = node.answered_s is not None and node.asked_s > node.answered_s
    if node.is_slow or (is_awaited and now_s - node.asked_s > _SLOW_AFTER_S):
        return SLOW
    return OK
