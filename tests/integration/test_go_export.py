"""`nsqd-py --export-to-go`: a data path as files of Go's nsqd, in which each channel has what it had not finished.

With `NSQD_GO=/path/to/nsqd`, one of v1.3.0, also with the real one.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from nsq_apps.nsqd import main
from tests.integration.test_take_over import GoNsqd, needs_go, once_more, received
from tests.support.go_directory import GoDirectory, GoMessage, numbered
from tests.support.nsqd_process import REPOSITORY, NsqdProcess
from tests.support.sweeps import sample
from tests.support.wire import Message, rdy, req

pytestmark = pytest.mark.ours

COUNT, FINISHED, IN_FLIGHT, REQUEUED, DEFERRED = 200, 50, 6, 4, 3
HOUR_MS = 3_600_000
MAX_FILE_BYTES = 4096
# What each queue has to hold.
DEPTHS = {"t:a": COUNT - FINISHED + DEFERRED, "t:b": COUNT + DEFERRED, "held": 20, "held:x": 10, "lonely": 30}


class Exported(NamedTuple):
    """What the command printed, and its exit status."""

    status: int
    output: str
    errors: str


Export = Callable[..., Exported]


@pytest.fixture
def export(capsys) -> Export:
    """`export(data_path, directory, *flags)` runs the command in this process."""

    def run(data_path, directory, *flags):
        status = main([f"--data-path={data_path}", f"--export-to-go={directory}", *flags])
        return Exported(status, *capsys.readouterr())

    return run


def fill(nsqd: NsqdProcess) -> dict[bytes, Message]:
    """Publish to all kinds of topics; return the messages of t:a that were delivered and not finished."""
    nsqd.create("t", "a", "b", "c#ephemeral")
    nsqd.create("held", "x")
    nsqd.create("lonely")
    nsqd.create("gone#ephemeral", "x")
    nsqd.post("/channel/pause?topic=t&channel=b")
    with nsqd.connect() as client:
        for topic in ("t", "lonely", "gone#ephemeral"):
            client.mpub(topic, [f"{topic}{n}".encode() for n in range(DEPTHS.get(topic, COUNT))])
        client.mpub("held", [b"released%d" % n for n in range(DEPTHS["held:x"])])
        for _ in range(DEFERRED):
            client.dpub("t", HOUR_MS, b"later")
    nsqd.wait_for_channel("held", "x", depth=DEPTHS["held:x"])
    nsqd.post("/topic/pause?topic=held")
    nsqd.mpub("held", [b"held%d" % n for n in range(DEPTHS["held"])])
    with nsqd.consumer("t", "a", FINISHED + REQUEUED + IN_FLIGHT) as client:
        messages = client.messages(FINISHED + REQUEUED + IN_FLIGHT)
        client.send(rdy(0), *(req(message.id, HOUR_MS) for message in messages[:REQUEUED]))
        client.fin(*messages[REQUEUED : REQUEUED + FINISHED])
        client.round_trip()
        nsqd.wait_for_channel("t", "a", deferred_count=REQUEUED + DEFERRED)
        nsqd.stop()
    return {m.body: m for m in [*messages[:REQUEUED], *messages[REQUEUED + FINISHED :]]}


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> tuple[Path, dict[bytes, Message]]:
    with NsqdProcess(
        tmp_path_factory.mktemp("filled") / "data", "--max-bytes-per-file=10000"
    ).start() as nsqd:
        return nsqd.data_path, fill(nsqd)


@pytest.fixture
def data(filled, tmp_path) -> Path:
    return Path(shutil.copytree(filled[0], tmp_path / "data"))


def content(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()}


# ---- what is written


def test_each_queue_has_what_was_not_finished(filled, tmp_path, export):
    data, tried = filled
    before = content(data)
    done = export(data, tmp_path / "go", f"--max-bytes-per-file={MAX_FILE_BYTES}")
    assert (done.status, done.errors) == (0, "")
    assert content(data) == before
    assert not (tmp_path / "go.tmp").exists()
    go = GoDirectory(tmp_path / "go")
    queues = {name: go.read(name) for name in DEPTHS}
    assert {name: len(messages) for name, messages in queues.items()} == DEPTHS
    assert {name.split(".diskqueue.")[0] for name in go.names} == DEPTHS.keys()
    sizes = [(go.path / name).stat().st_size for name in go.names]
    assert len(sizes) > 10 and max(sizes) <= MAX_FILE_BYTES
    a = {message.body: message for message in queues["t:a"]}
    for body, message in tried.items():
        assert a[body] == GoMessage(body, int(message.id, 16), message.timestamp_ns, message.attempts)
    assert sum(message.attempts for message in a.values()) == len(tried)
    # Those with a due time are the last.
    assert {m.body for m in queues["t:a"][-REQUEUED - DEFERRED :]} == {b"later", *list(tried)[:REQUEUED]}
    assert [m.body for m in queues["t:b"]] == [b"t%d" % n for n in range(COUNT)] + [b"later"] * DEFERRED
    assert [m.body for m in queues["held"]] == [b"held%d" % n for n in range(DEPTHS["held"])]
    assert json.loads((go.path / "nsqd.dat").read_bytes()) == {
        "topics": [
            {"name": "held", "paused": True, "channels": [{"name": "x", "paused": False}]},
            {"name": "lonely", "paused": False, "channels": []},
            {
                "name": "t",
                "paused": False,
                "channels": [{"name": "a", "paused": False}, {"name": "b", "paused": True}],
            },
        ],
        "version": "1.3.0",
    }
    assert {path.stat().st_mode & 0o177 for path in go.path.iterdir()} == {
        0
    } and go.path.stat().st_mode & 0o77 == 0


def test_ours_takes_it_over_again(data, tmp_path, export, make_nsqd):
    assert export(data, tmp_path / "nsqd0").status == 0
    queues = {name: GoDirectory(tmp_path / "nsqd0").read(name) for name in DEPTHS}
    nsqd = make_nsqd()
    nsqd.wait_for_channel("t", "b", depth=DEPTHS["t:b"], paused=True)
    assert [nsqd.topic_stats(name)["depth"] for name in ("held", "lonely", "t")] == [20, 30, 0]
    with nsqd.connect() as client:
        assert sorted(received(client, "t", "a", DEPTHS["t:a"])) == sorted(once_more(queues["t:a"]))
    with nsqd.connect() as client:
        assert received(client, "lonely", "first", 30) == once_more(queues["lonely"])


def test_after_a_kill(nsqd, tmp_path, export):
    with nsqd.consumer("t", "a", 20) as client:
        nsqd.pub("t", *(b"%d" % n for n in range(50)))
        messages = client.messages(20)
        client.send(rdy(0))
        client.fin(*messages)
        client.round_trip()
        nsqd.wait_for_channel("t", "a", depth=30, in_flight_count=0)
        nsqd.kill()
    assert export(nsqd.data_path, tmp_path / "go").status == 0
    bodies = [m.body for m in GoDirectory(tmp_path / "go").read("t:a")]
    assert bodies[-30:] == [b"%d" % n for n in range(20, 50)]  # at most what it finished last comes again


# ---- what it refuses


def something_in_it(data: Path, target: Path) -> None:
    target.mkdir()
    (target / "precious").write_text("")


def emptied(data: Path, target: Path) -> None:
    for path in data.iterdir():
        path.unlink()


REFUSED: dict[str, list[Callable[[Path, Path], object]]] = {
    "is not empty": [something_in_it, lambda data, target: target.write_text("")],
    "is in the way": [lambda data, target: something_in_it(data, target.with_name("go.tmp"))],
    "has files of Go's nsqd": [lambda data, target: GoDirectory(data).queue("t:a", numbered("a", 3))],
    "is the copy of a standby": [lambda data, target: (data / "nsqd.standby").write_text("")],
    "has no topics": [emptied],
}


@pytest.mark.parametrize(
    ("spoil", "flags", "reason"),
    [
        *((spoil, (), reason) for reason, ways in REFUSED.items() for spoil in ways),
        (lambda data, target: None, ("--max-msg-size=5",), "run both with --max-msg-size=9"),
    ],
)
def test_what_it_refuses(spoil, flags, reason, data, tmp_path, export):
    target = tmp_path / "go"
    spoil(data, target)
    before = content(data)
    names = sorted(str(path) for path in tmp_path.rglob("*"))
    refused = export(data, target, *flags)
    assert (refused.status, refused.output) == (1, "")
    assert reason in refused.errors and len(refused.errors.splitlines()) == 1, refused.errors
    assert content(data) == before
    assert sorted(str(path) for path in tmp_path.rglob("*")) == names


def test_a_data_path_that_nsqd_uses(nsqd, tmp_path, export):
    refused = export(nsqd.data_path, tmp_path / "go")
    assert refused.status == 1 and "stop the nsqd" in refused.errors


def test_damage_is_reported_and_the_rest_exported(data, tmp_path, export):
    whole = export(data, tmp_path / "whole")
    path = min(data.glob("t.*.log"))
    path.write_bytes(path.read_bytes().replace(b"t7", b"T7"))
    exported = export(data, tmp_path / "go")
    assert (whole.status, whole.errors, exported.status) == (0, "", 1)
    missing = {name: DEPTHS[name] - len(GoDirectory(tmp_path / "go").read(name)) for name in ("t:a", "t:b")}
    assert min(missing.values()) > 0
    (line,) = exported.errors.splitlines()
    assert f"nsqd-py: {data} is damaged" in line and "damaged records (" in line, line
    assert all(f"{count} messages of {name}" in line for name, count in missing.items()), line


# ---- interruptions

# Sends itself a signal at the third file that the command writes.
SCRIPT = """
import os, sys
from nsqd_py.runtime import private_files
created, create = [], private_files.create

