"""The reports of nsqlookupds and nsqds about nsqds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from nsqd_py.cluster.values import Statistics, list_in, number_in, rows_in, text_in, texts_in
from nsqd_py.net.addresses import host_and_port, join_address
from nsqd_py.runtime.documents import MOST_NSQDS

_MOST_DIGITS = 18


def producer(row: Any) -> Statistics:
    """Return an nsqd as `/nodes` and `/lookup` of nsqlookupd describe it."""
    tombstones = list_in(row, "tombstones")
    topics = []
    for index, topic in enumerate(texts_in(row, "topics")):
        is_tombstoned = index < len(tombstones) and tombstones[index] is True
        topics.append({"topic": topic, "tombstoned": is_tombstoned})
    return _producer(row, text_in(row, "remote_address"), topics)


def producer_of_info(info: Any, topics: Iterable[str], address: str = "") -> Statistics:
    """Return an nsqd as its own `/info` describes it; `address` replaces what an old nsqd does not report."""
    rows = [{"topic": topic, "tombstoned": False} for topic in topics]
    statistics = _producer(info, "", rows)
    host, port = host_and_port(address)
    if address and not statistics["broadcast_address"]:
        statistics["broadcast_address"] = host
        statistics["http_port"] = int(port) if _is_number(port) else 0
    if address and not statistics["hostname"]:
        statistics["hostname"] = host
    return statistics


def _producer(row: Any, remote_address: str, topics: list[Statistics]) -> Statistics:
    statistics: Statistics = {
        "remote_addresses": None,
        "remote_address": remote_address,
        "hostname": text_in(row, "hostname"),
        "broadcast_address": text_in(row, "broadcast_address"),
        "tcp_port": number_in(row, "tcp_port"),
        "http_port": number_in(row, "http_port"),
        "version": text_in(row, "version"),
        "topics": topics or None,
        "out_of_date": False,
    }
    for key in ("topology_zone", "topology_region"):
        if text_in(row, key):
            statistics[key] = text_in(row, key)
    return statistics


def http_address(node: Mapping[str, Any]) -> str:
    return join_address(node["broadcast_address"], node["http_port"])


def tcp_address(node: Mapping[str, Any]) -> str:
    return join_address(node["broadcast_address"], node["tcp_port"])


def merged_producers(by_lookupd: Mapping[str, Iterable[Statistics]]) -> list[Statistics]:
    """Return each nsqd once, with what each nsqlookupd calls it. Those below the highest version are out of date."""
    merged: dict[tuple[str, str], Statistics] = {}
    for lookupd, nodes in by_lookupd.items():
        for node in nodes:
            addresses = tcp_address(node), http_address(node)
            known = merged.setdefault(addresses, dict(node))
            known["remote_addresses"] = known["remote_addresses"] or []
            known["remote_addresses"].append(f"{lookupd}/{node['remote_address'] or 'N/A'}")
    nodes = list(merged.values())
    newest = max((version_key(node["version"]) for node in nodes), default=())
    for node in nodes:
        node["out_of_date"] = version_key(node["version"]) < newest
        if node["topics"]:
            node["topics"] = sorted(node["topics"], key=lambda row: str(row["topic"]))
    nodes.sort(key=lambda node: str(node["hostname"]))
    return nodes


def departed_in(document: Any) -> frozenset[str]:
    """Return the HTTP addresses of the nsqds that have ended cleanly, from the answer of `/nodes` of our nsqlookupd."""
    rows = rows_in(document, "departed")[:MOST_NSQDS]
    return frozenset(
        join_address(text_in(row, "broadcast_address"), number_in(row, "http_port")) for row in rows
    )


class SharedAddress(NamedTuple):
    """An address that several nsqds announce.

    node    HTTP address of one of them
    nsqds   how many they are
    topics  those of all of them; empty if each has its own HTTP address
    """

    node: str
    nsqds: int
    topics: tuple[str, ...]


def shared_addresses(rows: Iterable[Any]) -> dict[str, SharedAddress]:
    """Return the addresses that several nsqds announce to one nsqlookupd, from the rows of its `/nodes`.

    An nsqd may be listed twice: it has an old connection, or its configuration names the nsqlookupd twice. Rows that
    agree in everything else, also in their topics, are one nsqd.
    """
    by_tcp: dict[str, set[str]] = {}
    found: dict[str, set[tuple[Any, ...]]] = {}
    for node in map(producer, rows):
        http = http_address(node)
        tcp = tcp_address(node)
        topics = tuple(sorted(row["topic"] for row in node["topics"] or ()))
        nsqd = (tcp, node["hostname"], node["version"], topics)
        found.setdefault(http, set()).add(nsqd)
        by_tcp.setdefault(tcp, set()).add(http)
    shared: dict[str, SharedAddress] = {}
    for tcp, https in by_tcp.items():
        if len(https) > 1:
            shared[tcp] = SharedAddress(min(https), len(https), ())
    for http, nsqds in found.items():
        if len(nsqds) > 1:
            shared[http] = SharedAddress(http, len(nsqds), _topics_of(nsqds))
    return shared


def _topics_of(nsqds: Iterable[tuple[Any, ...]]) -> tuple[str, ...]:
    """Return the topics of nsqds at one address, each with its topics as the fourth value."""
    names = {topic for *_, topics in nsqds for topic in topics}
    return tuple(sorted(names))


@lru_cache(1024)
def version_key(version: str) -> tuple[Any, ...]:
    """Return a sort key that orders versions as semver.org does; a text that is not a version comes first."""
    core, _, extra = version.partition("+")[0].partition("-")
    numbers = core.split(".")
    if len(numbers) != 3 or not all(map(_is_number, numbers)):
        return (0, 0, 0, 1)
    identifiers = [_identifier(part) for part in extra.split(".") if part]
    return (*map(int, numbers), 0 if extra else 1, *identifiers)


def _identifier(text: str) -> tuple[int, int, str]:
    """Return a sort key for a part of a version's extra: numbers come before words."""
    if _is_number(text):
        return 0, int(text), ""
    return 1, 0, text


def _is_number(text: str) -> bool:
    """True for a whole number of a sane length: int() takes no more than 4,300 digits."""
    return text.isdecimal() and len(text) <= _MOST_DIGITS
