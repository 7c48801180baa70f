"""to-nsq as a process: from files, pipes and a terminal to real nsqds, also to some that refuse, die and come back."""

from __future__ import annotations

import fcntl
import os
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from nsqd_py.settings.values import size_text
from tests.support.ledger import compare
from tests.support.network import free_ports
from tests.support.nsqd_process import REPOSITORY, NsqdProcess, is_ours, wait_until
from tests.support.terminal import on_terminal
from tests.support.tool_process import ToolProcess, run_tool
from tests.support.wire import bodies

Start = Callable[..., ToolProcess]


@pytest.fixture
def nsqd(nsqd_without_topics) -> NsqdProcess:
    return nsqd_without_topics


@pytest.fixture
def start(start) -> Start:
    """`start(*flags)` makes the tool, which reads from a pipe unless `stdin` is given, on the topic t."""
    return partial(start, "to_nsq", "--topic=t", stdin=subprocess.PIPE)


@pytest.fixture
def command(tmp_path) -> Path:
    """The command as it is installed: a script of the shell, and next to it the one that runs Python."""
    directory = tmp_path / "bin"
    directory.mkdir()
    shutil.copy(REPOSITORY / "apps/bin/to-nsq", directory)
    python = directory / "to-nsq-py"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="{REPOSITORY}" exec "{sys.executable}" -m nsq_apps to_nsq "$@"\n'
    )
    python.chmod(0o755)
    return directory / "to-nsq"


def test_a_directory_as_standard_input_is_an_error_line(command, tmp_path):
    """Python itself would end with the report of a crash."""
    line = f"{command} --topic=t --nsqd-tcp-address=127.0.0.1:1 < {tmp_path}"
    run = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (
        1,
        "",
        "to-nsq: cannot read standard input: Is a directory\n",
    )


def test_the_command_publishes_through_a_link_too(command, nsqd, tmp_path):
    """Links to commands are how pipx installs them. Arguments and the exit status are those of Python's command."""
    (tmp_path / "link").symlink_to(command)
    for path, text in ((command, b"one\n"), (tmp_path / "link", b"two words\n")):
        run = subprocess.run(
            [path, "--topic=t", "--delimiter", "\n", *to(nsqd)], input=text, capture_output=True
        )
        assert run.returncode == 0, run.stderr
    assert (
        subprocess.run([command, "--topic=t"], stdin=subprocess.DEVNULL, capture_output=True).returncode == 2
    )
    assert sorted(contents(nsqd)) == [b"one", b"two words"]


def to(*nsqds: NsqdProcess) -> list[str]:
    return [f"--nsqd-tcp-address=127.0.0.1:{nsqd.tcp_port}" for nsqd in nsqds]


def run(*flags: str | Path, given: bytes = b"", status: int = 0) -> str:
    """What it says on standard error until it has read this, and ended with the status."""
    done = run_tool("nsq_apps", "to_nsq", "--topic=t", *map(str, flags), input=given, text=False)
    assert (done.returncode, done.stdout) == (status, b""), done.stderr
    assert not set(b"\r\x1b") & set(done.stderr), "a pipe gets no progress"
    return done.stderr.decode()


def feed(tool: ToolProcess, data: bytes) -> None:
    tool.stdin.write(data)
    tool.stdin.flush()


def end(tool: ToolProcess, data: bytes = b"") -> int:
    """The exit status, when the tool has read this and the end of its input."""
    feed(tool, data)
    tool.end_input()
    return tool.wait()


def count_of(nsqd: NsqdProcess) -> int:
    """How many messages the topic has got."""
    return (nsqd.topic_stats("t") or {"message_count": 0})["message_count"]


def contents(nsqd: NsqdProcess) -> list[bytes]:
    """All messages of the topic, in the order in which they come; it has no channel yet."""
    return bodies(nsqd.consume("t", "check", nsqd.topic_stats("t")["depth"]))


def lines(*records: bytes) -> bytes:
    return b"".join(record + b"\n" for record in records)


# --- what is published


def test_each_line_is_a_message(nsqd):
    said = run(*to(nsqd), given=b"one\n\n\x00\xff\ttwo\n\nlast without an end")
    assert f"published 3 messages to 127.0.0.1:{nsqd.tcp_port}: 32 B in" in said
    assert sorted(contents(nsqd)) == [b"\x00\xff\ttwo", b"last without an end", b"one"]


