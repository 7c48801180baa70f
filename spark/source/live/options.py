"""The options of a stream of a topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nsqd_py.client.addresses import parse_address
from nsqd_py.client.errors import BadAddress
from nsqd_py.literals import parse_bool
from nsqd_py.protocol.names import is_valid_name
from spark.source.options import BadOption, Option, Values, at_least_one, parse_list

EARLIEST, LATEST = "earliest", "latest"

# fmt: off
LIVE_OPTIONS = (
    Option("nsqd", parse_list, "", "host:port of the HTTP side of nsqds, with commas between them"),
    Option("lookupd", parse_list, "", "or host:port of the HTTP side of the nsqlookupds that name them"),
    Option("topic", str, "", "the topic"),
    Option("startingPosition", str, EARLIEST, "where a new query begins: `earliest`, `latest`, or a time"),
    Option("maxMessagesPerTrigger", at_least_one(int), "", "how many messages a batch has at most, of all nsqds"),
    Option("failOnDataLoss", parse_bool, "true", "fail where messages were dropped before they were read"),
)
# fmt: on


@dataclass(frozen=True)
class LiveOptions:
    """See LIVE_OPTIONS. `start` is EARLIEST, LATEST, or a time in ns since the epoch; `most_messages` None: any."""

    nsqds: tuple[str, ...]
    lookupds: tuple[str, ...]
    topic: str
    start: str | int
    most_messages: int | None
    fails_on_loss: bool


def is_live(given: Mapping[str, str]) -> bool:
    """Whether the options are those of a stream of a topic, and not of an archive."""
    return not {"nsqd", "lookupd"}.isdisjoint(name.lower() for name in given)


def live_options(given: Mapping[str, str], now_ns: int) -> LiveOptions:
    """Raises BadOption."""
    values = Values(given, LIVE_OPTIONS, prefixes=("fs.",))
    nsqds, lookupds, topic = values["nsqd"] or (), values["lookupd"] or (), values["topic"] or ""
    if not (nsqds or lookupds):
        raise BadOption("nsq: option nsqd or lookupd is needed: where is the topic?")
    if given.get("path"):
        raise BadOption("nsq: option path: a stream is of an archive (path) or of a topic (nsqd, lookupd), not of both")
    if not is_valid_name(topic.encode()):
        raise BadOption(f"nsq: option topic: {topic!r} is no name of a topic")
    for name, addresses in (("nsqd", nsqds), ("lookupd", lookupds)):
        _check_addresses(name, addresses)
    start = values["startingPosition"]
    if start not in (EARLIEST, LATEST):
        start = values.time("startingPosition", now_ns)
    return LiveOptions(nsqds, lookupds, topic, start, values["maxMessagesPerTrigger"], values["failOnDataLoss"])


def _check_addresses(name: str, addresses: tuple[str, ...]) -> None:
    for address in addresses:
        try:
            parse_address(address)
        except (BadAddress, ValueError) as error:
            raise BadOption(f"nsq: option {name}: {error}") from None
