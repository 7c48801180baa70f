"""Makes a standby's data path that of a primary: with a new epoch, so that its old primary can tell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nsqd_py.broker.broker import Broker
from nsqd_py.broker.state_files import read_epochs
from nsqd_py.errors import StartError
from nsqd_py.runtime.logs import Log
from nsqd_py.standby.follower import is_followed_by
from nsqd_py.standby.state import StandbyState, read_state, remove_state

if TYPE_CHECKING:
    from nsqd_py.options import NsqdOptions
    from nsqd_py.standby.election import Election


def check_role(directory: Path, standby_of: str, *, promote: bool) -> StandbyState | None:
    """Return the state if this data path must be promoted at this start, or if it was fenced; else None.

    Raises StartError if it is a standby's, and it must not, or cannot, be promoted.
    """
    try:
        state = read_state(directory)
    except OSError as error:
        raise StartError(f"failed to read the state of the standby in {directory} - {error}") from error
    if state is None:
        saved = read_epochs(directory)
        if promote and standby_of and (saved is None or not saved.node):
            raise StartError("--promote and --standby-of exclude each other: this data path was never a standby's")
        return None
    if promote:
        if not state.is_complete:
            raise StartError(
                f"the copy of {state.primary} in {directory.absolute()} is not complete, and cannot be promoted; start "
                f"nsqd with --standby-of={state.primary}, and wait for its state `following`"
            )
        return state
    if not standby_of and state.is_fenced:
        return state
    if not standby_of:
        raise StartError(
            f"{directory.absolute()} is the copy of {state.primary}: start nsqd with --standby-of={state.primary} to "
            "follow it, or with --promote to make it a primary"
        )
    return None


def goes_on_as_primary(directory: Path, options: NsqdOptions, log: Log) -> bool:
    """True if this data path was promoted before, and the nsqd of --standby-of is not a newer primary.

    So a promoted standby may start again with the same flags. Blocks this greenlet. Raises OSError.
    """
    saved = read_epochs(directory)
    if read_state(directory) is not None or saved is None or not saved.node or is_followed_by(options, saved.node):
        return False
    log.warning(
        "STANDBY: this data path was promoted, and %s is no newer primary: --standby-of has no effect", options.standby_of
    )
    return True


def promote(broker: Broker, directory: Path, state: StandbyState | None, election: Election | None = None) -> None:
    """Begin a new epoch in all logs of a loaded broker, and make that durable. Raises OSError. Blocks this greenlet.

    state     that of a standby's data path; None if it is a primary's
    election  must be told of the epoch before and after. If it has lost its lease, it ends the daemon.
    """
    if election is not None:
        broker.logs.epoch_numbers.skip_past(election.highest_epoch)
    epoch = broker.logs.epoch_numbers.next()
    if election is not None and not election.announce(epoch):
        return
    broker.epoch = epoch
    broker.keeps_epochs = True
    for topic in broker.topics.values():
        if topic.log is not None:
            topic.log.begin_epoch(epoch)
    broker.persist_metadata()
    if state is not None:
        remove_state(directory)
        broker.log.warning("STANDBY: promoted; %s was its primary", state.primary)
    if election is not None:
        election.begin(epoch)
