"""Addresses from the environment, for clients and programs that are given none."""

from __future__ import annotations

import os
from collections.abc import Mapping

NSQD_TCP_ADDRESS = "NSQD_TCP_ADDRESS"
NSQLOOKUPD_HTTP_ADDRESS = "NSQLOOKUPD_HTTP_ADDRESS"


def addresses_from_environment(environment: Mapping[str, str] = os.environ) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the nsqds of NSQD_TCP_ADDRESS or, without one, the nsqlookupds of NSQLOOKUPD_HTTP_ADDRESS.

    Each variable is a list, separated by commas.
    """
    nsqds = _list(environment.get(NSQD_TCP_ADDRESS, ""))
    return nsqds, () if nsqds else _list(environment.get(NSQLOOKUPD_HTTP_ADDRESS, ""))


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
