"""A topic on its nsqds: which nsqds have it, what each keeps of it, and where reading begins and ends."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlencode

from nsq_spark.archive.damage import ArchiveError
from nsq_spark.source.live.kept import Kept, NoTopic, address_of, ask_json, ends, patiently, read
from nsq_spark.source.live.offsets import Stretch, TopicOffset
from nsq_spark.source.live.options import EARLIEST, LATEST, LiveOptions, Place
from nsq_spark.source.live.task import TopicPartition
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, RecordHeader, decode_header

# ---- which nsqds have the topic

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
        return {address_of(one["broadcast_address"], one["http_port"]) for one in document["producers"]}
    except (KeyError, TypeError) as error:
        raise ArchiveError(f"nsq: {lookupd} does not answer as an nsqlookupd: {error!r}") from error


# ---- what they keep


class LiveTopic:
    """The topic of some options."""

    def __init__(self, options: LiveOptions) -> None:
        self._options = options

    def kept(self, known: Iterable[str] = (), *, of_all: bool = False) -> dict[str, Kept]:
        """What each nsqd keeps that has the topic. Waits while all are away, or `of_all` while any is; else one that is
        away is left for the next time. Raises ArchiveError.
        """
        return patiently(partial(self._asked, list(known), of_all), self._options.give_up_after_s)

    def _asked(self, known: Iterable[str], of_all: bool) -> dict[str, Kept]:
        found: dict[str, Kept] = {}
        failures: list[str] = []
        nsqds = nsqds_of(self._options, known)
        for nsqd in nsqds:
            try:
                found[nsqd] = ends(nsqd, self._options.topic)
            except NoTopic:
                continue
            except ArchiveError as error:
                failures.append(str(error))
        if failures and (of_all or len(failures) == len(nsqds)):
            raise ArchiveError("; ".join(failures))
        for failure in failures:
            _log.warning("%s", failure)
        return found

    def place(self, nsqd: str, kept: Kept, place: Place) -> int:
        """The sequence number of a place in the options."""
        if isinstance(place, Mapping):
            seq = place.get(nsqd, -2)
            return kept.earliest_seq if seq == -2 else kept.end_seq if seq == -1 else seq
        if place == EARLIEST:
            return kept.earliest_seq
        return kept.end_seq if place == LATEST else self._first_since(nsqd, int(place), kept)

    def _first_since(self, nsqd: str, time_ns: int, kept: Kept) -> int:
        """The first message published at a time or later. Halves what it may be, a record a question."""
        low, high = kept.earliest_seq, kept.end_seq
        while low < high:
            middle = (low + high) // 2
            record = self._record_at(nsqd, middle)
            if record is None or record.timestamp_ns >= time_ns:
                high = middle if record is None else max(low, min(middle, record.first_seq))
            else:
                low = record.end_seq
        return low

    def _record_at(self, nsqd: str, seq: int) -> RecordHeader | None:
        """The record that holds a number, or the first behind it; None where there is none."""
        answer = read(nsqd, self._options.topic, seq, 1)
        return decode_header(answer.data, FILE_HEADER_BYTES) if len(answer.data) > FILE_HEADER_BYTES else None

    def partitions(self, offset: TopicOffset, columns: tuple[str, ...]) -> list[TopicPartition]:
        """Who reads what: an nsqd each, or as many parts as `minPartitions` asks for."""
        options = self._options
        stretches = {nsqd: stretch for nsqd, stretch in offset.stretches.items() if stretch.messages}
        each = -(-options.least_partitions // max(1, len(stretches)))
        return [
            TopicPartition(
                nsqd, options.topic, part.low, part.high, columns, options.fails_on_loss, options.give_up_after_s
            )
            for nsqd, stretch in stretches.items()
            for part in cut(stretch, each)
        ]


def cut(stretch: Stretch, parts: int) -> list[Stretch]:
    """In equal parts, none of which is empty."""
    parts = max(1, min(parts, stretch.messages))
    bounds = [stretch.low + stretch.messages * part // parts for part in range(parts + 1)]
    return [Stretch(low, high) for low, high in zip(bounds, bounds[1:], strict=False)]
