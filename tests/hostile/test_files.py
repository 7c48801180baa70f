"""Files that somebody else put into a data path or an output directory, and the modes of files and sockets."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import google_crc32c
import orjson
import pytest

from nsq_tools.to_file.output import PREFIX
from nsqadmin_py.history.document import pack
from nsqadmin_py.history.file import HistoryFile
from nsqadmin_py.history.series import History
from nsqd_py.diskqueue.journals.journal import SNAPSHOT, encode_entry
from nsqd_py.net.limits import Connections, TimeLimits
from nsqd_py.net.listeners import Listener
from nsqd_py.runtime.logs.daemon_log import ERROR, TEXT, Log
from tests.support.harm import content
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.sweeps import sampled
from tests.support.tool_process import ToolProcess

pytestmark = pytest.mark.ours

FAR = 10**30
DEEP = b"[" * 100_000 + b"]" * 100_000
SECRET = b"a file of somebody else\n"
CLOCK = {"boot_id": "", "boot_ns": 0, "wall_ns": 1, "steady_ns": 1_800_000_000_000_000_000}


def checked(content: Any) -> bytes:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return b"%08x\n%b" % (google_crc32c.value(data), data)


ODD_STATE: dict[str, tuple[str, Any]] = {
    "clock: no JSON": ("nsqd.clock", b"{"),
    "clock: not UTF-8": ("nsqd.clock", b"\xff\xfe"),
    "clock: deeply nested": ("nsqd.clock", DEEP),
    "clock: a list": ("nsqd.clock", [1]),
    "clock: an unknown field": ("nsqd.clock", {**CLOCK, "b": 1}),
    "clock: text for a number": ("nsqd.clock", {**CLOCK, "steady_ns": "1"}),
    "clock: null": ("nsqd.clock", {**CLOCK, "steady_ns": None}),
    "clock: a huge number": ("nsqd.clock", {**CLOCK, "steady_ns": FAR}),
    "clock: digits without end": ("nsqd.clock", b'{"steady_ns": %b}' % (b"9" * 5000)),
    "clock: a time of the far future": ("nsqd.clock", {**CLOCK, "steady_ns": 1 << 62}),
    "stop: no logs": ("nsqd.stop", {}),
    "stop: logs are a list": ("nsqd.stop", {"logs": [1]}),
    "stop: an end of two fields": ("nsqd.stop", {"logs": {"t": [1, 2]}}),
    "stop: text for numbers": ("nsqd.stop", {"logs": {"t": ["1", ["0"], "9"]}}),
    "stop: a huge number": ("nsqd.stop", {"logs": {"t": [FAR, [0], 9]}}),
    "stop: deeply nested": ("nsqd.stop", DEEP),
    "epochs: a list": ("nsqd.epochs", [1]),
    "epochs: infinite": ("nsqd.epochs", b'{"node": 1e999, "logs": {}}'),
    "epochs: deeply nested": ("nsqd.epochs", DEEP),
    "epochs: text for numbers": ("nsqd.epochs", {"node": 1, "logs": {"t": [["1", "2"]]}}),
    "epochs: a huge number": ("nsqd.epochs", {"node": 1, "logs": {"t": [[1, FAR]]}}),
    "epochs: text for a log that ended": (
        "nsqd.epochs",
        {"node": 1, "logs": {}, "ended": {"t": [["1", "2"]]}},
    ),
    "standby: a list": ("nsqd.standby", [1]),
    "standby: text for a flag": ("nsqd.standby", {"primary": "127.0.0.1:1", "is_complete": "no"}),
    "standby: a lone surrogate": ("nsqd.standby", b'{"primary": "\\ud800:1", "is_complete": true}'),
    "standby: deeply nested": ("nsqd.standby", DEEP),
}


# One of each file, and of each kind of oddness.
QUICK = ("clock: no JSON", "stop: text for numbers", "epochs: a huge number", "standby: deeply nested")


@pytest.mark.parametrize("case", sampled(ODD_STATE, *QUICK))
def test_a_state_file_with_odd_content_ends_the_start_with_one_sentence(tmp_path, case):
    """The checksum is right, so it was no accident: nothing is guessed, and nothing deleted."""
    name, odd = ODD_STATE[case]
    data_path = tmp_path / "data"
    data_path.mkdir()
    (data_path / name).write_bytes(checked(odd))
    before = content(data_path)
    (sentence,) = NsqdProcess(data_path, "--log-level=fatal").fails_to_start().splitlines()
    assert name in sentence
    assert content(data_path) == before


@pytest.mark.parametrize(
    "odd",
    [
        DEEP,
        b'{"topics": 5}',
        b'{"topics": [[]]}',
        b'{"topics": [{"name": 5}]}',
        b'{"topics": [{"name": "t", "channels": [null]}]}',
        b'{"topics": [], "format": %b}' % (b"9" * 5000),
        b'{"topics": [{"name": "\\ud800"}, {"name": "t", "channels": [{"name": "\\udfff"}, {"name": "c"}]}]}',
    ],
    ids=lambda odd: str(odd[:40]),
)
def test_odd_metadata_costs_pauses_only(nsqd, odd):
    nsqd.create("t", "c")
    nsqd.http("POST", "/pub?topic=t", b"kept")
    nsqd.stop()
    path = nsqd.data_path / "nsqd.dat"
    path.write_bytes(odd)
    nsqd.start()
    (topic,) = nsqd.stats()["topics"]
    assert (topic["topic_name"], topic["channels"][0]["depth"]) == ("t", 1)
    assert "Traceback" not in nsqd.log_text()


@pytest.mark.parametrize(
    "entry",
    [((1 << 64) - 1, [], []), (0, [(0, (1 << 64) - 1)], []), (0, [], [(1 << 63, (1 << 63) + 1, 0, 1)])],
    ids=["floor", "finished", "waiting"],
)
def test_an_impossible_position_is_damage_that_is_kept(nsqd, entry):
    """The numbers of later messages would not fit into their files."""
    nsqd.create("t", "c")
    nsqd.http("POST", "/pub?topic=t", b"kept")
    nsqd.kill()
    odd = encode_entry(SNAPSHOT, *entry)
    (nsqd.data_path / "t:c.cursor").write_bytes(odd)
    nsqd.start()
    assert nsqd.http("POST", "/pub?topic=t", b"later").text == "OK"
    assert nsqd.stats()["topics"][0]["channels"][0]["depth"] == 2
    assert odd in content(nsqd.data_path).values()
    assert "is damaged at" in nsqd.log_text()


# ---- links


@pytest.fixture
def victim(tmp_path) -> Path:
    victim = tmp_path / "victim"
    victim.write_bytes(SECRET)
    return victim


NAMES = ("t:c.cursor", "t.cursor", "t.00000000000000000000.log", "nsqd.clock", "nsqd.epochs")
QUICK_WAYS = ("t:c.cursor", "link"), ("t.00000000000000000000.log", "fifo"), ("nsqd.clock", "link")


@pytest.mark.parametrize(("name", "make"), sampled(itertools.product(NAMES, ("link", "fifo")), *QUICK_WAYS))
def test_nsqd_does_not_write_to_what_is_no_file_of_its_own(nsqd, victim, name, make):
    nsqd.create("t", "c")
    nsqd.post("/pub?topic=t", b"kept")
    nsqd.stop()
    place = nsqd.data_path / name
    place.unlink(missing_ok=True)
    if make == "link":
        place.symlink_to(victim)
    else:
        os.mkfifo(place)
    (sentence,) = NsqdProcess(nsqd.data_path, "--log-level=fatal").fails_to_start().splitlines()
    assert victim.read_bytes() == SECRET
    assert name in sentence
    assert ("symbolic link" if make == "link" else "not a regular file") in sentence


@pytest.mark.parametrize(
    "name", ["nsqd.dat.tmp", "t:c.cursor.tmp", "t:c.cursor", "u.00000000000000000000.log"]
)
def test_a_link_that_appears_while_nsqd_runs_is_not_followed(nsqd, victim, name):
    nsqd.create("t", "c")
    place = nsqd.data_path / name
    place.unlink(missing_ok=True)
    place.symlink_to(victim)
    nsqd.http("POST", "/pub?topic=t", b"one")
    nsqd.http("POST", "/pub?topic=u", b"two")
    nsqd.http("POST", "/channel/empty?topic=t&channel=c")
    nsqd.http("POST", "/channel/pause?topic=t&channel=c")
    nsqd.stop()
    assert victim.read_bytes() == SECRET


@pytest.fixture
def output_dir(tmp_path) -> Path:
    directory = tmp_path / "output"
    directory.mkdir()
    return directory


def archiving(nsqd: NsqdProcess, directory: Path, *flags: str) -> ToolProcess:
    return ToolProcess(
        "nsq_apps",
        "nsq_to_file",
        "--topic=t",
        f"--nsqd-tcp-address=127.0.0.1:{nsqd.tcp_port}",
        "--filename-format=<TOPIC><REV>.log",
        "--sync-interval=100ms",
        *flags,
        log_path=directory / "tool.log",
    )


def log_of_archiving(nsqd: NsqdProcess, output_dir: Path) -> str:
    """The log of a tool that has archived one message."""
    nsqd.http("POST", "/pub?topic=t", b"one")
    with archiving(nsqd, output_dir.parent, f"--output-dir={output_dir}") as tool:
        wait_until(lambda: has_message(output_dir, b"one"))
        assert tool.stop() == 0
    return tool.log_text()


@pytest.mark.parametrize("flags", [(), ("--rotate-interval=1h",), ("--format=framed",)], ids=str)
@pytest.mark.parametrize("name", ["t.log", "_nsq_manifest"])
def test_nsq_to_file_does_not_append_through_links(nsqd, output_dir, victim, name, flags):
    (output_dir / name).symlink_to(victim)
    nsqd.http("POST", "/pub?topic=t", b"one")
    with archiving(nsqd, output_dir.parent, f"--output-dir={output_dir}", *flags) as tool:
        wait_until(lambda: "symbolic link" in tool.log_text() or has_message(output_dir, b"one"))
        tool.stop()
    assert victim.read_bytes() == SECRET


def has_message(directory: Path, body: bytes) -> bool:
    return any(
        body in path.read_bytes() for path in directory.glob("t*") if path.is_file() and not path.is_symlink()
    )


CLAIM = {
    "topic": "t",
    "channel": "c",
    "format": "lines",
    "compress": "none",
    "name": "t.log",
    "revision": 0,
    "work_name": "t.log",
    "output_dir": "",
    "is_shared": True,
    "offset": 0,
    "entry": None,
}


@pytest.mark.parametrize(
    "odd",
    [
        {"work_name": "../victim"},
        {"work_name": "VICTIM"},
        {"name": "../victim"},
        {"revision": "0"},
        {"entry": 5},
        {"format": "x"},
        {"offset": -FAR},
    ],
    ids=str,
)
def test_a_claim_with_odd_content_is_left_alone(nsqd, output_dir, tmp_path, odd):
    """A claim names the file that a start repairs: cuts a torn line, and moves."""
    victim = tmp_path / "victim"
    victim.write_bytes(SECRET + b"a torn line")
    fields = {**CLAIM, "output_dir": str(output_dir), **odd}
    fields = {name: str(victim) if value == "VICTIM" else value for name, value in fields.items()}
    claim = output_dir / f"{PREFIX}00.json"
    claim.write_bytes(json.dumps(fields).encode())
    log_text = log_of_archiving(nsqd, output_dir)
    assert victim.read_bytes() == SECRET + b"a torn line"
    assert "Traceback" not in log_text
    assert f"{claim} is left alone" in log_text
    assert claim.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_the_claim_of_another_user_is_left_alone_where_everyone_can_write(nsqd, output_dir, tmp_path):
    output_dir.chmod(0o1777)
    claim, file = output_dir / f"{PREFIX}00.json", output_dir / "victim.log"
    claim.write_bytes(json.dumps({**CLAIM, "output_dir": str(output_dir), "work_name": file.name}).encode())
    file.write_bytes(SECRET + b"a torn line")
    os.chown(claim, 12345, -1)
    log_text = log_of_archiving(nsqd, output_dir)
    assert file.read_bytes() == SECRET + b"a torn line"
    assert "another user wrote it" in log_text


@pytest.mark.parametrize("line", [b"5\n", b"[]\n", DEEP + b"\n"], ids=lambda line: str(line[:3]))
def test_nsq_to_file_passes_over_odd_lines_of_a_manifest(nsqd, output_dir, line):
    (output_dir / "_nsq_manifest").write_bytes(line)
    assert "Traceback" not in log_of_archiving(nsqd, output_dir)


# ---- nsq-to-file's directory


def test_nsq_to_file_writes_to_a_directory_of_its_user_by_default(nsqd, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    nsqd.http("POST", "/pub?topic=t", b"one")
    home = tmp_path / "data" / "nsq-to-file"
    with archiving(nsqd, tmp_path) as tool:
        wait_until(lambda: has_message(home, b"one"))
        assert tool.stop() == 0
    assert home.stat().st_mode & 0o007 == 0
    assert f"writing to {home}" in tool.log_text()


def test_nsq_to_file_warns_of_a_directory_that_everyone_can_write_to(nsqd, output_dir):
    output_dir.chmod(0o1777)
    assert f"everyone can write to {output_dir}" in log_of_archiving(nsqd, output_dir)


# ---- nsqadmin's history


def history_document(head: Any, values: bytes = b"") -> bytes:
    data = head if isinstance(head, bytes) else orjson.dumps(head)
    return pack(len(data).to_bytes(4, "big") + data + values)


GOOD_HEAD = {"fine_step_s": 10, "series": [], "nodes": [], "marks": []}


@pytest.mark.parametrize(
    "data",
    [
        history_document(DEEP),
        history_document({**GOOD_HEAD, "series": 5}),
        history_document({**GOOD_HEAD, "series": [["t", "c", "n", [0], []]]}),
        history_document({**GOOD_HEAD, "series": [["t", "c", "n", [0], {"x": [[0, 1e300, 4]]}]]}, b"\0" * 4),
        history_document({**GOOD_HEAD, "series": [[[], "c", "n", [0], {}]]}),
        history_document({**GOOD_HEAD, "series": [["t", "c", "n", [10**18 * 10**18 * 1.0], {"x": 5}]]}),
        history_document(
            {**GOOD_HEAD, "nodes": 5, "marks": [{"time_s": 1e300, "action": "start", "node": 5}]}
        ),
        history_document(
            {
                **GOOD_HEAD,
                "nodes": [{"address": "a:1", "seen_s": 1e300, "statistics": 5, "topics": [5, {"topic": []}]}],
            }
        ),
    ],
    ids=range(8),
)
def test_nsqadmin_starts_with_an_odd_history(make_nsqadmin, tmp_path, data):
    path = tmp_path / "history.db"
    path.write_bytes(data)
    admin = make_nsqadmin("--nsqd-http-address=127.0.0.1:1", f"--history-file={path}")
    for page in ("/ping", "/", "/api/nodes", "/api/v2/attention"):
        assert admin.http("GET", page).status != 500
    assert "Traceback" not in admin.log_text()
    assert data in content(tmp_path).values()  # set aside, or read


# ---- modes


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize(("mask", "mode"), [(0, 0o660), (0o022, 0o640), (0o077, 0o600)])
def test_a_unix_socket_is_never_open_to_everyone(tmp_path, mask, mode):
    with umask(mask):
        log, loop = Log("", ERROR, form=TEXT), gevent.get_hub().loop
        table = Connections(0, 0, TimeLimits(), log, loop)
        listener = Listener("TCP", str(tmp_path / "sock"), loop, log, lambda *_: None, table, bytes)
    assert stat.S_IMODE((tmp_path / "sock").stat().st_mode) == mode
    listener.close()


def test_the_history_and_its_lock_belong_to_their_user(tmp_path):
    with umask(0):
        file = HistoryFile(str(tmp_path / "history.db"), Log("", ERROR, form=TEXT))
        file.open(History(10))
        file.write(History(10))
    file.close()
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {
        "history.db": 0o600,
        "history.db.lock": 0o600,
    }
