"""Classes whose `dir()`, and so completion in a shell or editor, shows no internals."""

from __future__ import annotations

from collections.abc import Iterable


def _public(names: Iterable[str]) -> list[str]:
    return [name for name in names if not name.startswith("_") or name.startswith("__")]


class _PublicType(type):
    def __dir__(cls) -> list[str]:
        return _public(super().__dir__())


class Public(metaclass=_PublicType):
    __slots__ = ()

    def __dir__(self) -> list[str]:
        return _public(super().__dir__())
