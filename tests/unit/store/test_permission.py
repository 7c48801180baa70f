"""Who may claim a store, and that the answer takes little memory."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest import mock

import pytest

from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE, Epoch, encode_epoch_file
from nsqd_py.diskqueue.records import FileHeader
from nsqd_py.feed.pieces import TopicListing, TopicsListed, Write
from nsqd_py.objects.opening import open_objects
from nsqd_py.runtime.logs.daemon_log import FATAL, Log
from nsqd_py.store import rounds, spill
from nsqd_py.store.image import read_head
from nsqd_py.store.ownership import Claims, claim
from nsqd_py.store.permission import Permission

LOG = "t.00000000000000000000.log"


def test_the_first_takeover_keeps_the_ends_of_logs_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store of many topics would fill the memory."""
    for name in ("primary", "standby"):
        (tmp_path / name).mkdir()
    epochs = (Epoch(1, 0),)
    objects = open_objects(f"file://{tmp_path}/store")
    owner = claim(objects, "primary:4151", Claims(tmp_path / "primary"), lambda _head: None)
    pieces = (
        TopicListing("t", epochs, 0, {LOG: 0}, []),
        TopicsListed(),
        Write(LOG, 0, FileHeader(7, 0, 0).encode()),
    )
    owner.append(b"".join(rounds.piece_frame(piece) for piece in pieces), is_mark=True)
    (tmp_path / "standby" / EPOCHS_FILE).write_bytes(encode_epoch_file(0, {"t": epochs}))

    monkeypatch.setattr(spill, "_MOST_IN_MEMORY", 0)
    permission = Permission(
        objects, Claims(tmp_path / "standby"), f"file://{tmp_path}/store", False, True, Log(level=FATAL)
    )
    with mock.patch.object(tempfile, "TemporaryFile", wraps=tempfile.TemporaryFile) as made:
        permission.check(read_head(objects))
    made.assert_called_once_with(dir=tmp_path / "standby", buffering=0)
    assert permission.is_other
