"""The requests and commands of Go's nsqadmin, each sent to all servers in parallel.

Methods that return a pair return the result and the errors of servers that did not answer. If no server answered, they
raise `NoAnswer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import time
from typing import Any, TypeVar

from nsqadmin_py.go_json import topic_stats
from nsqd_py.cluster.producers import http_address, merged_producers, producer, producer_of_info
from nsqd_py.cluster.upstream import Answers, Upstream, UpstreamError, ask_all, named_producers, place_of
from nsqd_py.cluster.values import Statistics, rows_in, text_in, texts_in
from nsqd_py.runtime.documents import MOST_NSQDS, TOO_MANY_NSQDS
from nsqd_py.runtime.threads import in_slices

_NOT_FOUND = 404
_ABSENCES = ("TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND")

T = TypeVar("T")
Errors = list[UpstreamError]


class NoAnswer(Exception):
    """None of the servers answered as it should; str(error) says why.

    is_absence  True if each of them answered that it does not have the topic
    """

    def __init__(self, kind: str, errors: Sequence[UpstreamError]) -> None:
        super().__init__(f"failed to query any {kind}: " + "\n".join(map(str, errors)))
        self.is_absence = bool(errors) and all(map(_is_absence, errors))


class Absent(Exception):
    """The topic or channel of a command does not exist; str(error) is an error code and one sentence."""


def absent_topic(topic: str) -> Absent:
    return Absent(f"TOPIC_NOT_FOUND: no nsqd or nsqlookupd has the topic {topic}")


def _absent_channel(topic: str, channel: str) -> Absent:
    return Absent(f"CHANNEL_NOT_FOUND: no nsqd or nsqlookupd has the channel {channel} of the topic {topic}")


def _is_absence(error: UpstreamError) -> bool:
    """True if a server answered that it does not have the topic or channel. One without the path answers NOT_FOUND."""
    return error.status == _NOT_FOUND and error.message in _ABSENCES


def warning(errors: Sequence[object]) -> str:
    """Return the `message` of an answer from which some servers are missing; empty if none is."""
    return f"WARNING: {'; '.join(map(str, errors))}" if errors else ""


@dataclass
class ClusterInfo:
    """The cluster of some nsqlookupds or, if none are given, of some nsqds."""

    upstream: Upstream
    lookupds: tuple[str, ...]
    nsqds: tuple[str, ...]
    clock: Callable[[], float] = time

    # ---- who has what

    def topics(self) -> tuple[list[str], Errors]:
        if self.lookupds:
            return self._names("/topics", {}, "topics")
        answers = ask_all(self.nsqds, lambda nsqd: self.upstream.get(nsqd, "/stats", {"format": "json"}))
        _check(answers, "nsqd")
        names = {text_in(row, "topic_name") for answer in answers.good.values() for row in rows_in(answer, "topics")}
        return sorted(names), answers.errors

    def channels(self, topic: str) -> tuple[list[str], Errors]:
        """Return the channels that nsqlookupds know."""
        return self._names("/channels", {"topic": topic}, "channels")

    def _names(self, path: str, query: Mapping[str, str], key: str) -> tuple[list[str], Errors]:
        answers = ask_all(self.lookupds, lambda lookupd: self.upstream.get(lookupd, path, query))
        _check(answers, "nsqlookupd")
        names = {name for answer in answers.good.values() for name in texts_in(answer, key)}
        return sorted(names), answers.errors

    def inactive_topics(self, topics: Iterable[str]) -> dict[str, list[str] | None]:
        """Return the topics that no nsqd has, with the channels that nsqlookupds still know."""
        found = ask_all(topics, self._lookup)
        idle = [topic for topic, producers in found.good.items() if not producers]
        channels = ask_all(idle, self._known_channels)
        return {topic: channels.good.get(topic) for topic in idle}

    def _lookup(self, topic: str) -> list[Statistics]:
        try:
            return self.producers_of(topic)[0]
        except NoAnswer:
            return []

    def _known_channels(self, topic: str) -> list[str] | None:
        try:
            return self.channels(topic)[0] or None
        except NoAnswer:
            return None

    def producers(self) -> tuple[list[Statistics], Errors]:
        """Return all nsqds."""
        if self.lookupds:
            answers = self._ask_lookupds("/nodes", {})
            return merged_producers({place_of(who): nodes for who, nodes in answers.good.items()}), answers.errors
        nodes = ask_all(self.nsqds, self._node)
        _check(nodes, "nsqd")
        return list(nodes.good.values()), nodes.errors

    def producers_of(self, topic: str) -> tuple[list[Statistics], Errors]:
        """Return the nsqds that have a topic."""
        if self.lookupds:
            answers = self._ask_lookupds("/lookup", {"topic": topic})
            by_address = {http_address(node): node for nodes in answers.good.values() for node in nodes}
            return list(by_address.values()), answers.errors
        found = ask_all(self.nsqds, lambda nsqd: self._node_with(nsqd, topic))
        _check(found, "nsqd")
        return [node for node in found.good.values() if node is not None], found.errors

    def _ask_lookupds(self, path: str, query: Mapping[str, str]) -> Answers[list[Statistics]]:
        """Return the nsqds that each nsqlookupd names, and an error for one that names too many."""

        def ask(lookupd: str) -> list[Statistics]:
            return [producer(row) for row in named_producers(lookupd, self.upstream.get(lookupd, path, query))]

        answers = ask_all(self.lookupds, ask)
        _check(answers, "nsqlookupd")
        crowded = [lookupd for lookupd, nodes in answers.good.items() if len(nodes) >= MOST_NSQDS]
        answers.errors += [UpstreamError(TOO_MANY_NSQDS, place_of(lookupd)) for lookupd in crowded]
        return answers

    def _node(self, nsqd: str) -> Statistics:
        info = self.upstream.get(nsqd, "/info")
        stats = self.upstream.get(nsqd, "/stats", {"format": "json", "include_clients": "false"})
        return producer_of_info(info, [text_in(row, "topic_name") for row in rows_in(stats, "topics")])

    def _node_with(self, nsqd: str, topic: str) -> Statistics | None:
        asked = {"format": "json", "topic": topic, "include_clients": "false"}
        names = [text_in(row, "topic_name") for row in rows_in(self.upstream.get(nsqd, "/stats", asked), "topics")]
        return producer_of_info(self.upstream.get(nsqd, "/info"), names, place_of(nsqd)) if topic in names else None

    # ---- metrics

    def stats(
        self, producers: Sequence[Statistics], topic: str = "", channel: str = "", *, clients: bool = False
    ) -> tuple[list[Statistics], Errors]:
        """Return the topics of these nsqds, ordered by host; or one topic with all channels or one."""
        query = {"format": "json", "topic": topic, "channel": channel if topic else ""}
        query["include_clients"] = "" if clients else "false"
        asked = {key: value for key, value in query.items() if value}
        by_address = {http_address(node): node for node in producers}
        answers = ask_all(by_address, lambda address: self.upstream.get(address, "/stats", asked))
        if len(answers.errors) == len(by_address):
            raise NoAnswer("nsqd", answers.errors)
        now_s = self.clock()
        rows = [
            topic_stats(row, address, by_address[address], now_s)
            for address, answer in in_slices(answers.good.items())
            for row in rows_in(answer, "topics")
            if not topic or text_in(row, "topic_name") == topic
        ]
        rows.sort(key=lambda row: str(row["hostname"]))
        return rows, answers.errors

    # ---- commands; each returns the errors of the servers that failed

    def create(self, topic: str, channel: str) -> Errors:
        """Create at all nsqlookupds, and a channel at the topic's nsqds too; without nsqlookupds, at all nsqds."""
        asked = self.lookupds or self.nsqds
        errors = self._post(asked, "/topic/create", {"topic": topic})
        if channel:
            names = {"topic": topic, "channel": channel}
            errors += self._post(asked, "/channel/create", names)
            if self.lookupds:
                errors += self._to_producers(topic, "/channel/create", names)
        return errors

    def delete(self, topic: str, channel: str = "") -> Errors:
        """Delete a topic or a channel. Its nsqds are asked for first, since nsqlookupds forget them. Raises Absent."""
        producers, errors = self._owners(topic)
        path, names = _order("delete", topic, channel)
        answers = self._send(self.lookupds, path, names), self._send(map(http_address, producers), path, names)
        return errors + _errors_of(answers, topic, channel)

    def tombstone(self, topic: str, node: str) -> Errors:
        """Hide a topic's nsqd from consumers, and delete the topic there."""
        errors = self._post(self.lookupds, "/topic/tombstone", {"topic": topic, "node": node})
        answers = ask_all([node], self._node)
        _check(answers, "nsqd")
        return errors + self._post(map(http_address, answers.good.values()), "/topic/delete", {"topic": topic})

    def act(self, action: str, topic: str, channel: str = "") -> Errors:
        """Pause, unpause or empty a topic or a channel on all nsqds that have it."""
        path, names = _order(action, topic, channel)
        return self._to_producers(topic, path, names)

    def _to_producers(self, topic: str, path: str, names: Mapping[str, str]) -> Errors:
        producers, errors = self.producers_of(topic)
        return errors + self._post(map(http_address, producers), path, names)

    def _owners(self, topic: str) -> tuple[list[Statistics], Errors]:
        """Return the nsqds that have a topic. Raises Absent if every server says that there is no such topic."""
        try:
            producers, errors = self.producers_of(topic)
        except NoAnswer as error:
            if error.is_absence:
                raise absent_topic(topic) from error
            raise
        if not self.lookupds and not producers and not errors:
            raise absent_topic(topic)
        return producers, errors

    def _post(self, addresses: Iterable[str], path: str, query: Mapping[str, str]) -> Errors:
        return self._send(addresses, path, query).errors

    def _send(self, addresses: Iterable[str], path: str, query: Mapping[str, str]) -> Answers[bytes]:
        return ask_all(addresses, lambda address: self.upstream.post(address, path, query))


def _errors_of(answers: Iterable[Answers[bytes]], topic: str, channel: str) -> Errors:
    """Return the errors of a command. Raises Absent if every server that got it answered that it does not have the channel."""
    found = list(answers)
    errors = [error for answer in found for error in answer.errors]
    if errors and not any(answer.good for answer in found) and all(map(_is_absence, errors)):
        raise _absent_channel(topic, channel) if channel else absent_topic(topic)
    return errors


def _order(action: str, topic: str, channel: str) -> tuple[str, dict[str, str]]:
    if channel:
        return f"/channel/{action}", {"topic": topic, "channel": channel}
    return f"/topic/{action}", {"topic": topic}


def _check(answers: Answers[Any], kind: str) -> None:
    if not answers.good:
        raise NoAnswer(kind, answers.errors)