def counted(path, *rest):
    created.append(path)
    if len(created) == 3:
        os.kill(os.getpid(), int(sys.argv[1]))
    return create(path, *rest)

private_files.create = counted
from nsq_apps.nsqd import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, *sample(signal.SIGKILL, signal.SIGTERM)])
def test_an_interrupted_export_leaves_nothing_that_looks_complete(number, data, tmp_path, export):
    flags = [
        f"--data-path={data}",
        f"--export-to-go={tmp_path / 'go'}",
        f"--max-bytes-per-file={MAX_FILE_BYTES}",
    ]
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(int(number)), *flags],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in process.stderr
    left = {path.name for path in tmp_path.iterdir()} - {"data"}
    assert left == set() if number == signal.SIGINT else left == {"go.tmp"}
    assert not (tmp_path / "go.tmp" / "nsqd.dat").exists()
    assert export(data, tmp_path / "go").status == 0
    assert len(GoDirectory(tmp_path / "go").read("t:b")) == DEPTHS["t:b"]


# ---- Go's nsqd


@needs_go
def test_go_s_nsqd_goes_on_with_it(data, tmp_path, export):
    assert export(data, tmp_path / "go", f"--max-bytes-per-file={MAX_FILE_BYTES}").status == 0
    queues = {name: GoDirectory(tmp_path / "go").read(name) for name in DEPTHS}
    nsqd = GoNsqd(tmp_path / "go")
    nsqd.start()
    with nsqd:
        nsqd.wait_for_channel("t", "b", depth=DEPTHS["t:b"], paused=True)
        assert [nsqd.topic_stats(name)["depth"] for name in ("held", "lonely", "t")] == [20, 30, 0]
        nsqd.post("/topic/unpause?topic=held")
        nsqd.post("/channel/unpause?topic=t&channel=b")
        for topic, channel, names in (
            ("t", "a", ["t:a"]),
            ("t", "b", ["t:b"]),
            ("lonely", "first", ["lonely"]),
            ("held", "x", ["held:x", "held"]),
        ):
            wanted = once_more([message for name in names for message in queues[name]])
            with nsqd.connect() as client:
                assert sorted(received(client, topic, channel, len(wanted))) == sorted(wanted)
        assert "ERROR: DISKQUEUE" not in nsqd.log_text() and not list((tmp_path / "go").glob("*.bad"))


@needs_go
def test_go_s_nsqd_refuses_our_data_path(data):
    before = content(data)
    nsqd = GoNsqd(data)
    nsqd.launch()
    assert nsqd.wait() == 1
    assert "failed to parse metadata" in nsqd.log_text()
    assert content(data) == before


def test_our_metadata_says_why_go_s_nsqd_refuses_it(data, tmp_path):
    """Go's decoder looks at both of two equal keys, others at the last one."""
    pairs = json.loads((data / "nsqd.dat").read_bytes(), object_pairs_hook=list)
    assert [type(value) for key, value in pairs if key == "topics"] == [str, list]
    assert "--export-to-go" in str(pairs[0][1])
    assert os.path.getsize(data / "nsqd.dat") < 2000
