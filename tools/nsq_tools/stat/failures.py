"""The servers without an answer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nsqd_py.cluster.model import Cluster
from nsqd_py.runtime.logs.daemon_log import one_line

# An nsqd that has not answered for longer is shown as failed; until then its last answer is shown.
_LONG_S = 1.0


class Failure(NamedTuple):
    """A server without an answer, and the reason."""

    kind: str
    address: str
    reason: str

    @property
    def who(self) -> str:
        return f"{self.kind} {self.address}"

    def __str__(self) -> str:
        return f"{self.who}: {self.reason}"


Failures = Sequence[Failure]


def failures_of(cluster: Cluster, now_s: float) -> Failures:
    failures = [Failure("nsqlookupd", address, reason) for address, reason in cluster.failed_lookups.items()]
    late = []
    for node in cluster.nodes.values():
        waited_s = now_s - node.asked_s
        if node.failure:
            failures.append(Failure("nsqd", node.address, node.failure))
        elif node.is_late and waited_s > _LONG_S:
            late.append(Failure("nsqd", node.address, f"no answer for {waited_s:.0f}s"))
    return [Failure(kind, one_line(address), one_line(reason)) for kind, address, reason in failures + late]
