"""nsq-to-file as a process, next to a real nsqd."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.support.harm import mount
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.sweeps import sample, sampled
from tests.support.tool_process import ENVIRONMENT, ToolProcess, run_tool
from tests.support.wire import mpub_body
from tests.support.written_files import all_bodies, bodies, json_rows, leftovers, manifest, message_files

CHANNEL = "nsq_to_file"
KINDS = (
    ("--format=lines",),
    ("--format=lines", "--gzip", "--gzip-level=9"),
    ("--format=jsonl", "--compress=zstd"),
    ("--format=framed", "--compress=zstd"),
    ("--format=parquet",),
)

Archive = Callable[..., ToolProcess]


@pytest.fixture
def output(tmp_path) -> Path:
    return tmp_path / "output"


@pytest.fixture
def start(start, output) -> Archive:
    """`start(*flags)` makes nsq-to-file. What is in flight is synced ten times a second, unless the flags say otherwise."""
    return partial(start, "nsq_to_file", f"--output-dir={output}", "--sync-interval=100ms")


@pytest.fixture
def nsqd(nsqd_without_topics) -> NsqdProcess:
    return nsqd_without_topics


@pytest.fixture
def archive(start, nsqd) -> Archive:
    """`archive(*flags, topic="t")` makes one for a topic of the nsqd."""
    return lambda *flags, topic="t": start(source(nsqd), f"--topic={topic}", *flags)


def source(nsqd: NsqdProcess) -> str:
    return f"--nsqd-tcp-address=127.0.0.1:{nsqd.tcp_port}"


@pytest.mark.parametrize("form", sample("parquet", "jsonl", "framed"))
def test_the_manifest_says_which_messages_of_each_nsqd_a_file_has(make_nsqd, start, output, form):
    """Also of a file that a killed nsq-to-file left behind: its claim has the place of the first message."""
    nsqds = [make_nsqd(), make_nsqd()]
    for nsqd in nsqds:
        nsqd.create("t", CHANNEL)
        nsqd.post("/mpub?topic=t&binary=true", mpub_body([b"before"] * 7))
        nsqd.post(f"/channel/empty?topic=t&channel={CHANNEL}")
    addresses = [f"127.0.0.1:{nsqd.tcp_port}" for nsqd in nsqds]
    for number in range(2):
        with start(*map(source, nsqds), "--topic=t", f"--format={form}", "--rotate-size=1000000") as tool:
            for nsqd in nsqds:
                for _ in range(3):
                    nsqd.post("/mpub?topic=t&binary=true", mpub_body([b"x" * 50] * 10))
                nsqd.wait_for_channel("t", CHANNEL, depth=0, in_flight_count=0)
            if number:
                tool.stop()
            else:
                tool.signal(signal.SIGKILL)
    for number, entry in enumerate(manifest(output)):
        assert entry["repaired"] is (number == 0)
        parts = {part["nsqd"]: part for part in entry["nsqds"]}
        assert sorted(parts) == sorted(addresses)
        for nsqd, address in zip(nsqds, addresses, strict=True):
            part = parts[address]
            assert (part["count"], part["first_seq"], part["is_ordered"]) == (30, 7 + 30 * number, True)
            answer = nsqd.http("GET", f"/topic/read?topic=t&seq={7 + 30 * number}&max_bytes=1")
            assert f"{int(part['first_id'], 16) - 1:016x}" == answer.headers["X-Nsq-Before-Id"]
            assert part["epoch"] == int(answer.headers["X-Nsq-Epoch"])
            behind = nsqd.http("GET", f"/topic/read?topic=t&id={part['last_id']}&max_bytes=1")
            assert int(behind.headers["X-Nsq-First-Seq"]) == 37 + 30 * number
            # Of a file that was left behind, the end of the log when it began.
            assert 0 < part["end_seq"] <= 37 + 30 * number
            assert number == 0 or (part["end_id"], part["end_seq"]) == (part["last_id"], 67)


def test_the_place_in_the_log_of_an_nsqd_that_requires_tls(make_nsqd, certificates, start, tmp_path, output):
    """nsq-to-file asks with the certificates and the token of its connections."""
    logins = tmp_path / "logins"
    logins.write_text(f"token:reader:{hashlib.sha256(b'secret').hexdigest()}\n")
    logins.chmod(0o600)
    nsqd = make_nsqd(*certificates.nsqd_flags, "--tls-required=tcp-https", f"--http-auth-file={logins}")
    (port,) = re.findall(r"HTTPS: listening on 127\.0\.0\.1:(\d+)", nsqd.log_text())

    def asked(path, body=None):
        request = Request(f"https://127.0.0.1:{port}{path}", body, {"Authorization": "Bearer secret"})
        with urlopen(request, context=certificates.client_context()) as answer:
            return bytes(answer.read())

    assert asked("/pub?topic=t", b"1") == b"OK"
    options = {"tls_v1": "true", "tls_root_ca_file": certificates.authority, "auth_secret": "secret"}
    flags = [f"--consumer-opt={name},{value}" for name, value in options.items()]
    with start(source(nsqd), "--topic=t", *flags, "--format=jsonl") as tool:
        wait_until(
            lambda: b'"finish_count":1' in asked("/stats?format=json").replace(b" ", b""),
            what="the message in the file",
        )
        assert tool.stop() == 0
    (entry,) = manifest(output)
    (part,) = entry["nsqds"]
    assert part["first_seq"] == 0 and part["epoch"]


# Runs the tool as a user without an entry in /etc/passwd.
WITHOUT_ENTRY = """
import pwd, runpy, sys

