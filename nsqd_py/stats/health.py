"""The health of an nsqd: is it alive, should it be sent work, and which topics are in trouble."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from nsqd_py.broker.broker import Broker

OK, DEGRADED, DRAINING, FAILING = "ok", "degraded", "draining", "failing"


class Health(NamedTuple):
    """The answer to `/health`.

    status   OK; DEGRADED: some topics refuse publishes, the others work; DRAINING; FAILING: the disk of the whole node
    reason   of DRAINING and FAILING
    topics   (name, reason) of each topic that is in trouble
    """

    status: str
    reason: str | None
    topics: tuple[tuple[str, str], ...]

    @property
    def is_live(self) -> bool:
        """False if a restart may help. A drain goes on without one, and so do a topic's own limits."""
        return self.status != FAILING

    @property
    def is_ready(self) -> bool:
        """True if publishers and new consumers should come here."""
        return self.status in (OK, DEGRADED)

    def fields(self) -> dict[str, Any]:
        """The document of `/health?format=json`."""
        return {
            "status": self.status,
            "live": self.is_live,
            "ready": self.is_ready,
            "reason": self.reason,
            "topics": [{"topic_name": name, "reason": _shown(reason)} for name, reason in self.topics],
        }

    def text(self) -> str:
        """The same for people, a line for the node and one for each topic."""
        lines = [self.status if self.reason is None else f"{self.status} - {self.reason}"]
        return "\n".join([*lines, *(f"topic {name}: {reason}" for name, reason in self.topics)])


def health_of(broker: Broker) -> Health:
    """Return the health of this nsqd."""
    troubles = {topic.name: str(error) for topic, error in broker.disk.errors()}
    troubles |= broker.space.refused()
    topics = tuple(sorted(troubles.items()))
    node_trouble = broker.node_trouble()
    if node_trouble is not None:
        return Health(FAILING, _shown(node_trouble), topics)
    if broker.drain.is_active:
        return Health(DRAINING, "nsqd takes no more messages and ends when those that it has are delivered", topics)
    return Health(DEGRADED if topics else OK, None, topics)


def _shown(reason: str) -> str:
    """The text of an error may hold a file name that is no UTF-8, which JSON cannot carry."""
    return reason.encode("utf-8", "replace").decode()
