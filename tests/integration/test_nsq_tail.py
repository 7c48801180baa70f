"""nsq-tail as a process: into pipes, files and a terminal, from real nsqds; what it finishes, and when."""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

from tests.support.certificates import make_certificates
from tests.support.network import free_ports
from tests.support.nsqd_process import REPOSITORY, NsqdProcess, wait_until
from tests.support.terminal import on_terminal
from tests.support.tool_process import ToolProcess, numbered, publish, run_tool
from tests.support.wire import rdy, req


@pytest.fixture
def nsqd(nsqd_without_topics) -> NsqdProcess:
    return nsqd_without_topics


def tail(*flags: str) -> bytes:
    """What it writes, when it ends by itself."""
    done = run_tool("nsq_apps", "nsq_tail", *flags, text=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def source(nsqd: NsqdProcess) -> str:
    return f"--nsqd-tcp-address=127.0.0.1:{nsqd.tcp_port}"


# --- what is shown in a pipe


def test_bodies_are_written_as_they_are(nsqd):
    bodies = [b"plain", b"two\nlines", b"\x1b[31m\x00\xff", "süß".encode(), b"x" * 500_000]
    publish(nsqd, "t", *bodies)
    written = tail(source(nsqd), "-topic", "t", "-n", "5")
    assert sorted(written.split(b"\n")) == sorted(b"\n".join([*bodies, b""]).split(b"\n"))


def test_by_default_nobody_else_misses_a_message(nsqd, start):
    nsqd.create("t", "worker")
    with start("nsq_tail", source(nsqd), "--topic=t") as tool:
        wait_until(lambda: len(nsqd.topic_stats("t")["channels"]) == 2)
        names = sorted(channel["channel_name"] for channel in nsqd.topic_stats("t")["channels"])
        assert re.fullmatch(r"tail\d{6}#ephemeral worker", " ".join(names))
        publish(nsqd, "t", b"for both")
        assert tool.stdout.readline() == b"for both\n"
        assert tool.stop() == 0
    nsqd.wait_for_channel("t", "worker", depth=1)
    wait_until(lambda: len(nsqd.topic_stats("t")["channels"]) == 1)


def test_lines_of_several_topics_are_never_mixed(nsqd, start):
    count = 2000
    for topic in ("a", "b"):
        publish(nsqd, topic, *[topic.encode() * 300] * count)
    with start(
        "nsq_tail", source(nsqd), "--topic=a", "--topic=b", "--print-topic", f"-n={2 * count}"
    ) as tool:
        written = tool.stdout.readlines()
        assert tool.wait() == 0
        assert "Adding consumer for topic: a\n" in tool.log_text()
    assert sorted(written) == [b"a | " + b"a" * 300 + b"\n"] * count + [b"b | " + b"b" * 300 + b"\n"] * count


def test_an_object_shows_what_is_known_of_a_message(nsqd):
    before_ns = time.time_ns()
    publish(nsqd, "t", b"body")
    message = json.loads(tail(source(nsqd), "--topic=t", "--channel=c", "-n=1", "--jsonl"))
    assert before_ns <= message.pop("timestamp") <= time.time_ns()
    assert re.fullmatch("[0-9a-f]{16}", message.pop("id"))
    assert message == {
        "attempts": 1,
        "topic": "t",
        "channel": "c",
        "nsqd": f"127.0.0.1:{nsqd.tcp_port}",
        "body": "body",
    }


def test_topics_are_found_by_nsqlookupd(make_nsqlookupd, make_nsqd):
    lookupd = make_nsqlookupd()
    nsqds = [make_nsqd(f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}") for _ in range(2)]
    for number, nsqd in enumerate(nsqds):
        publish(nsqd, "t", b"from %d" % number)
    wait_until(lambda: len(lookupd.lookup("t")) == 2)
    found = tail(f"--lookupd-http-address={lookupd.http_address}", "--topic=t", "-n=2")
    assert sorted(found.splitlines()) == [b"from 0", b"from 1"]


# --- what is finished


@pytest.mark.parametrize("flags", [["-n=3"], ["-n=3", "--grep=message", "--max-in-flight=50"]])
def test_exactly_so_many_are_shown_and_finished(nsqd, flags):
    publish(nsqd, "t", *numbered(100))
    assert len(tail(source(nsqd), "--topic=t", "--channel=c", *flags).splitlines()) == 3
    nsqd.wait_for_channel("t", "c", depth=97, in_flight_count=0, deferred_count=0)


def test_what_does_not_match_is_finished_as_far_as_it_was_looked_at(nsqd):
    publish(nsqd, "t", *numbered(300))
    assert tail(source(nsqd), "--topic=t", "--channel=c", "--grep=^message 250$", "-n=1") == b"message 250\n"
    stats = nsqd.wait_for_channel("t", "c", in_flight_count=0, deferred_count=0)
    assert stats["depth"] <= 49 + 200  # what was in flight besides


def test_messages_of_many_attempts_are_shown(nsqd):
    publish(nsqd, "t", b"again and again")
    with nsqd.consumer("t", "c", 1) as client:
        for _ in range(7):
            client.send(req(client.message().id, 0))
        client.send(rdy(0), req(client.message().id, 0))
        client.round_trip()
    message = json.loads(tail(source(nsqd), "--topic=t", "--channel=c", "-n=1", "--jsonl"))
    assert (message["attempts"], message["body"]) == (9, "again and again")


def test_only_what_was_written_is_finished(make_nsqd, start):
    """Killed while the pipe is full: what nsqd has not is in the pipe."""
    nsqd = make_nsqd("--msg-timeout=1s")
    publish(nsqd, "t", *[b"%06d" % number + b"x" * 4000 for number in range(1000)])
    with start("nsq_tail", source(nsqd), "--topic=t", "--channel=c") as tool:
        wait_until_stuck(tool, nsqd, "t")
        wait_until(
            lambda: nsqd.channel_stats("t", "c")["clients"][0]["finish_count"],
            what="a message to be finished",
        )
        tool.signal(signal.SIGKILL)
        tool.wait()
        written = [line for line in tool.stdout.read().split(b"\n") if len(line) == 4006]
    stats = nsqd.wait_for_channel("t", "c", in_flight_count=0)
    assert 1000 - stats["depth"] <= len(written)
    assert 0 < stats["depth"] < 1000


def wait_until_stuck(tool: ToolProcess, nsqd: NsqdProcess, *topics: str) -> None:
    """Until its pipe is full while it has messages of each topic."""

    def is_stuck():
        # A pipe has 16 pages. A write may leave the rest of one free.
        (in_pipe,) = struct.unpack("i", fcntl.ioctl(tool.stdout, termios.FIONREAD, bytes(4)))
        flying = [
            (nsqd.channel_stats(topic, "c") or {"in_flight_count": 0})["in_flight_count"] for topic in topics
        ]
        return in_pipe > 15 * 4096 and all(flying)

    wait_until(is_stuck, what="the pipe to be full")


def test_a_full_disk_finishes_nothing(nsqd, start):
    publish(nsqd, "t", *numbered(10))
    with (
        open("/dev/full", "wb") as full,
        start("nsq_tail", source(nsqd), "--topic=t", "--channel=c", stdout=full) as tool,
    ):
        assert tool.wait() == 1
        assert tool.log_text().endswith(
            "nsq-tail: cannot write to standard output: No space left on device\n"
        )
    nsqd.wait_for_channel("t", "c", depth=10, in_flight_count=0)


# --- readers that are slow, or go away


def test_a_reader_that_pauses_costs_no_connection(nsqd, start):
    """Another client, which does not answer heartbeats, is dropped in that time."""
    bodies = [b"%06d" % number + b"x" * 2000 for number in range(1000)]
    publish(nsqd, "t", *bodies)
    flags = ["--channel=c", "--consumer-opt=heartbeat_interval,1s", f"-n={len(bodies)}", "--max-in-flight=50"]
    with start("nsq_tail", source(nsqd), "--topic=t", *flags) as tool:
        wait_until_stuck(tool, nsqd, "t")
        with nsqd.connect(heartbeat_interval=1000) as silent:
            silent.rest()
        stats = nsqd.wait_for_channel("t", "c", timeout_count=0, requeue_count=0, client_count=1)
        assert stats["depth"] > 0
        assert sorted(tool.stdout.read().splitlines()) == bodies
        assert tool.wait() == 0
        assert "connection lost" not in tool.log_text()
    nsqd.wait_for_channel("t", "c", depth=0, in_flight_count=0)


def test_a_reader_that_has_enough_ends_it_quietly(nsqd, tmp_path):
    """Also when nothing more comes that could be written."""
    publish(nsqd, "t", *numbered(3))
    command = shlex.join(tail_command(nsqd))
    script = f"({command}; echo status $? >&2) | head -3"
    done = subprocess.run(["sh", "-c", script], cwd=REPOSITORY, capture_output=True, timeout=40)
    assert sorted(done.stdout.splitlines()) == numbered(3)
    assert done.stderr == b"status 0\n"


def test_a_signal_ends_it_though_nobody_reads(nsqd, start):
    """What was not written is there for others at once; what was being written may come again."""
    line = b"x" * 100_000
    for topic in ("t", "u"):
        publish(nsqd, topic, *[line] * 20)
    with start("nsq_tail", source(nsqd), "--topic=t", "--topic=u", "--channel=c") as tool:
        wait_until_stuck(tool, nsqd, "t", "u")
        assert tool.stop() == 0
        depths = [nsqd.wait_for_channel(topic, "c", in_flight_count=0)["depth"] for topic in ("t", "u")]
        assert 40 - sum(depths) <= tool.output().count(line + b"\n") < 40


# --- on a terminal


def tail_command(nsqd: NsqdProcess) -> list[str]:
    return [sys.executable, "-m", "nsq_apps", "nsq_tail", source(nsqd), "--topic=t", "--log-level=error"]


def test_a_message_does_not_steer_the_terminal(nsqd):
    with on_terminal(tail_command(nsqd)) as terminal:
        publish(nsqd, "t", b"\x1b[2J\x1b]0;owned\x07\x9b31m", b"first\rsecond")
        terminal.wait_for_text(r"first\x0dsecond")
        assert terminal.line_with(r"\x1b[2J\x1b]0;owned\x07\x9b31m")
        assert b"\x1b" not in terminal.output
        terminal.type("\x03")
        assert terminal.wait() == 0


# --- how it is used


def test_an_nsqd_that_is_not_there_is_told(start):
    with start("nsq_tail", "--nsqd-tcp-address=127.0.0.1:1", "--topic=t") as tool:
        tool.wait_for_log("127.0.0.1:1")
        tool.wait_for_log("Connection refused")
        assert tool.stop() == 0


# --- from the log: --since and --last


def http(*nsqds: NsqdProcess) -> list[str]:
    return [f"--nsqd-http-address=127.0.0.1:{nsqd.http_port}" for nsqd in nsqds]


def read_lines(tool: ToolProcess, count: int) -> list[bytes]:
    return [tool.stdout.readline().strip() for _ in range(count)]


@pytest.mark.parametrize("asked", ["--since=1h", "--last=100"])
def test_the_past_and_then_what_is_new_without_gap_or_double(asked, make_nsqd, start):
    """Of two nsqds in the order of time, while they are published to, over a restart of one, and without a channel."""
    one, two = nsqds = [
        make_nsqd("--retention-time=1h", f"--http-address=127.0.0.1:{port}") for port in free_ports(2)
    ]
    for number in range(20):
        publish(nsqds[number % 2], "t", *(b"%d.%d" % (number, part) for part in range(5)))
    with start("nsq_tail", *http(one, two), "--topic=t", asked) as tool:
        first = read_lines(tool, 1)
        for number in range(20, 40):
            publish(nsqds[number % 2], "t", b"%d.0" % number)
        found = first + read_lines(tool, 119)
        assert found[:100] == [b"%d.%d" % (number, part) for number in range(20) for part in range(5)]
        assert sorted(found[100:]) == [b"%d.0" % number for number in range(20, 40)]
        one.stop()
        publish(two, "t", b"in the meantime")
        assert read_lines(tool, 1) == [b"in the meantime"]
        one.start()
        publish(one, "t", b"again")
        assert read_lines(tool, 1) == [b"again"]
        assert [nsqd.topic_stats("t")["channels"] for nsqd in nsqds] == [[], []]
        assert tool.stop() == 0


def test_last_counts_messages_of_each_nsqd_and_cuts_batches(make_nsqd):
    one, two = make_nsqd(), make_nsqd()
    publish(one, "t", *(b"a%d" % part for part in range(10)))
    publish(two, "t", *(b"b%d" % part for part in range(10)))
    publish(one, "t", b"c")
    assert tail(*http(one, two), "--topic=t", "--last=2", "-n=4").split() == [b"a9", b"b8", b"b9", b"c"]
    assert tail(*http(one), "--topic=t", "--last=11", "-n=2", "--grep=a[35]").split() == [b"a3", b"a5"]


def test_the_nsqds_are_found_by_nsqlookupd(make_nsqlookupd, make_nsqd, start):
    lookupd = make_nsqlookupd()
    nsqd = make_nsqd(f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}", "--broadcast-address=127.0.0.1")
    publish(nsqd, "t", b"old")
    wait_until(lambda: "t" in lookupd.topics() and lookupd.lookup("t"), what="the registration")
    with start("nsq_tail", f"--lookupd-http-address={lookupd.http_address}", "--topic=t", "--last=1") as tool:
        assert read_lines(tool, 1) == [b"old"]
        publish(nsqd, "t", b"new")
        assert read_lines(tool, 1) == [b"new"]
        assert tool.stop() == 0


def test_damage_of_a_log_is_said(make_nsqd, start):
    nsqd = make_nsqd("--retention-time=1h", "--scrub-rate=0", "--mem-queue-size=0")
    for body in (b"one", b"two", b"three"):
        publish(nsqd, "t", body * 20)
    nsqd.restart()
    (log,) = nsqd.data_path.glob("t.*.log")
    data = bytearray(log.read_bytes())
    data[data.index(b"twotwo")] ^= 1
    log.write_bytes(data)
    with start("nsq_tail", *http(nsqd), "--topic=t", "--since=1h") as tool:
        assert read_lines(tool, 2) == [b"one" * 20, b"three" * 20]
        tool.wait_for_log(
            f"nsqd 127.0.0.1:{nsqd.http_port}: topic t: 120 damaged bytes of the log cannot be shown"
        )
        assert tool.stop() == 1


def test_a_topic_that_is_created_later_is_shown_from_its_start(nsqd, start):
    with start("nsq_tail", *http(nsqd), "--topic=later", "--last=1") as tool:
        tool.wait_for_log("TOPIC_NOT_FOUND")
        publish(nsqd, "later", b"1", b"2")
        assert read_lines(tool, 2) == [b"1", b"2"]
        assert tool.stop() == 0


def test_a_log_that_needs_a_certificate_and_a_token(make_nsqd, tmp_path):
    certificates = make_certificates(tmp_path)
    tokens = tmp_path / "tokens"
    tokens.write_text(f"token:ops:{hashlib.sha256(b'a-long-token-of-the-operators').hexdigest()}\n")
    nsqd = make_nsqd(
        *certificates.nsqd_flags,
        f"--tls-root-ca-file={certificates.authority}",
        "--tls-client-auth-policy=require-verify",
        f"--http-auth-file={tokens}",
    )
    settings = (
        f"--consumer-opt=tls_root_ca_file,{certificates.authority}",
        f"--consumer-opt=tls_cert,{certificates.client_certificate}",
        f"--consumer-opt=tls_key,{certificates.client_key}",
        "--consumer-opt=tls_v1,true",
    )
    producer_settings = [each.replace("consumer", "producer") for each in settings]
    to_nsq = ("to_nsq", "--topic=t", f"--nsqd-tcp-address=localhost:{nsqd.tcp_port}", *producer_settings)
    assert run_tool("nsq_apps", *to_nsq, input="old\n").returncode == 0
    flags = (*settings, "--topic=t", "--last=1", "-n=1", f"--nsqd-http-address=localhost:{nsqd.http_port}")
    refused = run_tool("nsq_apps", "nsq_tail", *flags)
    assert refused.returncode == 1 and "401 Unauthorized" in refused.stderr
    token = "--consumer-opt=auth_secret,a-long-token-of-the-operators"
    assert tail(*flags, token) == b"old\n"


def test_a_tcp_address_says_nothing_of_the_log():
    run = run_tool("nsq_apps", "nsq_tail", "--topic=t", "--since=1m", "--nsqd-tcp-address=127.0.0.1:1")
    assert run.returncode == 1 and "use --nsqd-http-address" in run.stderr
