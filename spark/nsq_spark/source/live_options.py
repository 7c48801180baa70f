"""The options of live topics, with or without an archive, and the offsets of a query on them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import unquote

from nsq_spark.archive.splits import Wanted
from nsq_spark.source import options
from nsqd_py.client.addresses import parse_address
from nsqd_py.client.lookup import lookup_headers
from nsqd_py.client.options import ClientOptions
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.settings.types import parse_bool

T = TypeVar("T")
EARLIEST, LATEST = "earliest", "latest"


class LogKey(NamedTuple):
    """A topic on an nsqd, which is named by its HTTP address; without a log, as in the column `nsqd` of an archive."""

    topic: str
    nsqd: str


# Where reading begins or ends: EARLIEST, LATEST, a time in ns since the epoch, or a sequence number for each log, in
# which -2 stands for the earliest and -1 for the latest.
Place: TypeAlias = str | int | Mapping[LogKey, int]
EARLIEST_SEQ, LATEST_SEQ = -2, -1

LIVE_OPTIONS = (
    options.Option("nsqd", options.parse_list, "", "addresses (host:port, https://host:port) of nsqds, separated by commas"),
    options.Option("nsqlookupd", options.parse_list, "", "or addresses of the nsqlookupds that name them", aliases=("lookupd",)),
    options.Option("topic", options.parse_list, "", "the topics, separated by commas", aliases=("subscribe",)),
    options.Option(
        "topicPattern", str, "", "also topics in which this RE2 expression matches anywhere", aliases=("subscribePattern",)
    ),
    options.Option("path", str, "", "an archive to read first (below)"),
    options.Option("goneNsqds", options.parse_list, "", "nsqds of the archive that will not return; `*`: all that are not there"),
    options.Option(
        "startingOffsets",
        str,
        EARLIEST,
        'where a table or a new query begins: `earliest`, `latest`, a time, or JSON such as `{"orders": {"host:port": 120}}`',
    ),
    options.TIME_ZONE,
    options.Option("endingOffsets", str, LATEST, "where a table ends, in the same form; not for streams"),
    options.Option(
        "maxMessagesPerTrigger",
        options.at_least_one(int),
        "",
        "maximum number of messages in a batch, of all nsqds together",
        aliases=("maxOffsetsPerTrigger",),
    ),
    options.Option(
        "minMessagesPerTrigger",
        options.at_least_one(int),
        "1",
        "minimum, but wait no longer than `maxTriggerDelay`",
        aliases=("minOffsetsPerTrigger",),
    ),
    options.Option("maxTriggerDelay", options.parse_seconds, "15m", "see `minMessagesPerTrigger`"),
    options.Option("minPartitions", options.at_least_one(int), "1", "minimum number of tasks that share the reading"),
    options.Option("failOnDataLoss", parse_bool, "true", "fail if messages were dropped before they were read"),
    options.Option("giveUpAfter", options.parse_seconds, "60s", "how long to retry when nsqds do not answer"),
)


@dataclass(frozen=True)
class HttpAccess:
    """The settings of HTTPS requests to nsqds and nsqlookupds. `login` is the `user:password` of an address, or empty.

    timeout_s  of each read of an answer; `answer_s` of all of it
    """

    client: ClientOptions
    login: str = field(default="", repr=False)
    timeout_s: float = 30.0
    answer_s: float = 120.0

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request: the login, or else the token."""
        login = {"Authorization": f"Basic {b64encode(unquote(self.login).encode()).decode()}"} if self.login else {}
        return lookup_headers(self.client) | login


@dataclass(frozen=True)
class LiveOptions:
    """See LIVE_OPTIONS. `most_messages` None: any number. `archive` None: the logs of nsqds only."""

    nsqds: tuple[str, ...]
    lookupds: tuple[str, ...]
    wanted: Wanted
    archive: options.ReadOptions | None
    gone: frozenset[str]
    start: Place
    end: Place
    most_messages: int | None
    least_messages: int
    longest_wait_s: float
    least_partitions: int
    fails_on_loss: bool
    give_up_after_s: float
    access: HttpAccess


