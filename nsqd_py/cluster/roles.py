"""The roles of nsqds: primaries, their standbys, and how far these are behind. Pure.

`read_role` reads the role of one nsqd, `pairs` joins those of all nsqds, and `troubles` says what is wrong with the pairs.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from nsqd_py.cluster.values import flag_in, number_in, number_or_none, rows_in, text_in

# States of a standby.
FOLLOWING = "following"
COPYING = "copying"
CONNECTING = "connecting"
DAMAGED = "damaged"  # it follows, and some bytes in its files are damaged
# States that only the observer knows: no answer from the standby; none that could answer.
FAILED = "failed"
MISSING = "missing"

# A standby that lacks changes of this age lags behind.
LAGGING_AFTER_S = 10.0
_MOST_STANDBYS = 16  # of one primary, as nsqd has it

# Kinds of trouble.
ALONE = "standby_alone"
ACKS_MISSING = "standby_acks"
NO_STANDBY = "standby_missing"
# It is not connected to a primary that answers: this one refuses it, or the network between them is broken.
REFUSED = "standby_refused"
AWAY = "standby_away"
INCOMPLETE = "standby_incomplete"
LAGGING = "standby_lags"
DAMAGED_COPY = "standby_damaged"
# A lease decides who is the primary: of a standby without a connection, of a store that does not answer, and of a group
# in which no nsqd serves.
LEASED_AWAY = "lease_standby_away"
LEASE_STORE = "lease_store"
NO_PRIMARY = "lease_no_primary"


class Lag(NamedTuple):
    """The lag of a standby: `ms` is the age of the oldest change. None: this user may not know."""

    messages: int | None
    size_bytes: int | None
    ms: int


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
        return _known_standby(standby, lease)
    standbys = document.get("standbys")
    if isinstance(standbys, Mapping):
        return _primary(standbys, lease)
    return None


def _known_standby(standby: Mapping[str, Any], lease: GroupLease | None) -> KnownStandby:
    return KnownStandby(
        epoch=number_in(standby, "epoch"),
        primary=text_in(standby, "primary"),
        state=text_in(standby, "state"),
        is_complete=flag_in(standby, "is_complete"),
        lag=lag_in(standby),
        last_round_ms_ago=number_or_none(standby, "last_round_ms_ago"),
        set_aside=number_in(standby, "set_aside_messages"),
        lease_decides=flag_in(standby, "lease_decides"),
        lease=lease,
        is_fenced=flag_in(standby, "is_fenced"),
        error=text_in(standby, "error"),
    )


def _primary(standbys: Mapping[str, Any], lease: GroupLease | None) -> Primary:
    listed = tuple(map(_listed_standby, rows_in(standbys, "list")[:_MOST_STANDBYS]))
    return Primary(
        epoch=number_in(standbys, "epoch"),
        acks=number_in(standbys, "acks"),
        is_alone=flag_in(standbys, "is_alone"),
        standbys=listed,
        lease=lease,
    )


def _listed_standby(row: Mapping[str, Any]) -> ListedStandby:
    return ListedStandby(
        text_in(row, "address"), text_in(row, "http_address"), flag_in(row, "is_following"), lag_in(row)
    )


def _lease(found: Any) -> GroupLease | None:
    if not isinstance(found, Mapping):
        return None
    return GroupLease(*(text_in(found, name) for name in GroupLease._fields))


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
            found.append(pair._replace(state=FAILED) if address in silent else pair)
    served = {pair.primary for pair in found}
    for primary in primaries:
        if primary.address not in served and isinstance(primary.role, Primary):
            found.append(_pair(primary, primary.role, "", None))
    leases = {
        member.address: member.role.lease
        for member in known.values()
        if member.is_answering and member.role is not None and member.role.lease is not None
    }
    found = [
        pair._replace(
            leases=tuple((node, leases[node]) for node in (pair.primary, pair.standby) if node in leases)
        )
        for pair in found
    ]
    return sorted(found, key=lambda pair: (pair.primary, pair.standby))


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
    of_primary = primary.role if primary is not None and isinstance(primary.role, Primary) else None
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


# ---- what is wrong with primaries and standbys


class Trouble(NamedTuple):
    """A problem of a primary or standby. `kind` is one of the kinds at the top; `node` is its HTTP address."""

    kind: str
    node: str
    text: str


def troubles(found: Iterable[Pair], lagging_after_s: float = LAGGING_AFTER_S) -> Iterator[Trouble]:
    """Yield what an operator must know of these pairs. An nsqd that does not answer is reported elsewhere."""
    by_primary: dict[str, list[Pair]] = {}
    all_pairs = list(found)
    unserved = yield from _of_leases(all_pairs)
    for pair in all_pairs:
        by_primary.setdefault(pair.primary, []).append(pair)
        if pair.standby and pair.state != FAILED:
            waits = pair.state == CONNECTING and any(lease.name in unserved for _, lease in pair.leases)
            yield from _of_one(pair, lagging_after_s, waits=waits)
    for primary, group in by_primary.items():
        if group[0].primary_answers:
            yield from _of_primary(primary, group)


def _of_leases(found: list[Pair]) -> Generator[Trouble, None, set[str]]:
    """Yield the troubles of leases, and return the names of those whose group has no primary."""
    leases = {node: lease for pair in found for node, lease in pair.leases}
    served = {leases[pair.primary].name for pair in found if pair.primary_answers and pair.primary in leases}
    groups: dict[str, list[str]] = {}
    for node, lease in leases.items():
        groups.setdefault(lease.name, []).append(node)
        if lease.error:
            yield Trouble(LEASE_STORE, node, f"cannot use its lease {lease.name}: {lease.error}")
    unserved = set()
    for name, nodes in groups.items():
        seen = [leases[node] for node in nodes]
        is_held_elsewhere = any(lease.holder for lease in seen) and not any(lease.error for lease in seen)
        if name in served or is_held_elsewhere:
            continue
        unserved.add(name)
        others = f", as {'does' if len(nodes) == 2 else 'do'} {', '.join(nodes[1:])}" if nodes[1:] else ""
        missed = next(
            (f"; those that answer wait for {lease.waits_for}" for lease in seen if lease.waits_for), ""
        )
        yield Trouble(NO_PRIMARY, nodes[0], f"waits for the lease {name}{others}: no nsqd serves{missed}")
    return unserved


def _of_primary(address: str, group: list[Pair]) -> Iterator[Trouble]:
    acks = group[0].acks
    following = sum(pair.state in (FOLLOWING, DAMAGED) for pair in group)
    if group[0].is_alone:
        text = "answers publishers without a standby: what it acknowledges is on this machine only"
        yield Trouble(ALONE, address, f"{text} ({_of(following, acks)})")
    elif following < acks:
        yield Trouble(ACKS_MISSING, address, f"publishers get no OK: {_of(following, acks)}")
    elif not acks and group[0].state == MISSING:
        yield Trouble(NO_STANDBY, address, "accepts standbys, and none follows it")


def _of(following: int, acks: int) -> str:
    verb = "follows" if following == 1 else "follow"
    return f"{following} of {acks} {'standby' if acks == 1 else 'standbys'} {verb}"


def _of_one(pair: Pair, lagging_after_s: float, *, waits: bool) -> Iterator[Trouble]:
    """`waits` if it is not connected since its group has no primary."""
    if pair.state == CONNECTING and not waits:
        when = "it never was"
        if pair.as_of_ms is not None:
            when = f"it last heard from it {pair.as_of_ms / 1000:.0f} s ago"
        text = f"is not connected to its primary {pair.primary}; {when}"
        kind = REFUSED if pair.primary_answers or pair.is_fenced else AWAY
        if pair.is_fenced:
            text = f"was replaced by {pair.primary}, and is not connected to it; {when}"
        elif pair.primary_answers:
            text = f"is not connected to its primary {pair.primary}, which serves; {when}"
        if kind == REFUSED and pair.error:
            text = f"{text}; {pair.error}"
        yield Trouble(LEASED_AWAY if pair.lease_decides else kind, pair.standby, text)
    if pair.state == DAMAGED:
        text = f"has damaged bytes in its copy of {pair.primary}, and has not repaired them from there"
        yield Trouble(DAMAGED_COPY, pair.standby, text)
    if not pair.is_complete:
        text = f"its first copy of {pair.primary or 'a primary'} is not complete: it cannot be promoted"
        yield Trouble(INCOMPLETE, pair.standby, text)
    elif pair.state != CONNECTING and pair.lag.ms > 1000 * lagging_after_s:
        text = f"lacks what its primary {pair.primary} has had for {pair.lag.ms / 1000:.0f} s"
        yield Trouble(LAGGING, pair.standby, text)
