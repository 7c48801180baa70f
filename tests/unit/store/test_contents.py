"""What a reader in place finds in a store: each message once, wherever it is, and what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nsqd_py.diskqueue.files.log_file import log_file_name
from nsqd_py.diskqueue.messages import record_positions
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, FileHeader
from nsqd_py.store.contents import Gap, LogPart, incomplete_base, parts_of, topics_of
from nsqd_py.store.image import StoreReader
from nsqd_py.store.layout import round_name
from tests.support.stored import PER_RECORD, GrowingLog, StoreOfFiles, a_compacted_log
from tests.support.tool_process import run_tool


@pytest.fixture
def store(tmp_path: Path) -> StoreOfFiles:
    return StoreOfFiles((tmp_path / "store").as_uri())


def read(store: StoreOfFiles) -> StoreReader:
    reader = StoreReader(store.objects)
    reader.refresh()
    assert incomplete_base(reader) == ""
    return reader


def parts(store: StoreOfFiles, topic: str = "orders") -> list[LogPart]:
    found = list(parts_of(read(store).image, topic))
    assert not [one for one in found if isinstance(one, Gap)]
    return [one for one in found if isinstance(one, LogPart)]


def numbers(store: StoreOfFiles, part: LogPart) -> list[int]:
    """The numbers of the messages in its object, or in its bytes."""
    data = store.objects.get(part.stored.name)[0] if part.stored else part.data
    assert len(data) == part.size_bytes
    salt = FileHeader.decode(data).salt
    headers = [header for _, header in record_positions(data, FILE_HEADER_BYTES, salt)]
    assert (part.first_ns, part.last_ns) == (headers[0].timestamp_ns, headers[-1].timestamp_ns)
    assert (part.first_id, part.last_id) == (1000 + part.first_seq, 1000 + part.end_seq - 1)
    return [seq for header in headers for seq in range(header.first_seq, header.end_seq)]


def everything(store: StoreOfFiles) -> list[int]:
    return [seq for part in parts(store) for seq in numbers(store, part)]


def test_what_is_stored_and_what_only_rounds_have(tmp_path: Path, store: StoreOfFiles) -> None:
    data_path = tmp_path / "data"
    log = GrowingLog(data_path)
    log.grow(4)
    store.base(data_path)  # all in rounds
    assert [part.stored for part in parts(store)] == [None]
    assert everything(store) == list(range(12))
    log.grow(2)
    store.base(data_path, stores_prefixes=True)
    log.grow(1)
    store.round(data_path)
    assert [(part.stored is None, part.first_seq, part.end_seq, part.is_sealed) for part in parts(store)] == [
        (False, 0, 18, False),
        (True, 18, 21, False),
    ]
    assert everything(store) == list(range(21))
    log.grow(2)
    store.round(data_path)
    log.grow(1)
    store.round(data_path, stores_prefixes=True)  # of a file whose tail began before
    log.grow(1)
    store.round(data_path)
    assert [(part.first_seq, part.end_seq) for part in parts(store)] == [(0, 30), (30, 33)]
    assert everything(store) == list(range(33))
    GrowingLog(data_path, log.next_seq).grow(1)
    store.round(data_path, seals=True)
    assert [(part.first_seq, part.end_seq, part.is_sealed) for part in parts(store)] == [
        (0, 33, True),
        (33, 36, False),
    ]
    assert everything(store) == list(range(36))


def test_topics_and_what_retention_dropped(tmp_path: Path, store: StoreOfFiles) -> None:
    data_path = tmp_path / "data"
    for topic in ("orders", "clicks"):
        GrowingLog(data_path, 0, topic).grow(2)
        GrowingLog(data_path, 6, topic).grow(1)
    GrowingLog(data_path, 0, "empty")
    store.base(data_path)
    assert topics_of(read(store).image) == ["clicks", "empty", "orders"]
    assert parts(store, "empty") == []
    store.drop(log_file_name("clicks", 0))
    assert [(part.first_seq, part.end_seq) for part in parts(store, "clicks")] == [(6, 9)]
    assert everything(store) == list(range(9))


def test_what_is_missing_is_named(tmp_path: Path, store: StoreOfFiles) -> None:
    data_path = tmp_path / "data"
    log = GrowingLog(data_path)
    log.grow(4)
    store.base(data_path, stores_prefixes=True)
    log.grow(1)
    store.round(data_path)
    store.drop(log.path.name)
    gap, tail = parts_of(read(store).image, "orders")
    assert isinstance(gap, Gap)
    assert str(gap).startswith(f"bytes 0 to {gap.end} of {log.path.name} are missing")
    assert isinstance(tail, LogPart)
    assert (tail.first_seq, tail.end_seq) == (12, 15)
    store.base(data_path)
    path = tmp_path / "store" / round_name(4)
    path.write_bytes(path.read_bytes()[:-1])
    damage: list[str] = []
    reader = StoreReader(store.objects, lambda error: damage.append(str(error)))
    reader.refresh()
    assert len(damage) == 1
    assert incomplete_base(reader).startswith(f"the base that begins with {round_name(4)}")


def test_a_file_that_compaction_made_of_several(tmp_path: Path, store: StoreOfFiles) -> None:
    """Of three files, only the second was stored. The sparse file has every second record of all of them."""
    sparse = a_compacted_log(store, tmp_path)
    every_second = [seq for low in range(0, 36, 2 * PER_RECORD) for seq in range(low, low + PER_RECORD)]
    first, second, third, last = parts(store)
    assert [(part.first_seq, part.end_seq) for part in (first, second, third, last)] == [
        (0, 12),
        (12, 24),
        (24, 33),
        (36, 48),
    ]
    assert [part.is_cut for part in (first, second, third, last)] == [True, False, True, False]
    assert first.data == third.data == sparse.path.read_bytes()
    assert numbers(store, second) == list(range(12, 24))
    done = run_tool("nsq_apps", "nsq_cat", "--jsonl", store.url)
    assert (done.returncode, done.stderr) == (0, "")
    found = [int(json.loads(line)["id"], 16) - 1000 for line in done.stdout.splitlines()]
    expected = {*(seq for seq in every_second if seq < 12 or seq >= 24), *range(12, 24), *range(36, 48)}
    assert found == sorted(expected)
