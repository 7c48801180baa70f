"""The producer that a task publishes with: that of the client library, one turn at a time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from nsq_spark.replay.job import Destination
from nsqd_py.client.blocking.lookup import LookupClient
from nsqd_py.client.blocking.producer import Producer
from nsqd_py.client.errors import HandshakeFailed, NoNsqd, NsqClientError
from nsqd_py.client.publishing.publish import Done, Publish
from nsqd_py.protocol import outgoing

# An ordered stream goes to another nsqd when its own has taken nothing for so long.
_FAIL_OVER_S = 10.0
# Larger than what a Sender has on its way: the producer never has to make it wait.
_WINDOW = 10_000
_WINDOW_BYTES = 64 << 20

# What goes wrong comes back with the batch that it went wrong for.
_log = logging.getLogger("nsq_spark.replay.producer")
_log.addHandler(logging.NullHandler())
_log.propagate = False


class Outlet(Producer):
    """A producer whose caller looks after other things too: it is never waited for longer than the caller says."""

    def turn(self, timeout_s: float) -> None:
        """Do what is due, and take in what nsqds say, once one says something."""
        with self._lock:
            self._work()
            self._look(timeout_s)
            self._pump()

    def send_mpub_pieces(self, topic: str, pieces: Sequence[Any], size_bytes: int, on_done: Done) -> Publish:
        """As `send_mpub_body`, of a body of `size_bytes` in pieces. The command leaves in one stretch: to copy it takes
        less time than a second call, with which nsqd would be woken for nothing but the head.
        """
        return self._publish_soon(b"".join((outgoing.mpub_head(topic, size_bytes), *pieces)), b"", on_done)

    @property
    def has_discovered(self) -> bool:
        """Whether it knows of nsqds: a publish before that would wait."""
        return self._has_discovered

    @property
    def nsqd_count(self) -> int:
        return max(1, len(self._dispatcher.outlets))

    @property
    def is_refused(self) -> bool:
        """Whether every nsqd refused to talk to us, by a wrong secret or certificate, and none ever did."""
        outlets = self._dispatcher.outlets.values()
        refused = all(isinstance(outlet.failure, HandshakeFailed) for outlet in outlets)
        return bool(outlets) and refused and self._dispatcher.no_nsqd() is not None


class Outlets:
    """Makes the outlet of a task, and the next one when it failed.

    Unordered, one outlet spreads over all nsqds. An ordered stream has one nsqd at a time, and its publishes one order.
    """

    def __init__(self, destination: Destination, give_up_after_s: float, *, is_ordered: bool, first: int) -> None:
        """`first` differs from task to task, so that ordered streams do not all go to the same nsqd."""
        self._destination = destination
        self._give_up_after_s = give_up_after_s
        self._is_ordered = is_ordered
        self._turn = first

    def open(self) -> Outlet:
        """Raises NsqClientError."""
        if not self._is_ordered:
            destination = self._destination
            return self._outlet(destination.nsqd_tcp_addresses, destination.lookupd_http_addresses, 1)
        addresses = known_nsqds(self._destination)
        address = addresses[self._turn % len(addresses)]
        self._turn += 1
        return self._outlet((address,), (), len(addresses))

    def _outlet(self, nsqds: Sequence[str], lookupds: Sequence[str], others: int) -> Outlet:
        limit_s = self._give_up_after_s if others == 1 else min(self._give_up_after_s, _FAIL_OVER_S)
        return Outlet(
            nsqd_tcp_addresses=nsqds,
            lookupd_http_addresses=lookupds,
            options=self._destination.options,
            window=_WINDOW,
            window_bytes=_WINDOW_BYTES,
            publish_timeout_s=max(0.1, limit_s),
            log=_log,
        )


def known_nsqds(destination: Destination) -> list[str]:
    """All of them, asked for now. Raises NoNsqd."""
    found = list(destination.nsqd_tcp_addresses)
    failures = []
    if destination.lookupd_http_addresses:
        client = LookupClient(destination.options)
        for lookupd in destination.lookupd_http_addresses:
            try:
                found += client.nodes(lookupd)
            except NsqClientError as error:
                failures.append(str(error))
    if not found:
        raise NoNsqd("; ".join(failures) or "nsqlookupd knows no nsqd")
    return sorted(set(found))
