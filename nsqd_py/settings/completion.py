"""Names of topics and channels for a shell that completes them.

Those are asked that the command line names before the word, or the environment: nsqlookupds and nsqds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from nsqd_py.settings.flags import addresses_from_environment

# A user waits in front of a terminal.
_TIMEOUT_S = 1.0
_MOST_SERVERS = 3
_MOST_ANSWER_BYTES = 16 << 20


def topic_names(given: Mapping[str, Any]) -> list[str]:
    """Return the names of all topics. `given` has the settings before the word, by attribute."""
    nsqds, lookupds = _servers(given)
    names = {name for answer in _answers(lookupds, "/topics") for name in answer["topics"]}
    for answer in _answers(nsqds, "/stats?format=json&include_clients=false"):
        names.update(topic["topic_name"] for topic in answer["topics"])
    return sorted(names)


def channel_names(given: Mapping[str, Any]) -> list[str]:
    """Return the names of the channels of the topics in `given`."""
    nsqds, lookupds = _servers(given)
    topics = given.get("topic") or ()
    names: set[str] = set()
    if isinstance(topics, str):
        topics = (topics,)
    for topic in topics:
        for answer in _answers(lookupds, f"/channels?topic={quote(topic)}"):
            names.update(answer["channels"])
        for answer in _answers(nsqds, f"/stats?format=json&include_clients=false&topic={quote(topic)}"):
            names.update(channel["channel_name"] for one in answer["topics"] for channel in one["channels"])
    return sorted(names)


def _servers(given: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the HTTP addresses of nsqds and of nsqlookupds."""
    nsqds = tuple(given.get("nsqd_tcp_address") or ())
    lookupds = tuple(given.get("lookupd_http_address") or ())
    over_http = tuple(given.get("nsqd_http_address") or ())
    if not (nsqds or lookupds or over_http):
        nsqds, lookupds = addresses_from_environment()
    addresses = [*over_http, *filter(None, map(_http_address, nsqds))]
    return addresses[:_MOST_SERVERS], list(lookupds[:_MOST_SERVERS])


def _http_address(tcp_address: str) -> str:
    """Return where an nsqd has its HTTP port, if both are those of nsqd by default, or one is next to the other."""
    host, _, port = tcp_address.rpartition(":")
    return f"{host}:{int(port) + 1}" if port.isdigit() else ""


def _answers(addresses: Iterable[str], path: str) -> Iterator[Any]:
    """Yield the answers of those that answer in time. A shell shows no errors."""
    from urllib.request import ProxyHandler, build_opener  # 40 ms

    opener = build_opener(ProxyHandler({}))
    for address in addresses:
        url = address if "://" in address else f"http://{address}"
        try:
            with opener.open(url.rstrip("/") + path, timeout=_TIMEOUT_S) as answer:
                document = json.loads(answer.read(_MOST_ANSWER_BYTES))
        except (OSError, ValueError):
            continue
        if isinstance(document, dict):
            yield document
