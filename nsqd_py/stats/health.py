"""The health of an nsqd: liveness, readiness, and the topics with errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from nsqd_py.broker.broker import Broker

OK, DEGRADED, DRAINING, STANDBY, FAILING = "ok", "degraded", "draining", "standby", "failing"


class Health(NamedTuple):
    """The answer to `/health`.

    status  OK; DEGRADED if some topics refuse publishes; DRAINING; STANDBY; FAILING if the disk of the whole node has
            an error
    reason  the reason for DRAINING, STANDBY and FAILING
    topics  (name, reason) of each topic with an error
    """

    status: str
    reason: str | None
    topics: tuple[tuple[str, str], ...]

    @property
    def is_live(self) -> bool:
        """False if a restart may help. It helps neither a drain nor a topic at its limits."""
        return self.status != FAILING

    @property
    def is_ready(self) -> bool:
        """True if publishers and new consumers should use this nsqd."""
        return self.status in (OK, DEGRADED)

    def fields(self) -> dict[str, Any]:
        """Return the document of `/health?format=json`."""
        return {
            "status": self.status,
            "live": self.is_live,
            "ready": self.is_ready,
            "reason": self.reason,
            "topics": [{"topic_name": name, "reason": _shown(reason)} for name, reason in self.topics],
        }

    def text(self) -> str:
        """Return the health as text: a line for the node, and a line for each topic with an error."""
        lines = [self.status if self.reason is None else f"{self.status} - {self.reason}"]
        return "\n".join([*lines, *(f"topic {name}: {reason}" for name, reason in self.topics)])


def health_of(broker: Broker) -> Health:
    problems = {topic.name: str(error) for topic, error in broker.disk.errors()}
    problems |= broker.space.refused()
    problems |= {topic.name: text for topic, text in broker.removed_files.cut.items()}
    topics = tuple(sorted(problems.items()))
    node_problem = broker.node_problem()
    if node_problem is not None:
        return Health(FAILING, _shown(node_problem), topics)
    if broker.refusal is not None:
        return Health(STANDBY, broker.refusal().reason, topics)
    if broker.drain.is_active:
        return Health(DRAINING, "nsqd refuses publishes and exits when its backlog is delivered", topics)
    return Health(DEGRADED if topics else OK, None, topics)


def _shown(reason: str) -> str:
    """Return an error text as valid UTF-8 for JSON; it may hold a file name that is not UTF-8."""
    return reason.encode("utf-8", "replace").decode()
