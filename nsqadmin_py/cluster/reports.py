"""The reports about problems: one when a problem begins, one when it ends. Pure.

A report stands for a state that the receiver must know, not for an event: what began and ended while the
receiver was away is not reported, and a problem that comes back before its end was reported is the same one.

A problem has not ended because no one can see it: while an nsqd that it was about does not answer, it goes
on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple

from nsqadmin_py.cluster.attention import Attention, Listed
from nsqadmin_py.cluster.last_known import NodeMemory
from nsqd_py.cluster.model import Cluster
from nsqd_py.cluster.problems.kinds import INFO, KINDS, LOOKUP_KINDS, Problem
from nsqd_py.cluster.problems.words import counted
from nsqd_py.cluster.values import flag_in, rows_in, text_in, texts_in

BEGAN = "problem_began"
ENDED = "problem_ended"
# A problem is reported when it has been there for this long, and forgotten before if it is away for as long.
BEGINS_AFTER_S = 10.0
# The problems of a kind that are reported one by one. One more report, with this topic, counts the others.
MOST_OF_KIND = 20
THE_OTHERS = "*"
_MOST_NODES = 100
# As long as a dedup_key of PagerDuty may be.
_MOST_KEY_CHARACTERS = 255
_FIELDS = ("kind", "text", "topic", "channel", "node")  # of a problem that is saved
# They are about an nsqd that does not answer.
_OF_SILENT_NODES = ("node_failed", "node_gone", "node_slow", "node_stopped")


@dataclass(slots=True)
class Known:
    """A problem that was reported, or soon will be. Times are in s since the epoch.

    first_s      when it was first seen; after a break that was not reported, it is the same
    seen_s       when it was last there
    since_s      its beginning, as the page shows it
    nodes        addresses of the nsqds that it is about
    is_reported  True if the receiver has got its beginning
    is_unclear   True if the receiver may have got it
    """

    problem: Problem
    first_s: float
    seen_s: float
    since_s: float
    nodes: frozenset[str] = frozenset()
    is_reported: bool = False
    is_unclear: bool = False

    @property
    def may_be_open(self) -> bool:
        """True if the receiver must get the end."""
        return self.is_reported or self.is_unclear


class Report(NamedTuple):
    """A report of a problem to the receiver; `event` is BEGAN or ENDED."""

    event: str
    known: Known

    @property
    def key(self) -> str:
        return self.known.problem.key

    @property
    def dedup_key(self) -> str:
        """The same for this problem at all times and in all nsqadmins of the cluster."""
        key = self.key
        if len(key) <= _MOST_KEY_CHARACTERS:
            return key
        return sha256(key.encode()).hexdigest()


class ProblemReports:
    """Follows the problems under Attention, except information.

    `quiet_s` is how long a problem must be gone to have ended.
    """

    def __init__(self, quiet_s: float) -> None:
        self._quiet_s = quiet_s
        self._known: dict[str, Known] = {}
        self._time_s = 0.0

    def note_round(self, attention: Attention, cluster: Cluster, memory: NodeMemory, time_s: float) -> None:
        """Take the list of a round at `time_s`."""
        self._time_s = time_s
        counts = attention.counts.items()
        left = {kind: count for kind, count in counts if KINDS[kind].severity != INFO}
        problems = [known.problem for known in self._known.values()]
        followed = Counter(problem.kind for problem in problems if problem.topic != THE_OTHERS)
        for entry in attention.listed:
            kind = entry.problem.kind
            is_new = entry.problem.key not in self._known
            if kind in left and not (is_new and followed[kind] >= MOST_OF_KIND):
                followed[kind] += is_new
                left[kind] -= 1
                self._note(entry, cluster)
        for kind, count in left.items():
            if count > 0:
                others = Problem(kind, f"{counted(count, 'more problem')} of this kind", THE_OTHERS)
                self._note(Listed(others, time_s, is_exact=False), cluster)
        self._note_absence(attention, memory)

    def _note_absence(self, attention: Attention, memory: NodeMemory) -> None:
        """Forget problems that were not reported, and keep those that no one can see now."""
        away = [known for known in memory.nodes.values() if known.is_silent or known.is_gone]
        silent = {known.address for known in away if not known.has_left}
        for key, known in list(self._known.items()):
            if known.seen_s == self._time_s:
                continue
            if known.may_be_open and self._may_be_there(known, silent, attention.more):
                known.seen_s = self._time_s
            elif not known.may_be_open and self._time_s - known.seen_s > BEGINS_AFTER_S:
                del self._known[key]

    def _note(self, entry: Listed, cluster: Cluster) -> None:
        problem = entry.problem
        known = self._known.get(problem.key)
        if known is None:
            known = Known(problem, self._time_s, self._time_s, entry.since_s)
            self._known[problem.key] = known
        known.problem = problem
        known.seen_s = self._time_s
        if not known.is_reported:
            known.nodes = frozenset(islice(_nodes_of(problem, cluster), _MOST_NODES))

    @staticmethod
    def _may_be_there(known: Known, silent: set[str], more: Mapping[str, int]) -> bool:
        """True if a problem that is not listed may still be there."""
        kind = known.problem.kind
        is_cut_off = more.get(kind, 0) > 0  # the list has not all problems of its kind
        if is_cut_off:
            return True
        return kind not in _OF_SILENT_NODES and not silent.isdisjoint(known.nodes)

    # ---- what the receiver must get

    def due(self) -> list[Report]:
        """Return the reports that the receiver has not got, in the order of the problems' beginnings."""
        return list(filter(None, map(self._report, self._known.values())))

    def _report(self, known: Known) -> Report | None:
        age_s = self._time_s - known.seen_s
        if known.may_be_open and age_s > 0 and age_s >= self._quiet_s:
            return Report(ENDED, known)
        if not known.is_reported and not age_s and self._time_s - known.first_s >= BEGINS_AFTER_S:
            return Report(BEGAN, known)
        return None

    def is_due(self, report: Report) -> bool:
        """True if a report of `due` is still true."""
        known = self._known.get(report.key)
        return known is not None and self._report(known) == report

    def note_delivered(self, report: Report) -> None:
        """The receiver has got a report."""
        if report.event == ENDED:
            self._known.pop(report.key, None)
        else:
            report.known.is_reported = True
            report.known.is_unclear = False

    def note_unclear(self, report: Report) -> None:
        """The receiver may have got a report: its answer did not arrive.

        If the problem comes back, it is reported again.
        """
        report.known.is_reported = False
        report.known.is_unclear = True

    # ---- in its file

    def dump(self) -> list[Mapping[str, Any]]:
        """Return a document for `load`: the problems that the receiver knows."""
        return [_row_of(known) for known in self._known.values() if known.may_be_open]

    def load(self, document: Any, time_s: float) -> None:
        """Add what `dump` returned.

        A problem that does not come back has ended after the quiet time from now on.
        """
        for row in rows_in({"problems": document}, "problems"):
            since_s = row.get("since_s")
            kind, text, topic, channel, node = (text_in(row.get("problem"), name) for name in _FIELDS)
            problem = Problem(kind, text, topic, channel, node)
            if kind in KINDS and isinstance(since_s, float | int):
                known = Known(problem, time_s, time_s, float(since_s), frozenset(texts_in(row, "nodes")))
                known.is_reported = flag_in(row, "is_reported")
                known.is_unclear = not known.is_reported
                self._known[problem.key] = known
        self._time_s = time_s


def _row_of(known: Known) -> Mapping[str, Any]:
    """Return a problem as `load` reads it."""
    return {
        "problem": known.problem._asdict(),
        "since_s": known.since_s,
        "nodes": sorted(known.nodes),
        "is_reported": known.is_reported,
    }


def _nodes_of(problem: Problem, cluster: Cluster) -> Iterator[str]:
    """Yield the nsqds that know whether a problem is there."""
    if problem.topic:
        for node, _ in cluster.parts_of(problem.topic, problem.channel):
            yield node.address
    elif problem.node and problem.kind not in LOOKUP_KINDS:
        yield problem.node
