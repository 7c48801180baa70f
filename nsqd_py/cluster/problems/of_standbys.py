"""The problems of primaries and standbys, and of the leases of their groups. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nsqd_py.cluster.problems.kinds import Problem
from nsqd_py.cluster.roles import CONNECTING, COPYING, DAMAGED, FAILED, FOLLOWING, MISSING, GroupLease, Pair

# A standby that lacks changes of this age lags behind.
LAGGING_AFTER_S = 10.0

Leases = Mapping[str, GroupLease]


def of_standbys(pairs: Sequence[Pair], lagging_after_s: float = LAGGING_AFTER_S) -> Iterator[Problem]:
    """Yield what an operator must know of these pairs. An nsqd that does not answer is reported elsewhere."""
    leases = {node: lease for pair in pairs for node, lease in pair.leases}
    unserved = _unserved(pairs, leases)
    for node, lease in leases.items():
        if lease.error:
            text = f"cannot use its lease {lease.name}: {lease.error}"
            yield Problem("lease_store", text, node=node)
    for name, nodes in unserved.items():
        yield _no_primary(name, nodes, leases)
    by_primary: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_primary.setdefault(pair.primary, []).append(pair)
        if pair.standby and pair.state != FAILED:
            waits = any(lease.name in unserved for _, lease in pair.leases)
            yield from _of_standby(pair, lagging_after_s, waits=waits)
    for primary, group in by_primary.items():
        if group[0].primary_answers:
            yield from _of_primary(primary, group)


# ---- leases


def _unserved(pairs: Sequence[Pair], leases: Leases) -> dict[str, list[str]]:
    """Return the nsqds of each group without a primary, by the name of its lease."""
    groups: dict[str, list[str]] = {}
    for node, lease in leases.items():
        groups.setdefault(lease.name, []).append(node)
    served = set()
    for pair in pairs:
        if pair.primary_answers and pair.primary in leases:
            served.add(leases[pair.primary].name)
    found: dict[str, list[str]] = {}
    for name, nodes in groups.items():
        if name not in served and not _is_held_elsewhere([leases[node] for node in nodes]):
            found[name] = nodes
    return found


def _is_held_elsewhere(seen: list[GroupLease]) -> bool:
    return any(lease.holder for lease in seen) and not any(lease.error for lease in seen)


def _no_primary(name: str, nodes: list[str], leases: Leases) -> Problem:
    first, *rest = nodes
    others = ""
    if rest:
        others = f", as {'does' if len(nodes) == 2 else 'do'} {', '.join(rest)}"
    missed = [leases[node].waits_for for node in nodes if leases[node].waits_for]
    wait = f"; those that answer wait for {missed[0]}" if missed else ""
    text = f"waits for the lease {name}{others}: no nsqd serves{wait}"
    return Problem("lease_no_primary", text, node=first)


# ---- primaries and standbys


def _of_primary(address: str, group: list[Pair]) -> Iterator[Problem]:
    acks = group[0].acks
    following = sum(pair.state in (FOLLOWING, DAMAGED) for pair in group)
    verb = "follows" if following == 1 else "follow"
    counts = f"{following} of {acks} {'standby' if acks == 1 else 'standbys'} {verb}"
    if group[0].is_alone:
        text = (
            f"answers publishers without a standby: what it acknowledges is on this machine only ({counts})"
        )
        yield Problem("standby_alone", text, node=address)
    elif following < acks:
        yield Problem("standby_acks", f"publishers get no OK: {counts}", node=address)
    elif not acks and group[0].state == MISSING:
        yield Problem("standby_missing", "accepts standbys, and none follows it", node=address)


def _of_standby(pair: Pair, lagging_after_s: float, *, waits: bool) -> Iterator[Problem]:
    """`waits` if its group has no primary."""
    if pair.state == CONNECTING and not waits:
        yield _disconnected(pair)
    if pair.state == DAMAGED:
        text = f"has damaged bytes in its copy of {pair.primary}, and has not repaired them from there"
        yield Problem("standby_damaged", text, node=pair.standby)
    if not pair.is_complete:
        text = f"its first copy of {pair.primary or 'a primary'} is not complete: it cannot be promoted"
        if pair.state == COPYING and pair.error:
            text += f"; {pair.error}"
        yield Problem("standby_incomplete", text, node=pair.standby)
    elif pair.state != CONNECTING and pair.lag.age_s > lagging_after_s:
        text = f"lacks what its primary {pair.primary} has had for {pair.lag.age_s:.0f} s"
        yield Problem("standby_lags", text, node=pair.standby)


def _disconnected(pair: Pair) -> Problem:
    """The primary of such a standby is away; or it answers, and refuses it, or the network between them is broken."""
    kind = "standby_away"
    text = f"is not connected to its primary {pair.primary}"
    reason = ""
    if pair.is_fenced:
        text = f"was replaced by {pair.primary}, and is not connected to it"
    elif pair.primary_answers:
        text += ", which serves"
    if pair.is_fenced or pair.primary_answers:
        kind = "standby_refused"
        reason = f"; {pair.error}" if pair.error else ""
    when = "it never was"
    if pair.as_of_s is not None:
        when = f"it last heard from it {pair.as_of_s:.0f} s ago"
    if pair.lease_decides:
        kind = "lease_standby_away"
    return Problem(kind, f"{text}; {when}{reason}", node=pair.standby)
