"""A lease in a bucket: one object that is moved by compare-and-swap (`LeaseDocument` is its content).

| it is written by | when the last one to write it was |
|---|---|
| a nsqd that takes the lease | its last holder, and no holder serves |
| its holder, which renews or releases the lease, or writes the note | itself |

A bucket ends no lease by itself, so the others judge: a lease ends when they have seen its object unchanged for the time to live,
by the clock of their boot. This is safe by three facts, whatever the clocks of the bucket and of its answers are:

1. Each write names the version that it replaces, and no two writes are the same. So who takes a lease has replaced the
   version that it has seen for all this time, and no renewal had its effect in the meantime, or can have it later. A store
   that carries out a write of an earlier version is refused when the lease is first taken.
2. The last renewal that had its effect before was sent before the others saw its version, and its holder stops after a part of
   the time to live since it sent that (see `keeper`).
3. A process that does not hold the lease has stopped serving. So it may replace at once what it has written itself, if it
   has seen no other holder since: also a lease that it has taken without an answer.

A write without an answer may have had its effect, or have it later. It is found by the next one, which meets another version:
if the same holder has written that, it goes on from there.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from gevent.threadpool import ThreadPool

from nsqd_py.lease.document import LeaseDocument
from nsqd_py.lease.keeper import boot_clock
from nsqd_py.lease.store import Lease, LeaseError, LeaseLost, LeaseState, LeaseUrl, Note
from nsqd_py.objects.calls import Changed, Missing, Objects
from nsqd_py.objects.opening import open_objects

T = TypeVar("T")

_ATTEMPTS = 3
_OWNER_BYTES = 16
# Requests that have had no answer in time still have a thread each, until the client gives them up.
_MOST_THREADS = 8
_SHOWN_BYTES = 80
_SUFFIX = ".lease"
# How people delete an object. `path` is all of its URL after `://`.
_DELETE_COMMANDS = {
    "s3": "aws s3 rm s3://{path}",
    "gs": "gcloud storage rm gs://{path}",
    "az": "rclone deletefile :azureblob:{path}",
    "file": "rm {path}",
}


class Ask(Protocol):
    """Calls a function that blocks. Raises what it raises, and LeaseError if that takes too long."""

    def __call__(self, call: Callable[..., T], *arguments: Any) -> T: ...


class InThreads:
    """Makes calls in threads of its own, so that no other slow work delays a renewal."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._threads = ThreadPool(_MOST_THREADS)

    def __call__(self, call: Callable[..., T], *arguments: Any) -> T:
        if len(self._threads) >= _MOST_THREADS:
            raise LeaseError(f"{_MOST_THREADS} earlier requests to the store have not ended yet")
        answer: Any = self._threads.spawn(_attempt, call, arguments)
        answer.wait(self._timeout_s)
        if not answer.ready():
            raise LeaseError(f"no answer from the store in {self._timeout_s:g} s")
        result, error = answer.get()
        if error is not None:
            raise error
        return cast(T, result)


def _attempt(call: Callable[..., object], arguments: tuple[Any, ...]) -> tuple[object, Exception | None]:
    try:
        return call(*arguments), None
    except Exception as error:  # noqa: BLE001 - raised in the greenlet that waits
        return None, error


class Found(NamedTuple):
    """The object as the store has it: nothing, a lease, or something else, which `stranger` describes."""

    document: LeaseDocument | None = None
    version: Any = None
    stranger: str = ""


