"""The roles of nsqds: primaries, their standbys, and how far these are behind. Pure.

`read_role` reads the role of one nsqd, and `pairs` joins those of all nsqds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from nsqd_py.cluster.values import number_in, read_as, rows_in

# States of a standby.
FOLLOWING = "following"
COPYING = "copying"
CONNECTING = "connecting"
DAMAGED = "damaged"  # it follows, and some bytes in its files are damaged
# States that only the observer knows: no answer from the standby; none that could answer.
FAILED = "failed"
MISSING = "missing"

_MOST_STANDBYS = 16  # of one primary, as nsqd has it


class Lag(NamedTuple):
    """The lag of a standby: `ms` is the age of the oldest change. None: this user may not know."""

    messages: int | None
    size_bytes: int | None
    ms: int

    @property
    def age_s(self) -> float:
        return self.ms / 1000


class GroupLease(NamedTuple):
    """The lease of a group, as one of its nsqds sees it.

    holder     TCP address of the primary; empty if it knows none
    error      why the store of the lease did not answer its last request; empty if it did
    waits_for  the nsqds that may take the lease before this one, if it lacks acknowledged messages
    """

    name: str
    holder: str
    error: str
    waits_for: str


class ListedStandby(NamedTuple):
    """A standby as its primary sees it; `address` is that of its connection."""

    address: str
    http_address: str
    is_following: bool
    lag: Lag


class Primary(NamedTuple):
    """An nsqd that standbys may follow.

    acks      standbys that must have a message before its publisher gets OK
    is_alone  publishers get their OK although these standbys are missing
    """

    epoch: int
    acks: int
    is_alone: bool
    standbys: tuple[ListedStandby, ...]
    lease: GroupLease | None = None


class KnownStandby(NamedTuple):
    """An nsqd that follows another one, or waits for its lease.

    primary            TCP address of its primary; empty while it waits
    last_round_ms_ago  time since it had everything that the primary sent; None if it never had
    set_aside          messages that it had and its primary does not have, which it keeps in a directory
    lease_decides      True if a lease promotes it, and not an operator
    is_fenced          True if it was a primary, until another nsqd was promoted instead
    error              why it cannot follow
    """

    epoch: int
    primary: str
    state: str
    is_complete: bool
    lag: Lag
    last_round_ms_ago: int | None
    set_aside: int
    lease_decides: bool
    lease: GroupLease | None = None
    is_fenced: bool = False
    error: str = ""


Role = Primary | KnownStandby | None


def read_role(document: Any) -> Role:
    """Return the role in an answer of /stats; None for an nsqd without standbys, also for Go's."""
    if not isinstance(document, Mapping):
        return None
    lease = _lease(document.get("lease"))
    standby = document.get("standby")
    if isinstance(standby, Mapping):
        set_aside = number_in(standby, "set_aside_messages")
        return read_as(KnownStandby, standby, lag=lag_in(standby), set_aside=set_aside, lease=lease)
    standbys = document.get("standbys")
    if isinstance(standbys, Mapping):
        listed = rows_in(standbys, "list")[:_MOST_STANDBYS]
        return read_as(Primary, standbys, standbys=tuple(map(_listed_standby, listed)), lease=lease)
    return None


def _listed_standby(row: Mapping[str, Any]) -> ListedStandby:
    return read_as(ListedStandby, row, lag=lag_in(row))


def _lease(found: Any) -> GroupLease | None:
    if isinstance(found, Mapping):
        return read_as(GroupLease, found)
    return None


def lag_in(row: Mapping[str, Any]) -> Lag:
    """Return how far a standby, or a store, is behind, as its statistics say it."""
    return Lag(number_in(row, "lag_messages"), number_in(row, "lag_bytes"), number_in(row, "lag_ms"))


def without_counts(role: Role) -> Role:
    """Return a role without the statistics that count messages of all topics."""
    if isinstance(role, KnownStandby):
        return role._replace(lag=_uncounted(role.lag), set_aside=0, error="")  # the error may name a topic
    if isinstance(role, Primary):
        return role._replace(
            standbys=tuple(each._replace(lag=_uncounted(each.lag)) for each in role.standbys)
        )
    return None


def _uncounted(lag: Lag) -> Lag:
    return lag._replace(messages=None, size_bytes=None)


# ---- over all nsqds


class NodeInGroup(NamedTuple):
    """An nsqd of the cluster, as this module needs it. `address` is for HTTP, `tcp_address` for clients."""

    address: str
    tcp_address: str
    role: Role
    is_answering: bool


