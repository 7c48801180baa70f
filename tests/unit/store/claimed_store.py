"""A store whose answers may be lost, and the data paths of nsqds that claim it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nsqd_py.feed.pieces import Write
from nsqd_py.objects.calls import Exists, Objects, StoreError
from nsqd_py.objects.opening import open_objects
from nsqd_py.store import rounds
from nsqd_py.store.image import StoreReader
from nsqd_py.store.layout import HEAD_NAME, BadObject, StoredFile
from nsqd_py.store.ownership import Claims, Owner, claim

CURSOR = "t:c.cursor"
OTHER = "t:d.cursor"
FILE = StoredFile("t", 0, 5, 3, 1, True, 50, 1, 50, 1, 2, 1)


@dataclass
class FaultyObjects(Objects):
    """Objects whose next calls fail: `lost` has the names of calls that happen without an answer, `failed` of others.

    conflicts  number of creates that are refused although there is no such object
    """

    objects: Objects
    lost: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    conflicts: int = 0

    def __getattribute__(self, name: str) -> Any:
        own = object.__getattribute__
        if name in ("objects", "lost", "failed", "calls", "conflicts") or name.startswith("__"):
            return own(self, name)
        return lambda *arguments: own(self, "_call")(name, *arguments)

    def _call(self, name: str, *arguments: Any) -> Any:
        self.calls.append(name)
        if name == "create" and self.conflicts:
            self.conflicts -= 1
            raise Exists(f"{arguments[0]} exists already")
        if name in self.failed:
            self.failed.remove(name)
            raise StoreError("no answer")
        result = getattr(self.objects, name)(*arguments)
        if name in self.lost:
            self.lost.remove(name)
            raise StoreError("the answer was lost")
        return result


@dataclass
class World:
    """A store, and the data paths of nsqds."""

    path: Path
    now_ns: int = 1

    def __post_init__(self) -> None:
        self.objects = FaultyObjects(open_objects(f"file://{self.path}/store"))

    def claims(self, name: str = "data") -> Claims:
        (self.path / name).mkdir(exist_ok=True)
        return Claims(self.path / name)

    def claim(self, name: str = "data", on_damage: Callable[[BadObject], None] | None = None) -> Owner:
        return claim(
            self.objects,
            f"{name}:4150",
            self.claims(name),
            lambda _: None,
            on_damage,
            clock=lambda: self.now_ns,
        )

    def state(self) -> bytes:
        reader = StoreReader(self.objects)
        reader.refresh()
        return bytes(reader.image.small.get(CURSOR, b""))

    def everything(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.path)): path.read_bytes()
            for path in self.path.rglob("store/**/*")
            if path.is_file()
        }

    def names(self, prefix: str) -> list[str]:
        return sorted(listed.name for listed in self.objects.list(prefix))


def wrote(content: bytes, offset: int = 0) -> bytes:
    return rounds.piece_frame(Write(CURSOR, offset, content))


def put_head(world: World, content: bytes) -> None:
    (world.path / "store" / HEAD_NAME).write_bytes(content)
