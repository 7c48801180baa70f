"""The options of a live topic, and the offsets of a query on it."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote

from nsq_spark.source.options import (
    CLIENT,
    TIME_ZONE,
    BadOption,
    Option,
    Values,
    at_least_one,
    check_each,
    client_options,
    parse_list,
    parse_seconds,
)
from nsqd_py.client.addresses import parse_address
from nsqd_py.client.lookup import lookup_headers
from nsqd_py.client.options import ClientOptions
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.settings.types import parse_bool

EARLIEST, LATEST = "earliest", "latest"

# Where reading begins or ends: EARLIEST, LATEST, a time in ns since the epoch, or a sequence number for each nsqd, in
# which -2 stands for the earliest and -1 for the latest.
Place: TypeAlias = str | int | Mapping[str, int]


LIVE_OPTIONS = (
    Option("nsqd", parse_list, "", "addresses (host:port, https://host:port) of nsqds, separated by commas"),
    Option("lookupd", parse_list, "", "or addresses of the nsqlookupds that name them"),
    Option("topic", str, "", "the topic", aliases=("subscribe",)),
    Option(
        "startingOffsets",
        str,
        EARLIEST,
        'where a table or a new query begins: `earliest`, `latest`, a time, or JSON such as `{"host:port": 120}`',
    ),
    TIME_ZONE,
    Option("endingOffsets", str, LATEST, "where a table ends, in the same form; not for streams"),
    Option(
        "maxMessagesPerTrigger",
        at_least_one(int),
        "",
        "maximum number of messages in a batch, of all nsqds together",
        aliases=("maxOffsetsPerTrigger",),
    ),
    Option("minPartitions", at_least_one(int), "1", "minimum number of tasks that share the reading"),
    Option("failOnDataLoss", parse_bool, "true", "fail if messages were dropped before they were read"),
    Option("giveUpAfter", parse_seconds, "60s", "how long to retry when nsqds do not answer"),
)


@dataclass(frozen=True)
class HttpAccess:
    """The settings of HTTPS requests to nsqds and nsqlookupds. `login` is the `user:password` of an address, or empty."""

    client: ClientOptions
    login: str = field(default="", repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request: the login, or else the token."""
        login = {"Authorization": f"Basic {b64encode(unquote(self.login).encode()).decode()}"} if self.login else {}
        return lookup_headers(self.client) | login


@dataclass(frozen=True)
class LiveOptions:
    """See LIVE_OPTIONS. `most_messages` None: any number."""

    nsqds: tuple[str, ...]
    lookupds: tuple[str, ...]
    topic: str
    start: Place
    end: Place
    most_messages: int | None
    least_partitions: int
    fails_on_loss: bool
    give_up_after_s: float
    access: HttpAccess


def is_live(given: Mapping[str, str]) -> bool:
    """True if the options are those of a live topic, not of an archive."""
    return not {"nsqd", "lookupd"}.isdisjoint(name.lower() for name in given)


def live_options(given: Mapping[str, str], now_ns: int) -> LiveOptions:
    """Raises BadOption."""
    values = Values(given, LIVE_OPTIONS, prefixes=(CLIENT, "fs."))
    topic = values["topic"] or ""
    (nsqds, lookupds), login = _without_login(values["nsqd"] or (), values["lookupd"] or ())
    if not (nsqds or lookupds):
        raise BadOption("nsq: option nsqd or lookupd is needed: where is the topic?")
    if given.get("path"):
        raise BadOption("nsq: option path: messages are of an archive (path) or of a topic (nsqd, lookupd), not of both")
    if not is_valid_name(topic.encode()):
        raise BadOption(f"nsq: option topic: {topic!r} is no name of a topic")
    for name, addresses in ("nsqd", nsqds), ("lookupd", lookupds):
        check_each(name, addresses, lambda address: parse_address(address.removeprefix("https://")))
    return LiveOptions(
        nsqds,
        lookupds,
        topic,
        _place(values, "startingOffsets", now_ns),
        _place(values, "endingOffsets", now_ns),
        values["maxMessagesPerTrigger"],
        values["minPartitions"],
        values["failOnDataLoss"],
        values["giveUpAfter"],
        HttpAccess(client_options(values), login),
    )


def stream_of(given: Mapping[str, str], now_ns: int) -> LiveOptions:
    """Return the options of a stream, which has no end. Raises BadOption."""
    if any(name.lower() == "endingoffsets" for name in given):
        raise BadOption("nsq: option endingOffsets: a stream has no end; use it with spark.read")
    return live_options(given, now_ns)


