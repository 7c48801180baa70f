"""Connections do not survive a fork: parent and child would both read and write them."""

from __future__ import annotations

import os
from weakref import WeakSet


class AfterFork:
    """Something that has to begin anew in a child process."""

    def after_fork(self) -> None:
        """Called in the child before anything else runs there. What is open belongs to the parent."""
        raise NotImplementedError


_TOLD: WeakSet[AfterFork] = WeakSet()


def tell_after_fork(one: AfterFork) -> None:
    """Call its `after_fork` in every child, for as long as it lives."""
    _TOLD.add(one)


def _tell() -> None:
    for one in list(_TOLD):
        one.after_fork()


os.register_at_fork(after_in_child=_tell)
