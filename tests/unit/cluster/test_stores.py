"""Stores of nsqds as their answers say them, and what is wrong with them."""

from __future__ import annotations

from typing import Any

import pytest

from nsqd_py.cluster.problems.kinds import ERROR, KINDS, WARNING
from nsqd_py.cluster.problems.of_stores import of_store
from nsqd_py.cluster.stores import read_store, without_counts

STORE = {
    "url": "s3://b/p",
    "epoch": 2,
    "state": "storing",
    "acks": 0,
    "interval_ms": 1000,
    "lag_messages": 3,
    "lag_bytes": 400,
    "lag_ms": 900,
    "last_round_ms_ago": 100,
    "objects": 7,
    "size_bytes": 8000,
    "requests_today": 90,
    "damaged_objects": 0,
    "away_ms": 0,
    "error": "",
    "read_error": "",
}


@pytest.mark.parametrize(
    "document",
    [
        {"store": {}},
        {"store": {"last_round_ms_ago": "x", "lag_ms": 10**30, "epoch": None, "url": 5}},
        {"store": {"away_ms": [], "error": 5, "acks": True, "damaged_objects": -1.5}},
    ],
)
def test_an_answer_of_any_form_is_read(document: Any) -> None:
    store = read_store(document)
    assert store is not None
    assert list(of_store("a:4151", store)) == []


@pytest.mark.parametrize("document", [None, [], {}, {"store": 1}, {"store": None}, {"store": []}])
def test_an_nsqd_without_a_store_has_none(document: Any) -> None:
    assert read_store(document) is None


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({}, []),
        ({"away_ms": 59_900, "state": "away", "lag_ms": 59_900}, []),  # a server may restart
        ({"away_ms": 60_000, "state": "away", "lag_ms": 60_000, "error": "no route"}, ["store_away"]),
        ({"away_ms": 60_000, "state": "away", "acks": 1}, ["store_acks"]),
        ({"lag_ms": 60_900}, []),
        ({"lag_ms": 61_000}, ["store_lags"]),
        ({"lag_ms": 200_000, "interval_ms": 600_000}, []),  # it is stored only every ten minutes
        ({"damaged_objects": 2, "lag_ms": 61_000}, ["store_lags", "store_damaged"]),
        ({"read_error": "no route", "lag_ms": 900}, ["store_unreadable"]),
    ],
)
def test_what_is_wrong_with_a_store(more: dict[str, Any], found: list[str]) -> None:
    store = read_store({"store": STORE | more})
    assert store is not None
    assert [problem.kind for problem in of_store("a:4151", store)] == found


def test_a_store_without_an_answer_is_worse_if_publishers_wait_for_it() -> None:
    assert KINDS["store_away"].severity == WARNING
    assert KINDS["store_acks"].severity == ERROR


def test_counts_of_all_topics_can_be_left_out() -> None:
    about = {"error": "files/secret/1.log", "read_error": "files/secret/2.log", "away_ms": 61_000}
    store = read_store({"store": STORE | about})
    shown = without_counts(store)
    assert shown is not None
    assert (shown.lag.messages, shown.lag.size_bytes, shown.lag.ms) == (None, None, 900)
    assert (shown.objects, shown.size_bytes, shown.requests_today) == (None, None, None)
    assert "secret" not in str(list(of_store("a:4151", shown)))
    assert [problem.kind for problem in of_store("a:4151", shown)] == ["store_away", "store_unreadable"]
    assert without_counts(None) is None
