"""`nsqd-py --check-data`: what a data directory holds, and what is damaged in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nsq_apps.nsqd import main
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, RECORD_HEADER_BYTES
from tests.support.nsqd_process import REPOSITORY, NsqdProcess
from tests.support.wire import bodies

pytestmark = pytest.mark.ours

FLAGS = ("--max-bytes-per-file=20000",)
BATCH, BATCHES, FINISHED, DEFERRED = 20, 20, 115, 3
BODY_BYTES = 96
RECORD_BYTES = RECORD_HEADER_BYTES + BATCH * (4 + BODY_BYTES)
ALL = BATCH * BATCHES
PER_FILE = BATCH * ((20_000 - FILE_HEADER_BYTES) // RECORD_BYTES)
NOT_OVER_MS = 3_600_000


class Checked(NamedTuple):
    """What the command said, and its exit status."""

    status: int
    output: str
    errors: str

    @property
    def report(self) -> dict[str, Any]:
        return json.loads(self.output)

    @property
    def problems(self) -> list[tuple[str, str]]:
        return [(finding["file"], finding["trouble"]) for finding in self.report["findings"]]


Check = Callable[..., Checked]


@pytest.fixture
def check(capsys) -> Check:
    """`check(*flags)` runs the command in this process."""

    def run(*flags):
        return Checked(main(flags), *capsys.readouterr())

    return run


@pytest.fixture
def check_json(check) -> Check:
    """`check_json(directory, *flags)`"""
    return lambda directory, *flags: check(f"--check-data={directory}", "--log-format=json", *flags)


@pytest.fixture(scope="module")
def left(tmp_path_factory) -> Path:
    """What a killed nsqd left: topic `t` with the channels `done` (some finished) and `all`, and `alone`."""
    with NsqdProcess(tmp_path_factory.mktemp("left") / "data", *FLAGS).start() as nsqd:
        nsqd.create("t", "done", "all")
        nsqd.create("alone")
        with nsqd.connect() as client:
            numbers = [b"%0*d" % (BODY_BYTES, number) for number in range(ALL)]
            for first in range(0, ALL, BATCH):
                client.mpub("t", numbers[first : first + BATCH])
            client.mpub("alone", [b"one", b"two"])
            for _ in range(DEFERRED):
                client.dpub("t", NOT_OVER_MS, b"later")
        with nsqd.consumer("t", "done", FINISHED) as client:
            client.consume(FINISHED)
        nsqd.post("/channel/pause?topic=t&channel=all")
        nsqd.restart()
    return nsqd.data_path


@pytest.fixture
def data(left, tmp_path) -> Path:
    return Path(shutil.copytree(left, tmp_path / "data"))


@pytest.fixture
def started(data) -> Iterator[Callable[[], NsqdProcess]]:
    nsqd = NsqdProcess(data, *FLAGS)
    yield nsqd.start
    nsqd.destroy()


# ---- what it says


def test_what_there_is_and_nothing_is_changed(data, check_json):
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in data.iterdir()}
    checked = check_json(data)
    assert (checked.status, checked.errors, checked.report["findings"]) == (0, "", [])
    alone, topic = checked.report["topics"]
    assert (alone["name"], alone["held"], alone["live"], alone["channels"]) == ("alone", 2, 2, [])
    assert [file["name"] for file in topic["files"]] == sorted(path.name for path in data.glob("t.*.log"))
    assert sum(file["messages"] for file in topic["files"]) == ALL + DEFERRED
    assert topic["live"] == ALL + DEFERRED
    all_, done = sorted(topic["channels"], key=lambda channel: str(channel["name"]))
    assert all_ == {
        "name": "all",
        "is_paused": True,
        "queued": ALL,
        "deferred": DEFERRED,
        "finished": 0,
        "missing": 0,
    }
    assert (done["queued"], done["deferred"], done["finished"]) == (ALL - FINISHED, DEFERRED, FINISHED)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in data.iterdir()} == before


def test_for_people(data, check):
    checked = check(f"--check-data={data}")
    assert checked.status == 0
    lines = checked.output.splitlines()
    assert lines[0].startswith(f"{data}: 2 topics, 405 messages in ")
    assert next(line.split() for line in lines if " done " in line) == ["done", "285", "3", "115"]
    assert lines[-1] == "all well"


def test_a_directory_in_use_is_refused(started, check):
    nsqd = started()
    checked = check(f"--check-data={nsqd.data_path}")
    assert (checked.status, checked.output) == (2, "")
    assert checked.errors == f"nsqd-py: {nsqd.data_path} is in use; stop the nsqd that works with it first\n"


def test_what_cannot_be_checked(tmp_path, check, capsys):
    nowhere = tmp_path / "nowhere"
    assert check(f"--check-data={nowhere}") == (2, "", f"nsqd-py: {nowhere}: No such file or directory\n")
    with pytest.raises(SystemExit, match="2"):
        check("--repair")
    assert "start nsqd-py on the directory" in capsys.readouterr().err


def test_other_files_are_named(data, check_json):
    for name in (
        "t.spare",
        "t.00000000000000000000.log.damaged",
        "t.diskqueue.000000.dat",
        "import",
        "notes.txt",
    ):
        (data / name).touch()
    report = check_json(data).report
    assert [report[key] for key in ("set_aside", "go_files", "others")] == [
        ["t.00000000000000000000.log.damaged"],
        ["import", "t.diskqueue.000000.dat"],
        ["notes.txt"],
    ]


def test_a_reader_that_goes_away_is_no_error(data):
    command = f"{sys.executable} -m nsq_apps.nsqd --check-data={data} | true"
    done = subprocess.run(["bash", "-c", command], cwd=REPOSITORY, capture_output=True, text=True, timeout=40)
    assert done.stderr == ""


# ---- damage


class Damage(NamedTuple):
    """Something that happens to a file; how many messages of the log that costs."""

    file: str
    do: Callable[[Path], object]
    problem: str
    lost: int


def overwrite(offset: int, data: bytes) -> Callable[[Path], object]:
    def do(path):
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(data)

    return do


def append(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(path.read_bytes() + data)


def damage_two(path: Path) -> None:
    for number in (0, 3):
        overwrite(SECOND_RECORD + number * RECORD_BYTES, b"?")(path)


FIRST_LOG = "t.00000000000000000000.log"
SECOND_RECORD = FILE_HEADER_BYTES + RECORD_BYTES
DAMAGE = {
    "a record's body": Damage(FIRST_LOG, overwrite(SECOND_RECORD + 500, b"????"), "damaged records", BATCH),
    "a record's length": Damage(FIRST_LOG, overwrite(SECOND_RECORD + 4, b"\xff"), "damaged records", BATCH),
    "two records": Damage(FIRST_LOG, damage_two, "damaged records", 2 * BATCH),
    "the last record of a closed file": Damage(
        FIRST_LOG, lambda path: path.write_bytes(path.read_bytes()[:-1]), "damaged records", BATCH
    ),
    "a file's header": Damage(
        FIRST_LOG, overwrite(0, bytes(FILE_HEADER_BYTES)), "cannot be read as a log file", PER_FILE
    ),
    "a file's salt": Damage(FIRST_LOG, overwrite(8, b"\0\0"), "cannot be read as a log file", PER_FILE),
    "a position's entries": Damage(
        "t:done.cursor", overwrite(12, b"?"), "damaged entries of a channel's position", 0
    ),
    "nsqd.dat": Damage("nsqd.dat", lambda path: path.write_bytes(b'{"topics'), "cannot be understood", 0),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_and_a_start_delivers_the_rest(data, check_json, started, name):
    damage = DAMAGE[name]
    damage.do(data / damage.file)
    before = (data / damage.file).read_bytes()
    found = check_json(data)
    assert (found.status, set(found.problems)) == (1, {(damage.file, damage.problem)})

    nsqd = started()
    for aside in data.glob("*.damaged"):
        assert aside.read_bytes() in before
    nsqd.post("/channel/unpause?topic=t&channel=all")
    with nsqd.consumer("t", "all", ALL) as client:
        left = bodies(client.consume(ALL - damage.lost))
        client.expect_silence(0.1)
    assert len(set(left)) == ALL - damage.lost
    assert "damaged" in nsqd.log_text() or "a torn record" in nsqd.log_text()


def test_names_of_foreign_files_are_escaped(data, check):
    for name in (b"\x1b]0;title\x07.txt", b"two\nlines", b"\x9b31m"):
        (Path(os.fsdecode(bytes(data) + b"/" + name))).touch()
    found = check(f"--check-data={data}")
    assert found.status == 0
    foreign = found.output.partition("not nsqd's:\n")[2].partition("\n\n")[0].splitlines()
    assert sorted(foreign) == [r"  \udc9b31m", r"  \x1b]0;title\x07.txt", r"  two\nlines"]


def test_a_report_in_json_has_names_that_are_not_utf_8(data, check_json):
    Path(os.fsdecode(bytes(data) + b"/\x9b31m")).touch()
    found = check_json(data)
    assert (found.status, found.report["others"]) == (0, ["?31m"])


def test_the_name_of_a_directory_that_is_refused_is_escaped(tmp_path, check):
    found = check(f"--check-data={tmp_path}/\x1b]0;title\x07")
    assert found.status == 2
    assert r"\x1b]0;title\x07" in found.errors
    assert "\x1b" not in found.errors


def test_a_log_under_another_name(data, check_json):
    (data / FIRST_LOG).rename(data / "t.00000000000000000007.log")
    found = check_json(data)
    assert (found.status, found.report["findings"][0]["detail"]) == (1, "it begins with number 0")


def test_what_a_power_cut_leaves_is_no_damage(data, check, check_json):
    last = sorted(data.glob("t.*.log"))[-1]
    last.write_bytes(last.read_bytes().rstrip(b"\0")[:-1])
    append(b"\x40\0\0\0torn")(data / "t:done.cursor")
    found = check_json(data)
    assert found.status == 0
    assert found.problems == [
        (last.name, "torn record at the end"),
        ("t:done.cursor", "torn entry at the end"),
    ]
    assert "as a crash leaves it" in check(f"--check-data={data}").output


def test_a_journal_is_read_on_behind_damage(data, check_json, started):
    """Finished messages that a later entry tells of do not come again for an earlier one that is damaged."""
    cursor = data / "t:done.cursor"
    whole = cursor.read_bytes()
    cursor.write_bytes(whole + b"?" * 30 + whole)
    assert check_json(data).problems == [(cursor.name, "damaged entries of a channel's position")]
    started().stop()
    checked = check_json(data)
    assert checked.problems == []
    channels = {channel["name"]: channel for channel in checked.report["topics"][1]["channels"]}
    assert channels["done"]["finished"] == FINISHED
