"""One writer at a time: `claim` makes this process the owner of a store, and only the `Owner` can add rounds to it.

The protocol, and why it loses nothing, is on one page: docs/store.md. The invariants that this module keeps:

1. The number of a round has one content, since it is created and never replaced; a writer goes on to the next number only
   after it knows that the one before is its own.
2. A claim ends with a takeover: the first number that is free. A writer of an older epoch needs that number, so that
   nothing of it can succeed from then on. Takeovers are therefore never deleted, whatever time passes.
3. A claim counts only if the head still names it after its takeover: then nobody has deleted what it has read.
4. The head moves by compare-and-swap, and to a base only when that is complete.
5. What is deleted is in no state: rounds below the base of the head, and files that a round has removed. The name of a file
   has the epoch of its writer, so that a late deletion by an earlier writer hits nothing of a later one.

No clock decides anything but how long readers of the bucket may go on with an old state.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from nsqd_py.broker.state_files import STORE_FILE, read_checked, write_checked
from nsqd_py.errors import NsqdError
from nsqd_py.objects.calls import Changed, Exists, Missing, Objects, StoreError, StoreRefused, Version
from nsqd_py.store.image import OnDamage, StoreImage, read_head, round_sizes
from nsqd_py.store.layout import (
    FILES,
    HEAD_NAME,
    ROUNDS,
    WRITER_BYTES,
    BadObject,
    Head,
    LaterVersion,
    aside_name,
    parse_file_epoch,
    probe_name,
    round_name,
)
from nsqd_py.store.reading import StateReader, is_base
from nsqd_py.store.rounds import BASE, MARK, TAKEOVER, TAKEOVER_BYTES, RoundObject, decode

# In the data path: the claims that this nsqd has made.
CLAIMS_FILE = STORE_FILE
# Readers of the bucket may go on for this long with what has left the state.
KEEP_NS = 3600 * 1_000_000_000
# Stores in which a data path was before: it may go back to them.
_MOST_FORMER = 10
# A damaged head may have been moved further than the rounds say.
_SKIPPED_EPOCHS = 1000
# Rounds do not have the address of their writer.
_UNKNOWN = "an unknown nsqd"


class Superseded(NsqdError):
    """Another process has claimed the store; `head` says which one."""

    def __init__(self, objects: Objects, head: Head) -> None:
        super().__init__(
            f"{objects!r} belongs to {head.node} since its epoch {head.epoch}: this nsqd was replaced, and must not go on"
        )
        self.head = head


class RolledBack(StoreError):
    """The head has an earlier epoch than it had: somebody has put an earlier version of the object back."""

    def __init__(self, found: Head, epoch: int) -> None:
        super().__init__(
            f"{HEAD_NAME} has the epoch {found.epoch}, not {epoch}: an earlier version of it was put back"
        )


# ---- the claims of a data path


class StoreClaims(NamedTuple):
    """The claims of one store: its random id, its URL ("" if an earlier version has noted it), and the ids of the processes."""

    store: str
    url: str
    writers: list[str]


class Claims:
    """The claims that the nsqd of a data path has made or was about to make. Methods may raise OSError.

    directory  the data path
    store    random id of the store; "" if the data path was in none
    writers  ids of the processes; the store's head has one of them if no other nsqd has claimed it
    url      of the store, as it was given at the last claim
    former   the stores in which the data path was before, the last one at the end
    """

    url = ""
    former: tuple[StoreClaims, ...] = ()
    _next_url = ""

    def __init__(self, directory: Path, url: str = "") -> None:
        """Read the claims. `url` is that of the store that is claimed next."""
        self.directory = directory
        self._path = directory / CLAIMS_FILE
        self._next_url = url
        self.store = ""
        self.writers: list[str] = []
        saved = read_checked(self._path, _decode_claims)
        if saved is not None:
            *former, (self.store, self.url, self.writers) = saved
            self.former = tuple(former)

    def is_mine(self, head: Head) -> bool:
        """True if the last claim of the store was made for this data path, which may have been in another one since."""
        return any(head.store == each.store and head.writer in each.writers for each in self._all())

    def add(self, store: str, writer: str) -> None:
        """Note a claim durably, before it is made: after a crash nobody knows whether it was."""
        known = self._all()
        self.former = tuple(each for each in known if each.store not in ("", store))[-_MOST_FORMER:]
        self.url = self._next_url
        earlier = next((each.writers for each in known if each.store == store), [])
        self._write(store, [*earlier, writer])

    def _all(self) -> list[StoreClaims]:
        return [*self.former, StoreClaims(self.store, self.url, self.writers)]

    def keep_only(self, writer: str) -> None:
        """Forget all claims before one that has succeeded: none of them can succeed any more."""
        self._write(self.store, [writer])

    def _write(self, store: str, writers: list[str]) -> None:
        former = [each._asdict() for each in self.former]
        fields = {"store": store, "writers": writers, "url": self.url, "former": former}
        write_checked(self._path, fields)
        self.store = store
        self.writers = writers


def _decode_claims(fields: dict[str, Any]) -> list[StoreClaims]:
    """Return the claims of all stores, those of the present one at the end. Earlier versions write only these, without a URL."""
    claims = []
    for each in (*fields.get("former", ()), fields):
        writers = [str(writer) for writer in each["writers"]]
        claims.append(StoreClaims(str(each["store"]), str(each.get("url", "")), writers))
    return claims


# ---- claiming


def claim(
    objects: Objects,
    node: str,
    claims: Claims,
    check: Callable[[Head | None], StoreImage | None],
    on_damage: OnDamage | None = None,
    clock: Callable[[], int] = time.monotonic_ns,
    *,
    is_restoring: bool = False,
) -> Owner:
    """Make this process the owner of a store, and read its state. Blocks.

    node       address of this nsqd, for people
    check      raises an error of the caller's if this nsqd may not claim a store with this head; None if there is no store.
               If it has read the state, and has found nothing damaged, it returns that: the claim goes on from there
    on_damage  called with each damaged round, which is then copied aside and left out; None raises the error
    is_restoring  the state may be another nsqd's: if the head is damaged, it is written again from the rounds

    Raises StoreError, after which the whole call may be repeated, StoreRefused, Superseded, BadObject, OSError, and what
    `check` raises.
    """
    writer = os.urandom(WRITER_BYTES).hex()
    if on_damage is not None:
        _write_head_again(objects, writer, claims, on_damage, is_restoring=is_restoring)
    _check_has_head(objects)
    _try_conditions(objects, writer)
    head, version, known = _claim_head(objects, writer, node, claims, check, on_damage)
    check_head = partial(_check_head, objects, head)
    image = _Takeover(objects, head, check_head, on_damage, claims.directory).run(known)
    owner = Owner(objects, head, version, image, clock)
    owner.check()  # invariant 3
    # Not earlier: if the head was rolled back, a later claim knows this data path by its rounds.
    claims.keep_only(writer)
    return owner


def _check_has_head(objects: Objects) -> None:
    """Raise BadObject if a store has lost its head: a new one would hide what is there, and have it deleted later."""
    if read_head(objects) is not None:
        return
    listed = next(chain(objects.list(ROUNDS), objects.list(FILES)), None)
    if listed is not None and read_head(objects) is None:  # else another process has made it in the meantime
        raise BadObject(
            f"{HEAD_NAME} is missing in {objects!r}, which has {listed.name}: it was deleted. Nothing was changed; "
            'docs/store.md says how to go on ("When head.json is missing")'
        )


def _write_head_again(
    objects: Objects, writer: str, claims: Claims, on_damage: OnDamage, *, is_restoring: bool
) -> None:
    """Write a damaged head again: without the bit that has flipped, or from the newest round, if more is wrong.

    The newest round counts if its writer is of this data path, or for a restore.

    An nsqd that has moved the head later, and has no takeover yet, finds that the head does not name it. Raises BadObject if
    the head cannot be written.
    """
    try:
        data, version = objects.get(HEAD_NAME)
        Head.decode(data)
    except Missing:
        return
    except LaterVersion:
        raise
    except BadObject as error:
        damage = error
    else:
        return
    head = Head.corrected(data)
    how = "its checksum"
    if head is None:
        head = _head_of_rounds(objects, claims, damage, is_restoring=is_restoring)
        how = "the rounds"
    _replace_head(objects, head, writer, data, version)
    on_damage(BadObject(f"{damage}; set aside, and written again from {how}"))


def _replace_head(objects: Objects, head: Head, writer: str, damaged: bytes, version: Version) -> Version:
    """Put the content of the head aside, and write another one. Raises StoreError if it has changed in the meantime."""
    with suppress(Exists):
        objects.create(aside_name(HEAD_NAME, writer), damaged)
    try:
        return objects.swap(HEAD_NAME, head.encode(), version)
    except Changed as error:
        raise StoreError(f"{HEAD_NAME} has changed: {error}") from error


def _head_of_rounds(objects: Objects, claims: Claims, damage: BadObject, *, is_restoring: bool) -> Head:
    """Return a head for a claim, from the newest round. Raises BadObject if this nsqd may not, or if there is none."""
    rounds = _Rounds(objects)
    newest = rounds.newest()
    if newest is None or rounds.is_backup(newest):
        raise damage
    if not (newest.writer in claims.writers or is_restoring):
        raise BadObject(
            f"{damage}; the nsqd that has written the store writes it again, or one with --restore-from and an empty data path"
        )
    store = claims.store or os.urandom(WRITER_BYTES).hex()
    return Head(store, newest.epoch + _SKIPPED_EPOCHS, newest.writer, _UNKNOWN, rounds.newest_base(newest))


class _Rounds:
    """The rounds of a store whose head is damaged. Methods raise StoreError and StoreRefused."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._numbers = sorted(round_sizes(objects))

    def newest(self) -> RoundObject | None:
        """Return the last round that is valid."""
        for number in reversed(self._numbers):
            found = self._round(number)
            if found is not None:
                return found
        return None

    def newest_base(self, newest: RoundObject) -> int:
        """Return the number of the last round up to `newest` that begins a base; 0 if there is none."""
        below = [number for number in self._numbers if number <= newest.number]
        return next((number for number in reversed(below) if is_base(self._objects, number)), 0)

    def is_backup(self, newest: RoundObject) -> bool:
        """True if the store was written at once: others begin with a takeover."""
        return newest.epoch == 1 and is_base(self._objects, 1)

    def _round(self, number: int) -> RoundObject | None:
        with suppress(Missing, BadObject):
            data, _ = self._objects.get(round_name(number))
            return decode(number, data)
        return None


