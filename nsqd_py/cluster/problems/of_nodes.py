"""The problems of nsqlookupds and nsqds. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from nsqd_py.cluster.model import Cluster, Drain, Node
from nsqd_py.cluster.problems.kinds import Problem
from nsqd_py.cluster.problems.limits import (
    CERTIFICATE_ERROR_S,
    CERTIFICATE_WARNING_S,
    CLOCK_DIFFERENCE_S,
    MANY_STARTS,
    STARTS_WITHIN_S,
    Limits,
)
from nsqd_py.cluster.problems.memory import LastKnown, SeenNodes
from nsqd_py.cluster.problems.of_stores import of_store
from nsqd_py.cluster.problems.states import FAILED, SLOW, state_of
from nsqd_py.cluster.problems.words import counted, named, span
from nsqd_py.cluster.producers import SharedAddress
from nsqd_py.cluster.roles import KnownStandby
from nsqd_py.runtime.documents import TOO_MANY_NSQDS

_MOST_TOPICS = 3
_PROMPT_S = 0.25
_MOST_VERSIONS = 5
_DISK_SLOW_S = 300


# ---- nsqlookupds


def of_lookups(cluster: Cluster) -> Iterator[Problem]:
    failed = cluster.failed_lookups.copy()  # it may change while other greenlets run
    silent = sum(reason != TOO_MANY_NSQDS for reason in failed.values())
    kind = "no_lookup" if silent >= cluster.lookups else "lookup_failed"
    for address, reason in failed.items():
        verb = "" if reason == TOO_MANY_NSQDS else "does not answer: "
        yield Problem(kind, f"{verb}{reason}", node=address)
    for address, shared in cluster.shared.items():
        yield Problem("same_address", _shared_text(cluster, address, shared), node=shared.node)


def _shared_text(cluster: Cluster, address: str, shared: SharedAddress) -> str:
    text = f"{shared.nsqds} nsqds announce the address {address}, at which only one can be reached"
    unseen = [topic for topic in shared.topics if topic not in cluster.topics]
    if unseen:
        return f"{text}; topics that only the others have: {named(unseen, _MOST_TOPICS)}"
    return text


# ---- nsqds


def of_nodes(
    cluster: Cluster, memory: SeenNodes, limits: Limits, now_s: float, time_s: float
) -> Iterator[Problem]:
    all_lookups_fail = 0 < cluster.lookups <= len(cluster.failed_lookups)
    # Else the nsqlookupds are the cause.
    if cluster.is_settled and not cluster.nodes and not all_lookups_fail:
        yield Problem("no_nsqd", f"{limits.observer} knows no nsqd")
    for known in memory.gone():
        yield _as_of(known, _gone(known))
    for address, node in cluster.nodes.items():
        seen = memory.nodes.get(address)
        state = state_of(node, now_s)
        if state == FAILED:
            yield _as_of(seen, _failed(node, seen, limits))
        elif state == SLOW and (node.is_late or node.took_s > _PROMPT_S):  # not one that answers again
            yield _as_of(seen, Problem("node_slow", f"answers late{_held(seen)}", node=address))
        else:
            for problem in _of_answering(cluster, node, limits, time_s):
                yield problem._replace(node=address)
        if seen is not None:
            yield from _of_starts(seen, time_s)


def of_versions(cluster: Cluster) -> Iterator[Problem]:
    """Yield how many of our nsqds run which version, if they differ. Go's nsqds do not count."""
    versions = Counter(node.project_version for node in cluster.nodes.values() if node.project_version)
    if len(versions) > 1:
        (version, count), *others = versions.most_common()
        rest = ", ".join(f"{number} run {other}" for other, number in others[:_MOST_VERSIONS])
        yield Problem("versions", f"{count} of {versions.total()} nsqds run {version}; the others: {rest}")


# ---- nsqds without an answer


def _as_of(known: LastKnown | None, problem: Problem) -> Problem:
    """Return a problem with the messages and the time that an nsqd had when it was last seen."""
    if known is None:
        return problem
    return problem._replace(weight=known.depth, since_s=known.seen_s)


def _held(known: LastKnown | None) -> str:
    if known is None or not known.metrics:
        return ""
    return f"; {counted(known.depth, 'message')} waited there when it was last seen"


def _gone(known: LastKnown) -> Problem:
    kind = "node_gone"
    text = f"does not answer, and no nsqlookupd lists it{_held(known)}"
    if known.is_planned:
        kind = "node_stopped"
        how = "was drained, and has ended" if known.was_draining else "was stopped"
        text = f"{how}{_held(known)}"
    elif known.primary:
        text = f"does not answer, and its primary {known.primary} has no connection to it"
    return Problem(kind, text, node=known.address)