def is_live(given: Mapping[str, str]) -> bool:
    """True if the options are those of live topics, not of an archive alone."""
    return not {"nsqd", "lookupd", "nsqlookupd"}.isdisjoint(name.lower() for name in given)


def live_options(given: Mapping[str, str], now_ns: int) -> LiveOptions:
    """Raises BadOption."""
    of_archive = [option for option in options.READ_OPTIONS if option.name in ("paths", "skipDamaged", "splitBytes")]
    values = options.Values(given, (*LIVE_OPTIONS, *of_archive), prefixes=(options.CLIENT, options.HADOOP))
    (nsqds, lookupds), login = _without_login(values["nsqd"] or (), values["nsqlookupd"] or ())
    if not (nsqds or lookupds):
        raise options.BadOption("nsq: option nsqd or nsqlookupd is needed: where is the topic?")
    for topic in values["topic"] or ():
        if not is_valid_name(topic.encode()):
            raise options.BadOption(f"nsq: option topic: {topic!r} is no name of a topic")
    wanted = Wanted(frozenset(values["topic"] or ()), values["topicPattern"])
    if not (wanted.topics or wanted.topic_pattern):
        raise options.BadOption("nsq: option topic or topicPattern is needed: which topic?")
    options.check_wanted(wanted)
    for name, addresses in ("nsqd", nsqds), ("nsqlookupd", lookupds):
        options.check_each(name, addresses, lambda address: parse_address(address.removeprefix("https://")))
    names = {"path", *(option.name.lower() for option in of_archive)}
    archive = {name: value for name, value in given.items() if name.lower() in names or name.startswith(options.HADOOP)}
    return LiveOptions(
        nsqds,
        lookupds,
        wanted,
        replace(options.read_options(archive, now_ns), wanted=wanted) if values["path"] or values["paths"] else None,
        frozenset(values["goneNsqds"] or ()),
        _place(values, "startingOffsets", now_ns, wanted),
        _place(values, "endingOffsets", now_ns, wanted),
        values["maxMessagesPerTrigger"],
        values["minMessagesPerTrigger"],
        values["maxTriggerDelay"],
        values["minPartitions"],
        values["failOnDataLoss"],
        values["giveUpAfter"],
        HttpAccess(options.client_options(values), login),
    )


def stream_of(given: Mapping[str, str], now_ns: int) -> LiveOptions:
    """Return the options of a stream, which has no end. Raises BadOption."""
    if any(name.lower() == "endingoffsets" for name in given):
        raise options.BadOption("nsq: option endingOffsets: a stream has no end; use it with spark.read")
    return live_options(given, now_ns)


def _without_login(*lists: tuple[str, ...]) -> tuple[list[tuple[str, ...]], str]:
    """Return lists of addresses without their logins, and the login, which all have in common. Raises BadOption."""
    logins = {login for login in (_login_of(address) for addresses in lists for address in addresses) if login}
    if len(logins) > 1:
        raise options.BadOption("nsq: options nsqd and lookupd have several logins, but one is used for all addresses")
    login = "".join(logins)
    return [
        tuple(address.replace(f"{login}@", "", 1) if login else address for address in addresses) for addresses in lists
    ], login


def _login_of(address: str) -> str:
    """Return the `user:password` of https://user:password@host:port. Raises BadOption if it would be sent without TLS."""
    login, found, _ = address.removeprefix("https://").rpartition("@")
    if found and not address.startswith("https://"):
        raise options.BadOption("nsq: a login is sent over TLS only: write https://user:password@host:port")
    return login


