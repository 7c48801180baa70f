"""A store whose answers a schedule decides, and processes that own it, claim it, are suspended, and end between two steps.

Each process is a greenlet. A call of `Objects` is a step: the process waits until the schedule lets the call happen, fail,
happen without an answer, or happen later.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from greenlet import GreenletExit, greenlet

from nsqd_py.feed.pieces import Begin, Commit, Part, Write
from nsqd_py.objects.calls import Changed, Exists, Listed, Missing, Objects, StoreError, Version
from nsqd_py.store import rounds
from nsqd_py.store.image import StoreImage
from nsqd_py.store.layout import HEAD_NAME, BadObject, Head, StoredFile
from nsqd_py.store.ownership import Claims, Owner, Superseded, claim
from nsqd_py.store.reading import read_state

MESSAGES = "t:c.cursor"
MESSAGE_BYTES = 4


class Outcome(Enum):
    """What happens to a call."""

    DONE = "it happens, and the answer arrives"
    LOST = "it happens, and the answer is lost"
    FAILED = "it does not happen"
    LATE = "it happens later, after the caller gave up"
    CONFLICT = "it does not happen, and a create is answered as if the object existed (409)"
    TWICE = "the client repeats it after the answer was lost, and gets the answer to the second attempt"


class NotMine(Exception):
    """This nsqd may not claim the store."""


@dataclass
class Content:
    """The objects of a store.

    created  the contents of all rounds that ever were, by name, in turn
    heads    what `head.json` was, with its versions
    """

    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    created: dict[str, list[bytes]] = field(default_factory=dict)
    heads: list[tuple[bytes, int]] = field(default_factory=list)
    late: list[Callable[[], object]] = field(default_factory=list)
    next_version: int = 1

    def _put(self, name: str, data: bytes) -> int:
        version = self.next_version
        self.next_version += 1
        self.objects[name] = data, version
        if name == HEAD_NAME:
            self.heads.append((data, version))
        return version

    def roll_back_head(self, index: int) -> None:
        """Put an earlier version of the head back, under its old version, as that of a bucket is made of the content."""
        self.objects[HEAD_NAME] = self.heads[index % len(self.heads)]

    def create(self, name: str, data: bytes) -> Version:
        if name in self.objects:
            raise Exists(name)
        self.created.setdefault(name, []).append(data)
        return self._put(name, data)

    def get(self, name: str) -> tuple[bytes, Version]:
        try:
            return self.objects[name]
        except KeyError:
            raise Missing(name) from None

    def swap(self, name: str, data: bytes, version: Version) -> Version:
        if self.objects.get(name, (b"", None))[1] != version:
            raise Changed(name)
        return self._put(name, data)

    def put(self, name: str, data: bytes) -> None:
        self._put(name, data)

    def delete(self, names: list[str]) -> None:
        for name in names:
            self.objects.pop(name, None)

    def list(self, prefix: str, lag: int = 0) -> list[Listed]:
        """Return the objects below a prefix, without the newest ones if the list lags."""
        found = [
            (version, Listed(name, len(data)))
            for name, (data, version) in self.objects.items()
            if name.startswith(f"{prefix}/")
        ]
        found.sort()
        return [listed for _, listed in found[: len(found) - lag]]


class DirectObjects(Objects):
    """The objects as a reader sees them whose calls all succeed at once."""

    def __init__(self, content: Content) -> None:
        self._content = content

    def get(self, name: str) -> tuple[bytes, Version]:
        return self._content.get(name)

    def list(self, prefix: str) -> Iterator[Listed]:
        return iter(self._content.list(prefix))


class SteppedObjects(Objects):
    """The objects of one process: `call` decides what happens to each call."""

    def __init__(self, content: Content, call: Callable[..., Any]) -> None:
        self._content = content
        self._call = call

    def create(self, name: str, data: bytes) -> Version:
        return self._call(lambda: self._content.create(name, data), creates=True)

    def get(self, name: str) -> tuple[bytes, Version]:
        return self._call(lambda: self._content.get(name))

    def get_range(self, name: str, start: int, end: int) -> bytes:
        content: bytes = self._call(lambda: self._content.get(name)[0][start:end])
        return content

    def swap(self, name: str, data: bytes, version: Version) -> Version:
        return self._call(lambda: self._content.swap(name, data, version))

    def put_file(self, name: str, path: Path, size_bytes: int) -> None:
        self._call(lambda: self._content.put(name, bytes(size_bytes)))

    def delete(self, names: Iterable[str]) -> None:
        # Each one is a step: a process may be suspended between two of them.
        for name in list(names):
            self._call(lambda name=name: self._content.delete([name]), deletes=True)

    def list(self, prefix: str) -> Iterator[Listed]:
        return iter(self._call(lambda lag=0: self._content.list(prefix, lag)))


class InOneThread:
    """A ThreadPoolExecutor that does each job when it is submitted."""

    def __init__(self, _: int) -> None:
        pass

    def __enter__(self) -> InOneThread:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, job: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(job(*arguments))
        except Exception as error:  # noqa: BLE001 - the caller gets it
            future.set_exception(error)
        return future


class MemoryClaims(Claims):
    """The claims of a data path, without a file."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.gettempdir())  # of bytes that a state has no room for in memory
        self.store = ""
        self.writers = []

    def _write(self, store: str, writers: list[str]) -> None:
        self.store = store
        self.writers = writers


