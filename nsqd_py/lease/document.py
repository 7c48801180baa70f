"""The content of the object that is a lease in a bucket, read strictly: what is not exactly so, no nsqd has written."""

from __future__ import annotations

import json
import secrets
from typing import NamedTuple

from nsqd_py.lease.store import check_holder
from nsqd_py.runtime.documents import checked_number, load_foreign_json

_FORMAT = "lease of nsqd-py, 1"
_NONCE_BYTES = 16


class LeaseDocument(NamedTuple):
    """A lease as its object has it.

    revision       rises with each write
    number         the revision at which the last holder took the lease
    holder         the address of the holder; empty if it has released the lease
    owner          a random name of the process of the last holder
    ttl_s          the time to live that the last holder counts with
    note           the note of the last holder, which was written at the revision `note_revision`
    nonce          random in each write, so that no two writes are the same: many stores derive the version from the content
    """

    revision: int = 0
    number: int = 0
    holder: str = ""
    owner: str = ""
    ttl_s: int = 0
    note: str = ""
    note_revision: int = 0
    nonce: str = ""

    @classmethod
    def of(cls, data: bytes) -> LeaseDocument:
        """Parse the content of an object. Raises ValueError."""
        fields = load_foreign_json(data)
        if not isinstance(fields, dict) or fields.pop("format", None) != _FORMAT:
            raise ValueError("it is no lease of this version of nsqd")
        if fields.keys() != set(cls._fields):
            raise ValueError(f"a lease has the fields {', '.join(cls._fields)}")
        found = cls(**fields)
        for number in (found.revision, found.number, found.ttl_s, found.note_revision):
            checked_number(number)
        for text in (found.holder, found.owner, found.note, found.nonce):
            if not isinstance(text, str):
                raise ValueError(f"{text!a:.50} is no text")
        if not max(found.number, found.note_revision) <= found.revision:
            raise ValueError("a lease has no number above its revision")
        if found.holder:
            check_holder(found.holder)
        return found

    def encode(self) -> bytes:
        return json.dumps({"format": _FORMAT, **self._asdict()}).encode()

    def _next(self) -> LeaseDocument:
        return self._replace(revision=self.revision + 1, nonce=secrets.token_hex(_NONCE_BYTES))

    def taken(self, holder: str, owner: str, ttl_s: int) -> LeaseDocument:
        """Return the document of the next holder."""
        following = self._next()
        return following._replace(number=following.revision, holder=holder, owner=owner, ttl_s=ttl_s)

    def renewed(self) -> LeaseDocument:
        """Return the document with which its holder shows that it serves."""
        return self._next()

    def released(self) -> LeaseDocument:
        """Return the document of a lease that its holder does not need any more."""
        return self._next()._replace(holder="")

    def with_note(self, text: str) -> LeaseDocument:
        """Return the document with another note."""
        following = self._next()
        return following._replace(note=text, note_revision=following.revision)