def getpwuid(number):
    raise KeyError(number)

pwd.getpwuid = getpwuid
sys.argv[1:1] = ["nsq_to_file"]
runpy.run_module("nsq_apps", run_name="__main__")
"""


@pytest.mark.parametrize(
    "variables", sample({}, {"HOME": ""}, {"HOME": "~"}, {"HOME": "home"}, {"XDG_DATA_HOME": "data"})
)
def test_without_a_home_directory_it_asks_for_one(tmp_path, variables):
    """As in a container that runs as any user."""
    path = tmp_path / "empty"
    path.mkdir()
    environment = {
        name: value for name, value in ENVIRONMENT.items() if name not in ("HOME", "XDG_DATA_HOME")
    } | variables

    def check(*flags):
        given = ("--topic=t", "--nsqd-tcp-address=127.0.0.1:1", "--check-config", *flags)
        command = [sys.executable, "-c", WITHOUT_ENTRY, *given]
        run = subprocess.run(command, cwd=path, env=environment, capture_output=True, text=True, timeout=60)
        return run.returncode, run.stdout, run.stderr

    why = "nsq-to-file: --output-dir required: its default is in the home directory of the user, and this one has none\n"
    assert check() == (2, "", why)
    assert check("--output-dir=out") == (0, "The settings are valid.\n", "")
    uploading = check("--output-dir=s3://bucket/path", "--filename-format=<TOPIC><REV>")
    assert uploading[2].startswith("nsq-to-file: --work-dir required: ")
    assert list(path.iterdir()) == []


def publish(nsqd: NsqdProcess, *messages: bytes, topic: str = "t") -> None:
    nsqd.create(topic, CHANNEL)
    nsqd.mpub(topic, messages)


def wait_until_finished(nsqd: NsqdProcess, topic: str = "t") -> None:
    nsqd.wait_for_channel(topic, CHANNEL, depth=0, in_flight_count=0, deferred_count=0)


# --- what is written


@pytest.mark.parametrize("flags", KINDS, ids=" ".join)
def test_messages_are_in_files(nsqd, archive, output, flags):
    expected = [b"%d" % number for number in range(1000)]
    publish(nsqd, *expected)
    with archive(*flags) as tool:
        wait_until_finished(nsqd)
        assert (tool.stop(), tool.output()) == (0, b"")
    assert all_bodies(output) == expected
    (entry,) = manifest(output)
    assert (entry["messages"], entry["topic"], entry["channel"]) == (1000, "t", CHANNEL)
    assert leftovers(output) == []


def test_json_tells_all(nsqd, archive, output):
    publish(nsqd, b"two\nlines", b"\xff")
    with archive("--format=jsonl") as tool:
        wait_until_finished(nsqd)
        tool.stop()
    (path,) = message_files(output)
    rows = json_rows(path)
    assert [row["body"] for row in rows] == [b"two\nlines", b"\xff"]
    assert rows[0].keys() == {"timestamp", "id", "attempts", "topic", "channel", "nsqd", "body"}
    assert (rows[0]["attempts"], rows[0]["nsqd"]) == (1, f"127.0.0.1:{nsqd.tcp_port}")
    assert re.fullmatch("[0-9a-f]{16}", rows[0]["id"])


def test_what_is_in_flight_is_synced_before_it_is_finished(nsqd, archive, output):
    """A long interval: a message waits, until there are as many as may be in flight."""
    publish(nsqd, b"1", b"2", b"3")
    with archive("--sync-interval=1h", "--max-in-flight=10", "--gzip", "--rotate-interval=30m") as tool:
        wait_until(lambda: output.exists() and all_bodies(output) == [b"1", b"2", b"3"])
        nsqd.wait_for_channel("t", CHANNEL, in_flight_count=3)
        publish(nsqd, *[b"%d" % number for number in range(4, 11)])
        wait_until_finished(nsqd)
        assert tool.stop() == 0


def test_a_stop_finishes_what_is_here(nsqd, archive, output):
    publish(nsqd, b"1", b"2")
    with archive("--sync-interval=1h", "--compress=zstd") as tool:
        nsqd.wait_for_channel("t", CHANNEL, in_flight_count=2)
        assert tool.stop() == 0
    assert all_bodies(output) == [b"1", b"2"]
    wait_until_finished(nsqd)


# --- from file to file


def test_hup_begins_a_new_file(nsqd, archive, output, tmp_path):
    """Also twice in a row, and with a work-dir."""
    publish(nsqd, b"one")
    with archive(f"--work-dir={tmp_path / 'work'}", "--skip-empty-files") as tool:
        wait_until_finished(nsqd)
        tool.signal(signal.SIGHUP)
        wait_until(lambda: output.exists() and all_bodies(output) == [b"one"])
        tool.signal(signal.SIGHUP)
        publish(nsqd, b"two")
        wait_until_finished(nsqd)
        assert tool.stop() == 0
    assert [bodies(path) for path in message_files(output)] == [[b"one"], [b"two"]]
    assert os.listdir(tmp_path / "work") == []


def test_after_a_hup_a_file_that_was_moved_away_is_made_anew(nsqd, archive, output, tmp_path):
    """What logrotate does."""
    publish(nsqd, b"one")
    with archive("--filename-format=t.log") as tool:
        wait_until_finished(nsqd)
        (output / "t.log").rename(tmp_path / "t.log.1")
        tool.signal(signal.SIGHUP)
        tool.wait_for_log("finished t.log")
        publish(nsqd, b"two")
        wait_until_finished(nsqd)
        tool.stop()
    assert (bodies(tmp_path / "t.log.1"), bodies(output / "t.log")) == ([b"one"], [b"two"])


@pytest.mark.parametrize("flags", sample(*KINDS), ids=" ".join)
@pytest.mark.parametrize("removed", ["files", "directory"])
def test_messages_after_a_file_was_removed_go_to_a_new_one(nsqd, archive, output, tmp_path, removed, flags):
    publish(nsqd, b"one")
    with archive(*flags) as tool:
        wait_until_finished(nsqd)
        if removed == "directory":
            shutil.rmtree(output.rename(tmp_path / "gone"))
        else:
            for path in output.rglob("*"):
                path.unlink(missing_ok=True)
        publish(nsqd, b"two")
        tool.wait_for_log("the file was removed; a new one is begun")
        wait_until_finished(nsqd)
        assert tool.stop() == 0
    assert all_bodies(output) == [b"two"]
    assert leftovers(output) == []


def moved_away(directory: Path) -> Path:
    return directory.rename(directory.with_name(f"{directory.name}.old"))


@pytest.mark.parametrize(
    ("flags", "moved", "is_replaced"),
    sampled(
        itertools.product(KINDS, ["output", "work"], [True, False]),
        (KINDS[0], "output", True),
        (KINDS[-1], "work", False),
    ),
)
def test_messages_after_a_directory_was_moved_go_to_the_new_one(
    nsqd, archive, output, tmp_path, flags, moved, is_replaced
):
    """The file that was begun is finished by a start with the directory in its new place."""
    work = output if moved == "output" else tmp_path / "work"
    publish(nsqd, b"one")
    suffix = flags[0].removeprefix("--format=")
    with archive(*flags, f"--filename-format=<TOPIC>/x<REV>.{suffix}", f"--work-dir={work}") as tool:
        wait_until_finished(nsqd)
        old = moved_away(work)
        if is_replaced:
            work.mkdir()
        publish(nsqd, b"two")
        tool.wait_for_log("its directory was moved, replaced or mounted over")
        wait_until_finished(nsqd)
        assert tool.stop() == 0
        assert tool.log_text().count("was moved, replaced") == 1
    assert all_bodies(output) == [b"two"]
    assert (leftovers(work), len(leftovers(old))) == ([], 1 + ("--format=parquet" in flags))
    with archive(*flags, f"--work-dir={old}", f"--output-dir={output}") as tool:
        tool.wait_for_log("which an earlier run left behind")
        assert tool.stop() == 0
    found = all_bodies(output) + (all_bodies(old) if moved == "output" else [])
    assert sorted(found) == [b"one", b"two"]
    assert leftovers(old) == []


@pytest.mark.slow
def test_messages_after_a_mount_go_to_the_mounted_file_system(nsqd, archive, output):
    publish(nsqd, b"one")
    with archive("--format=framed") as tool:
        wait_until_finished(nsqd)
        unmount = mount(output)
        try:
            publish(nsqd, b"two")
            tool.wait_for_log("its directory was moved, replaced or mounted over")
            wait_until_finished(nsqd)
            assert tool.stop() == 0
            assert all_bodies(output) == [b"two"]
        finally:
            unmount()
    with archive("--format=framed") as tool:
        tool.wait_for_log("which an earlier run left behind")
        assert tool.stop() == 0
    assert all_bodies(output) == [b"one"]
    assert leftovers(output) == []


def test_two_topics_share_a_file_only_where_they_append(nsqd, archive, output):
    """A name without <TOPIC>: as Go's nsq_to_file does it."""
    for flags, files in (((), 1), (("--gzip",), 2)):
        publish(nsqd, b"of a", topic="a")
        publish(nsqd, b"of b", topic="b")
        with archive("--topic=b", "--filename-format=x<REV>.log", *flags, topic="a") as tool:
            wait_until_finished(nsqd, "a")
            wait_until_finished(nsqd, "b")
            tool.stop()
        assert len(message_files(output)) == files
        assert sorted(all_bodies(output)) == [b"of a", b"of b"]
        shutil.rmtree(output)


