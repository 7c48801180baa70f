"""The interface of a lease (`LeaseStore`), its errors, and its URL: `etcd://127.0.0.1:2379,127.0.0.1:22379/orders`, or
`s3://bucket/prefix/orders`.

`etcds://` is TLS. A store gives a lease to one holder at a time, ends it after its time to live when the holder does
not renew it, and numbers the holders in ascending order.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Protocol

from nsqd_py.net.addresses import check_peer_addresses
from nsqd_py.settings.values import read_secret

_REMOVED = ("consul", "consuls", "kubernetes")
_HIGHEST_PORT = 65535
_URL = re.compile(r"(\w*)://([^/?#]*)([^?#]*)", re.ASCII)
_BUCKETS = ("s3", "gs", "az", "file")
_BUCKET_URL = re.compile(r"(?P<bucket>\w+://[\w.-]+)/(?P<name>[\w.=-]+(?:/[\w.=-]+)*)/?", re.ASCII)
_DIRECTORY_URL = re.compile(r"(?P<bucket>file://(?:/[\w.=-]+)+)/(?P<name>[\w.=-]+)/?", re.ASCII)
_DOTS = re.compile(r"/\.{1,2}(?:/|$)")
_HOLDER = re.compile(r"\S{1,294}:([0-9]{1,5})")


class LeaseError(Exception):
    """The store did not answer, or its answer was not understood; str(error) says why."""


class LeaseLost(LeaseError):
    """The store says that the lease has ended, or that another holder has it."""


# ---- a lease


class Lease(NamedTuple):
    """A lease that was taken.

    number  rises with each holder, so that what an earlier one did can be distinguished from what a later one does
    handle  the store's own name for it
    holder  the address of its holder
    """

    number: int
    handle: Any
    holder: str = ""


class LeaseState(NamedTuple):
    """The lease as one poll has found it.

    number       that of the last change of its key; 0 if there is no key. It is the number of the lease if one holds it
    handle       the store's name for the lease that holds it; empty if none does
    holder       the address of the holder; None if there is none, or if no nsqd has written the key
    stranger     what the key has, for people, if no nsqd has written it; else empty
    turn         the number of the last change of holders: one took the lease, or released it; 0 if none is known
    is_released  True if that was a release: the last holder has said that it does not serve any more
    lives_s      the longest time that the lease lives unless it is renewed; 0.0 if it has ended by itself, None if that
                 is not known
    """

    number: int = 0
    handle: str = ""
    holder: str | None = None
    stranger: str = ""
    turn: int = 0
    is_released: bool = False
    lives_s: float | None = None


class Note(NamedTuple):
    """The note of the last holder, which outlives its lease. `revision` is a number that each change raises."""

    text: str = ""
    revision: int = 0


class LeaseStore(Protocol):
    """One lease in a store that nsqds share.

    key             the name of what holds the lease
    title           what holds the lease, for messages
    note_title      what has the note, for messages
    delete_command  the command by which people delete what holds the lease
    """

    key: str
    title: str
    note_title: str
    delete_command: str

    def poll(self, handle: str = "") -> LeaseState:
        """Return who has the lease. Raises LeaseError.

        handle  the lease that the last poll has found: if it is held still, the answer says how long it lives
        """
        ...

    def acquire(self, holder: str, state: LeaseState) -> Lease | None:
        """Take the lease, unless something has changed since the last poll, which has found `state`. Raises LeaseError."""
        ...

    def renew(self, lease: Lease) -> None:
        """Let the lease live for its whole time again. Raises LeaseLost, LeaseError."""
        ...

    def release(self, lease: Lease) -> None:
        """End the lease now, as its holder that does not serve any more. Raises LeaseError."""
        ...

    def note(self) -> Note:
        """Return the note; an empty one if there is none. Raises LeaseError."""
        ...

    def write_note(self, lease: Lease, text: str, revision: int) -> int:
        """Replace the note that has this revision, as the holder of this lease; return the new revision.

        Raises LeaseLost, and LeaseError also if the note has another revision.
        """
        ...


def check_holder(text: str) -> str:
    """Return the address of a holder, host:port, if it is one. Raises ValueError."""
    match = _HOLDER.fullmatch(text)
    if match is None or not text.isprintable() or not 0 < int(match[1]) <= _HIGHEST_PORT:
        raise ValueError(f"the holder of the lease is not an address: {text[:80]!r}")
    return text


# ---- its URL


class LeaseUrl(NamedTuple):
    """The parts of a lease's URL. `name` has no slash at its ends; `login` is `user:password`, or empty.

    bucket  the URL of the bucket or directory, such as s3://bucket; empty for etcd
    """

    is_secure: bool
    addresses: tuple[str, ...]
    name: str
    login: str = ""
    bucket: str = ""


def parse_lease_url(text: str, password_file: str = "") -> LeaseUrl:
    """Parse the URL of a lease, and add the password in a file to its login. Raises ValueError."""
    match = _URL.match(text)  # importing urllib.parse would take 2 of the 36 ms of --version
    scheme, authority, path = match.groups() if match else ("", "", "")
    scheme = scheme.lower()
    if scheme in _REMOVED:
        raise ValueError(f"{scheme}:// is not supported any more: use a lease of etcd, etcd://host:2379/name")
    if scheme in _BUCKETS:
        return _parse_bucket_url(text, scheme, password_file)
    if scheme not in ("etcd", "etcds"):
        raise ValueError("the URL of a lease begins with etcd://, etcds://, s3://, gs://, az:// or file://")
    name = path.strip("/")
    login, _, members = authority.rpartition("@")
    addresses = tuple(address for address in members.split(",") if address)
    if not name or not addresses:
        example = f"{scheme}://host:2379/orders"
        raise ValueError(
            f"the URL of a lease has the address of its store and ends with its name, as in {example}"
        )
    if password_file:
        if not login or ":" in login:
            raise ValueError(
                "with --lease-password-file, the URL has a user and no password: etcd://user@host/name"
            )
        login = f"{login}:{read_secret(f'@{password_file}')}"
    check_peer_addresses(addresses)
    return LeaseUrl(scheme == "etcds", addresses, name, login)


def _parse_bucket_url(text: str, scheme: str, password_file: str) -> LeaseUrl:
    """Parse the URL of a lease in a bucket. Raises ValueError."""
    if password_file:
        raise ValueError(
            f"--lease-password-file is for etcd: {scheme}:// uses the credentials of the environment"
        )
    if scheme == "file":
        match = _DIRECTORY_URL.fullmatch(text)
        example = "file:///directory/orders"
    else:
        match = _BUCKET_URL.fullmatch(text)
        example = f"{scheme}://bucket/prefix/orders"
    if match is None or _DOTS.search(text):
        raise ValueError(
            f"the URL of a lease in a bucket has the bucket and ends with the lease's name, as in {example}, of letters, "
            "digits and . _ - ="
        )
    return LeaseUrl(scheme != "file", (), match["name"], bucket=match["bucket"])
