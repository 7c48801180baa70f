"""nsq-to-file into object stores and tables, whatever is killed; other engines read the tables."""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Callable
from functools import partial

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.s3 import environment_of, make_bucket
from tests.support.sweeps import sample
from tests.support.tables import TABLE, Table, make_table
from tests.support.tool_process import ToolProcess, run_tool
from tests.support.written_files import leftovers

pytestmark = pytest.mark.ours

DELTA, ICEBERG = "delta", f"iceberg:{TABLE}"
NAMES = "--filename-format=topic=<TOPIC>/date=<DATETIME>/<HOST><REV>.parquet"
CHANNEL = "nsq_to_file"
DEADLINE_S = (
    120.0  # a message in flight may take the 60 s until it times out, and pyiceberg takes seconds to start
)


@pytest.fixture
def root(request, tmp_path, endpoint, monkeypatch) -> str:
    """A directory, or a path in a bucket of the test."""
    for name, value in environment_of(endpoint).items():
        monkeypatch.setenv(name, value)
    where = getattr(request, "param", "s3")
    return f"{tmp_path}/archive" if where == "directory" else f"{make_bucket(endpoint)}/archive"


Archive = Callable[..., ToolProcess]


@pytest.fixture
def archive(nsqd, start, root, tmp_path) -> Archive:
    """`archive(*flags)` makes nsq-to-file, on the topic t of the nsqd."""
    return partial(
        start,
        "nsq_to_file",
        f"--nsqd-tcp-address=127.0.0.1:{nsqd.tcp_port}",
        "--topic=t",
        "--sync-interval=100ms",
        f"--output-dir={root}",
        f"--work-dir={tmp_path / 'work'}",
    )


@pytest.fixture
def nsqd(nsqd_without_topics) -> NsqdProcess:
    return nsqd_without_topics


def publish(nsqd: NsqdProcess, first: int, count: int) -> list[bytes]:
    bodies = [b"%06d" % number for number in range(first, first + count)]
    nsqd.create("t", CHANNEL)
    nsqd.mpub("t", bodies)
    return bodies


def wait_until_finished(nsqd: NsqdProcess) -> None:
    nsqd.wait_for_channel("t", CHANNEL, DEADLINE_S, depth=0, in_flight_count=0, deferred_count=0)


@pytest.mark.parametrize("flag", sample(ICEBERG, DELTA))
@pytest.mark.parametrize("root", sample("s3", "directory"), indirect=True)
def test_engines_read_the_table(flag, nsqd, archive, root, tmp_path, monkeypatch):
    table = make_table(tmp_path, flag, root, monkeypatch)
    for part in range(2):
        publish(nsqd, 100 * part, 100)
        with archive("--format=parquet", f"--table={flag}", NAMES, "--datetime-format=%Y-%m-%d") as tool:
            wait_until_finished(nsqd)
            assert tool.stop() == 0
    expected = [b"%06d" % number for number in range(200)]
    assert table.by_duckdb() == table.by_polars() == expected
    assert sorted(table.arrow()["timestamp_ns"].to_pylist())[0] > 1_700_000_000 * 10**9
    assert table.files() == table.stored() and len(table.files()) == 2
    assert all(path.startswith("topic=t/date=20") for path in table.files())
    assert leftovers(tmp_path) == []


@pytest.mark.slow  # `test_to_file_destinations.py` has the moments at which a kill matters
@pytest.mark.parametrize("flag", [DELTA, ICEBERG])
@pytest.mark.parametrize("root", ["directory", "s3"], indirect=True)
def test_kills_leave_a_table_that_is_right(flag, nsqd, archive, root, tmp_path, monkeypatch):
    """Killed when a file appears, before or while it is committed; and when it is committed, before that is written down."""
    table = make_table(tmp_path, flag, root, monkeypatch)
    flags = ("--format=parquet", f"--table={flag}", NAMES, "--rotate-size=500", "--skip-empty-files")
    expected = []
    for look in (table.stored, table.files, table.stored, table.files):
        before = len(look())
        expected += publish(nsqd, len(expected), 200)
        with archive(*flags) as tool:
            wait_until(lambda look=look, before=before: len(look()) > before, DEADLINE_S, "a file")
            tool.signal(signal.SIGKILL)
        check(table)
    with archive(*flags) as tool:
        tool.wait_for_log("subscribed")  # else all may be finished before it can be stopped
        wait_until_finished(nsqd)
        assert tool.stop() == 0
    check(table)
    assert table.files() == table.stored()
    assert set(table.arrow()["body"].to_pylist()) == set(expected)
    assert leftovers(tmp_path) == []


def check(table: Table) -> None:
    """No file is in the table twice, and each is complete."""
    files, root = fs.FileSystem.from_uri(table.root)
    assert set(Counter(table.files()).values()) <= {1}
    rows = sum(pq.ParquetFile(f"{root}/{path}", filesystem=files).metadata.num_rows for path in table.files())
    assert table.arrow().num_rows == rows


@pytest.mark.parametrize("root", ["directory"], indirect=True)
def test_an_idle_topic_leaves_no_files(nsqd, archive, root, tmp_path, monkeypatch):
    table = make_table(tmp_path, DELTA, root, monkeypatch)
    publish(nsqd, 0, 1)
    with archive("--format=parquet", f"--table={DELTA}", NAMES, "--rotate-interval=100ms") as tool:
        wait_until(lambda: len(table.files()) == 1, DEADLINE_S, "a file")  # the next one has no messages
        assert tool.stop() == 0
    assert len(table.stored()) == len(table.files()) == 1
    assert leftovers(tmp_path) == []


def test_a_bucket_that_is_not_there(root):
    gone = root.replace("bucket-", "gone-")
    run = run_tool(
        "nsq_apps", "nsq_to_file", "--nsqd-tcp-address=127.0.0.1:9", "--topic=t", f"--output-dir={gone}"
    )
    assert run.returncode == 1
    assert run.stderr == f"nsq-to-file: cannot use {gone}: there is no bucket {gone.split('/')[2]}\n"


@pytest.mark.parametrize("form", ["lines", "jsonl"])
def test_an_object_store_alone(form, nsqd, archive, root, tmp_path):
    """Objects appear when they are complete, and nothing of them stays here."""
    expected = publish(nsqd, 0, 50)
    with archive(f"--format={form}", "--compress=gzip") as tool:
        wait_until_finished(nsqd)
        assert tool.stop() == 0
    files, path = fs.FileSystem.from_uri(root)
    (info,) = files.get_file_info(fs.FileSelector(path, recursive=True))
    with files.open_input_stream(info.path, compression="gzip") as stream:
        lines = stream.read().splitlines()
    assert len(lines) == 50 and (form == "jsonl" or lines == expected)
    assert list((tmp_path / "work").iterdir()) == []


def test_a_store_without_credentials(tmp_path, monkeypatch):
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GCE_METADATA_ROOT", "127.0.0.1:9")  # nothing listens there
    monkeypatch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", "http://127.0.0.1:9")
    run = run_tool(
        "nsq_apps",
        "nsq_to_file",
        "--nsqd-tcp-address=127.0.0.1:9",
        "--topic=t",
        "--output-dir=gs://bucket/path",
    )
    assert run.returncode == 1
    assert re.fullmatch("nsq-to-file: cannot use gs://bucket/path: .* access token .*\n", run.stderr)
