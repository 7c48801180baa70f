"""The problems of the stores of nsqds, in buckets or directories. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nsqd_py.cluster.problems.kinds import Problem
from nsqd_py.cluster.stores import Store

# A store that takes nothing for this long is a problem, and so is one that lacks changes of this age: a restart of a
# server, or a slow minute of a cloud, is none.
AWAY_AFTER_S = 60.0
LAGS_AFTER_S = 60.0


def of_store(node: str, store: Store) -> Iterator[Problem]:
    """Yield what an operator must know of the store of an nsqd."""
    away_s = store.away_ms / 1000
    lag_s = store.lag.age_s
    if away_s >= AWAY_AFTER_S:
        reason = f": {store.error}" if store.error else ""
        text = f"has had no answer from its store {store.url} for {away_s:.0f} s{reason}"
        if store.acks:
            yield Problem("store_acks", f"refuses publishes: it {text}", node=node)
        else:
            yield Problem("store_away", text, node=node)
    elif lag_s >= LAGS_AFTER_S + store.interval_ms / 1000:
        text = f"has had changes for {lag_s:.0f} s that its store {store.url} lacks"
        yield Problem("store_lags", text, node=node)
    if store.read_error:
        text = f"channels wait for messages that only its store {store.url} has: {store.read_error}"
        yield Problem("store_unreadable", text, node=node)
    if store.damaged_objects:
        found = f"{store.damaged_objects} damaged objects"
        if store.damaged_objects == 1:
            found = "a damaged object"
        damage = f": {store.damage}" if store.damage else " when it started"
        yield Problem("store_damaged", f"found {found} in its store {store.url}{damage}", node=node)
