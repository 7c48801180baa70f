"""Which nsqds there are: those that are named, and those that nsqlookupds know to have the topic."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from nsq_spark.archive.errors import ArchiveError
from nsq_spark.source.live.kept import NoTopic, ask_json
from nsq_spark.source.live.options import LiveOptions

_log = logging.getLogger("nsqd_py.spark")


def nsqds_of(options: LiveOptions, known: Iterable[str]) -> list[str]:
    """Addresses of HTTP sides. Where no nsqlookupd answers, those that are known. Raises ArchiveError if none is."""
    found, failures = set(options.nsqds), []
    for lookupd in options.lookupds:
        try:
            found |= _looked_up(lookupd, options.topic)
        except ArchiveError as error:
            failures.append(str(error))
            _log.warning("%s", error)
    if failures and len(failures) == len(options.lookupds):
        found |= set(known)
        if not found:
            raise ArchiveError(failures[0])
    return sorted(found)


def _looked_up(lookupd: str, topic: str) -> set[str]:
    """Raises ArchiveError."""
    try:
        document: Any = ask_json(lookupd, f"/lookup?{urlencode({'topic': topic})}")
    except NoTopic:
        return set()
    try:
        return {_address(one["broadcast_address"], one["http_port"]) for one in document["producers"]}
    except (KeyError, TypeError) as error:
        raise ArchiveError(f"nsq: {lookupd} does not answer as an nsqlookupd: {error!r}") from error


def tcp_address(nsqd: str) -> str:
    """What consumers know an nsqd by. Raises ArchiveError."""
    document = ask_json(nsqd, "/info")
    try:
        return _address(document["broadcast_address"], document["tcp_port"])
    except (KeyError, TypeError) as error:
        raise ArchiveError(f"nsq: {nsqd} does not answer as an nsqd: {error!r}") from error


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