@dataclass
class Disk:
    """A data path: its messages, the log files that it has, and its claims."""

    claims: MemoryClaims = field(default_factory=MemoryClaims)
    messages: list[int] = field(default_factory=list)


class Process:
    """An nsqd with a store.

    deletes, creates  True if the call that it makes deletes or creates something
    waiting       messages that were published, and that no round has yet
    on_recovered  called with the messages that a claim has found
    on_stored     called with messages whose round counts
    """

    def __init__(
        self,
        content: Content,
        disk: Disk,
        *,
        may_take_over: bool,
        on_recovered: Callable[[set[int]], None],
        on_stored: Callable[[list[int]], None],
    ) -> None:
        self.disk = disk
        self.content = content
        self.waiting: list[int] = []
        self.clock_ns = 0
        self.is_over = False
        self.deletes = False
        self.creates = False
        self.owner: Owner | None = None
        self.files: list[StoredFile] = []
        self.commands: list[str] = []
        self._may_take_over = may_take_over
        self._on_recovered = on_recovered
        self._on_stored = on_stored
        self._stored_count = 0
        self._dropped: set[str] = set()
        self._objects = SteppedObjects(content, self._step)
        self._greenlet = greenlet(self._run)
        self._operation: Callable[..., Any] | None = None
        self._resume(None)

    # ---- steps

    def _step(self, operation: Callable[[], Any], *, deletes: bool = False, creates: bool = False) -> Any:
        """Wait until the schedule says what happens to this call."""
        self._operation = operation
        self.deletes = deletes
        self.creates = creates
        outcome, lag = self._greenlet.parent.switch()
        self._operation = None
        return self._happen(operation, outcome, lag)

    def _happen(self, operation: Callable[..., Any], outcome: Outcome, lag: int) -> Any:
        if outcome is Outcome.CONFLICT and self.creates:
            raise Exists("409")
        if outcome is Outcome.CONFLICT:
            raise StoreError("409")
        if outcome is Outcome.FAILED:
            raise StoreError("no answer")
        if outcome is Outcome.LATE:
            self.content.late.append(operation)
            raise StoreError("no answer yet")
        if outcome is Outcome.LOST:
            self._quietly(operation)
            raise StoreError("the answer was lost")
        if outcome is Outcome.TWICE:
            self._quietly(operation)
        if lag and operation.__code__.co_varnames[:1] == ("lag",):
            return operation(lag)
        return operation()

    @staticmethod
    def _quietly(operation: Callable[..., Any]) -> None:
        with suppress(Exists, Missing, Changed):
            operation()

    def advance(self, outcome: Outcome, lag: int = 0) -> None:
        """Let the process go on to its next call."""
        if self._operation is not None:
            self._resume((outcome, lag))

    def do(self, command: str) -> None:
        """Let an idle owner begin something; one that is busy does it afterwards."""
        self.commands.append(command)
        if self._operation is None and not self.is_over:
            self._resume(None)

    def _resume(self, value: Any) -> None:
        self._greenlet.switch(value)

    def crash(self, *, happens_later: bool = False) -> None:
        """End the process where it is: the call that it makes does not happen, or happens later."""
        if happens_later and self._operation is not None:
            self.content.late.append(self._operation)
        self.is_over = True
        self._operation = None
        self._greenlet.throw(GreenletExit)

    # ---- the nsqd

    def _run(self, _: Any) -> None:
        try:
            self._own()
        except (Superseded, NotMine):
            self.is_over = True
        except BadObject:
            if self.owner is None:
                raise
            self.is_over = True  # an owner that was overtaken, and whose head was rolled back afterwards

    def _own(self) -> None:
        owner = None
        while owner is None:
            with suppress(StoreError):
                owner = claim(
                    self._objects, "node", self.disk.claims, self.check, clock=lambda: self.clock_ns
                )
        image = owner.image
        assert image is not None
        content = bytes(image.small.get(MESSAGES, b""))
        found = [
            int.from_bytes(content[start : start + MESSAGE_BYTES])
            for start in range(0, len(content), MESSAGE_BYTES)
        ]
        self._on_recovered(set(found))
        known = set(self.disk.messages)
        self.disk.messages += [message for message in found if message not in known]
        self.files = [file for files in image.files.values() for file in files]
        self.owner = owner
        self._base(owner, 1)
        while True:
            while not self.commands:
                self._greenlet.parent.switch()
            self._do(owner, self.commands.pop(0))

    def check(self, head: Head | None) -> StoreImage | None:
        """As nsqd's start: a restore reads the state before it claims the store."""
        if head is not None and self._may_take_over:
            damage: list[BadObject] = []
            image = read_state(self._objects, damage.append).image
            return None if damage else image
        if head is None or self.disk.claims.is_mine(head):
            return None
        raise NotMine

    def _do(self, owner: Owner, command: str) -> None:
        try:
            if command == "round":
                self._round(owner, 1)
            elif command == "long round":
                self._round(owner, 2)
            elif command == "base":
                self._base(owner, 1)
            elif command == "long base":
                self._base(owner, 3)
            elif command == "head":
                owner.move_head()
            elif command == "look":
                owner.look()
            elif command == "collect":
                owner.collect()
            elif command == "file":
                self._store_file(owner)
            elif command == "drop":
                self._drop_file(owner)
        except StoreError:
            if owner.is_settled:  # a later command repeats it
                return
            self._settle(owner)

    def publish(self, message: int) -> None:
        self.disk.messages.append(message)
        self.waiting.append(message)

    def _append(self, owner: Owner, payload: bytes, *, is_mark: bool, is_base: bool = False) -> None:
        try:
            owner.append(payload, is_mark=is_mark, is_base=is_base)
        except StoreError:
            self._settle(owner)

    @staticmethod
    def _settle(owner: Owner) -> None:
        while not owner.is_settled:
            with suppress(StoreError):
                owner.settle()

    def _round(self, owner: Owner, parts: int) -> None:
        covered = list(self.waiting)
        self.waiting = []
        data = _encoded(self.disk.messages[self._stored_count :])
        start = self._stored_count * MESSAGE_BYTES
        self._stored_count = len(self.disk.messages)
        size = -(-len(data) // parts) or 1
        pieces = [data[at : at + size] for at in range(0, len(data), size)] or [b""]
        for index, piece in enumerate(pieces):
            frame = rounds.piece_frame(Write(MESSAGES, start, piece)) if piece else b""
            start += len(piece)
            self._append(owner, frame, is_mark=index == len(pieces) - 1)
        self._on_stored(covered)

    def _base(self, owner: Owner, parts: int) -> None:
        covered = list(self.waiting)
        self.waiting = []
        data = _encoded(self.disk.messages)
        self._stored_count = len(self.disk.messages)
        frames = [
            rounds.files_frame(self.files),
            rounds.piece_frame(Begin(MESSAGES)) + rounds.piece_frame(Part(MESSAGES, 0, data)),
            rounds.piece_frame(Commit(MESSAGES)),
        ]
        payloads = frames if parts > 1 else [b"".join(frames)]
        for index, payload in enumerate(payloads):
            self._append(owner, payload, is_mark=index == len(payloads) - 1, is_base=index == 0)
            if owner.is_head_behind and parts > 1:
                with suppress(StoreError):  # a later command repeats it
                    owner.move_head()
        self._on_stored(covered)

    def _store_file(self, owner: Owner) -> None:
        """Store a log file that other machines have too, so that its name would be the same without the epoch."""
        file = StoredFile("t", 1, 7, 10, 5, True, 2, 1, 1, 1, 1, owner.epoch)
        if file in self.files or file.name in self._dropped:
            return
        self._objects.put_file(file.name, Path(), file.size_bytes)
        self.files.append(file)
        self._append(owner, rounds.files_frame([file]), is_mark=True)

    def _drop_file(self, owner: Owner) -> None:
        if not self.files:
            return
        names = [self.files.pop(0).name]
        self._dropped |= set(names)
        self._append(owner, rounds.files_frame(removed=names), is_mark=True)
        owner.drop_files(names)


def _encoded(messages: list[int]) -> bytes:
    return b"".join(message.to_bytes(MESSAGE_BYTES) for message in messages)
