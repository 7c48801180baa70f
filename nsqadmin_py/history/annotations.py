"""Annotations of charts: when somebody paused, emptied or sought something, and when nsqds were started. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from nsqd_py.cluster.values import rows_in, text_in

MOST_ANNOTATIONS = 5000
_KEPT_S = 24 * 3600.0
START = "start"
# What changes the course of metrics. Go's names of actions have a suffix, as in `pause_channel`.
_ANNOTATED = ("pause", "unpause", "empty", "delete", "seek", "requeue_dead_letters", "tombstone", "promote")
_SUFFIXES = ("_topic_producer", "_topic", "_channel")


@dataclass(frozen=True, slots=True)
class Annotation:
    """An action of a user, or the start of an nsqd (`action` is "start"); `time_s` is since the epoch."""

    time_s: float
    action: str
    topic: str = ""
    channel: str = ""
    node: str = ""
    user: str = ""


class Annotations:
    """The annotations of the last day, at most MOST_ANNOTATIONS."""

    def __init__(self) -> None:
        self._annotations: deque[Annotation] = deque(maxlen=MOST_ANNOTATIONS)
        self._started: dict[str, int] = {}

    def note_action(self, action: str, time_s: float, names: Mapping[str, str], user: str) -> None:
        """Add an annotation if the action changes the course of metrics."""
        kind = action
        for suffix in _SUFFIXES:
            kind = kind.removesuffix(suffix)
        if kind in _ANNOTATED:
            self._annotations.append(
                Annotation(time_s, kind, names.get("topic", ""), names.get("channel", ""), names.get("node", ""), user)
            )

    def note_starts(self, starts: Iterable[tuple[str, int]], time_s: float) -> None:
        """Take the start times of nsqds, in s since the epoch; 0 is unknown."""
        for node, started_s in starts:
            if started_s and self._started.get(node) != started_s:
                self._started[node] = started_s
                if started_s > time_s - _KEPT_S:
                    self._annotations.append(Annotation(started_s, START, node=node))
        while self._annotations and self._annotations[0].time_s < time_s - _KEPT_S:
            self._annotations.popleft()

    def of(self, topic: str, channel: str, node: str, having: Iterable[str]) -> Iterator[Annotation]:
        """Yield the annotations of a topic, a channel, an nsqd, or if all are empty of everything.

        `having` are the nsqds whose starts concern the topic or channel.
        """
        nodes = {node} if node else set(having)
        for annotation in self._annotations:
            if annotation.action == START:
                concerns = annotation.node in nodes if topic or node else True
            elif topic:
                concerns = annotation.topic == topic and (not channel or annotation.channel in ("", channel))
            else:
                concerns = annotation.node == node if node else True
            if concerns:
                yield annotation

    # ---- in the history file

    def dump(self) -> list[dict[str, Any]]:
        return [asdict(annotation) for annotation in self._annotations]

    def load(self, document: Any) -> None:
        """Add what `dump` returned."""
        for row in rows_in({"annotations": document}, "annotations"):
            time_s = row.get("time_s")
            if isinstance(time_s, float | int):
                names = (text_in(row, name) for name in ("action", "topic", "channel", "node", "user"))
                annotation = Annotation(time_s, *names)
                self._annotations.append(annotation)
                if annotation.action == START:
                    self._started[annotation.node] = int(time_s)


def annotations_json(annotations: Iterable[Annotation], sees: Callable[[str], bool]) -> list[dict[str, Any]]:
    """Return the annotations as JSON, without those of topics that a user does not see."""
    return [asdict(annotation) for annotation in annotations if not annotation.topic or sees(annotation.topic)]
