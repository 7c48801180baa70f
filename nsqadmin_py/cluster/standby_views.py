"""The JSON of primaries and standbys, in rows of nsqds. Pure."""

from __future__ import annotations

from nsqadmin_py.cluster.view import Json
from nsqd_py.cluster.model import Cluster, Node
from nsqd_py.cluster.roles import FAILED, Pair, Primary, Standby, Trouble, troubles

# The figures of an nsqd that has no standby, and is none.
NO_ROLE: Json = {
    "role": "",
    "epoch": None,
    "lag_messages": None,
    "lag_bytes": None,
    "lag_s": None,
    "standby": None,
    "standbys": None,
    "troubles": [],
}


class Roles:
    """The pairs of primaries and standbys of a cluster, as of now."""

    def __init__(self, cluster: Cluster) -> None:
        self.pairs = cluster.pairs()
        self._troubles: list[Trouble] = list(troubles(self.pairs))

    def json_of(self, node: Node) -> Json:
        """Return the role of an nsqd, the lag of a standby, and the largest lag of a primary's standbys."""
        if node.role is None:
            return NO_ROLE
        about: Json = {"epoch": node.role.epoch, "troubles": self._texts(node.address)}
        if isinstance(node.role, Standby):
            pair = next(pair for pair in self.pairs if pair.standby == node.address)
            about |= {"role": "standby", "standby": pair_json(pair) | {"lease_decides": pair.lease_decides}}
            return NO_ROLE | about | _lag_json(pair)
        own = [pair for pair in self.pairs if pair.primary == node.address and pair.standby]
        about |= {"role": "primary", "standbys": _primary_json(node.role, own)}
        known = [pair for pair in own if pair.state != FAILED]
        if known:
            about |= _lag_json(max(known, key=lambda pair: (pair.lag.ms, pair.lag.messages or 0)))
        return NO_ROLE | about

    def _texts(self, address: str) -> list[str]:
        return [trouble.text for trouble in self._troubles if trouble.node == address]


def _primary_json(role: Primary, own: list[Pair]) -> Json:
    return {"acks": role.acks, "is_alone": role.is_alone, "list": [pair_json(pair) for pair in own]}


def pair_json(pair: Pair) -> Json:
    """Return a standby and its primary. `as_of_s` is the age of the lag, null if none was known yet."""
    return {
        "node": pair.standby,
        "primary": pair.primary,
        "primary_answers": pair.primary_answers,
        "state": pair.state,
        "is_complete": pair.is_complete,
        "as_of_s": None if pair.as_of_ms is None else pair.as_of_ms / 1000,
        "set_aside_messages": pair.set_aside,
        **_lag_json(pair),
    }


def _lag_json(pair: Pair) -> Json:
    return {"lag_messages": pair.lag.messages, "lag_bytes": pair.lag.size_bytes, "lag_s": round(pair.lag.ms / 1000, 3)}
