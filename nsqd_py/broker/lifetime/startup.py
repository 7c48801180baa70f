"""Loading a data directory: topics and channels are rebuilt from their files.

The topics are those that `nsqd.dat` names and those that have files: a crash may have come between writing the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from nsqd_py.broker import metadata, state_files
from nsqd_py.broker.broker import Broker
from nsqd_py.broker.lifetime.topic_loader import TopicLoader, set_aside
from nsqd_py.diskqueue.files.log_file import BACK_SUFFIX, COMPACT_SUFFIX, GONE_SUFFIX, SPARE_SUFFIX
from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE
from nsqd_py.diskqueue.journals.journal import says_deleted
from nsqd_py.diskqueue.recovery import TopicFiles, find_topic_files
from nsqd_py.errors import StartError, is_full
from nsqd_py.protocol.names import is_ephemeral, is_valid_name
from nsqd_py.server.options import HOSTNAME, default_node_id

_LEFTOVERS = (
    BACK_SUFFIX,
    COMPACT_SUFFIX,
    GONE_SUFFIX,
    SPARE_SUFFIX,
    ".cursor.tmp",
    ".dat.tmp",
    ".damaged.tmp",
    f"{state_files.STOP_FILE}.tmp",
    f"{state_files.CLOCK_FILE}.tmp",
    f"{EPOCHS_FILE}.tmp",
    f"{state_files.MEMBER_FILE}.tmp",
    f"{state_files.STANDBYS_FILE}.tmp",
)


def load(broker: Broker, directory: Path, *, is_same_boot: bool = False) -> None:
    """Create all topics and channels that the directory has. Raises StartError, and OSError for the small files.

    is_same_boot  True if the machine was not rebooted since the last nsqd on this data path
    """
    stopped = state_files.read_clean_stop(directory)
    may_get_back = (directory / state_files.STANDBYS_FILE).exists()
    epochs = state_files.read_epochs(directory)
    if epochs is not None:
        broker.logs.restore(epochs)
    # It may write a file: after all that may refuse the directory.
    broker.guids.node_id = _node_id(broker, directory)
    broker.log.info("ID: %d", broker.guids.node_id)
    path = directory / state_files.METADATA_FILE
    is_missing = not path.exists()
    listed = _read_metadata(broker, path)
    entries = {entry.name: entry for entry in listed}
    files = _find_files(directory, entries)
    if is_missing and entries:
        broker.log.warning(
            "NSQ: %s is gone. Topics and channels are taken from their files; which of them were paused is not known any more",
            path.name,
        )
    _complete_deletions(broker, directory, files, entries)
    for entry in _durable(broker, entries.values()):
        try:
            TopicLoader(
                broker,
                entry,
                files.get(entry.name, TopicFiles()),
                stopped,
                is_same_boot=is_same_boot,
                may_get_back=may_get_back,
            ).load()
        except OSError as error:
            raise StartError(_refusal(entry.name, directory, error)) from error
    broker.logs.forget_saved()
    state_files.forget_clean_stop(directory)


def _durable(broker: Broker, entries: Iterable[metadata.TopicEntry]) -> Iterator[metadata.TopicEntry]:
    """Yield the entries of topics that have files."""
    for entry in entries:
        if not is_valid_name(entry.name.encode()):
            broker.log.warning("skipping creation of invalid topic %s", entry.name)
        elif not is_ephemeral(entry.name):
            yield entry


def _node_id(broker: Broker, directory: Path) -> int:
    """Return --node-id; without it, a number that another data path on this host does not have, but for a chance of 1 in 1024.

    Raises StartError.
    """
    node_id = broker.services.options.node_id
    if node_id is not None:
        return node_id
    try:
        identity = state_files.data_path_id(directory)
    except OSError as error:  # the disk is full, which may pass
        broker.log.warning(
            "DATAPATH: its id cannot be kept in %s: %s", state_files.MEMBER_FILE, error.strerror
        )
        identity = str(directory.absolute())
    return default_node_id(HOSTNAME, identity)


def _refusal(topic: str, directory: Path, error: OSError) -> str:
    """Return the text of a StartError."""
    if is_full(error):
        return (
            f"the disk of {directory.absolute()} is full: what nsqd must write about topic {topic} before it starts "
            f"did not fit; free some space ({error})"
        )
    return f"failed to read topic {topic} - {error}"


def _read_metadata(broker: Broker, path: Path) -> list[metadata.TopicEntry]:
    """Return the topics of `nsqd.dat`. A damaged one is renamed; topics and channels are then found by their files."""
    try:
        return metadata.read_metadata(path)
    except metadata.BadMetadata as error:
        aside = set_aside(path)
        broker.log.error(
            "NSQ: %s; set aside as %s. Topics and channels are taken from their files; which of them were paused is "
            "not known any more",
            error,
            aside.name,
        )
        return []


def _find_files(directory: Path, entries: dict[str, metadata.TopicEntry]) -> dict[str, TopicFiles]:
    """Return the files of topics, and add topics and channels that `nsqd.dat` lacks. Delete leftovers of a kill."""
    files, others = find_topic_files(directory)
    for path in others:
        if path.name.endswith(_LEFTOVERS):
            path.unlink(missing_ok=True)
    for topic, found in files.items():
        channels = [channel for channel in found.journals if channel]
        if found.logs or channels:
            entry = entries.setdefault(topic, metadata.TopicEntry(topic))
            for channel in channels:
                entry.channels.setdefault(channel, False)
    return files


def _complete_deletions(
    broker: Broker, directory: Path, files: dict[str, TopicFiles], entries: dict[str, metadata.TopicEntry]
) -> None:
    """Remove the files of topics whose deletion was interrupted, and last the one that says so. Raises StartError."""
    for topic, found in list(files.items()):
        own = found.journals.get("")
        try:
            if own is None or not says_deleted(own):
                continue
            journals = [path for channel, path in found.journals.items() if channel]
            for path in [*(path for _, path in found.logs), *journals, own]:
                path.unlink()
        except OSError as error:
            raise StartError(_refusal(topic, directory, error)) from error
        del files[topic]
        entries.pop(topic, None)
        broker.metadata.want()
        broker.log.warning("TOPIC(%s): its deletion was interrupted, and is completed", topic)
