"""The form of all views: a head, and rows that know when they last changed; and the figures in them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from nsqd_py.cluster.figures import MILLI, ChannelCounts, Latency, Numbers, Part, Rates, Sum

Json = dict[str, Any]


class BadQuery(ValueError):
    """The query is not valid; str(error) is the message of the answer."""


class NotKnown(LookupError):
    """The topic, channel or node does not exist; str(error) is the message of the answer."""


@dataclass(slots=True)
class View:
    """`changed` holds for each key the tick in which its row last changed."""

    head: Json
    rows: dict[str, Json] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)

    def add(self, key: str, row: Json, changed: int) -> None:
        self.rows[key] = row
        self.changed[key] = changed


RATES = ("message_rate", "finish_rate", "requeue_rate", "timeout_rate")


def hide_rates(view: View) -> None:
    """Replace all rates by null, which means unknown."""
    for row in (view.head, *view.rows.values()):
        row.update((name, None) for name in RATES if name in row)


def figures_json(topic_depth: int, counts: ChannelCounts, messages: int, flow: Numbers, rates: Numbers) -> Json:
    pace = Rates._make(rates)
    return {
        "depth": topic_depth + counts.depth,
        "topic_depth": topic_depth,
        "in_flight": counts.in_flight,
        "deferred": counts.deferred,
        "messages": messages,
        "requeued": counts.requeued,
        "timed_out": counts.timed_out,
        "clients": counts.clients,
        "message_rate": flow[0] / MILLI,
        "finish_rate": pace.finished / MILLI,
        "requeue_rate": pace.requeued / MILLI,
        "timeout_rate": pace.timed_out / MILLI,
    }


def latency_json(latency: Latency) -> list[Json]:
    return [{"quantile": quantile, "ns": value_ns} for quantile, value_ns in latency]


def oldest_json(rows: Iterable[Sum | Part]) -> float | None:
    """Return the publish time of the oldest waiting message, in s since the epoch; None if none is known."""
    oldest_ns = min((row.oldest_ns for row in rows if row.oldest_ns), default=0)
    return oldest_ns / 1e9 if oldest_ns else None
