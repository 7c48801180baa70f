"""Finds nsqds that would get their own messages back, also if a destination has another spelling or was found by nsqlookupd."""

from __future__ import annotations

from collections.abc import Iterable

from nsqd_py.net.addresses import split_address
from nsqd_py.net.http.client import resolve_by_hub

Endpoint = tuple[str, int]


class Circles:
    """The destinations by what their names resolve to. An nsqd with several IP addresses is not recognised by the others."""

    def __init__(self, destinations: Iterable[str] = ()) -> None:
        self._destinations = list(destinations)
        self._endpoints: set[Endpoint] | None = None
        self._known: dict[str, bool] = {}

    def has(self, nsqd: str) -> bool:
        """True if this nsqd, by its address, is a destination. The first call for an address blocks its greenlet."""
        known = self._known.get(nsqd)
        if known is None:
            if self._endpoints is None:
                self._endpoints = set().union(*map(_endpoints_of, self._destinations))
            known = bool(self._endpoints & _endpoints_of(nsqd))
            self._known[nsqd] = known
        return known


def _endpoints_of(address: str) -> set[Endpoint]:
    """Return the IP addresses and the port; nothing if the name does not resolve."""
    parts = split_address(address)
    if parts is None:
        return set()
    try:
        found = resolve_by_hub(*parts)
    except OSError:
        return set()
    return {(str(target[0]), int(target[1])) for _, target in found}
