"""Who may claim a store, and that the answer takes little memory."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest import mock

import pytest

from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE, Epoch, encode_epoch_file
from nsqd_py.diskqueue.records import FileHeader
from nsqd_py.errors import StartError
from nsqd_py.feed.pieces import TopicListing, TopicsListed, Write
from nsqd_py.objects.calls import Objects
from nsqd_py.objects.opening import open_objects
from nsqd_py.runtime.logs.daemon_log import FATAL, Log
from nsqd_py.store import rounds, spill
from nsqd_py.store.image import read_head
from nsqd_py.store.ownership import CLAIMS_FILE, Claims, claim
from nsqd_py.store.permission import Permission

LOG = "t.00000000000000000000.log"
CONTENT = FileHeader(7, 0, 0).encode()
EPOCHS = (Epoch(1, 0),)


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    """A store with one log, of the data path `primary`."""
    for name in ("primary", "other"):
        (tmp_path / name).mkdir()
    objects = open_objects(f"file://{tmp_path}/store")
    owner = claim(objects, "primary:4151", Claims(tmp_path / "primary"), lambda _head: None)
    pieces = (TopicListing("t", EPOCHS, 0, {LOG: 0}, []), TopicsListed(), Write(LOG, 0, CONTENT))
    owner.append(b"".join(rounds.piece_frame(piece) for piece in pieces), is_mark=True)
    return objects


def permission_of(directory: Path, objects: Objects, *, may_take_over: bool = False) -> Permission:
    url = f"file://{directory.parent}/store"
    return Permission(objects, Claims(directory), url, False, may_take_over, Log(level=FATAL))


def test_the_first_takeover_keeps_the_ends_of_logs_in_a_file(
    tmp_path: Path, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store of many topics would fill the memory."""
    standby = tmp_path / "other"
    (standby / EPOCHS_FILE).write_bytes(encode_epoch_file(0, {"t": EPOCHS}))
    monkeypatch.setattr(spill, "_MOST_IN_MEMORY", 0)
    permission = permission_of(standby, objects, may_take_over=True)
    with mock.patch.object(tempfile, "TemporaryFile", wraps=tempfile.TemporaryFile) as made:
        permission.check(read_head(objects))
    made.assert_called_once_with(dir=standby, buffering=0)
    assert permission.is_other


@pytest.mark.parametrize("claims", [None, b"damaged"], ids=["missing", "damaged"])
def test_a_data_path_that_has_forgotten_its_store_is_known_by_its_epochs(
    tmp_path: Path, objects: Objects, claims: bytes | None
) -> None:
    primary = tmp_path / "primary"
    (primary / CLAIMS_FILE).unlink()
    if claims is not None:
        (primary / CLAIMS_FILE).write_bytes(claims)
    (primary / LOG).write_bytes(CONTENT)
    (primary / EPOCHS_FILE).write_bytes(encode_epoch_file(0, {"t": EPOCHS}))
    permission_of(primary, objects).check(read_head(objects))


def test_a_copy_without_epochs_does_not_take_the_store_of_its_origin(
    tmp_path: Path, objects: Objects
) -> None:
    """`--restore-from` without `--store` makes such a copy: the same log files prove nothing."""
    copy = tmp_path / "other"
    (copy / LOG).write_bytes(CONTENT)
    with pytest.raises(StartError, match="which this data path does not have"):
        permission_of(copy, objects).check(read_head(objects))
