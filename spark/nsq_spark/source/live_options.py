"""The options of live topics, with or without an archive, and the offsets of a query on them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from nsq_spark.archive.listing import Hints, split_stores
from nsq_spark.archive.splits import Names, Requested
from nsq_spark.source.declaration import (
    BadOption,
    Option,
    Texts,
    Values,
    at_least_one,
    parse_list,
    parse_seconds,
)
from nsq_spark.source.options import (
    CLIENT,
    HADOOP,
    OF_PATTERN,
    OF_ZONE,
    READ_OPTIONS,
    ReadOptions,
    archive_in,
    check_each,
    check_requested,
    client_options,
)
from nsqd_py.client.addresses import parse_address
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.runtime.documents import BAD_CONTENT
from nsqd_py.settings.values import parse_bool

if TYPE_CHECKING:
    from nsqd_py.cluster.access import HttpAccess

# An offset in the JSON of an option: a sequence number or a message id.
_OFFSET = re.compile(r'-[12]|\d+|"[0-9a-f]{16}"')
EARLIEST = "earliest"
LATEST = "latest"
EARLIEST_SEQ = -2
LATEST_SEQ = -1
# Of the offsets in checkpoints.
VERSION = 4
# The options of an archive that those of live topics do not replace.
_OF_ARCHIVE = tuple(
    option for option in READ_OPTIONS if option.name in ("paths", "skipDamaged", "splitBytes")
)
LIVE_OPTIONS = (
    Option("nsqd", parse_list, "", "addresses (host:port, https://host:port) of nsqds, separated by commas"),
    Option(
        "nsqlookupd", parse_list, "", "or addresses of the nsqlookupds that name them", aliases=("lookupd",)
    ),
    Option("topic", parse_list, "", "the topics, separated by commas", aliases=("subscribe",)),
    OF_PATTERN,
    Option("path", str, "", "an archive to read first (below)"),
    Option(
        "checkpointLocation",
        str,
        "",
        "of the query: remember there what files have that no manifest describes; a directory",
    ),
    Option(
        "goneNsqds", parse_list, "", "nsqds of the archive that will not return; `*`: all that are not there"
    ),
    Option(
        "startingOffsets",
        str,
        EARLIEST,
        'where a table or a new query begins: `earliest`, `latest`, a time, or JSON such as `{"orders": {"host:port": 120}}`',
        aliases=("startingTimestamp",),
    ),
    OF_ZONE,
    Option(
        "endingOffsets",
        str,
        LATEST,
        "where a table ends, in the same form; not for streams",
        aliases=("endingTimestamp",),
    ),
    Option(
        "maxMessagesPerTrigger",
        at_least_one(int),
        "",
        "maximum number of messages in a batch, of all nsqds together",
        aliases=("maxOffsetsPerTrigger",),
    ),
    Option(
        "minMessagesPerTrigger",
        at_least_one(int),
        "1",
        "minimum, but wait no longer than `maxTriggerDelay`",
        aliases=("minOffsetsPerTrigger",),
    ),
    Option("maxTriggerDelay", parse_seconds, "15m", "see `minMessagesPerTrigger`"),
    Option("minPartitions", at_least_one(int), "1", "minimum number of tasks that share the reading"),
    Option("failOnDataLoss", parse_bool, "true", "fail if messages were dropped before they were read"),
    Option(
        "giveUpAfter",
        parse_seconds,
        "60s",
        "how long to retry when nsqds, or the store of a stream, do not answer",
    ),
)


class LogKey(NamedTuple):
    """A topic on an nsqd, which is named by its HTTP address; without a log, as in the column `nsqd` of an archive."""

    topic: str
    nsqd: str


# Numbers of messages in logs.
Counts: TypeAlias = dict[LogKey, int]
# As JSON.
Document: TypeAlias = dict[str, Any]

# Where reading begins or ends: EARLIEST, LATEST, a time in ns since the epoch; or for each log a sequence number, in
# which -2 stands for the earliest and -1 for the latest, or the id of the message before, as text.
Offset: TypeAlias = str | int | Mapping[LogKey, int | str]


def offset_in(offset: Offset, log: LogKey) -> str | dict[str, int]:
    """Return EARLIEST, which is also that of a log that JSON does not name, LATEST, or what to ask /topic/read for."""
    one = offset.get(log, EARLIEST_SEQ) if isinstance(offset, Mapping) else offset
    if one in (EARLIEST, EARLIEST_SEQ):
        return EARLIEST
    if one in (LATEST, LATEST_SEQ):
        return LATEST
    if isinstance(one, str):
        return {"id": int(one, 16)}
    return {"seq" if isinstance(offset, Mapping) else "time": one}


@dataclass(frozen=True)
class LiveOptions:
    """See LIVE_OPTIONS. `most_messages` None: any number. `archive` None: the logs of nsqds only."""

    nsqds: Names
    lookupds: Names
    requested: Requested
    archive: ReadOptions | None
    remembered_at: str
    gone: frozenset[str]
    start: Offset
    end: Offset
    most_messages: int | None
    least_messages: int
    longest_wait_s: float
    least_partitions: int
    fails_on_loss: bool
    give_up_after_s: float
    access: HttpAccess


def is_live(given: Texts) -> bool:
    """True if the options are those of live topics, not of an archive alone."""
    return not {"nsqd", "lookupd", "nsqlookupd"}.isdisjoint(name.lower() for name in given)


def has_stores(given: Texts) -> bool:
    """True if all paths are stores of nsqd, which can be streamed without an nsqd."""
    with suppress(BadOption):  # the options of what is then read say more
        values = Values(given, (*READ_OPTIONS, *LIVE_OPTIONS), prefixes=(CLIENT, HADOOP))
        archive = archive_in(values, Requested(), Hints())
        if archive is None:
            return False
        others, _ = split_stores(archive.paths, archive.storage, skips_damaged=True)
        return not others
    return False


def live_options(given: Texts, now_ns: int, *, needs_nsqds: bool = True) -> LiveOptions:
    """Return the options; without `needs_nsqds`, those of a stream of a store need none. Raises BadOption."""
    # Takes 20 ms, which readers of archives do not need.
    from nsqd_py.cluster.access import HttpAccess, servers_in

    values = Values(given, (*LIVE_OPTIONS, *_OF_ARCHIVE), prefixes=(CLIENT, HADOOP))
    (nsqds, lookupds), login = _without_login(values["nsqd"], values["nsqlookupd"])
    if needs_nsqds and not (nsqds or lookupds):
        raise BadOption("nsq: option nsqd or nsqlookupd is needed: where is the topic?")
    for topic in values["topic"]:
        if not is_valid_name(topic.encode()):
            raise BadOption(f"nsq: option topic: {topic!r} is no name of a topic")
    requested = Requested(frozenset(values["topic"]), values["topicPattern"])
    if not (requested.topics or requested.topic_pattern):
        raise BadOption("nsq: option topic or topicPattern is needed: which topic?")
    check_requested(requested)
    for name, addresses in ("nsqd", nsqds), ("nsqlookupd", lookupds):
        check_each(name, addresses, lambda address: parse_address(address.removeprefix("https://")))
    return LiveOptions(
        nsqds,
        lookupds,
        requested,
        archive_in(values, requested, Hints()),
        f"{values['checkpointLocation'].rstrip('/')}.nsq_files" if values["checkpointLocation"] else "",
        frozenset(values["goneNsqds"]),
        _offset(values, "startingOffsets", now_ns, requested),
        _offset(values, "endingOffsets", now_ns, requested),
        values["maxMessagesPerTrigger"],
        values["minMessagesPerTrigger"],
        values["maxTriggerDelay"],
        values["minPartitions"],
        values["failOnDataLoss"],
        values["giveUpAfter"],
        HttpAccess(client_options(values), login, servers_in((*nsqds, *lookupds))),
    )


def stream_of(given: Texts, now_ns: int, *, needs_nsqds: bool = True) -> LiveOptions:
    """Return the options of a stream, which has no end; see `live_options`. Raises BadOption."""
    if not {"endingoffsets", "endingtimestamp"}.isdisjoint(name.lower() for name in given):
        raise BadOption("nsq: option endingOffsets: a stream has no end; use it with spark.read")
    return live_options(given, now_ns, needs_nsqds=needs_nsqds)


def _without_login(*lists: Names) -> tuple[list[Names], str]:
    """Return lists of addresses without their logins, and the login, which all have in common. Raises BadOption."""
    logins = {
        login for login in (_login_of(address) for addresses in lists for address in addresses) if login
    }
    if len(logins) > 1:
        raise BadOption(
            "nsq: options nsqd and lookupd have several logins, but one is used for all addresses"
        )
    login = "".join(logins)
    return [
        tuple(address.replace(f"{login}@", "", 1) if login else address for address in addresses)
        for addresses in lists
    ], login


def _login_of(address: str) -> str:
    """Return the `user:password` of https://user:password@host:port. Raises BadOption if it would be sent without TLS."""
    login, found, _ = address.removeprefix("https://").rpartition("@")
    if found and not address.startswith("https://"):
        raise BadOption("nsq: a login is sent over TLS only: write https://user:password@host:port")
    return login