def _failed(node: Node, seen: LastKnown | None, limits: Limits) -> Problem:
    reason = f" ({node.failure})" if node.failure else ""
    held = _held(seen)
    if seen is None:
        held = f"; it has not answered since {limits.observer} started"
    text = f"does not answer{reason}{held}"
    return Problem("node_failed", text, node=node.address, cause=node.failure)


def _of_starts(seen: LastKnown, time_s: float) -> Iterator[Problem]:
    starts = [start for start in seen.starts if time_s - start <= STARTS_WITHIN_S]
    if len(starts) >= MANY_STARTS:
        text = f"was started {len(starts)} times within {span(time_s - starts[0])}"
        yield Problem("restarts", text, node=seen.address, weight=len(starts))


# ---- nsqds that answer; `of_nodes` adds the address


def _of_answering(cluster: Cluster, node: Node, limits: Limits, time_s: float) -> Iterator[Problem]:
    if node.slow_answers >= limits.slow_answers:
        yield Problem("node_slow", f"takes {node.took_s:.1f} s to answer", weight=node.took_s)
    if node.answered_s is None:
        return
    yield from _of_health(node)
    ahead_s = node.clock_ahead_s
    if abs(ahead_s) >= CLOCK_DIFFERENCE_S:
        way = "ahead of" if ahead_s > 0 else "behind"
        text = f"has a clock that is {span(abs(ahead_s))} {way} that of {limits.observer}"
        yield Problem("clock", text, weight=abs(ahead_s))
    if node.drain is not None:
        yield _draining(node.drain)
    elif not isinstance(node.role, KnownStandby):
        yield from _of_listing(cluster, node)
    if node.tcp_failure:
        yield Problem("tcp_unreachable", node.tcp_failure)
    if node.auth_failure:
        yield Problem("auth_server", f"gets no answer from its auth servers: {node.auth_failure}")
    slow_s = time_s - node.disk_slow_since_s
    if node.disk_slow_since_s and slow_s >= _DISK_SLOW_S:
        text = f"has had a slow disk for {span(slow_s)}"
        yield Problem("disk_slow", text, weight=slow_s, since_s=node.disk_slow_since_s)
    if node.store is not None:
        yield from of_store(node.address, node.store)
    if node.certificate_ends_s:
        yield from _of_certificate(node.certificate_ends_s - time_s)


def _of_health(node: Node) -> Iterator[Problem]:
    """Yield one problem for a disk that is full, also where it makes the nsqd refuse publishes."""
    left = node.disk_left_percent
    is_healthy = node.health in ("", "OK") or is_only_draining(node)
    texts = [] if is_healthy else [f"reports: {node.health}"]
    if left < 100:
        texts.append(f"has {left} % left of its disk, or of the limit that it has been given")
    if texts:
        kind = "unhealthy"
        if left <= 0:
            kind = "disk_full"
        elif is_healthy:
            kind = "disk"
        yield Problem(kind, "; it ".join(texts), weight=-left)


def is_only_draining(node: Node) -> bool:
    """True if its health says nothing but that it drains."""
    return node.drain is not None and node.health == "NOK - draining"


def _draining(drain: Drain) -> Problem:
    left = drain.left
    rest_s = drain.rest_s
    about = f", about {span(rest_s)}" if rest_s is not None and left else ""
    return Problem("draining", f"drains: {counted(left, 'message')} left{about}", weight=left)


def _of_listing(cluster: Cluster, node: Node) -> Iterator[Problem]:
    if not node.is_listed:
        yield Problem("node_unlisted", "answers, but no nsqlookupd lists it")
        return
    listing = {remote.rpartition("/")[0] for remote in node.reported.get("remote_addresses") or ()}
    answering = set(cluster.heard_lookups) - cluster.failed_lookups.keys()
    missing = sorted(answering - listing)
    if listing and missing:
        text = f"is listed by {named(sorted(listing))}, and not by {named(missing)}"
        yield Problem("node_half_listed", text, cause=named(missing))


def _of_certificate(left_s: float) -> Iterator[Problem]:
    if left_s < CERTIFICATE_WARNING_S:
        kind = "certificate_ends" if left_s < CERTIFICATE_ERROR_S else "certificate"
        when = f"ends in {span(left_s)}" if left_s > 0 else f"ended {span(-left_s)} ago"
        yield Problem(kind, f"has a TLS certificate that {when}", weight=-left_s)
