"""How far the logs of topics went before a replay and go after it: the difference says how much is stored twice.

When nsqd ends while publishes are unanswered, their sender cannot know which of them it stored; its log can. Only our nsqd
numbers its messages; it is asked over HTTP, at the address that nsqlookupd gives or, where nsqds are named, at the port after
their TCP port (4151 after 4150).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from urllib.parse import SplitResult, urlsplit

from nsq_spark.archive.splits import ArchiveError
from nsq_spark.replay.job import Destination
from nsq_spark.source.live_options import LogKey, Position
from nsq_spark.source.nsqds import BEHIND_ALL, STATS, NoTopic, addresses_in, nsqds_of, read, tcp_address
from nsqd_py.cluster.access import HttpAccess, servers_in

# An answer takes a few ms; a replay does not wait longer for what only makes its report more exact.
_TIMEOUT_S = 5.0
_MOST_TOPICS = 1000


class StoredBefore:
    """The ends of the logs before a replay."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        named = servers_in(
            _parts_of(lookupd).netloc.rpartition("@")[2] for lookupd in destination.lookupd_http_addresses
        )
        self._access = HttpAccess(destination.options, named=named, timeout_s=_TIMEOUT_S, answer_s=_TIMEOUT_S)
        self._nsqds: set[str] = set()  # their HTTP addresses
        self._ends: dict[LogKey, Position] = {}
        self._failure: ArchiveError | None = None
        try:
            self._nsqds = self._addresses()
            for nsqd in self._nsqds:
                self._ends |= self._ends_of(nsqd, self._topics_of(nsqd))
        except ArchiveError as error:
            self._failure = error

    def duplicates(self, sent: Mapping[str, int]) -> int:
        """Return how many messages more than `sent`, by topic, are stored since then. Raises ArchiveError if no log says it."""
        if self._failure:
            raise self._failure
        new = self._addresses() - self._nsqds
        if new:
            raise ArchiveError(f"{min(new)} was not there when the replay began")
        stored = dict.fromkeys(sent, 0)
        for nsqd in self._nsqds:
            for log, end in self._ends_of(nsqd, sent).items():
                before = self._ends.get(log, Position(None, 0, end.epoch))
                if before.epoch != end.epoch:
                    raise ArchiveError(f"topic {log.topic} was deleted and created again at {log.nsqd}")
                stored[log.topic] += end.seq - before.seq
        for topic, count in sent.items():
            if stored[topic] < count:
                raise ArchiveError(f"the logs of topic {topic} have fewer messages than were sent")
        return sum(stored.values()) - sum(sent.values())

    def _addresses(self) -> set[str]:
        """Return the HTTP addresses of all nsqds. Raises ArchiveError."""
        found: set[str] = set()
        for lookupd in self._destination.lookupd_http_addresses:
            parts = _parts_of(lookupd)
            login, _, host = parts.netloc.rpartition("@")
            # It goes into headers, not into errors. nsqds with a certificate of our authority get it too.
            self._access = replace(self._access, login=login)
            found |= nsqds_of(
                f"{parts.scheme}://{host}" if parts.scheme else host, "/nodes", self._access
            ).keys()
        for nsqd in self._destination.nsqd_tcp_addresses:
            host, _, port = nsqd.rpartition(":")
            http = f"{host}:{int(port) + 1}"
            if tcp_address(http, self._access).rpartition(":")[2] != port:
                raise ArchiveError(
                    f"{http} is not the HTTP address of {nsqd}; with --lookupd-http-address, nsqlookupd names it"
                )
            found.add(http)
        return found

    def _topics_of(self, nsqd: str) -> list[str]:
        """Return the topics of an nsqd that the replay may publish to. Raises ArchiveError."""
        found = addresses_in(
            nsqd, STATS, self._access, "nsqd", lambda found: [one["topic_name"] for one in found["topics"]]
        )
        to_topic = self._destination.to_topic
        topic_map = self._destination.topic_map
        names = [name for name in found if not to_topic or name in (to_topic, *dict(topic_map).values())]
        if len(names) > _MOST_TOPICS:
            raise ArchiveError(f"nsq: {nsqd} has too many topics to ask for the end of each log")
        return names

    def _ends_of(self, nsqd: str, topics: Iterable[str]) -> dict[LogKey, Position]:
        """Return where the logs of those topics end that the nsqd has. Raises ArchiveError."""
        ends = {}
        for topic in topics:
            with suppress(NoTopic):
                ends[LogKey(topic, nsqd)] = read(nsqd, topic, 1, self._access, seq=BEHIND_ALL).end
        return ends


def _parts_of(lookupd: str) -> SplitResult:
    return urlsplit(lookupd if "://" in lookupd else f"//{lookupd}")