def _offset(values: Values, name: str, now_ns: int, requested: Requested) -> Offset:
    text = values[name].strip()
    if text in (EARLIEST, LATEST):
        return str(text)
    if not text.startswith("{"):
        time_ns = values.time(name, now_ns)
        assert time_ns is not None
        return time_ns
    try:
        found = json.loads(text)
        if requested.topics and not any(isinstance(part, dict) for part in found.values()):
            (topic,) = requested.topics  # the short form, without a topic
            found = {topic: found}
        offsets = {
            LogKey(topic, nsqd): offset for topic, part in found.items() for nsqd, offset in part.items()
        }
    except BAD_CONTENT as error:
        example = '{"orders": {"127.0.0.1:4151": 120}}'
        raise BadOption(f"nsq: option {name} ({text!r}): expected JSON such as {example}") from error
    for offset in offsets.values():
        if not _OFFSET.fullmatch(json.dumps(offset)):
            raise BadOption(
                f"nsq: option {name} ({text!r}): expected sequence numbers, -2 (earliest), -1 (latest) or message ids of 16 hex "
                f"characters, got {json.dumps(offset)}"
            )
    return offsets


# ---- offsets: how far a query is


class BadOffset(ValueError):
    """A checkpoint that another version wrote."""


@dataclass(frozen=True)
class Position:
    """A position in the messages of a topic on an nsqd: behind one of them.

    message_id  its id, or one between it and the next; 0 before all. None where ids do not rise: there, `count` is the position
    count       number of messages of the log up to there; None if it is not known
    epoch       of the log; None if it is not known
    """

    message_id: int | None = 0
    count: int | None = 0
    epoch: int | None = None

    @property
    def last_id(self) -> int:
        return self.message_id or 0

    @property
    def seq(self) -> int:
        return self.count or 0

    def is_before(self, other: Position) -> bool:
        """True if messages may be between this position and a later one."""
        if self.message_id is None or other.message_id is None:
            return self.seq < other.seq
        return self.message_id < other.message_id

    def messages_to(self, later: Position) -> int:
        """Return how many messages of the log are between this position and another one; 0 if that is not later."""
        return max(0, later.seq - self.seq) if self.is_before(later) else 0

    def to_json(self) -> Document:
        text = None if self.message_id is None else f"{self.message_id:016x}"
        return {"id": text, "count": self.count, "epoch": self.epoch}

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> Position:
        """Raises KeyError, TypeError and ValueError."""
        text = document["id"]
        return cls(None if text is None else int(text, 16), document["count"], document["epoch"])