def _try_conditions(objects: Objects, writer: str) -> None:
    """Raise StoreRefused if the store does not honour the conditions of conditional writes."""
    name = probe_name(writer)
    if not _is_created(objects, name, b"first"):  # also 409 says that it exists, although it may not
        raise StoreError(f"{name} was written by another process")
    with suppress(Exists):
        objects.create(name, b"second")
        raise StoreRefused(f"{objects!r} creates an object that exists already: it has no conditional writes")
    _, version = objects.get(name)
    with suppress(Changed):
        objects.swap(name, b"third", version)
    with suppress(Changed):
        objects.swap(name, b"fourth", version)
        raise StoreRefused(f"{objects!r} replaces an object that has changed: it has no conditional writes")
    with suppress(StoreError):
        objects.delete([name])


def _claim_head(
    objects: Objects,
    writer: str,
    node: str,
    claims: Claims,
    check: Callable[[Head | None], StoreImage | None],
    on_damage: OnDamage | None,
) -> tuple[Head, Version, StoreImage | None]:
    """Move the head to a new epoch of this writer. Return it, its version, and what `check` has returned.

    What that has read still counts: the head was not moved since, so that no later base and no other claim is there, and
    nothing from its base on was deleted.

    A head that was rolled back is taken for the one that the rounds know: `check` gets that.
    """
    while True:
        rounds = _Rounds(objects)
        newest = rounds.newest()  # read before the head, which knows the epochs of all rounds that were there
        damage = None
        version = before = None
        with suppress(Missing):
            data, version = objects.get(HEAD_NAME)
            before = Head.decode(data)
        if before is not None and before.writer == writer:  # the answer was lost
            return before, version, None
        if before is not None and newest is not None and _is_older(before, newest):
            damage = BadObject(
                f"{HEAD_NAME} has the epoch {before.epoch}, and {newest.name}, of another claim, the epoch {newest.epoch}: "
                "an earlier version of it was put back"
            )
            before = Head(before.store, newest.epoch, newest.writer, _UNKNOWN, rounds.newest_base(newest))
        known = check(before)
        if before is None:
            head = Head(os.urandom(WRITER_BYTES).hex(), 1, writer, node)
        else:
            head = replace(before, epoch=before.epoch + 1, writer=writer, node=node, closed=False)
        claims.add(head.store, writer)
        with suppress(Changed):
            version = objects.swap(HEAD_NAME, head.encode(), version)
            if damage is not None and on_damage is not None:
                on_damage(BadObject(f"{damage}; the rounds count"))
            return head, version, known