def _place(values: options.Values, name: str, now_ns: int, wanted: Wanted) -> Place:
    text = values[name].strip()
    if text in (EARLIEST, LATEST):
        return str(text)
    if not text.startswith("{"):
        time_ns = values.time(name, now_ns)
        assert time_ns is not None
        return time_ns
    try:
        found = json.loads(text)
        if wanted.topics and not any(isinstance(part, dict) for part in found.values()):
            (topic,) = wanted.topics  # the short form, without a topic
            found = {topic: found}
        offsets = {LogKey(topic, nsqd): int(seq) for topic, part in found.items() for nsqd, seq in part.items()}
    except (ValueError, TypeError, AttributeError) as error:
        example = '{"orders": {"127.0.0.1:4151": 120}}'
        raise options.BadOption(f"nsq: option {name} ({text!r}): expected JSON such as {example}") from error
    if any(seq < EARLIEST_SEQ for seq in offsets.values()):
        raise options.BadOption(f"nsq: option {name} ({text!r}): expected sequence numbers, -2 (earliest) or -1 (latest)")
    return offsets


# ---- offsets: how far a query is

# An offset has what its batch reads of each log and of the archive; the next batch begins where it ends. So Spark reads the
# same again after a crash, whatever was published in the meantime.


class BadOffset(ValueError):
    """A checkpoint that another version wrote."""


VERSION = 3


class NumberRange(NamedTuple):
    """Sequence numbers from `low` to `high` (not included) in the log of this epoch.

    next_id  greater than the ids before number `high`, and not greater than those from `high` on; 0 if it is not known
    """

    low: int
    high: int
    epoch: int
    next_id: int = 0

    @property
    def messages(self) -> int:
        return self.high - self.low

    def cut(self, parts: int) -> list[NumberRange]:
        """Return equal parts, none of which is empty."""
        parts = max(1, min(parts, self.messages))
        bounds = [self.low + self.messages * part // parts for part in range(parts + 1)]
        return [NumberRange(low, high, self.epoch) for low, high in zip(bounds, bounds[1:], strict=False)]


class IdRange(NamedTuple):
    """Message ids in the archive, from `low` to `high` (not included), of messages that no log has numbers for; the
    batches after this one read up to `until`.
    """

    low: int
    high: int
    until: int


@dataclass(frozen=True)
class TopicOffset:
    """What a batch reads of logs, and of the archive."""

    ranges: Mapping[LogKey, NumberRange] = field(default_factory=dict)
    archived: Mapping[LogKey, IdRange] = field(default_factory=dict)

    @property
    def ends(self) -> TopicOffset:
        """The places that are read next."""
        ranges = {log: part._replace(low=part.high) for log, part in self.ranges.items()}
        return TopicOffset(ranges, {log: ids._replace(low=ids.high) for log, ids in self.archived.items()})

    def to_json(self) -> dict[str, Any]:
        """Return always the same for the same offset."""
        archive = {"archive": _nested(self.archived)} if self.archived else {}
        return {"version": VERSION, "topics": _nested(self.ranges), **archive}

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> TopicOffset:
        """Raises BadOffset."""
        if document.get("version") != VERSION or "topics" not in document:
            raise BadOffset("nsq: the checkpoint is of a stream of something else, or of another version")
        try:
            return cls(_flat(document["topics"], NumberRange), _flat(document.get("archive", {}), IdRange))
        except (AttributeError, TypeError, ValueError) as error:
            raise BadOffset(f"nsq: the checkpoint has an offset that cannot be read: {error}") from error


def _nested(by_log: Mapping[LogKey, tuple[int, ...]]) -> dict[str, dict[str, list[int]]]:
    found: dict[str, dict[str, list[int]]] = {}
    for log in sorted(by_log):
        found.setdefault(log.topic, {})[log.nsqd] = list(by_log[log])
    return found


def _flat(nested: Mapping[str, Mapping[str, list[int]]], kind: Callable[..., T]) -> dict[LogKey, T]:
    return {LogKey(topic, nsqd): kind(*map(int, part)) for topic, by in nested.items() for nsqd, part in by.items()}


def shares(there: Mapping[LogKey, int], most: int | None) -> dict[LogKey, int]:
    """Share out at most `most` messages: each log gets the same, and what one does not need goes to the others."""
    found: dict[LogKey, int] = {}
    left = sum(there.values()) if most is None else most
    for number, log in enumerate(sorted(there, key=lambda log: (there[log], log))):
        found[log] = there[log] if most is None else min(there[log], -(-left // (len(there) - number)))
        left -= found[log]
    return found