@pytest.fixture
def shared_memory() -> Iterator[Path]:
    directory = Path(f"/dev/shm/nsq-to-file-{os.getpid()}")
    if (
        not os.access(directory.parent, os.W_OK)
        or directory.parent.stat().st_dev == Path("/tmp").stat().st_dev
    ):
        pytest.skip("/dev/shm is no other file system here")
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.parametrize("flags", [(), ("--format=parquet",)], ids=" ".join)
def test_a_work_dir_on_another_file_system(nsqd, archive, output, shared_memory, flags):
    publish(nsqd, b"one")
    with archive(f"--work-dir={shared_memory}", *flags) as tool:
        wait_until_finished(nsqd)
        assert message_files(output) == []
        assert tool.stop() == 0
    assert all_bodies(output) == [b"one"]
    assert os.listdir(shared_memory) == []


# --- directories in other words


def spellings(tmp_path: Path) -> list[tuple[str, ...]]:
    """Flags that lead to <tmp_path>/here/out, written from <tmp_path>/here."""
    ways = ("out", "../here/out", "link/out", "out/", f"{tmp_path}/here/../here/out")
    return [
        *(
            (f"--output-dir={way}", *flags)
            for way in ways
            for flags in ((), ("--format=framed", "--compress=zstd"))
        ),
        ("--output-dir=out", "--work-dir=./out"),
        ("--output-dir=link/out", "--work-dir=work", "--format=parquet"),
        ("--output-dir=~/../out", "--rotate-interval=1h", "--format=jsonl"),
    ]


