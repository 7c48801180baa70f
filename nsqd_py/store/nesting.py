"""Refuses to begin a store inside another one, or around one: who deletes the outer one would delete both.

Asked once, before a store is begun: a request for each directory of its prefix, and one list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from nsqd_py.errors import StartError
from nsqd_py.objects.calls import StoreRefused
from nsqd_py.objects.opening import normal_store_url, open_objects
from nsqd_py.store.image import read_head
from nsqd_py.store.layout import FILES, HEAD_NAME, ROUNDS, BadObject, Head

# The first page of a list.
_MOST_LISTED = 1000
_IN_A_STORE = re.compile(rf"(?P<prefix>.+?)/({HEAD_NAME}|{ROUNDS}/[0-9a-f]{{16}}|{FILES}/[^/]+/[^/]+\.log)")


def check_nesting(url: str, endpoint: str) -> None:
    """Raise StartError if the store that is begun at `url` would lie in another one, or have another one in it.

    What this nsqd may not read is passed over. Raises StoreError.
    """
    for outer in _outer_urls(url):
        head = _head_at(outer, endpoint)
        if head is not None:
            raise StartError(
                f"--store={url} lies in the store {outer} of {head.node}: choose a prefix that is in no other store"
            )
    for inner in sorted(_inner_urls(url, endpoint)):
        head = _head_at(inner, endpoint)
        if head is not None:
            raise StartError(
                f"the store {inner} of {head.node} lies in --store={url}: choose a prefix that has no other store in it"
            )


def _outer_urls(url: str) -> Iterator[str]:
    """Yield the URLs of all directories above that of a store, up to the bucket."""
    scheme, host, path = normal_store_url(url)
    while path:
        path = path.rpartition("/")[0]
        if path or host:
            yield f"{scheme}://{host}/{path}"


def _inner_urls(url: str, endpoint: str) -> set[str]:
    """Return the URLs below a store where others seem to be."""
    scheme, host, path = normal_store_url(url)
    above, _, last = path.rpartition("/")
    found = set()
    with suppress(StoreRefused):
        for each in islice(open_objects(f"{scheme}://{host}/{above}", endpoint).list(last), _MOST_LISTED):
            match = _IN_A_STORE.fullmatch(each.name.removeprefix(last).lstrip("/"))
            if match is not None:
                found.add(f"{scheme}://{host}/{path}/{match['prefix']}")
    return found


def _head_at(url: str, endpoint: str) -> Head | None:
    """Return the head of the store at a URL; None if there is none that this nsqd can read. Raises StoreError."""
    with suppress(StoreRefused, BadObject):
        return read_head(open_objects(url, endpoint))
    return None