def _is_older(head: Head, newest: RoundObject) -> bool:
    """True if this head was there before the newest round was made: a claim moves the head before it adds a round."""
    is_other = newest.writer != head.writer
    if newest.epoch > head.epoch:
        return True
    return newest.epoch == head.epoch and is_other


def _is_rolled_back(found: Head, own: Head) -> bool:
    """True if the head that was found is an earlier version of the own one, which never goes back by itself."""
    if found.store != own.store:
        return False
    if found.epoch != own.epoch:
        return found.epoch < own.epoch
    return found.writer == own.writer and found.base < own.base


class _Takeover(StateReader):
    """Reads the state that a claim has found, and ends the epoch before. Methods raise as `claim` does."""

    def run(self, known: StoreImage | None) -> StoreImage:
        """Return the state up to the takeover. `known` is what was read before the claim, with the head before it."""
        if known is None:
            self.read()
        else:
            self.image = known
            self.read_on()
        while not self._create():
            self.read_on()
        return self.image

    def _note_damaged(self, number: int, data: bytes, error: BadObject) -> None:
        """Copy a damaged round aside."""
        with suppress(Exists):
            aside = aside_name(round_name(number), self._head.writer)
            self._objects.create(aside, data)
        self.report(round_name(number), f"{error}; set aside")

    def _note_foreign(self, number: int, data: bytes, error: BadObject) -> None:
        """Move an object aside that is no round, since nsqd comes to its number once."""
        super()._note_foreign(number, data, error)
        self._objects.delete([round_name(number)])

    def _create(self) -> bool:
        """Create the takeover at the first free number. Return False if that is not free any more."""
        head = self._head
        taken = RoundObject(self.image.next_number, head.epoch, head.writer, time.time_ns(), TAKEOVER)
        is_mine = _is_created(self._objects, taken.name, taken.encode())
        if is_mine:
            self.image.apply(taken)
        else:  # a late round of the writer before, or the takeover of a later one
            self._check_head()
        return is_mine

    def _is_known(self, epoch: int) -> bool:
        """True if this epoch is of an earlier claim."""
        return epoch < self._head.epoch

    def _note_unknown(self) -> None:
        """The head was rolled back while it was claimed: the next attempt of this claim knows the rounds."""
        raise RolledBack(self._head, self.image.epoch)


