"""A data directory of a newer version: nsqd refuses it with one sentence, and changes nothing in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from struct import pack, pack_into

import pytest
from google_crc32c import extend

from nsqd_py.broker.state_files import METADATA_FILE
from nsqd_py.diskqueue.records import VERSION
from tests.support.broker_life import TOPIC, Life
from tests.support.harm import content
from tests.support.nsqd_process import NsqdProcess
from tests.support.tool_process import run_tool

pytestmark = pytest.mark.ours

LOG = f"{TOPIC}.{0:020d}.log"
JOURNAL = f"{TOPIC}:fast.cursor"
NEW_KIND = 4


def newer_metadata(directory: Path) -> None:
    path = directory / METADATA_FILE
    path.write_text(json.dumps({"format": 2, "version": "2.0.0", "topics": {"in": "another shape"}}))


def newer_log(directory: Path) -> None:
    """The header of a log file has a higher version, and the checksum that belongs to it."""
    path = directory / LOG
    data = bytearray(path.read_bytes())
    pack_into("<H", data, 4, VERSION + 1)
    pack_into("<I", data, 12, 0)
    pack_into("<I", data, 12, extend(0, bytes(data[:32])))
    path.write_bytes(data)


def newer_journal(directory: Path) -> None:
    """A whole entry of a kind that this version does not have."""
    payload = pack("<BQII", NEW_KIND, 1, 0, 0)
    with (directory / JOURNAL).open("ab") as file:
        file.write(pack("<II", len(payload), extend(0, payload)) + payload)


NEWER: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "metadata": (newer_metadata, METADATA_FILE, "format 2; this version reads format 1"),
    "log": (newer_log, LOG, "format 2; this version reads format 1"),
    "journal": (newer_journal, JOURNAL, "entries of kind 4; this version reads kinds 1 to 3"),
}


@pytest.fixture
def left(tmp_path) -> Path:
    """What a stopped nsqd left: a topic with a message, and positions of channels."""
    directory = tmp_path / "data"
    directory.mkdir()
    life = Life(directory, lambda *_: None)
    life.create()
    life.publish(b"first")
    life.end()
    return directory


@pytest.mark.parametrize("kind", NEWER)
def test_a_start_is_refused(left, kind):
    make_newer, name, found = NEWER[kind]
    make_newer(left)
    before = content(left)
    (fatal,) = (line for line in NsqdProcess(left).fails_to_start().splitlines() if "FATAL" in line)
    assert f"{left / name} was written by a newer version of nsqd-py ({found})" in fatal
    assert "start that version" in fatal
    after = content(left)
    assert {name: after[name] for name in before} == before
    assert not list(left.glob("*.damaged*"))


@pytest.mark.parametrize("kind", NEWER)
def test_a_check_is_refused(left, kind):
    make_newer, name, _ = NEWER[kind]
    make_newer(left)
    before = content(left)
    done = run_tool("nsq_apps.nsqd", f"--check-data={left}")
    assert done.returncode == 2, done.stdout
    assert done.stdout == ""
    assert f"{name} was written by a newer version of nsqd-py" in done.stderr
    assert content(left) == before


def test_a_damaged_version_is_damage(left):
    """The checksum tells it from a newer format."""
    data = bytearray((left / LOG).read_bytes())
    data[4] ^= 2
    (left / LOG).write_bytes(data)
    life = Life(left, lambda *_: None)
    assert life.drain("fast") == []
    life.end()
    assert (left / f"{LOG}.damaged").read_bytes() == data
