"""A data path that leaves its store: nsqd is started with another `--store`, or without one.

What it has not finished, and has only in that store, would count as lost: then nsqd does not start.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nsqd_py.errors import StartError
from nsqd_py.runtime.threads import in_thread_with_progress
from nsqd_py.server.docking import Part
from nsqd_py.store.absent import absent_text
from nsqd_py.store.ownership import CLAIMS_FILE, Claims


class LeftStore(Part):
    """Checks a data path that was in a store, at a start without one."""

    def before_load(self) -> None:
        broker = self.host.broker
        directory = broker.services.directory
        claims = Claims(directory)
        if not claims.store:  # the file is damaged
            return

        def check(on_progress: Callable[[], None]) -> None:
            check_needs_nothing(claims, "and there is no --store", on_progress)

        in_thread_with_progress(check, self.host.on_progress)
        broker.log.warning(
            "STORE: %s was in %s until now; without --store, nsqd puts nothing there, and reads no history of it",
            directory.absolute(),
            name_of(claims),
        )


def check_needs_nothing(claims: Claims, problem: str, on_progress: Callable[[], None] = lambda: None) -> None:
    """Raise StartError if a data path has unfinished messages that are only in the store of its claims. Raises OSError."""
    if not claims.store:
        return
    absent = absent_text(claims.directory, on_progress)
    if absent:
        raise StartError(
            f"{claims.directory.absolute()} lacks unfinished messages that are in {name_of(claims)} ({absent}), {problem}: start "
            f"nsqd with that store, at its present URL; nothing was changed. To go on without these messages, move {CLAIMS_FILE} "
            "out of the data path: they then count as lost"
        )


def left_store(directory: Path) -> str:
    """Return the store in which a data path was last, for people; "" if it was in none. Raises OSError and StartError."""
    claims = Claims(directory)
    return name_of(claims) if claims.store else ""


def name_of(claims: Claims) -> str:
    """Return the store in which the data path was last, for people."""
    if claims.url:
        return f"the store {claims.url}"
    return f"another store (the one whose head.json has the id {claims.store})"
