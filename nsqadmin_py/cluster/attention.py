"""The list of what needs attention: all problems, since when, and what to do. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from operator import attrgetter
from typing import NamedTuple

from nsqadmin_py.cluster.metrics import Json, View
from nsqd_py.cluster.problems.kinds import ERROR, INFO, KINDS, SEVERITIES, WARNING, Problem
from nsqd_py.cluster.problems.lasting import lasting
from nsqd_py.cluster.problems.words import counted
from nsqd_py.cluster.values import fields_of

# The most rows of the list.
MOST_LISTED = 200
# Problems of one kind with one cause are one row if there are at least this many.
GROUPED_FROM = 4
# A kind with more causes is one row.
MOST_CAUSES = 5
# The most problems that a row names, and that are retained of a kind; the others are only counted.
MOST_NAMED = 50
MOST_OF_KIND = 1000
# The fields of each problem in a row of several.
_OF_GROUPED = ("topic", "channel", "node", "text")
# The most problems of one kind that a badge describes.
_MOST_TEXTS = 5


class FoundProblems:
    """The problems of a round.

    retained    at most `MOST_OF_KIND` of each kind
    counts  the number of each kind
    """

    def __init__(self, problems: Iterable[Problem] = ()) -> None:
        self.retained: list[Problem] = []
        self.counts: Counter[str] = Counter()
        for problem in problems:
            self.counts[problem.kind] += 1
            if self.counts[problem.kind] <= MOST_OF_KIND:
                self.retained.append(problem)


class Listed(NamedTuple):
    """A problem since a time in s since the epoch. If not `is_exact`, it began then or earlier."""

    problem: Problem
    since_s: float
    is_exact: bool


class Attention:
    """All problems of a round, the worst first, and the rows in which they are shown, by key.

    `before` is the list of an earlier round, from which it has the beginnings of problems. `counts` has the
    number of problems of each kind, and `more` of those that are in no row.
    """

    def __init__(self, found: FoundProblems, time_s: float, before: Attention | None = None) -> None:
        """`time_s` is the time of the round, in s since the epoch."""
        known: dict[str, tuple[float, bool]] = {}
        begun_before = None
        if before is not None:
            known = before.began
            begun_before = before.begun_s
        problems, begun_s = lasting(found.retained, begun_before, time_s)
        self.begun_s: dict[str, float] = begun_s
        self.began: dict[str, tuple[float, bool]] = {}
        for one in problems:
            began = known.get(one.key)
            if began is None:
                is_exact = before is not None or one.since_s > 0
                began = (one.since_s or time_s, is_exact)
            self.began[one.key] = began
        worst_first = sorted(problems, key=attrgetter("rank"))
        self.listed = [Listed(problem, *self.began[problem.key]) for problem in worst_first]
        all_kinds = Counter(problem.kind for problem in found.retained)
        all_kinds.subtract(problem.kind for problem in problems)
        self.counts = found.counts - all_kinds
        self.more = self.counts - Counter(dict.fromkeys(KINDS, MOST_OF_KIND))
        self.rows = dict(grouped(self.listed, self.more))
        self._of_topics: dict[str, list[Problem]] = {}
        self._harm: dict[tuple[str, str], int] = {}
        for problem in worst_first:
            self._of_topics.setdefault(problem.topic, []).append(problem)
            harm = len(SEVERITIES) - SEVERITIES.index(problem.severity)
            for channel in ("", problem.channel):
                self._harm.setdefault((problem.topic, channel), harm)  # the worst is the first

    def view(self) -> View:
        """Return the worst rows by key. The head counts all rows, and all problems."""
        severities = Counter(row["severity"] for row in self.rows.values())
        head = {
            "total": len(self.rows),
            "errors": severities[ERROR],
            "warnings": severities[WARNING],
            "infos": severities[INFO],
            "problems": self.counts.total(),
        }
        listed = islice(self.rows.items(), MOST_LISTED)
        return View(head, dict(listed))

    def of_topic(self, topic: str) -> list[Problem]:
        """Return the problems of a topic and of its channels, the worst first."""
        return self._of_topics.get(topic, [])

    def harm(self, topic: str, channel: str = "") -> int:
        """Return how bad the worst problem of a topic or channel is: 3 for an error, 0 for none."""
        return self._harm.get((topic, channel), 0)


def grouped(listed: Iterable[Listed], more: Mapping[str, int]) -> list[tuple[str, Json]]:
    """Return keys and rows of the list: one for each problem, or for many of a kind that have one cause.

    The order is that of `listed`, by the first one of each row. `more` counts problems by kind that are not
    listed.
    """
    causes: dict[str, dict[str, list[Listed]]] = {}
    for entry in listed:
        of_kind = causes.setdefault(entry.problem.kind, {})
        of_kind.setdefault(entry.problem.cause, []).append(entry)
    rows = []
    for kind, by_cause in causes.items():
        if len(by_cause) > MOST_CAUSES:
            by_cause = {"": list(chain.from_iterable(by_cause.values()))}
        left = more.get(kind, 0)
        for cause, entries in by_cause.items():
            if len(entries) < GROUPED_FROM:
                rows += [(entry.problem.key, listed_json(entry)) for entry in entries]
            else:
                rows.append((f"{kind}|{cause}", _group_json(entries, cause, left)))
                left = 0
    return rows


def listed_json(entry: Listed) -> Json:
    """Return a problem with what it is about, since when, and what to do."""
    return {
        **fields_of(entry.problem, "kind", "text", "topic", "channel", "node", "cause"),
        **fields_of(entry.problem.about, "severity", "word", "advice"),
        "since_s": entry.since_s,
        "is_since_exact": entry.is_exact,
        "count": 1,
        "places": "",
        "problems": [],
    }


def _group_json(entries: list[Listed], cause: str, more: int) -> Json:
    """Return one row for several problems, the worst first."""
    first = min(entries, key=lambda entry: entry.since_s)
    problem = entries[0].problem
    name = problem.subject or problem.node
    return listed_json(entries[0]) | {
        "text": f"the worst is {name}: {problem.text}",
        "since_s": first.since_s,
        "is_since_exact": first.is_exact,
        "cause": cause,
        "count": len(entries) + more,
        "places": _subjects(entries, more),
        "problems": [fields_of(entry.problem, *_OF_GROUPED) for entry in entries[:MOST_NAMED]],
    }


def _subjects(entries: list[Listed], more: int) -> str:
    """Return "127 channels of 43 topics", or the number of topics, nsqds or nsqlookupds."""
    least = "at least " if more else ""
    channels = {(entry.problem.topic, entry.problem.channel) for entry in entries}
    topics = {topic for topic, _ in channels}
    if any(channel for _, channel in channels):
        return f"{least}{counted(len(channels), 'channel')} of {counted(len(topics), 'topic')}"
    if any(topics):
        return f"{least}{counted(len(topics), 'topic')}"
    return f"{least}{counted(len(entries), entries[0].problem.server)}"


def badges_json(problems: Iterable[Problem], *, is_topic: bool = False) -> list[Json]:
    """Return one badge for each kind of problem, the worst first, with the sentences of its problems.

    `is_topic` if they are shown next to a topic: a pause of one of its channels is none of the topic itself.
    """
    badges: dict[str, Json] = {}
    for problem in problems:
        kind = problem.about
        prefix = f"{problem.channel}: " if is_topic and problem.channel else ""
        if prefix and problem.kind == "paused":
            word = f"channel {kind.word}"
        else:
            word = kind.word
        badge = badges.setdefault(
            word, {"kind": problem.kind, "severity": kind.severity, "word": word, "texts": []}
        )
        if len(badge["texts"]) < _MOST_TEXTS:
            badge["texts"].append(f"{prefix}{problem.text}.")
    return list(badges.values())
