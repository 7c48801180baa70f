"""`nsqd.standby`: says that a data path is the copy of another nsqd's, and whether the copy is complete.

It is in a data path from the beginning of the first copy until the standby is promoted. nsqd does not serve such a
directory: its messages are still those of the primary.

`nsqd.member`: the random id of a data path in a group that shares a lease. It is not copied with the messages.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nsqd_py.broker.state_files import MEMBER_FILE, STANDBY_FILE, read_checked, write_checked
from nsqd_py.diskqueue.files import sync_directory
from nsqd_py.runtime.documents import decode_fields
from nsqd_py.standby.messages import Member

if TYPE_CHECKING:
    from nsqd_py.options import NsqdOptions


@dataclass(frozen=True, slots=True)
class StandbyState:
    """The state of a standby's data path.

    primary      address of the nsqd that it follows
    is_complete  False until the standby has had everything that the primary had; before that it cannot be promoted
    was_primary  True until then, if the files are also those of an nsqd that was a primary itself
    is_fenced    True if it follows because it was fenced, also without --standby-of
    """

    primary: str
    is_complete: bool
    was_primary: bool = False
    is_fenced: bool = False


def read_state(directory: Path) -> StandbyState | None:
    """Return the state of a standby's data path; None if it is none. Raises OSError."""
    return read_checked(directory / STANDBY_FILE, partial(decode_fields, StandbyState))


def write_state(directory: Path, state: StandbyState) -> None:
    """Write the state durably. Raises OSError."""
    write_checked(directory / STANDBY_FILE, asdict(state))


def remove_state(directory: Path) -> None:
    """Remove the state durably: the directory has its own messages from now on. Raises OSError."""
    (directory / STANDBY_FILE).unlink(missing_ok=True)
    sync_directory(directory)


def own_member(directory: Path, options: NsqdOptions) -> Member:
    """Return this nsqd as a member of its group; its id is made at the first call. Raises OSError."""
    identity = read_checked(directory / MEMBER_FILE, _decode_id)
    if identity is None:
        identity = os.urandom(8).hex()
        write_checked(directory / MEMBER_FILE, {"id": identity})
    port = options.broadcast_tcp_port or int(options.tcp_address.rpartition(":")[2])
    return Member(identity, f"{options.broadcast_address}:{port}")


def _decode_id(fields: dict[str, object]) -> str:
    identity = fields["id"]
    if not isinstance(identity, str):
        raise TypeError(f"{identity!r} is not an id")
    return identity