class Pair(NamedTuple):
    """A primary and one of its standbys.

    primary          HTTP address of the primary; its TCP address, as the standby has it, if it is not known
    standby          HTTP address of the standby; empty if the primary has none
    primary_answers  True if the primary answers and is still one
    state            that of the standby, FAILED if it does not answer, or MISSING
    lag              what the primary says; if they are not connected, what the standby heard last
    as_of_ms         age of `lag`; None if there was none yet
    leases           the lease of the group as each of the two sees it that answers, by HTTP address
    """

    primary: str
    standby: str
    primary_answers: bool
    state: str
    is_complete: bool
    lag: Lag
    as_of_ms: int | None
    epoch: int
    acks: int
    is_alone: bool
    set_aside: int = 0
    lease_decides: bool = False
    leases: tuple[tuple[str, GroupLease], ...] = ()
    is_fenced: bool = False
    error: str = ""

    @property
    def as_of_s(self) -> float | None:
        if self.as_of_ms is None:
            return None
        return self.as_of_ms / 1000


def pairs(members: Iterable[NodeInGroup]) -> list[Pair]:
    """Return all primaries with their standbys, in the order of addresses. Most clusters have none."""
    all_members = list(members)
    known = {member.address: member for member in all_members if member.role is not None}
    silent = {member.address for member in all_members if not member.is_answering}
    found: list[Pair] = []
    listing: dict[str, tuple[NodeInGroup, ListedStandby]] = {}
    primaries = [member for member in known.values() if isinstance(member.role, Primary)]
    by_tcp = {member.tcp_address: member for member in primaries if member.tcp_address}
    for primary in primaries:
        if isinstance(primary.role, Primary) and primary.is_answering:
            listing |= {each.http_address: (primary, each) for each in primary.role.standbys}
    for address, member in known.items():
        if isinstance(member.role, KnownStandby):
            primary_and_listed = listing.pop(address, (by_tcp.get(member.role.primary), None))
            found.append(_of_standby(member, member.role, *primary_and_listed))
    for address, (primary, listed) in listing.items():
        if isinstance(primary.role, Primary):
            pair = _pair(primary, primary.role, address or listed.address, listed)
            if address in silent:
                pair = pair._replace(state=FAILED)
            found.append(pair)
    served = {pair.primary for pair in found}
    for primary in primaries:
        if primary.address not in served and isinstance(primary.role, Primary):
            found.append(_pair(primary, primary.role, "", None))
    leases = {}
    for address, member in known.items():
        lease = member.role.lease if member.role is not None else None
        if member.is_answering and lease is not None:
            leases[address] = lease
    found = [_with_leases(pair, leases) for pair in found]
    return sorted(found, key=lambda pair: (pair.primary, pair.standby))


def _with_leases(pair: Pair, leases: Mapping[str, GroupLease]) -> Pair:
    seen = [node for node in (pair.primary, pair.standby) if node in leases]
    return pair._replace(leases=tuple((node, leases[node]) for node in seen))


def _pair(primary: NodeInGroup, role: Primary, standby: str, listed: ListedStandby | None) -> Pair:
    """Return a pair whose standby is not known itself."""
    state = MISSING
    lag = Lag(0, 0, 0)
    if listed is not None:
        state = FOLLOWING if listed.is_following else COPYING
        lag = listed.lag
    return Pair(
        primary=primary.address,
        standby=standby,
        primary_answers=primary.is_answering,
        state=state,
        is_complete=state == FOLLOWING,
        lag=lag,
        as_of_ms=None if listed is None else 0,
        epoch=role.epoch,
        acks=role.acks,
        is_alone=role.is_alone,
    )


def _of_standby(
    member: NodeInGroup, role: KnownStandby, primary: NodeInGroup | None, listed: ListedStandby | None
) -> Pair:
    of_primary = None
    if primary is not None and isinstance(primary.role, Primary):
        of_primary = primary.role
    lag = role.lag
    as_of_ms = role.last_round_ms_ago
    if listed is not None and role.state != CONNECTING:
        lag = listed.lag
        as_of_ms = 0
    return Pair(
        primary=role.primary if primary is None else primary.address,
        standby=member.address,
        primary_answers=primary is not None and primary.is_answering,
        state=role.state if member.is_answering else FAILED,
        is_complete=role.is_complete,
        lag=lag,
        as_of_ms=as_of_ms,
        epoch=role.epoch,
        acks=of_primary.acks if of_primary is not None else 0,
        is_alone=of_primary is not None and of_primary.is_alone,
        set_aside=role.set_aside,
        lease_decides=role.lease_decides,
        is_fenced=role.is_fenced,
        error=role.error,
    )