def test_a_finished_file_stays_in_the_output_dir(nsqd, start, tmp_path):
    """Written as a user writes it: relative, with `..`, through a symbolic link. All run at once, for speed."""
    here = tmp_path / "here"
    (here / "~").mkdir(parents=True)
    (here / "link").symlink_to(here)
    with contextlib.ExitStack() as stack:
        tools = []
        for number, flags in enumerate(spellings(tmp_path)):
            publish(nsqd, b"one", b"%d" % number, topic=f"t{number}")
            tools.append(
                stack.enter_context(start(source(nsqd), f"--topic=t{number}", *flags, directory=here))
            )
        for number, tool in enumerate(tools):
            wait_until_finished(nsqd, f"t{number}")
            assert tool.stop() == 0
    expected = {f"t{number}": [b"one", b"%d" % number] for number in range(len(tools))}
    assert {
        entry["topic"]: bodies(here / "out" / entry["path"]) for entry in manifest(here / "out")
    } == expected
    assert leftovers(here) == []
    assert message_files(here / "work") == []


# --- topics by pattern


def test_topics_by_pattern(make_nsqd, make_nsqlookupd, start, output):
    lookupd = make_nsqlookupd()
    nsqd = make_nsqd(f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}")
    publish(nsqd, b"of a", topic="take_a")
    publish(nsqd, b"not", topic="leave")
    wait_until(lambda: lookupd.topics() == ["leave", "take_a"])
    flags = (
        f"--lookupd-http-address={lookupd.http_address}",
        "--topic-pattern=^take_",
        "--topic-refresh=50ms",
        "--http-client-request-timeout=5m",
        "--consumer-opt=lookupd_poll_interval,100ms",
    )
    with start(*flags) as tool:
        wait_until_finished(nsqd, "take_a")
        publish(nsqd, b"of b", topic="take_b")
        wait_until_finished(nsqd, "take_b")
        lookupd.signal(signal.SIGSTOP)
        assert tool.stop() == 0
        lookupd.signal(signal.SIGCONT)
        assert "leave" not in tool.log_text(), "a pattern is there to leave topics out"
    assert sorted(all_bodies(output)) == [b"of a", b"of b"]