def _without_login(*lists: tuple[str, ...]) -> tuple[list[tuple[str, ...]], str]:
    """Return lists of addresses without their logins, and the login, which all have in common. Raises BadOption."""
    logins = {login for login in (_login_of(address) for addresses in lists for address in addresses) if login}
    if len(logins) > 1:
        raise BadOption("nsq: options nsqd and lookupd have several logins, but one is used for all addresses")
    login = "".join(logins)
    return [
        tuple(address.replace(f"{login}@", "", 1) if login else address for address in addresses) for addresses in lists
    ], login


def _login_of(address: str) -> str:
    """Return the `user:password` of https://user:password@host:port. Raises BadOption if it would be sent without TLS."""
    login, found, _ = address.removeprefix("https://").rpartition("@")
    if found and not address.startswith("https://"):
        raise BadOption("nsq: a login is sent over TLS only: write https://user:password@host:port")
    return login


def _place(values: Values, name: str, now_ns: int) -> Place:
    text = values[name].strip()
    if text in (EARLIEST, LATEST):
        return str(text)
    if not text.startswith("{"):
        time_ns = values.time(name, now_ns)
        assert time_ns is not None
        return time_ns
    try:
        found = json.loads(text)
        offsets = {str(nsqd): int(seq) for nsqd, seq in found.items()}
    except (ValueError, TypeError) as error:
        raise BadOption(f'nsq: option {name} ({text!r}): expected JSON such as {{"127.0.0.1:4151": 120}}') from error
    if any(seq < -2 for seq in offsets.values()):
        raise BadOption(f"nsq: option {name} ({text!r}): expected sequence numbers, -2 (earliest) or -1 (latest)")
    return offsets


# ---- offsets: how far a query is

# An offset has the sequence numbers that its batch reads of each nsqd; the next batch begins where it ends. So Spark reads the
# same again after a crash, whatever was published in the meantime.


class BadOffset(ValueError):
    """A checkpoint that another version wrote."""


VERSION = 2


class NumberRange(NamedTuple):
    """Sequence numbers from `low` to `high` (not included) of one nsqd, in the log of this epoch."""

    low: int
    high: int
    epoch: int

    @property
    def messages(self) -> int:
        return self.high - self.low

    def cut(self, parts: int) -> list[NumberRange]:
        """Return equal parts, none of which is empty."""
        parts = max(1, min(parts, self.messages))
        bounds = [self.low + self.messages * part // parts for part in range(parts + 1)]
        return [NumberRange(low, high, self.epoch) for low, high in zip(bounds, bounds[1:], strict=False)]


@dataclass(frozen=True)
class TopicOffset:
    """Sequence numbers by nsqd, whose name is its HTTP address."""

    ranges: Mapping[str, NumberRange] = field(default_factory=dict)

    @property
    def ends(self) -> dict[str, NumberRange]:
        """The place in each nsqd that is read next."""
        return {nsqd: part._replace(low=part.high) for nsqd, part in self.ranges.items()}

    def to_json(self) -> dict[str, Any]:
        """Return always the same for the same offset."""
        return {"version": VERSION, "topic": {nsqd: list(self.ranges[nsqd]) for nsqd in sorted(self.ranges)}}

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> TopicOffset:
        """Raises BadOffset."""
        if document.get("version") != VERSION or "topic" not in document:
            raise BadOffset("nsq: the checkpoint is of a stream of something else, or of another version")
        try:
            return cls({nsqd: NumberRange(*map(int, numbers)) for nsqd, numbers in document["topic"].items()})
        except (AttributeError, TypeError, ValueError) as error:
            raise BadOffset(f"nsq: the checkpoint has an offset that cannot be read: {error}") from error


def next_batch(starts: Mapping[str, NumberRange], ends: Mapping[str, int], most: int | None) -> TopicOffset:
    """Return what the next batch reads: all up to the ends, or `most` messages, shared out among the nsqds."""
    there = {nsqd: max(0, ends.get(nsqd, start.low) - start.low) for nsqd, start in starts.items()}
    taken = there if most is None else shares(there, most)
    return TopicOffset({nsqd: start._replace(high=start.low + taken[nsqd]) for nsqd, start in starts.items()})


def shares(there: Mapping[str, int], most: int) -> dict[str, int]:
    """Share out at most `most` messages: each nsqd gets the same, and what one does not need goes to the others."""
    found: dict[str, int] = {}
    left = most
    for number, nsqd in enumerate(sorted(there, key=lambda nsqd: (there[nsqd], nsqd))):
        found[nsqd] = min(there[nsqd], -(-left // (len(there) - number)))
        left -= found[nsqd]
    return found