def _check_head(objects: Objects, own: Head) -> None:
    """Read the head. Raises as `_check_own`, and BadObject if it is missing or damaged."""
    head = read_head(objects)
    if head is None:
        raise BadObject(f"{HEAD_NAME} is missing in {objects!r}: it was deleted")
    _check_own(objects, head, own)


def _check_own(objects: Objects, found: Head, own: Head) -> None:
    """Raise Superseded unless the head names the own writer; RolledBack if it is an earlier one."""
    if _is_rolled_back(found, own):
        raise RolledBack(found, own.epoch)
    if found.writer != own.writer:
        raise Superseded(objects, found)


def _is_created(objects: Objects, name: str, data: bytes) -> bool:
    """Create an object; return False if there is another one. Raises StoreError if it is not known which: call it again.

    The answer to an earlier attempt may have been lost, so that the content decides. Without an answer, nothing is asked
    until the next attempt: a store that hangs would hang once more.
    """
    try:
        objects.create(name, data)
    except StoreError as error:
        raise StoreError(f"{name} could not be created: {error}") from error
    except Exists:
        try:
            found, _ = objects.get(name)
        except Missing:
            raise StoreError(f"{name} could not be created: a conflict, but it is not there") from None
        return found == data
    return True


# ---- owning


class Owner:
    """The one writer of a store. One thread at a time uses it; all calls raise StoreError and StoreRefused.

    head         as this writer has moved it
    image        the state when it made its claim; the caller may drop it
    next_number  of the next round
    mended       what was said of damaged heads that this writer has replaced
    """

    def __init__(
        self, objects: Objects, head: Head, version: Version, image: StoreImage, clock: Callable[[], int]
    ) -> None:
        self.head = head
        self.image: StoreImage | None = image
        self.next_number = image.next_number
        self.mended: deque[str] = deque(maxlen=10)
        self._objects = objects
        self._version = version
        self._clock = clock
        self._unsettled: RoundObject | None = None
        self._new_base = 0  # a base that is not complete
        self._complete_base = max(head.base, image.base)
        now_ns = clock()
        # The state may be that of a base before the one that the head names.
        kept = min(head.base, image.base)
        self._bases: deque[tuple[int, int]] = deque([(now_ns, kept)])
        self._dropped: deque[tuple[int, tuple[str, ...]]] = deque()
        self._known_files = {file.name for file in image.all_files()}
        self._sweep_ns: int | None = now_ns + KEEP_NS
        self._limit = 0  # rounds below it can be deleted
        self._due: list[str] = []

    @property
    def epoch(self) -> int:
        return self.head.epoch

    @property
    def writer(self) -> str:
        return self.head.writer

    @property
    def is_settled(self) -> bool:
        """True if it is known that the last round is in the store."""
        return self._unsettled is None

    @property
    def is_head_behind(self) -> bool:
        """True if there is a complete base that the head does not name yet."""
        return self._complete_base > self.head.base

    def check(self) -> None:
        """Raise Superseded if another process has claimed the store; also `append` finds that."""
        _check_head(self._objects, self.head)

    def look(self) -> None:
        """Raise Superseded as `check` does; StoreError if the head was deleted: this writer goes on when it is back.

        A head that is damaged, or was rolled back, is written again.
        """
        self._read_own_head()

    def _missing_head(self) -> StoreError:
        content = " ".join(self.head.encode().decode().split())
        return StoreError(f"{HEAD_NAME} is missing in {self._objects!r}, put it back: {content}")

    # ---- rounds

    def append(self, payload: bytes, *, is_mark: bool, is_base: bool = False) -> int:
        """Add a round, and return its number. After a StoreError, call `settle` until it returns.

        is_mark  a round of the feed ends here: when this returns, all of it is in the store
        is_base  the state begins here; the base is complete at the next mark

        Raises Superseded, and BadObject if something else is in its place: then the store must be claimed again.
        """
        if self._unsettled is not None:
            raise ValueError(f"{self._unsettled.name} is not settled")
        flags = MARK * is_mark | BASE * is_base
        number = self.next_number
        self._unsettled = RoundObject(number, self.epoch, self.writer, time.time_ns(), flags, payload)
        self.settle()
        return number

    def settle(self) -> None:
        """Find out whether the last round is in the store, and put it there if it is not. Raises as `append` does."""
        added = self._unsettled
        if added is None:
            return
        if not _is_created(self._objects, added.name, added.encode()):
            with suppress(RolledBack):
                self.check()
            raise BadObject(f"{added.name} is not the round that this nsqd has written")
        self._unsettled = None
        self.next_number += 1
        if added.is_base:
            self._new_base = added.number
        if added.is_mark and self._new_base:
            self._complete_base = self._new_base
            self._new_base = 0

    # ---- the head

    def move_head(self) -> None:
        """Let the head name the last complete base. Raises Superseded; after a StoreError, call it again."""
        if self.is_head_behind:
            self._swap(replace(self.head, base=self._complete_base))
            self._bases.append((self._clock(), self.head.base))

    def close(self) -> None:
        """Let the head say that this writer has stopped, and has written everything. Raises Superseded."""
        if not self.head.closed:
            self._swap(replace(self.head, closed=True))

    def _swap(self, head: Head) -> None:
        try:
            self._version = self._objects.swap(HEAD_NAME, head.encode(), self._version)
        except (Changed, StoreError) as error:
            self._read_head(head, error)
        self.head = head

    def _read_head(self, wanted: Head, error: NsqdError) -> None:
        """Find out whether the head was moved, since the answer was lost. Raises StoreError if it was not."""
        found, self._version = self._read_own_head()
        if found != wanted:
            raise StoreError(f"{HEAD_NAME} could not be moved: {error}") from error

    def _read_own_head(self) -> tuple[Head, Version]:
        """Return the head and its version. Raises as `look` does."""
        try:
            data, version = self._objects.get(HEAD_NAME)
        except Missing:
            raise self._missing_head() from None
        try:
            found = Head.decode(data)
            _check_own(self._objects, found, self.head)
        except LaterVersion:
            raise
        except (BadObject, RolledBack) as error:
            self._write_head_again(data, version, error)
            return self.head, self._version
        return found, version

    def _write_head_again(self, data: bytes, version: Version, damage: NsqdError) -> None:
        """Replace a head that is damaged, or was rolled back.

        Raises BadObject if a later writer has added a round: then the head was its own. If one has only moved the head, it has
        to claim again, above the epochs of all rounds: this writer has added its takeover before.
        """
        name = round_name(self.next_number)
        with suppress(Missing):
            following, _ = self._objects.get(name)
            found = decode(self.next_number, following)
            if found.writer != self.writer:
                raise BadObject(f"{damage}, and {name} is another writer's")
        self._version = _replace_head(self._objects, self.head, self.writer, data, version)
        self.mended.append(f"{damage}; set aside, and written again")

    # ---- what is not needed any more

    def drop_files(self, names: Iterable[str]) -> None:
        """Delete these log files later. Call it when the round counts that has removed them from the state."""
        self._dropped.append((self._clock() + KEEP_NS, tuple(names)))

    def collect(self) -> int:
        """Delete what has left the state long ago, and return the number of objects. Call it now and then."""
        now_ns = self._clock()
        while self._dropped and self._dropped[0][0] <= now_ns:
            self._due += self._dropped.popleft()[1]
        while self._bases and self._bases[0][0] + KEEP_NS <= now_ns:
            self._limit = self._bases.popleft()[1]
        if self._limit:
            self._due += self._rounds_below(self._limit)
            self._limit = 0
        if self._sweep_ns is not None and self._sweep_ns <= now_ns:
            self._due += self._orphans()
            self._sweep_ns = None
        self._objects.delete(self._due)
        count = len(self._due)
        self._due = []
        return count

    def _rounds_below(self, limit: int) -> list[str]:
        """Return the names of rounds below this number, except takeovers, which are as long as the shortest rounds."""
        sizes = round_sizes(self._objects)
        return [
            round_name(number) for number in sizes if 0 < number < limit and sizes[number] > TAKEOVER_BYTES
        ]

    def _orphans(self) -> list[str]:
        """Return the names of log files that earlier writers have stored, and that were in no state when this one began."""
        found: list[str] = []
        for listed in self._objects.list(FILES):
            is_earlier = parse_file_epoch(listed.name, self.epoch) < self.epoch
            if is_earlier and listed.name not in self._known_files:
                found.append(listed.name)
        return found
