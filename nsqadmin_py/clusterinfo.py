"""The requests and commands of Go's nsqadmin, each sent to all servers in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import time
from typing import TypeVar

from nsqadmin_py.go_json import topic_stats
from nsqadmin_py.refusals import NotThere
from nsqd_py.cluster.admin_client import UpstreamError, shown_address
from nsqd_py.cluster.producers import http_address, merged_producers, producer, producer_of_info
from nsqd_py.cluster.upstream import Answers, Upstream, ask_all, named_producers
from nsqd_py.cluster.values import Statistics, rows_in, text_in, texts_in
from nsqd_py.runtime.documents import MOST_NSQDS, TOO_MANY_NSQDS
from nsqd_py.runtime.threads import in_slices

_NOT_FOUND = 404
_ABSENCES = ("TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND")

T = TypeVar("T")
Errors = list[UpstreamError]
Names = Mapping[str, str]


class NoAnswer(Exception):
    """None of the servers answered as it should; str(error) says why.

    is_absence  True if each of them answered that it does not have the topic
    """

    def __init__(self, kind: str, errors: Errors) -> None:
        super().__init__(f"failed to query any {kind}: " + "\n".join(map(str, errors)))
        self.is_absence = bool(errors) and all(map(_is_absence, errors))


def no_server_has(topic: str, channel: str = "") -> NotThere:
    """Return the error of a command on a topic or channel that does not exist."""
    if channel:
        return NotThere(
            f"CHANNEL_NOT_FOUND: no nsqd or nsqlookupd has the channel {channel} of the topic {topic}"
        )
    return NotThere(f"TOPIC_NOT_FOUND: no nsqd or nsqlookupd has the topic {topic}")


def _is_absence(error: UpstreamError) -> bool:
    """True if a server answered that it does not have the topic or channel.

    One without the path answers NOT_FOUND.
    """
    return error.status == _NOT_FOUND and error.message in _ABSENCES


def warning(errors: Sequence[object]) -> str:
    """Return the `message` of an answer from which some servers are missing; empty if none is."""
    return f"WARNING: {'; '.join(map(str, errors))}" if errors else ""


@dataclass
class ClusterInfo:
    """The cluster of some nsqlookupds or, if none are given, of some nsqds, for one request to nsqadmin.

    `errors` collects those of servers that did not answer. If no server answered, the methods raise NoAnswer.
    """

    upstream: Upstream
    lookupds: tuple[str, ...]
    nsqds: tuple[str, ...]
    errors: Errors = field(default_factory=list)

    @property
    def warning(self) -> str:
        return warning(self.errors)

    # ---- who has what

    def topics(self) -> list[str]:
        if self.lookupds:
            return self._names("/topics", {}, "topics")
        answers = self._ask("nsqd", self.nsqds, lambda nsqd: self._topics_of(nsqd, {}))
        found: set[str] = set()
        for names in answers.values():
            found.update(names)
        return sorted(found)

    def channels(self, topic: str) -> list[str]:
        """Return the channels that nsqlookupds know."""
        return self._names("/channels", {"topic": topic}, "channels")

    def _names(self, path: str, query: Names, key: str) -> list[str]:
        answers = self._ask("nsqlookupd", self.lookupds, lambda one: self.upstream.get(one, path, query))
        names: set[str] = set()
        for answer in answers.values():
            names.update(texts_in(answer, key))
        return sorted(names)

    def inactive_topics(self, topics: Iterable[str]) -> dict[str, list[str] | None]:
        """Return the topics that no nsqd has, with the channels that nsqlookupds still know."""
        quiet = replace(self, errors=[])  # of one topic each
        found = ask_all(topics, lambda topic: _if_known(quiet.producers_of, topic))
        idle = [topic for topic, producers in found.good.items() if not producers]
        return ask_all(idle, lambda topic: _if_known(quiet.channels, topic)).good

    def producers(self) -> list[Statistics]:
        """Return all nsqds."""
        if not self.lookupds:
            nodes = self._ask("nsqd", self.nsqds, self._node)
            return list(nodes.values())
        named = self._named_by_lookupds("/nodes", {})
        shown = {shown_address(lookupd): nodes for lookupd, nodes in named.items()}
        return merged_producers(shown)

    def producers_of(self, topic: str) -> list[Statistics]:
        """Return the nsqds that have a topic."""
        if not self.lookupds:
            found = self._ask("nsqd", self.nsqds, lambda nsqd: self._node_with(nsqd, topic))
            return [node for node in found.values() if node is not None]
        named = self._named_by_lookupds("/lookup", {"topic": topic})
        by_address: dict[str, Statistics] = {}
        for nodes in named.values():
            by_address |= {http_address(node): node for node in nodes}
        return list(by_address.values())

    def _named_by_lookupds(self, path: str, query: Names) -> dict[str, list[Statistics]]:
        """Return the nsqds that each nsqlookupd names, and note an error for one that names too many."""

        def ask(lookupd: str) -> list[Statistics]:
            answer = self.upstream.get(lookupd, path, query)
            return list(map(producer, named_producers(lookupd, answer)))

        answers = self._ask("nsqlookupd", self.lookupds, ask)
        for lookupd, nodes in answers.items():
            if len(nodes) >= MOST_NSQDS:
                self.errors.append(UpstreamError(TOO_MANY_NSQDS, shown_address(lookupd)))
        return answers

    def _node(self, nsqd: str) -> Statistics:
        info = self.upstream.get(nsqd, "/info")
        topics = self._topics_of(nsqd, {"include_clients": "false"})
        return producer_of_info(info, topics)

    def _node_with(self, nsqd: str, topic: str) -> Statistics | None:
        names = self._topics_of(nsqd, {"topic": topic, "include_clients": "false"})
        if topic not in names:
            return None
        info = self.upstream.get(nsqd, "/info")
        return producer_of_info(info, names, shown_address(nsqd))

    def _topics_of(self, nsqd: str, query: Names) -> list[str]:
        answer = self.upstream.get(nsqd, "/stats", {"format": "json", **query})
        return [text_in(row, "topic_name") for row in rows_in(answer, "topics")]

    def _ask(self, kind: str, addresses: Iterable[str], ask: Callable[[str], T]) -> dict[str, T]:
        """Return the answers of some servers by address. Raises NoAnswer."""
        answers = ask_all(addresses, ask)
        if not answers.good:
            raise NoAnswer(kind, answers.errors)
        self.errors += answers.errors
        return answers.good

    # ---- metrics

    def stats(
        self, producers: Sequence[Statistics], topic: str = "", channel: str = "", *, clients: bool = False
    ) -> list[Statistics]:
        """Return the topics of these nsqds, ordered by host; or one topic with all channels or one."""
        query = {"format": "json"}
        if topic:
            query["topic"] = topic
        if channel:
            query["channel"] = channel
        if not clients:
            query["include_clients"] = "false"
        by_address = {http_address(node): node for node in producers}
        answers = self._ask("nsqd", by_address, lambda address: self.upstream.get(address, "/stats", query))
        now_s = time()
        rows = []
        for address, answer in in_slices(answers.items()):
            for row in rows_in(answer, "topics"):
                if not topic or text_in(row, "topic_name") == topic:
                    rows.append(topic_stats(row, address, by_address[address], now_s))
        rows.sort(key=lambda row: str(row["hostname"]))
        return rows

    # ---- commands; each returns the errors of the servers that failed

    def create(self, topic: str, channel: str) -> Errors:
        """Create at all nsqlookupds, and a channel at the topic's nsqds too; else at all nsqds."""
        servers = self.lookupds or self.nsqds
        self._post(servers, "/topic/create", {"topic": topic})
        if channel:
            order = _order("create", topic, channel)
            self._post(servers, *order)
            if self.lookupds:
                self._post_to_owners(*order)
        return self.errors

    def delete(self, topic: str, channel: str = "") -> Errors:
        """Delete a topic or a channel. Raises NotThere if every server answered that it does not have it.

        Its nsqds are asked for first, since nsqlookupds forget them.
        """
        owners = [http_address(node) for node in self._owners(topic)]
        path, names = _order("delete", topic, channel)
        answers = [self._send(servers, path, names) for servers in (self.lookupds, owners)]
        errors = [error for answer in answers for error in answer.errors]
        if errors and not any(answer.good for answer in answers) and all(map(_is_absence, errors)):
            raise no_server_has(topic, channel)
        self.errors += errors
        return self.errors

    def tombstone(self, topic: str, node: str) -> Errors:
        """Hide a topic's nsqd from consumers, and delete the topic there."""
        self._post(self.lookupds, "/topic/tombstone", {"topic": topic, "node": node})
        nodes = self._ask("nsqd", [node], self._node)
        self._post(map(http_address, nodes.values()), "/topic/delete", {"topic": topic})
        return self.errors

    def act(self, action: str, topic: str, channel: str = "") -> Errors:
        """Pause, unpause or empty a topic or a channel on all nsqds that have it."""
        self._post_to_owners(*_order(action, topic, channel))
        return self.errors

    def _owners(self, topic: str) -> list[Statistics]:
        """Return the nsqds that have a topic.

        Raises NotThere if every server says that there is no such topic.
        """
        try:
            producers = self.producers_of(topic)
        except NoAnswer as error:
            if error.is_absence:
                raise no_server_has(topic) from error
            raise
        if not self.lookupds and not producers and not self.errors:
            raise no_server_has(topic)
        return producers

    def _post_to_owners(self, path: str, names: Names) -> None:
        owners = self.producers_of(names["topic"])
        self._post(map(http_address, owners), path, names)

    def _post(self, addresses: Iterable[str], path: str, names: Names) -> None:
        self.errors += self._send(addresses, path, names).errors

    def _send(self, addresses: Iterable[str], path: str, names: Names) -> Answers[bytes]:
        return ask_all(addresses, lambda address: self.upstream.post(address, path, names))


def _order(action: str, topic: str, channel: str) -> tuple[str, dict[str, str]]:
    if channel:
        return f"/channel/{action}", {"topic": topic, "channel": channel}
    return f"/topic/{action}", {"topic": topic}


def _if_known(ask: Callable[[str], list[T]], topic: str) -> list[T] | None:
    """Return the answers about a topic; None without any."""
    try:
        return ask(topic) or None
    except NoAnswer:
        return None