def test_a_topic_that_is_named_and_left_out_is_said(nsqd, archive):
    with archive("--topic=take", "--topic-pattern=^take", topic="leave") as tool:
        tool.wait_for_log("skipping topic leave (doesn't match pattern ^take)")
        assert tool.stop() == 0
        assert tool.log_text().count("skipping topic") == 1


# --- a disk that takes nothing


@pytest.mark.parametrize("flags", [(), ("--format=framed",)], ids=" ".join)
def test_a_full_disk_stops_it_until_there_is_room(nsqd, archive, output, flags):
    """A limit on the size of files stands for the full disk: it needs no rights."""
    publish(nsqd, b"before")
    with archive("--max-in-flight=5", *flags) as tool:
        wait_until_finished(nsqd)
        limit_file_size(tool, 4096)
        expected = [b"%05d" % number + b"x" * 1000 for number in range(20)]
        publish(nsqd, *expected)
        tool.wait_for_log("cannot write")
        wait_until(
            lambda: [one["ready_count"] for one in nsqd.channel_stats("t", CHANNEL)["clients"]] == [0],
            what="RDY 0",
        )
        stats = nsqd.channel_stats("t", CHANNEL)
        assert stats["depth"] + stats["in_flight_count"] > 0
        limit_file_size(tool, 1 << 30)
        tool.wait_for_log("writing again")
        wait_until_finished(nsqd)
        assert tool.stop() == 0
        assert tool.log_text().count("cannot write") == 1
    assert all_bodies(output) == [b"before", *expected]


def test_a_stop_on_a_full_disk_gives_the_messages_back(nsqd, archive, output):
    publish(nsqd, b"before")
    with archive() as tool:
        wait_until_finished(nsqd)
        limit_file_size(tool, 2048)
        publish(nsqd, b"x" * 4000)
        tool.wait_for_log("cannot write")
        assert tool.stop() == 1
        assert "1 messages could not be written, and are given back" in tool.log_text()
    nsqd.wait_for_channel("t", CHANNEL, depth=1, in_flight_count=0)
    with archive() as tool:
        wait_until_finished(nsqd)
        tool.stop()
    assert all_bodies(output) == [b"before", b"x" * 4000]


