"""Roles of nsqds as their answers say them, and what is wrong with pairs of a primary and a standby."""

from __future__ import annotations

from typing import Any

import pytest

from nsqd_py.cluster.problems.of_standbys import of_standbys
from nsqd_py.cluster.roles import GroupLease, NodeInGroup, pairs, read_role, without_counts

LEASE = {"name": "orders", "holder": "a:4150", "error": "", "waits_for": ""}
LAG = {"lag_messages": 3, "lag_bytes": 400, "lag_ms": 1500}


def listed(http_address: str = "b:4151", *, is_following: bool = True, lag_ms: int = 1500) -> dict[str, Any]:
    about = {"address": "10.0.0.2:40000", "http_address": http_address, "is_following": is_following}
    return about | LAG | {"lag_ms": lag_ms}


def primary(
    *standbys: dict[str, Any],
    acks: int = 0,
    is_alone: bool = False,
    address: str = "a:4151",
    tcp_address: str = "a:4150",
    is_answering: bool = True,
) -> NodeInGroup:
    role = read_role({"standbys": {"epoch": 2, "acks": acks, "is_alone": is_alone, "list": list(standbys)}})
    return NodeInGroup(address, tcp_address, role, is_answering)


def standby(state: str = "following", **more: Any) -> NodeInGroup:
    about = {"primary": "a:4150", "epoch": 1, "state": state, "is_complete": True, "last_round_ms_ago": 7000}
    role = read_role({"standby": about | LAG | {"lag_messages": 9} | more})
    return NodeInGroup("b:4151", "b:4150", role, is_answering=True)


def kinds(*members: NodeInGroup, lagging_after_s: float = 10.0) -> list[tuple[str, str]]:
    return [(found.kind, found.node) for found in of_standbys(pairs(members), lagging_after_s)]


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {"standby": 1},
        {"standbys": []},
        {"standby": {}, "standbys": None},
        {"standby": {"last_round_ms_ago": "x", "lag_ms": 10**30, "epoch": None, "primary": 5}},
        {"standbys": {"list": [None, 5, {}, {"lag_bytes": "many"}], "acks": -1.5}},
        {"standbys": {"list": {"a": 1}}},
        {"standby": {}, "lease": 5},
        {"standbys": {}, "lease": {"error": 5, "holder": None}},
    ],
)
def test_an_answer_of_any_form_is_read(document: Any) -> None:
    role = read_role(document)
    list(of_standbys(pairs([NodeInGroup("x", "", role, is_answering=True)])))
    without_counts(role)


def test_a_primary_names_at_most_as_many_standbys_as_nsqd_accepts() -> None:
    role = primary(*(listed(f"b{number}:4151") for number in range(100))).role
    assert len(role.standbys) == 16


def test_a_disconnected_standby_has_the_lag_that_it_heard_last() -> None:
    away = standby("connecting")
    for members in ([away], [away, primary()], [away, primary(is_answering=False)]):
        (pair,) = pairs(members)
        assert (pair.standby, pair.lag.messages, pair.as_of_ms) == ("b:4151", 9, 7000)
        assert pair.primary == ("a:4150" if len(members) == 1 else "a:4151")
        assert pair.primary_answers == (len(members) == 2 and members[1].is_answering)
    assert kinds(away) == [("standby_away", "b:4151")]
    (text,) = [found.text for found in of_standbys(pairs([away]))]
    assert text == "is not connected to its primary a:4150; it last heard from it 7 s ago"
    assert kinds(away, primary()) == [("standby_refused", "b:4151")]  # nobody should promote it
    assert kinds(away, primary(is_answering=False)) == [("standby_away", "b:4151")]


def test_a_standby_lags_from_a_limit_on() -> None:
    late = [standby(), primary(listed(lag_ms=9000))]
    assert kinds(*late) == []
    assert kinds(*late, lagging_after_s=8.0) == [("standby_lags", "b:4151")]


def test_two_primaries_whose_tcp_addresses_are_not_known_are_not_one() -> None:
    found = pairs([primary(tcp_address=""), primary(address="c:4151", tcp_address="")])
    assert [(pair.primary, pair.state) for pair in found] == [("a:4151", "missing"), ("c:4151", "missing")]


NO_ANSWER = "no answer from etcd"


def leased(member: NodeInGroup, **lease: str) -> NodeInGroup:
    return member._replace(role=member.role._replace(lease=GroupLease(**LEASE | lease)))


def waiting(address: str, **lease: str) -> NodeInGroup:
    role = standby("waiting", primary="", lease_decides=True).role
    return leased(NodeInGroup(address, "b:4150", role, is_answering=True), **{"holder": ""} | lease)


STANDBY = leased(standby("connecting", lease_decides=True))


@pytest.mark.parametrize(
    ("members", "found"),
    [
        ([leased(primary(listed())), leased(standby(lease_decides=True))], []),
        ([leased(primary()), STANDBY], [("lease_standby_away", "b:4151")]),
        # The store is away: the primary has ended serving, and its standby only knows the last holder.
        (
            [
                waiting("a:4151", error=NO_ANSWER),
                leased(standby("connecting", lease_decides=True), error=NO_ANSWER),
            ],
            [("lease_store", "a:4151"), ("lease_store", "b:4151"), ("lease_no_primary", "a:4151")],
        ),
        (
            [leased(primary(listed()), error=NO_ANSWER)],
            [("lease_store", "a:4151")],
        ),  # it may renew it in time
        # The primary is gone, and does not answer; the lease has not ended yet, or another nsqd serves.
        ([leased(primary(is_answering=False)), STANDBY], [("lease_standby_away", "b:4151")]),
        (
            [waiting("a:4151", waits_for="c:4150"), waiting("b:4151", waits_for="c:4150")],
            [("lease_no_primary", "a:4151")],
        ),
        (
            [waiting("a:4151"), waiting("b:4151", name="other")],
            [("lease_no_primary", "a:4151"), ("lease_no_primary", "b:4151")],
        ),
    ],
)
def test_the_troubles_of_a_group_with_a_lease(
    members: list[NodeInGroup], found: list[tuple[str, str]]
) -> None:
    assert [one for one in kinds(*members) if one[0] != "standby_missing"] == found