Positions: TypeAlias = dict[LogKey, Position]


@dataclass(frozen=True)
class TopicOffset:
    """The end of a batch in each log. It begins where the last one ended, or in some logs at another position.

    Spark keeps it and reads the same again after a crash, whatever was published in the meantime.
    """

    ends: Positions = field(default_factory=dict)
    begins: Positions = field(default_factory=dict)

    def to_json(self) -> Document:
        """Return always the same for the same offset."""
        document = {"version": VERSION, "topics": _nested(self.ends)}
        if self.begins:
            document["begins"] = _nested(self.begins)
        return document

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> TopicOffset:
        """Raises BadOffset."""
        try:
            if document["version"] == VERSION - 1:
                positions = {
                    topic: {nsqd: part[1] for nsqd, part in by.items()}
                    for topic, by in document["topics"].items()
                }
                raise BadOffset(
                    "nsq: an earlier version wrote the checkpoint, with places that this version does not use: begin with "
                    f"another checkpointLocation and startingOffsets={json.dumps(positions)!r}"
                )
            if document["version"] != VERSION:
                raise BadOffset("nsq: the checkpoint is of a stream of something else, or of another version")
            return cls(_flat(document["topics"]), _flat(document.get("begins", {})))
        except BadOffset:
            raise
        except BAD_CONTENT as error:
            raise BadOffset(f"nsq: the checkpoint has an offset that cannot be read: {error!r}") from error


def by_topic(by_log: Mapping[LogKey, Any]) -> dict[str, Document]:
    """Return values by topic and nsqd, in order."""
    found: dict[str, Document] = {}
    for log in sorted(by_log):
        found.setdefault(log.topic, {})[log.nsqd] = by_log[log]
    return found


def _nested(positions: Positions) -> Document:
    return by_topic({log: position.to_json() for log, position in positions.items()})


def _flat(nested: Any) -> Positions:
    """Raises BAD_CONTENT."""
    return {
        LogKey(topic, nsqd): Position.of_json(part)
        for topic, by in nested.items()
        for nsqd, part in by.items()
    }


def quotas(there: Counts, most: int | None) -> Counts:
    """Share out at most `most` messages: each log gets the same, and what one does not need goes to the others."""
    if most is None:
        return dict(there)
    found: Counts = {}
    rising = sorted(there, key=lambda log: (there[log], log))
    for number, log in enumerate(rising):
        share = -(-most // (len(there) - number))
        found[log] = min(there[log], share)
        most -= found[log]
    return found