def limit_file_size(tool: ToolProcess, size_bytes: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.prlimit(tool.pid, resource.RLIMIT_FSIZE, (size_bytes, hard))


# --- after a kill, and next to another


def test_a_kill_leaves_nothing_behind(nsqd, archive, output, tmp_path):
    """The next run finishes what the one before wrote, though it writes in another form itself."""
    work = f"--work-dir={tmp_path / 'work'}"
    publish(nsqd, b"one", b"two")
    with archive(work, "--format=jsonl") as tool:
        wait_until_finished(nsqd)
        tool.signal(signal.SIGKILL)
    with archive(work, "--gzip") as tool:
        tool.wait_for_log("which an earlier run left behind: 2 messages")
        assert tool.stop() == 0
    paths = message_files(output)
    assert len(paths) == 1, [(path, bodies(path)) for path in paths]
    (path,) = paths
    assert path.name.endswith(".jsonl")
    assert bodies(path) == [b"one", b"two"]
    assert manifest(output)[0]["repaired"] is True


def test_what_a_killed_run_left_gets_its_place_as_soon_as_there_is_one(nsqd, archive, output, tmp_path):
    """A disk or a bucket that is not there at the start may be there a moment later, and the next start in a year."""
    publish(nsqd, b"one")
    work = f"--work-dir={tmp_path / 'work'}"
    with archive(work) as tool:
        wait_until_finished(nsqd)
        tool.signal(signal.SIGKILL)
    output.rmdir()
    output.write_bytes(b"no directory")
    with archive(work, f"--output-dir={tmp_path / 'other'}") as tool:
        tool.wait_for_log("in its place: ")
        output.unlink()
        tool.wait_for_log("which an earlier run left behind: 1 messages")
        assert tool.stop() == 0
    assert all_bodies(output) == [b"one"]
    assert leftovers(tmp_path) == []


def damaged_leftover(nsqd: NsqdProcess, archive: Archive, work: Path) -> bytes:
    """Leave the file of a run that was killed, with one damaged record of two; return what it holds."""
    with archive(f"--work-dir={work}", "--format=parquet") as tool:
        publish(nsqd, b"one" * 50)
        wait_until_finished(nsqd)
        publish(nsqd, b"two" * 50)
        wait_until_finished(nsqd)
        tool.signal(signal.SIGKILL)
    (path,) = work.glob(".nsq_to_file.*.framed")
    data = bytearray(path.read_bytes())
    data[data.index(b"oneone")] ^= 1
    path.write_bytes(data)
    return bytes(data)


def test_a_damaged_file_of_an_earlier_run_is_kept_and_stops_nothing(nsqd, archive, output, tmp_path):
    work = tmp_path / "work"
    damaged = damaged_leftover(nsqd, archive, work)
    with archive(f"--work-dir={work}") as tool:
        tool.wait_for_log("DAMAGED: ")
        publish(nsqd, b"three")
        wait_until_finished(nsqd)
        assert tool.stop() == 1
        (line,) = (line for line in tool.log_text().splitlines() if "DAMAGED: " in line)
    (kept,) = work.glob("_nsq_damaged.*")
    assert kept.read_bytes() == damaged
    assert f"bytes of {kept} cannot be read, at 64.." in line
    assert sorted(all_bodies(output)) == [b"three", b"two" * 50]
    assert leftovers(tmp_path) == []
    shown = run_tool("nsq_apps", "nsq_cat", str(kept))
    assert (shown.returncode, shown.stdout) == (1, "two" * 50 + "\n"), "what is whole in it"
    with archive(f"--work-dir={work}") as tool:
        tool.wait_for_log("subscribed")
        assert tool.stop() == 0, "it was said once"
    assert kept.read_bytes() == damaged


def test_two_beside_each_other(nsqd, archive, output):
    """On the same directory, with the same names: neither takes the other's files."""
    publish(nsqd, b"one")
    with archive("--gzip") as first:
        wait_until_finished(nsqd)
        with archive("--gzip") as second:
            second.wait_for_log("subscribed")
            publish(nsqd, *[b"%d" % number for number in range(100)])
            wait_until_finished(nsqd)
            assert (first.stop(), second.stop()) == (0, 0)
    assert sorted(all_bodies(output)) == sorted([b"one", *(b"%d" % number for number in range(100))])
    assert not any(entry["repaired"] for entry in manifest(output))


# --- what it refuses


def test_a_directory_that_cannot_be_written_to(nsqd, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    run = run_tool(
        "nsq_apps", "nsq_to_file", source(nsqd), "--topic=t", f"--output-dir={tmp_path / 'file' / 'x'}"
    )
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr == f"nsq-to-file: cannot write to {tmp_path}/file/x: Not a directory\n"