@pytest.mark.parametrize("source", ["pipe", "file"])
def test_a_large_input_arrives_whole(nsqd, start, tmp_path, source):
    chance = random.Random(1)
    records = [
        b"%06d %s" % (number, chance.randbytes(chance.randrange(300)).hex().encode())
        for number in range(10_000)
    ]
    records[5000] += b"x" * 700_000
    path = tmp_path / "records"
    path.write_bytes(lines(*records))
    with (
        path.open("rb") as file,
        start(*to(nsqd), stdin=file if source == "file" else subprocess.PIPE) as tool,
    ):
        assert (tool.wait() if source == "file" else end(tool, file.read())) == 0
        assert "published 10,000 messages" in tool.log_text()
    compare(records, contents(nsqd)).require_sound()


def test_files_are_published_in_their_order(nsqd, tmp_path):
    """The last record of a file needs no delimiter, and standard input is one of them."""
    (tmp_path / "first").write_bytes(b"1\n2")
    (tmp_path / "last").write_bytes(b"4\n5\n")
    assert "published 5 messages" in run(*to(nsqd), tmp_path / "first", "-", tmp_path / "last", given=b"3\n")
    assert contents(nsqd) == [b"1", b"2", b"3", b"4", b"5"]


def test_a_named_pipe_is_read_when_somebody_writes_to_it(nsqd, start, tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with start(*to(nsqd), str(path)) as tool:
        with path.open("wb", buffering=0) as pipe:
            pipe.write(b"one\n")
            wait_until(lambda: count_of(nsqd) == 1)
            pipe.write(b"two\n")
        assert tool.wait() == 0
    assert count_of(nsqd) == 2


@pytest.mark.parametrize(("name", "reason"), [("none", "No such file or directory"), (".", "Is a directory")])
def test_files_that_cannot_be_read_are_named_before_anything_is_published(nsqd, tmp_path, name, reason):
    (tmp_path / "first").write_bytes(b"1\n")
    path = tmp_path / name
    assert run(*to(nsqd), tmp_path / "first", path, status=1) == f"to-nsq: cannot read {path}: {reason}\n"
    assert nsqd.topic_stats("t") is None


def test_records_that_are_refused_are_named_with_their_file(make_nsqd, tmp_path):
    nsqd = make_nsqd("--max-msg-size=10")
    (tmp_path / "first").write_bytes(b"1\n2\n")
    (tmp_path / "last").write_bytes(b"3\nmuch too long\n")
    said = run(*to(nsqd), tmp_path / "first", tmp_path / "last", status=1)
    assert f"line 2 of {tmp_path / 'last'} (13 bytes) is not published" in said
    assert count_of(nsqd) == 3


# --- when


def test_a_single_record_does_not_wait_for_others(nsqd, start):
    """The pipe stays open."""
    nsqd.create("t", "check")
    with start(*to(nsqd)) as tool, nsqd.consumer("t", "check", 1) as client:
        for number in range(3):
            feed(tool, b"%d\n" % number)
            assert bodies(client.consume(1)) == [b"%d" % number]
        assert end(tool) == 0


def test_no_more_leave_than_the_rate_allows(nsqd):
    began_s = time.monotonic()
    assert "Throttling messages rate to max:80/second" in run(
        *to(nsqd), "-rate", "80", given=b"record\n" * 61
    )
    assert time.monotonic() - began_s >= 0.75
    assert count_of(nsqd) == 61


# --- what nsqd does not take


def test_a_record_that_is_too_large_is_told_by_its_line(make_nsqd):
    nsqd = make_nsqd("--max-msg-size=100")
    records = [b"%d" % number for number in range(2000)]
    large = [*records[:700], b"x" * 101, b"y" * 100, b"", *records[700:], b"z" * 300_000]
    said = run(*to(nsqd), given=lines(*large), status=1)
    reported = [line.partition("ERROR: ")[2] for line in said.splitlines() if "is not published" in line]
    assert sorted(reported) == [
        f"line 2004 (300000 bytes) is not published to 127.0.0.1:{nsqd.tcp_port}: it takes no more than 100",
        f"line 701 (101 bytes) is not published to 127.0.0.1:{nsqd.tcp_port}: it takes no more than 100",
    ]
    size = size_text(len(lines(*large)) - 101 - 300_000)
    assert f"published 2,001 messages to 127.0.0.1:{nsqd.tcp_port}: {size} in" in said
    compare([*records, b"y" * 100], contents(nsqd)).require_sound()


def test_of_two_nsqds_each_gets_what_it_takes(make_nsqd):
    strict, lenient = make_nsqd("--max-msg-size=10"), make_nsqd()
    said = run(*to(strict, lenient), given=lines(b"short", b"much too long", b"short too"), status=1)
    assert f"line 2 (13 bytes) is not published to 127.0.0.1:{strict.tcp_port}" in said
    assert (count_of(strict), count_of(lenient)) == (2, 3)
    assert ": 17 B in" in said


def test_batches_shrink_to_what_nsqd_takes(make_nsqd):
    nsqd = make_nsqd("--max-msg-size=500", "--max-body-size=500")
    records = [b"%060d" % number for number in range(9000)]
    run(*to(nsqd), given=lines(*records))
    compare(records, contents(nsqd)).require_sound()


# --- signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_read_is_published_at_a_signal(nsqd, start, number):
    with start(*to(nsqd)) as tool:
        feed(tool, b"1\n2\n3\n4\n5\nbegun")
        wait_until(lambda: count_of(nsqd) == 5)
        tool.signal(number)
        assert tool.wait() == 1  # line 6
        assert "published 5 messages" in tool.log_text()
        assert "line 6 is not published, because it is incomplete" in tool.log_text()
    assert sorted(contents(nsqd)) == [b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize(
    ("rate", "record"), [(1, b"r"), (50, b"record"), (50, b"r" * 5000), (2000, b"r" * 100)]
)
def test_with_a_rate_a_signal_ends_it_within_a_second(nsqd, start, tmp_path, rate, record):
    """It reads no further ahead than that, and leaves the rest of its input to others."""
    path = tmp_path / "records"
    path.write_bytes(lines(record) * 20_000)
    with path.open("rb") as file, start(*to(nsqd), f"--rate={rate}", stdin=file) as tool:
        wait_until(lambda: count_of(nsqd) > rate // 4)
        read = file.tell() // (len(record) + 1)  # the process shares the place in the file
        began_s = time.monotonic()
        at_signal = count_of(nsqd)
        tool.signal(signal.SIGTERM)
        status = tool.wait()
        took_s = time.monotonic() - began_s
        read_in_all = file.tell() // (len(record) + 1)
    published = count_of(nsqd)
    assert read - at_signal <= rate
    assert published - at_signal <= rate * took_s + max(1, rate / 50)  # a step of it may just have been due
    assert (status, published) == (0, read_in_all) or "is incomplete" in tool.log_text()
    assert took_s < 10  # a second, and more on a busy machine


def test_records_that_a_signal_leaves_are_named(nsqd, start):
    """After longer ones, more short ones are in its hands than it can publish in a second."""
    with start(*to(nsqd), "--rate=20") as tool:
        feed(tool, lines(b"long" * 1000, b"long" * 1000, *[b"%d" % number for number in range(500)]))
        wait_until(lambda: count_of(nsqd) > 2)
        tool.signal()
        assert tool.wait() == 1
        count = count_of(nsqd)
        assert count < 60
        assert f"line {count + 1} and those after it are not published" in tool.log_text()


def test_a_signal_ends_waiting_for_input(nsqd, start):
    with start(*to(nsqd)) as tool:
        feed(tool, b"one\n")
        wait_until(lambda: count_of(nsqd) == 1)
        assert tool.stop() == 0


# --- nsqds that are away


@pytest.fixture
def fixed_nsqd(tmp_path) -> NsqdProcess:
    """One that is not started yet, and always has the same ports."""
    tcp_port, http_port = free_ports(2)
    nsqd = NsqdProcess(tmp_path / "fixed", ports=(tcp_port, http_port))
    nsqd.tcp_port, nsqd.http_port = tcp_port, http_port
    return nsqd


def test_an_nsqd_that_is_not_there_yet_is_waited_for(fixed_nsqd, start):
    with fixed_nsqd, start(*to(fixed_nsqd)) as tool:
        feed(tool, b"early\n")
        tool.wait_for_log("Connection refused")
        fixed_nsqd.start()
        assert end(tool) == 0
        assert contents(fixed_nsqd) == [b"early"]


def test_nothing_is_lost_when_nsqd_is_killed(fixed_nsqd, start):
    records = [b"%0500d" % number for number in range(40_000)]
    with fixed_nsqd.start(), start(*to(fixed_nsqd)) as tool:
        feed(tool, lines(*records[:20_000]))
        wait_until(lambda: count_of(fixed_nsqd) > 0)
        fixed_nsqd.restart(clean=False)
        assert end(tool, lines(*records[20_000:])) == 0
        assert "published 40,000 messages" in tool.log_text()
        assert "connection lost" in tool.log_text()
        if is_ours():  # what Go's nsqd has acknowledged is lost with it
            compare(records, contents(fixed_nsqd), at_least_once=True).require_sound()


def test_an_nsqd_that_stays_away_is_given_up(fixed_nsqd):
    said = run(*to(fixed_nsqd), "--retry-timeout=1s", given=b"one\n", status=1)
    assert said.splitlines()[-1] == f"to-nsq: 127.0.0.1:{fixed_nsqd.tcp_port} has taken nothing for 1s"


HANDSHAKES = {
    "no secret": ("auth", (), "nsqd asks for a secret"),
    "another secret": (
        "auth",
        ("--producer-opt=auth_secret,x",),
        "nsqd refused the handshake: E_AUTH_FAILED",
    ),
    "no TLS": ("", ("--producer-opt=tls_v1,true",), "nsqd offers no TLS"),
    "an unknown authority": ("tls", ("--producer-opt=tls_v1,true",), "certificate"),
}


@pytest.mark.ours
@pytest.mark.parametrize("kind", HANDSHAKES)
def test_a_refused_handshake_ends_it_at_once(make_nsqd, certificates, kind):
    has, flags, reason = HANDSHAKES[kind]
    own = {"auth": ("--auth-http-address=127.0.0.1:1",), "tls": certificates.nsqd_flags}.get(has, ())
    said = run(*to(make_nsqd(*own)), *flags, "--retry-timeout=1h", given=b"one\n", status=1)
    assert reason in said.splitlines()[-1]


def test_a_stop_before_nsqd_is_reached_is_a_failure(fixed_nsqd, start):
    with start(*to(fixed_nsqd)) as tool:
        feed(tool, b"one\n")
        wait_until(lambda: "refused" in tool.log_text())
        assert tool.stop() == 1
        assert "nothing is published" in tool.log_text().splitlines()[-1]


@pytest.mark.parametrize("flags", [(), ("--retry-timeout=1s",)])
def test_an_nsqd_that_hangs_at_the_start_delays_no_end(start, flags):
    with (
        socket.create_server(("127.0.0.1", 0)) as hung,
        start("--nsqd-tcp-address={}:{}".format(*hung.getsockname()), *flags) as tool,
    ):
        feed(tool, b"one\n")
        with hung.accept()[0]:
            began_s = time.monotonic()
            assert (tool.wait() if flags else tool.stop()) == 1
            assert time.monotonic() - began_s < 30  # the handshake may take 60 s
        assert (
            "has taken nothing for 1s" if flags else "nothing is published"
        ) in tool.log_text().splitlines()[-1]


@pytest.mark.parametrize(("flags", "limit"), [(("--retry-timeout=1s",), "1s"), ((), "5s")])
def test_an_nsqd_that_hangs_is_given_up(make_nsqd, start, flags, limit):
    nsqd = make_nsqd()
    with start(*to(nsqd), *flags) as tool:
        feed(tool, b"one\n")
        wait_until(lambda: count_of(nsqd) == 1)
        nsqd.signal(signal.SIGSTOP)
        feed(tool, b"two\nthree\n")
        wait_until(
            lambda: not any(fcntl.ioctl(tool.stdin, termios.FIONREAD, bytes(4))), what="the tool to read"
        )
        tool.end_input()
        if not flags:
            tool.signal()
        assert tool.wait() == 1
        nsqd.signal(signal.SIGCONT)
        assert f"has taken nothing for {limit}, with 2 messages due" in tool.log_text()
        assert "published 1 message to" in tool.log_text()


def test_a_terminal_shows_the_progress(nsqd, tmp_path):
    path = tmp_path / "records"
    path.write_bytes(b"record\n" * 1000)
    command = shlex.join([sys.executable, "-m", "nsq_apps", "to_nsq", "--topic=t", "--rate=400", *to(nsqd)])
    with on_terminal(["sh", "-c", f"exec {command} < {path}"], columns=100) as terminal:
        terminal.wait_for_text("7.0/7.0 kB")
        assert "━━━━━━━━" in terminal.line_with("100%")
        os.kill(terminal.pid, signal.SIGINT)
        terminal.wait_for_text("published 1,000 messages")
        assert terminal.wait() == 0
        assert not terminal.line_with("100%")
    assert count_of(nsqd) == 1000
