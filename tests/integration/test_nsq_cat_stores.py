"""nsq-cat on a store of nsqd: each message once and in order, what is damaged in it, and what is not opened."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nsqd_py.store.layout import HEAD_NAME, round_name
from tests.support.nsqd_process import MakeNsqd, NsqdProcess
from tests.support.stored import NODE, StoreOfFiles
from tests.support.tool_process import run_tool
from tests.support.wire import mpub_body

pytestmark = [pytest.mark.ours]

SMALL_FILES = "--max-bytes-per-file=1024"
# Ends by itself: threads of duckdb may abort a process that ends.
_DUCKDB = """
import os, sys, duckdb
query = "SELECT count(*), sum(CAST(body AS INT)), min(topic) FROM read_json($1) WHERE topic = 'orders'"
print(*duckdb.execute(query, [sys.argv[1]]).fetchone())
sys.stdout.flush()
os._exit(0)
"""


def publish(nsqd: NsqdProcess, topic: str, numbers: range) -> None:
    for first in range(numbers.start, numbers.stop, 10):
        some = [b"%d" % number for number in range(first, min(first + 10, numbers.stop))]
        assert nsqd.post(f"/mpub?topic={topic}&binary=true", mpub_body(some)).body == b"OK"


def cat(*flags: str | Path, status: int = 0) -> tuple[list[str], str]:
    done = run_tool("nsq_apps", "nsq_cat", *map(str, flags))
    assert done.returncode == status, done.stderr
    return done.stdout.splitlines(), done.stderr


def lines(numbers: range) -> list[str]:
    return list(map(str, numbers))


@pytest.fixture
def store(make_nsqd: MakeNsqd, tmp_path: Path) -> tuple[StoreOfFiles, NsqdProcess]:
    """300 orders and 40 clicks: some in sealed files, some in a stored beginning of a file, some in rounds."""
    nsqd = make_nsqd(SMALL_FILES)
    store = StoreOfFiles((tmp_path / "store").as_uri())
    publish(nsqd, "orders", range(200))
    publish(nsqd, "clicks", range(1000, 1040))
    store.base(nsqd.data_path, stores_prefixes=True)
    for first in range(200, 300, 25):
        publish(nsqd, "orders", range(first, first + 25))
        store.round(nsqd.data_path, seals=first == 250)
    return store, nsqd


def test_each_message_once_and_in_order(store: tuple[StoreOfFiles, NsqdProcess], tmp_path: Path) -> None:
    stored, nsqd = store
    assert len(stored.files()) >= 3
    everything = lines(range(1000, 1040)) + lines(range(300))
    assert cat(stored.url) == cat(tmp_path / "store") == (everything, "")
    assert cat("--topic=orders", stored.url) == (lines(range(300)), "")
    stored.base(nsqd.data_path)  # at which rounds begin again
    publish(nsqd, "orders", range(300, 310))
    stored.round(nsqd.data_path)
    assert cat("--topic=orders", stored.url) == (lines(range(310)), "")
    found = [json.loads(line) for line in cat("--jsonl", "--topic=clicks", stored.url)[0]]
    assert {(one["topic"], one["nsqd"], len(one["id"])) for one in found} == {("clicks", NODE, 16)}


def test_files_of_other_topics_and_times_are_not_read(store: tuple[StoreOfFiles, NsqdProcess]) -> None:
    stored, _ = store
    times = [json.loads(line)["timestamp"] for line in cat("--jsonl", "--topic=orders", stored.url)[0]]
    middle = sorted(set(times))[len(set(times)) // 2]
    before = sum(time_ns < middle for time_ns in times)
    assert cat("--topic=orders", f"--end={middle}", stored.url)[0] == lines(range(before))
    first, *_ = (one for one in stored.files() if one.topic == "orders")
    assert first.last_ns < middle
    stored.objects.delete([first.name])  # which no one asks for
    assert cat("--topic=orders", f"--start={middle}", stored.url)[0] == lines(range(before, 300))
    shown, complaint = cat("--topic=orders", stored.url, status=1)
    assert shown == lines(range(first.end_seq, 300))
    assert f"{first.name}: {first.name} is missing" in complaint
    stored.drop(first.local_name)
    assert cat("--topic=orders", stored.url) == (lines(range(first.end_seq, 300)), "")


def test_what_is_damaged_or_foreign_is_named(store: tuple[StoreOfFiles, NsqdProcess], tmp_path: Path) -> None:
    stored, _ = store
    path = tmp_path / "store" / stored.files()[1].name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    shown, complaint = cat("--topic=orders", stored.url, status=1)
    assert f"nsq-cat: {stored.url}: {stored.files()[1].name}: bytes " in complaint
    assert set(shown) < set(lines(range(300)))
    path = tmp_path / "store" / stored.files()[2].name
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert f"{stored.files()[2].name}: bytes " in cat("--topic=orders", stored.url, status=1)[1]
    (tmp_path / "store" / round_name(3)).write_bytes(b"something else")
    _, complaint = cat("--topic=orders", stored.url, status=1)
    assert f"{round_name(3)} is " in complaint
    (tmp_path / "store" / HEAD_NAME).write_bytes(b"{}")
    assert f"{HEAD_NAME} is damaged or foreign" in cat(stored.url, status=1)[1]
    nowhere = (tmp_path / "nowhere").as_uri()
    assert f"nsq-cat: {nowhere}: there is no store" in cat(nowhere, status=1)[1]


def test_a_round_that_is_lost_between_others_is_named(
    store: tuple[StoreOfFiles, NsqdProcess], tmp_path: Path
) -> None:
    stored, _ = store
    stored.objects.delete([round_name(2)])
    shown, complaint = cat("--topic=orders", stored.url, status=1)
    assert f"{round_name(2)} is missing: it was deleted or lost" in complaint
    assert set(lines(range(200))) < set(shown) < set(lines(range(300)))
    assert shown[-1] == "299", "reading goes on behind it"
    (tmp_path / "store" / HEAD_NAME).unlink()
    for flag in (tmp_path / "store", stored.url):
        assert f"{HEAD_NAME} is missing" in cat(flag, status=1)[1]


def test_the_flags_of_the_selection(tmp_path: Path) -> None:
    assert '--start: "soon" is not a time' in cat("--start=soon", tmp_path, status=2)[1]
    assert "--start '2' must be before --end '1'" in cat("--start=2", "--end=1", tmp_path, status=2)[1]


def test_duckdb_reads_what_nsq_cat_shows(store: tuple[StoreOfFiles, NsqdProcess], tmp_path: Path) -> None:
    """The recipe of docs/store.md."""
    stored, _ = store
    path = tmp_path / "orders.jsonl"
    path.write_text("\n".join(cat("--jsonl", stored.url)[0]))
    done = subprocess.run(
        [sys.executable, "-c", _DUCKDB, str(path)], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["300", str(sum(range(300))), "orders"], done.stderr
