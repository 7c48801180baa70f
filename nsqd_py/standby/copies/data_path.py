"""The data path of a standby: its state, and the names of the files that it may get from its primary.

`nsqd.standby` says that a data path is a copy, and whether the copy is complete. It is there from the beginning of the
first copy until the standby is promoted. nsqd does not serve such a directory: its messages are still those of the
primary. `nsqd.member` is the random id of a data path. It is not copied.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from nsqd_py.broker.state_files import (
    CLOCK_FILE,
    METADATA_FILE,
    STANDBY_FILE,
    data_path_id,
    read_checked,
    write_checked,
)
from nsqd_py.diskqueue.files.log_file import sync_directory, topic_of_log
from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE
from nsqd_py.diskqueue.journals.journal import JOURNAL_SUFFIX
from nsqd_py.errors import NsqdError
from nsqd_py.protocol.names import is_ephemeral, is_valid_name
from nsqd_py.runtime.documents import decode_fields
from nsqd_py.server.options import NsqdOptions
from nsqd_py.standby.messages import GroupMember

# A copy has these, in addition to logs and journals.
COPIED_STATE_FILES = (METADATA_FILE, CLOCK_FILE, EPOCHS_FILE)


# ---- the state


@dataclass(frozen=True, slots=True)
class StandbyState:
    """The state of a standby's data path.

    primary      address of the nsqd that it follows
    is_complete  True if the files are everything that an nsqd had, and can be promoted. A standby of another primary notes
                 False before that one changes the first file, and True when it has everything of that one
    was_primary  True until it has had everything of a primary, if this nsqd was a primary itself
    is_fenced    True if it follows because it was fenced, also without --standby-of
    needs_store  URL of the store that has unfinished messages which the primary has only there; without it, the copy is not
                 complete. Empty if there are none
    """

    primary: str
    is_complete: bool
    was_primary: bool = False
    is_fenced: bool = False
    needs_store: str = ""

    @property
    def is_own(self) -> bool:
        """True if the files are what this nsqd had as a primary: it has not got anything of another one since."""
        return self.was_primary and self.is_complete

    def is_copy_of(self, primary: str) -> bool:
        """True if the files are a complete copy of the nsqd at this address; of any one, if it is ""."""
        if not primary or not self.is_complete:
            return self.is_complete
        # Those of an nsqd that was fenced may be served until it follows.
        return primary == self.primary and (self.is_fenced or not self.is_own)

    def lacks_store(self, store: str) -> bool:
        """True if an nsqd with this --store lacks messages that the primary has only in another one."""
        if not self.needs_store:
            return False
        from nsqd_py.objects.opening import is_one_store  # only a standby of an nsqd with a store needs it

        return not is_one_store(self.needs_store, store)


def read_state(directory: Path) -> StandbyState | None:
    """Read the state of a standby; None if the data path has none. Raises OSError."""
    return read_checked(directory / STANDBY_FILE, partial(decode_fields, StandbyState))


def write_state(directory: Path, state: StandbyState) -> None:
    """Write the state durably. Raises OSError."""
    fields = asdict(state)
    if not state.needs_store:  # earlier versions know no such field: they refuse a copy that needs a store
        del fields["needs_store"]
    write_checked(directory / STANDBY_FILE, fields)


def remove_state(directory: Path) -> None:
    """Remove the state durably: the directory has its own messages from now on. Raises OSError."""
    (directory / STANDBY_FILE).unlink(missing_ok=True)
    sync_directory(directory)


def own_member(directory: Path, options: NsqdOptions) -> GroupMember:
    """Return this nsqd as a member of its group; its id is made at the first call. Raises OSError."""
    port = options.broadcast_tcp_port or int(options.tcp_address.rpartition(":")[2])
    return GroupMember(data_path_id(directory), f"{options.broadcast_address}:{port}")


# ---- names of files


class BadFileName(NsqdError):
    """The primary names a file that is none of its data path."""


def topic_of(name: str) -> str | None:
    """Return the topic to which a file of a data path belongs; None if it belongs to none."""
    if name.endswith(JOURNAL_SUFFIX):
        return name.removesuffix(JOURNAL_SUFFIX).partition(":")[0]
    return topic_of_log(name)


def is_durable_name(name: str) -> bool:
    """True if this is the name of a topic or channel that has files."""
    return is_valid_name(name.encode()) and not is_ephemeral(name)


def check_name(name: str) -> None:
    """Raise BadFileName unless this is the name of a log, a journal, `nsqd.dat`, `nsqd.clock` or `nsqd.epochs`."""
    if name in COPIED_STATE_FILES:
        return
    topic = topic_of(name)
    channel = ""
    if name.endswith(JOURNAL_SUFFIX):
        channel = name.removesuffix(JOURNAL_SUFFIX).partition(":")[2]
    if topic is None or not is_durable_name(topic) or (channel and not is_durable_name(channel)):
        raise BadFileName(f"{name!r} is no file of a data path")
