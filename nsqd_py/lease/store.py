"""The interface of a lease store, its errors, and the URLs of leases.

    etcd://127.0.0.1:2379,127.0.0.1:22379/orders         (etcds:// for TLS)
    consul://127.0.0.1:8500/orders                       (consuls:// for TLS)
    kubernetes:///queues/orders                          namespace and name, from inside a pod

Each store is asked over HTTP. All of them give a lease to one holder at a time, end it after its time to live when the
holder does not renew it, and number the holders in ascending order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

_KINDS = ("etcd", "etcds", "consul", "consuls", "kubernetes")


class LeaseError(Exception):
    """The store did not answer, or refused the request; str(error) says why."""


class LeaseLost(LeaseError):
    """The store says that the lease has ended, or that another holder has it."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease that was taken.

    number  rises with each holder, so that what an earlier one did can be told from what a later one does
    handle  the store's own name for it
    """

    number: int
    handle: Any


class LeaseStore(Protocol):
    """Gives one lease. Every call sends one or two requests and blocks its greenlet."""

    def acquire(self, holder: str) -> Lease | None:
        """Take the lease; None if another holder has it. Raises LeaseError."""

    def renew(self, lease: Lease) -> None:
        """Let the lease live for its whole time again. Raises LeaseLost, LeaseError."""

    def release(self, lease: Lease) -> None:
        """End the lease now. Raises LeaseError."""

    def holder(self) -> str | None:
        """Return who has the lease; None if nobody has. Raises LeaseError."""

    def note(self) -> str:
        """Return the note of the last holder, which outlives its lease; empty if there is none. Raises LeaseError."""

    def write_note(self, lease: Lease, text: str) -> None:
        """Replace the note, as the holder of this lease. Raises LeaseLost, LeaseError."""


@dataclass(frozen=True, slots=True)
class LeaseUrl:
    """The parts of a lease's URL. `name` has no slash at its ends; `login` is `user:password`, or empty."""

    kind: str
    is_secure: bool
    addresses: tuple[str, ...]
    name: str
    login: str = ""


def parse_lease_url(text: str) -> LeaseUrl:
    """Parse the URL of a lease. Raises ValueError."""
    parts = urlsplit(text)
    if parts.scheme not in _KINDS:
        raise ValueError("the URL of a lease begins with etcd://, consul:// or kubernetes://")
    name = parts.path.strip("/")
    if not name:
        raise ValueError(f"the URL of a lease ends with its name, as in {parts.scheme}://host:port/orders")
    login, _, places = parts.netloc.rpartition("@")
    addresses = tuple(place for place in places.split(",") if place)
    if parts.scheme == "kubernetes":
        if addresses or name.count("/") != 1:
            raise ValueError("the URL of a Kubernetes lease is kubernetes:///namespace/name")
    elif not addresses:
        raise ValueError(f"the URL of a lease has the address of its store, as in {parts.scheme}://host:port/orders")
    kind = parts.scheme.removesuffix("s") if parts.scheme in ("etcds", "consuls") else parts.scheme
    return LeaseUrl(kind, parts.scheme != kind or kind == "kubernetes", addresses, name, login)
