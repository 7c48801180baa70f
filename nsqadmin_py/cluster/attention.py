"""The list of what needs attention: all problems, since when, and what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from nsqadmin_py.cluster.problems import ERROR, KINDS, WARNING, Problem
from nsqadmin_py.cluster.view import Json, View

# A problem that returns within this time is the same one.
_SAME_WITHIN_S = 60.0
_TOLD_AFTER_ROUNDS = 2
# The most problems in the list; the others are only counted.
MOST_LISTED = 200
# The most problems of one kind that a badge describes.
_MOST_TEXTS = 5
# The most problems whose beginning is remembered.
MOST_REMEMBERED = 10_000


@dataclass(slots=True)
class Listed:
    """A problem since a time in s since the epoch. If not `is_exact`, it began then or earlier.

    seen_s   when it was last there
    rounds   the number of rounds in which it was
    changed  the tick in which its text last changed
    """

    problem: Problem
    since_s: float
    is_exact: bool
    seen_s: float = 0.0
    rounds: int = 0
    changed: int = 0


class News(NamedTuple):
    """Problems that were there in two rounds for the first time, and those that are over."""

    began: list[Listed]
    ended: list[Listed]


@dataclass(slots=True)
class Attention:
    """All problems of the last round, the worst first. Call `note_round` after each round."""

    listed: list[Listed] = field(default_factory=list)
    news: News = News([], [])
    _known: dict[str, Listed] = field(default_factory=dict)
    _of_topics: dict[str, list[Problem]] = field(default_factory=dict)
    _has_looked: bool = False

    def note_round(self, found: Iterable[Problem], time_s: float, tick: int) -> None:
        """Take the problems of a round at a time in s since the epoch."""
        self._set([self._since(problem, time_s, tick) for problem in found])
        over = [key for key, entry in self._known.items() if entry.seen_s < time_s - _SAME_WITHIN_S]
        ended = [self._known.pop(key) for key in over]
        began = [entry for entry in self.listed if entry.rounds == _TOLD_AFTER_ROUNDS]
        self.news = News(began, [entry for entry in ended if entry.rounds >= _TOLD_AFTER_ROUNDS])
        self._has_looked = True

    def _set(self, listed: Iterable[Listed]) -> None:
        self.listed = sorted(listed, key=_rank)
        self._of_topics = {}
        for entry in self.listed:
            if entry.problem.topic:
                self._of_topics.setdefault(entry.problem.topic, []).append(entry.problem)

    def like(self, found: Iterable[Problem], time_s: float, tick: int) -> Attention:
        """Return a list of the problems of a part of the cluster, each since when this list has it."""
        other = Attention()
        listed = []
        for problem in found:
            known = self._known.get(problem.key)
            since_s, is_exact = (known.since_s, known.is_exact) if known is not None else (time_s, False)
            listed.append(Listed(problem, since_s, is_exact, time_s, changed=tick))
        other._set(listed)
        return other

    def _since(self, problem: Problem, time_s: float, tick: int) -> Listed:
        entry = self._known.get(problem.key)
        if entry is None:
            entry = Listed(problem, problem.since_s or time_s, self._has_looked or problem.since_s > 0)
            if len(self._known) < MOST_REMEMBERED:
                self._known[problem.key] = entry
        if entry.problem != problem or not entry.changed:
            entry.problem, entry.changed = problem, tick
        entry.seen_s = time_s
        entry.rounds += 1
        return entry

    def of_topic(self, topic: str) -> list[Problem]:
        """Return the problems of a topic and of its channels, the worst first."""
        return self._of_topics.get(topic, [])

    def of_channel(self, topic: str, channel: str) -> list[Problem]:
        return [problem for problem in self.of_topic(topic) if problem.channel == channel]


_ORDER = {kind: (info.severity != ERROR, place) for place, (kind, info) in enumerate(KINDS.items())}


def _rank(entry: Listed) -> tuple[tuple[bool, int], float, str]:
    problem = entry.problem
    return _ORDER[problem.kind], -problem.weight, problem.key


def attention_view(attention: Attention) -> View:
    """Return the worst problems by key; the head counts all of them."""
    severities = [KINDS[entry.problem.kind].severity for entry in attention.listed]
    view = View({"total": len(severities), "errors": severities.count(ERROR), "warnings": severities.count(WARNING)})
    for entry in attention.listed[:MOST_LISTED]:
        view.add(entry.problem.key, listed_json(entry), entry.changed)
    return view


def listed_json(entry: Listed) -> Json:
    """Return a problem with its place, since when, and what to do."""
    problem, kind = entry.problem, KINDS[entry.problem.kind]
    return {
        "kind": problem.kind, "severity": kind.severity, "word": kind.word, "text": problem.text,
        "advice": kind.advice, "topic": problem.topic, "channel": problem.channel, "node": problem.node,
        "since_s": entry.since_s, "is_since_exact": entry.is_exact,
    }  # fmt: skip


def badges_json(problems: Iterable[Problem], *, is_topic: bool = False) -> list[Json]:
    """Return one badge for each kind of problem, the worst first, with the sentences of all problems of that kind.

    `is_topic` if they are shown beside a topic: a pause of one of its channels is none of the topic itself.
    """
    badges: dict[str, Json] = {}
    for problem in problems:
        kind = KINDS[problem.kind]
        place = f"{problem.channel}: " if is_topic and problem.channel else ""
        word = f"channel {kind.word}" if place and problem.kind == "paused" else kind.word
        badge = badges.setdefault(word, {"kind": problem.kind, "severity": kind.severity, "word": word, "texts": []})
        if len(badge["texts"]) < _MOST_TEXTS:
            badge["texts"].append(f"{place}{problem.text}.")
    return list(badges.values())
