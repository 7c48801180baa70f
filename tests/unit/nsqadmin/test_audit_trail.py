"""The latest actions: what is kept of them, and who sees what."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from nsqadmin_py.audit_trail import DONE, MOST_ENTRIES, NOT_DONE, AuditEntry, AuditQuery, AuditTrail
from nsqadmin_py.permissions import Grant, Scope

EVERY_ENTRY = AuditQuery()
EVERYTHING = Scope()
SHOP = Scope((Grant("view", "orders*"),))


def trail_of(*entries: AuditEntry) -> AuditTrail:
    trail = AuditTrail()
    for entry in entries:
        trail.add(entry)
    return trail


def seen(trail: AuditTrail, query: AuditQuery = EVERY_ENTRY, scope: Scope = EVERYTHING) -> list[AuditEntry]:
    return list(trail.find(query, scope, sees_addresses=True))


def test_the_newest_is_first_and_the_oldest_are_forgotten() -> None:
    trail = trail_of(
        *(AuditEntry(float(number), "pause", topic="orders") for number in range(MOST_ENTRIES + 5))
    )
    times = [entry.time_s for entry in seen(trail)]
    assert (len(trail), times[0], times[-1]) == (MOST_ENTRIES, MOST_ENTRIES + 4.0, 5.0)


def test_texts_of_any_length_and_kind_take_little_memory_and_are_json() -> None:
    long = "\ud800x" * 50_000
    trail = trail_of(
        AuditEntry(
            1.0, long, long, False, long, long, long, long, {str(n): long for n in range(99)}, NOT_DONE, long
        )
    )
    assert len(orjson.dumps(trail.dump())) < 10_000


@pytest.mark.parametrize(
    ("query", "times"),
    [
        (AuditQuery(), [3.0, 2.0, 1.0]),
        (AuditQuery("ADA"), [3.0, 1.0]),
        (AuditQuery("ada billing"), [3.0]),
        (AuditQuery("10.0.0.7"), [1.0]),
        (AuditQuery(fields={"action": "delete", "user": "bob"}), [2.0]),
        (AuditQuery(fields={"user": "bo"}), []),
        (AuditQuery(only_failed=True), [2.0]),
        (AuditQuery("502"), [2.0]),
        (AuditQuery("payments"), [3.0]),
    ],
)
def test_a_filter(query: AuditQuery, times: list[float]) -> None:
    trail = trail_of(
        AuditEntry(1.0, "pause", "ada", address="10.0.0.7:1", topic="orders"),
        AuditEntry(2.0, "delete", "bob", topic="orders", state=NOT_DONE, result="502"),
        AuditEntry(3.0, "requeue_dead_letters", "Ada", topic="billing.dead", details={"target": "payments"}),
    )
    assert [entry.time_s for entry in seen(trail, query)] == times


def test_hidden_topics_are_not_seen_and_not_found() -> None:
    trail = trail_of(
        AuditEntry(1.0, "pause", "ada", topic="orders"),
        AuditEntry(2.0, "pause", "ada", topic="billing"),
        AuditEntry(3.0, "promote", "ada", node="a:4151"),
        AuditEntry(
            4.0,
            "requeue_message",
            "ada",
            topic="orders.dead",
            details={"target": "billing"},
            state=NOT_DONE,
            result="no billing",
        ),
    )
    assert [entry.time_s for entry in seen(trail)] == [4.0, 3.0, 2.0, 1.0]
    assert [entry.time_s for entry in seen(trail, scope=Scope((Grant("view", "*"),)))] == [4.0, 3.0, 2.0, 1.0]
    visible = seen(trail, scope=SHOP)
    assert [(entry.time_s, entry.result, dict(entry.details)) for entry in visible] == [
        (4.0, "failed", {}),
        (1.0, "ok", {}),
    ]
    assert seen(trail, AuditQuery("billing"), SHOP) == []


def test_addresses_are_for_some_users_only() -> None:
    trail = trail_of(AuditEntry(1.0, "pause", "ada", address="10.0.0.7:1", topic="orders"))
    (entry,) = trail.find(AuditQuery(), EVERYTHING, sees_addresses=False)
    assert (entry.address, entry.user) == ("", "ada")
    assert list(trail.find(AuditQuery("10.0.0.7"), EVERYTHING, sees_addresses=False)) == []


def test_it_is_the_same_after_a_restart() -> None:
    entries = [
        AuditEntry(1.0, "pause", "ada", True, "@", "orders", "archive", "a:1", {"to": "latest"}),
        AuditEntry(2.0, "delete", state=NOT_DONE, result="no"),
    ]
    document = orjson.loads(orjson.dumps(trail_of(*entries).dump()))
    later = trail_of(AuditEntry(3.0, "empty"))
    later.load(document)
    assert later.dump() == [*entries, AuditEntry(3.0, "empty")]


@pytest.mark.parametrize(
    "document",
    [
        None,
        5,
        {},
        [5],
        [{}],
        [{"time_s": "1", "state": DONE}],
        [{"time_s": 1, "state": "x"}],
        [{"time_s": True}],
    ],
)
def test_a_document_of_any_form_is_read(document: Any) -> None:
    trail = AuditTrail()
    trail.load(document)
    assert trail.dump() == []
    trail.load([{"time_s": 1, "state": DONE, "user": 5, "details": [1], "topic": None}])
    assert trail.dump() == [AuditEntry(1.0, "", result="")]
