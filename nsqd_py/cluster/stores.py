"""The stores of nsqds, in buckets or directories, as their answers say them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from nsqd_py.cluster.roles import Lag, lag_in
from nsqd_py.cluster.values import number_in, read_as, value_in


class Store(NamedTuple):
    """The store of an nsqd. None in a count: this user may not know.

    state              storing, copying or away
    acks               1 if publishers wait until the store has their messages
    last_round_ms_ago  time since it took the last change; None before the first one
    damaged_objects    objects that were damaged, and are not repaired
    damage             a sentence about one of them
    away_ms            time since which it takes nothing; 0 while it answers
    error              why it takes nothing
    read_error         why channels cannot read on in it, where their messages have left the disk
    """

    url: str
    epoch: int
    state: str
    acks: int
    interval_ms: int
    lag: Lag
    last_round_ms_ago: int | None
    objects: int | None
    size_bytes: int | None
    requests_today: int | None
    damaged_objects: int
    damage: str
    away_ms: int
    error: str
    read_error: str


def read_store(document: Any) -> Store | None:
    """Return the store in an answer of /stats; None for an nsqd without one, also for Go's."""
    found = value_in(document, "store")
    if not isinstance(found, Mapping):
        return None
    damaged = number_in(found, "damaged_objects") - number_in(found, "repaired_objects")
    counts = {name: number_in(found, name) for name in ("objects", "size_bytes", "requests_today")}
    return read_as(Store, found, lag=lag_in(found), damaged_objects=max(0, damaged), **counts)


def without_counts(store: Store | None) -> Store | None:
    """Return a store without the statistics that count messages of all topics."""
    if store is None:
        return None
    return store._replace(
        lag=Lag(None, None, store.lag.ms),
        objects=None,
        size_bytes=None,
        requests_today=None,
        error="",  # it may name a topic
        damage="",
        read_error="unknown" if store.read_error else "",
    )