class BucketStore:
    """One lease in a bucket, for `ttl_s` seconds."""

    def __init__(
        self, url: LeaseUrl, ttl_s: int, objects: Objects, ask: Ask, clock: Callable[[], float] = boot_clock
    ) -> None:
        self._name = f"{url.name}{_SUFFIX}"
        self.key = self.note_key = f"{url.bucket}/{self._name}"
        self.title = self.note_title = f"the object {self.key}"
        scheme, _, path = self.key.partition("://")
        self.delete_command = _DELETE_COMMANDS[scheme].format(path=path)
        self._ttl_s = ttl_s
        self._objects = objects
        self._ask = ask
        self._clock = clock
        self._owner = secrets.token_hex(_OWNER_BYTES)
        # True if no other holder was seen since this process has tried to take the lease.
        self._is_last_owner = False
        # The newest document that was seen. If somebody deletes the object, this process knows the note still.
        self._newest = LeaseDocument()
        self._has_conditions = False
        self._polled = Found()
        self._polled_since_s: float | None = None
        self._mine = Found()  # while this process has the lease: what it has written, as far as it knows

    # ---- while another process holds it, or none

    def poll(self, handle: str = "") -> LeaseState:
        """Return who has the lease. Raises LeaseError.

        handle  the lease that the last poll has found: if it has the object still, the answer says how long it lives
        """
        found = self._read()
        now_s = self._clock()
        if self._polled_since_s is None or found.version != self._polled.version:
            self._polled_since_s = now_s
        self._polled = found
        if found.stranger:
            return LeaseState(handle=found.stranger, stranger=found.stranger)
        document = found.document
        if document is None:
            return LeaseState()
        self._is_last_owner = self._is_last_owner and document.owner == self._owner
        if not document.holder or self._is_last_owner:
            return LeaseState(turn=document.revision, is_released=True)
        lives_s = self._polled_since_s + max(self._ttl_s, document.ttl_s) - now_s
        if lives_s <= 0:
            return LeaseState(turn=document.number)
        found_state = LeaseState(document.number, document.owner, document.holder, turn=document.number)
        return found_state._replace(lives_s=lives_s if handle == document.owner else None)

    def acquire(self, holder: str, state: LeaseState) -> Lease | None:
        """Take the lease, unless something has changed since the last poll. `holder` is an address. Raises LeaseError."""
        last = self._polled.document or self._newest
        if state.stranger:
            return None
        taken = last.taken(holder, self._owner, self._ttl_s)
        self._is_last_owner = True
        self._mine = self._swap(taken, self._polled.version)
        if self._mine.document != taken:
            return None
        self._prove_conditions(taken)
        return Lease(taken.number, self._owner, holder)

    def _prove_conditions(self, taken: LeaseDocument) -> None:
        """Raise LeaseError unless the store refuses writes that name no version, or an earlier one. Once is enough."""
        if self._has_conditions:
            return
        earlier = [None]
        if self._polled.version is not None:
            earlier.append(self._polled.version)
        for version in earlier:
            found = self._swap(taken.renewed(), version)
            if found.document != taken:
                self._mine = found
                raise LeaseError(
                    f"the store of {self.key} has no conditional writes, so it can have no lease"
                )
        self._has_conditions = True

    # ---- as its holder

    def renew(self, lease: Lease) -> None:
        """Let the lease live for its whole time again. Raises LeaseLost, LeaseError."""
        self._write(lease, LeaseDocument.renewed)

    def release(self, lease: Lease) -> None:
        """End the lease now, as its holder that does not serve any more. Raises LeaseLost, LeaseError."""
        self._write(lease, LeaseDocument.released)

    def note(self) -> Note:
        """Return the note; an empty one if there is none. Raises LeaseError."""
        found = self._read()
        if found.stranger:
            raise LeaseError(f"no nsqd has written {self.title}: {found.stranger}")
        document = found.document or self._newest
        return Note(document.note, document.note_revision)

    def write_note(self, lease: Lease, text: str, revision: int) -> int:
        """Replace the note that has this revision, as the holder of this lease; return the new revision.

        Raises LeaseLost, and LeaseError also if the note has another revision.
        """

        def with_note(document: LeaseDocument) -> LeaseDocument:
            if document.note_revision != revision:
                raise LeaseError(
                    f"the note in {self.title} was changed, probably by a request without an answer"
                )
            return document.with_note(text)

        return self._write(lease, with_note).note_revision

    def _write(self, lease: Lease, change: Callable[[LeaseDocument], LeaseDocument]) -> LeaseDocument:
        """Replace what the holder of this lease has written last. Raises LeaseLost, LeaseError."""
        mine = self._mine
        for _ in range(_ATTEMPTS):
            changed = change(self._check(lease, mine))
            mine = self._swap(changed, mine.version)
            self._mine = mine
            if mine.document == changed:
                return changed
        self._check(lease, mine)
        raise LeaseError(f"{self.title} was changed by another request at the same time")

    def _check(self, lease: Lease, found: Found) -> LeaseDocument:
        """Return the document if its holder has this lease. Raises LeaseLost."""
        document = found.document
        if found.stranger:
            raise LeaseLost(f"{self.title} was overwritten: {found.stranger}")
        if document is None:
            raise LeaseLost(f"{self.title} was deleted")
        if (document.number, document.owner, document.holder) != lease:
            holder = document.holder or "none"
            raise LeaseLost(f"{self.title} was overwritten: its holder is {holder}")
        return document

    # ---- requests

    def _swap(self, document: LeaseDocument, version: Any) -> Found:
        """Replace this version of the object. Return what the store has then: another document, if it had another version.

        Raises LeaseError.
        """
        try:
            new_version = self._request(self._objects.swap, self._name, document.encode(), version)
        except Changed:
            return self._read()  # it may be this document, if its first answer was lost
        return self._seen(document, new_version)

    def _read(self) -> Found:
        """Return what the store has. Raises LeaseError."""
        try:
            data, version = self._request(self._objects.get, self._name)
        except Missing:
            return Found()
        try:
            document = LeaseDocument.of(data)
        except ValueError:
            return Found(version=version, stranger=f"it begins with {data[:_SHOWN_BYTES]!r}")
        return self._seen(document, version)

    def _seen(self, document: LeaseDocument, version: Any) -> Found:
        if document.revision >= self._newest.revision:
            self._newest = document
        return Found(document, version)

    def _request(self, call: Callable[..., T], *arguments: Any) -> T:
        """Return what a call of the store returns; its `Changed` and `Missing` pass. Raises LeaseError."""
        try:
            return self._ask(call, *arguments)
        except (Changed, Missing, LeaseError):
            raise
        except Exception as error:  # whatever an answer of another program causes, it is no answer
            raise LeaseError(f"no answer from {self.key} - {error or repr(error)}") from error


def open_bucket(url: LeaseUrl, ttl_s: int, timeout_s: float, endpoint: str) -> BucketStore:
    """Return the lease at a URL. Call it after any fork. Raises ValueError and StoreRefused."""
    return BucketStore(url, ttl_s, open_objects(url.bucket, endpoint, timeout_s), InThreads(timeout_s))
