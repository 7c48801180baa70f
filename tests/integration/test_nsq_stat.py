"""nsq-stat as a process in a pipe, on real nsqd and nsqlookupd."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.support.module_servers import module_nsqlookupd
from tests.support.nsqd_process import REPOSITORY, NsqdProcess, wait_until
from tests.support.nsqlookupd_process import NsqlookupdProcess
from tests.support.tool_process import run_tool
from tests.support.wire import req

NOBODY = "127.0.0.1:1"
HEADER = (
    "------rate------+----------------depth----------------+--------------metadata---------------\n"
    "ingress  egress |   total     mem    disk inflt   def |     req     t-o         msgs clients\n"
)
FAST = "--interval=100ms"


def of(*nsqds: NsqdProcess) -> list[str]:
    return [f"--nsqd-http-address=127.0.0.1:{nsqd.http_port}" for nsqd in nsqds]


def by(*lookupds: NsqlookupdProcess) -> list[str]:
    return [f"--lookupd-http-address={lookupd.http_address}" for lookupd in lookupds]


run = partial(run_tool, "nsq_apps", "nsq_stat")


def succeed(*flags: str) -> str:
    """What it writes to standard output, with nothing to complain about."""
    result = run(*flags)
    assert (result.returncode, result.stderr) == (0, ""), result
    return result.stdout


def fail(*flags: str) -> str:
    """What it says on standard error, and nothing else."""
    result = run(*flags)
    assert (result.returncode, result.stdout) == (1, "")
    return result.stderr


def report(*flags: str) -> Any:
    return json.loads(succeed("--once", "--format=json", *flags))


def rows_by_name(document: Any) -> dict[str, Any]:
    return {
        "/".join(filter(None, (row["topic"], row["channel"], row["node"]))): row for row in document["rows"]
    }


@contextlib.contextmanager
def running(*flags: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "nsq_apps", "nsq_stat", *flags]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


Pair = tuple[NsqdProcess, NsqdProcess]


nsqlookupd = module_nsqlookupd()


@pytest.fixture(scope="module")
def pair(make_shared_nsqd, nsqlookupd) -> Pair:
    """Two nsqd with 3 and 4 messages in orders/archive, the second also with users; known to nsqlookupd.

    They are only looked at, so one pair does for all tests.
    """
    flag = f"--lookupd-tcp-address=127.0.0.1:{nsqlookupd.tcp_port}"
    first, second = pair = make_shared_nsqd(flag), make_shared_nsqd(flag)
    for nsqd, count in ((first, 3), (second, 4)):
        nsqd.create("orders", "archive")
        nsqd.mpub("orders", [b"x"] * count)
        nsqd.wait_for_channel("orders", "archive", depth=count)
    second.create("users", "archive")
    wait_until(lambda: (len(nsqlookupd.lookup("orders")), len(nsqlookupd.lookup("users"))) == (2, 1))
    return pair


# --- Go's lines


def test_a_channel_in_gos_lines(pair):
    text = succeed(*of(*pair), "-topic", "orders", "-channel", "archive", "-count", "2", FAST)
    line = "      0       0 |       7       7       0     0     0 |       0       0            7       0\n"
    assert text == HEADER + line * 2


def test_what_a_consumer_does_is_in_the_lines(nsqd):
    """One message is in flight, one was requeued, one waits for its time."""
    nsqd.create("orders", "archive")
    nsqd.post("/mpub?topic=orders", b"1\n2\n3")
    nsqd.post("/pub?topic=orders&defer=600000", b"later")
    with nsqd.consumer("orders", "archive", 1) as consumer:
        (message,) = consumer.messages(1)
        consumer.send(req(message.id, 0))
        consumer.messages(1)
        nsqd.wait_for_channel(
            "orders", "archive", depth=2, in_flight_count=1, requeue_count=1, deferred_count=1
        )
        text = succeed(*of(nsqd), "--topic=orders", "--channel=archive", "--count=1", FAST)
    assert text == HEADER + (
        "      0       0 |       2       2       0     1     1 |       1       0            4       1\n"
    )


def test_rates_are_per_second_of_the_interval(nsqd):
    nsqd.create("orders", "archive")
    flags = (*of(nsqd), "--topic=orders", "--channel=archive", "--interval=200ms")
    with running(*flags) as process, nsqd.connect() as client:
        head = [process.stdout.readline() for _ in range(3)]
        assert "".join(head[:2]) == HEADER
        client.mpub("orders", [b"x"] * 100)
        lines = [process.stdout.readline().split() for _ in range(5)]
    ingress, egress, _, total, *_ = zip(*lines, strict=True)
    assert sorted(ingress) == ["0"] * 4 + ["500"]
    assert set(egress) == {"0"}
    assert total[-1] == "100"


def test_a_channel_that_is_not_there_is_a_failure(pair, nsqlookupd):
    for sources, topic, channel in ((of(*pair), "orders", "none"), (by(nsqlookupd), "none", "archive")):
        said = fail(*sources, f"--topic={topic}", f"--channel={channel}", FAST)
        assert said == f"nsq-stat: failed to find channel({channel}) in stats for topic({topic})\n"


def test_a_sum_over_a_part_is_no_sum(pair):
    """As Go's nsq_stat, it ends when one of the nsqd does not answer."""
    said = fail(*of(*pair), f"--nsqd-http-address={NOBODY}", "--topic=orders", "--channel=archive", FAST)
    assert said == f"nsq-stat: failed to get stats - nsqd {NOBODY}: Connection refused\n"


def test_without_a_channel_all_are_in_the_lines(pair):
    text = succeed(*of(*pair), "--count=1", FAST)
    names = [line.rpartition(" | ")[2] for line in text.splitlines()[1:]]
    assert names == ["topic/channel", "orders", "orders/archive", "users", "users/archive"]
    assert text.splitlines()[3].split()[3] == "7"


# --- once


def test_once_is_what_there_is_now(pair, nsqlookupd):
    document = report(*by(nsqlookupd))
    rows = rows_by_name(document)
    assert list(rows) == ["orders", "orders/archive", "users", "users/archive"]
    assert sorted(document["nodes"]) == sorted(f"127.0.0.1:{nsqd.http_port}" for nsqd in pair)
    assert (rows["orders"]["messages"], rows["orders/archive"]["depth"]) == (7, 7)
    assert rows["orders/archive"]["in_per_s"] is None
    assert document["failed"] == []


def test_rows_may_be_those_of_each_nsqd(pair):
    rows = rows_by_name(report(*of(*pair), "--per-node", "--topic=orders"))
    first, second = (f"127.0.0.1:{nsqd.http_port}" for nsqd in pair)
    depths = {name: row["depth"] for name, row in rows.items() if "archive" in name}
    assert depths == {f"orders/archive/{first}": 3, f"orders/archive/{second}": 4}


def test_who_does_not_answer_is_told_and_the_rest_is_shown(pair):
    result = run(*of(*pair), f"--nsqd-http-address={NOBODY}", "--once", "--format=json")
    document = json.loads(result.stdout)
    assert result.returncode == 1
    assert document["failed"] == [{"address": NOBODY, "reason": "Connection refused"}]
    assert rows_by_name(document)["orders/archive"]["depth"] == 7
    assert result.stderr.count("\n") == 1
    assert f"nsqd {NOBODY}: Connection refused" in result.stderr


@pytest.mark.parametrize(
    ("flag", "how"), [("--nsqd-http-address", "--once"), ("--lookupd-http-address", FAST)]
)
def test_when_nobody_answers_one_line_says_so(flag, how):
    said = fail(f"{flag}={NOBODY}", how)
    who = "nsqd" if "nsqd" in flag else "nsqlookupd"
    assert said == f"nsq-stat: no nsqd answered - {who} {NOBODY}: Connection refused\n"


def test_a_topic_that_nobody_has_is_a_failure(nsqd):
    assert fail(*of(nsqd), "--once", "--topic=none") == "nsq-stat: no nsqd has that topic and channel\n"
    assert report(*of(nsqd))["rows"] == []


def test_an_nsqd_that_hangs_has_its_time_out_and_no_more(nsqd):
    nsqd.create("orders")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        flags = (f"--nsqd-http-address=127.0.0.1:{port}", "--http-client-request-timeout=300ms")
        result = run(*of(nsqd), *flags, "--once", "--format=json")
    document = json.loads(result.stdout)
    assert document["failed"] == [{"address": f"127.0.0.1:{port}", "reason": "no answer within 0.3s"}]
    assert list(rows_by_name(document)) == ["orders"]


@pytest.mark.ours
def test_an_address_may_be_https(make_nsqd, certificates):
    nsqd = make_nsqd(*certificates.nsqd_flags)
    nsqd.create("orders")
    port = wait_until(lambda: [line for line in nsqd.log_text().splitlines() if "HTTPS: listening" in line])[
        0
    ]
    address = f"--nsqd-http-address=https://127.0.0.1:{port.split('127.0.0.1:')[1].split()[0]}"
    document = report(address, f"--http-client-tls-root-ca-file={certificates.authority}")
    assert list(rows_by_name(document)) == ["orders"]
    result = run(address, "--once")
    assert result.returncode == 1
    assert "certificate" in result.stderr


def test_check_reports_what_is_paused_gone_or_without_consumer(make_nsqd, nsqlookupd):
    nsqd = make_nsqd(f"--lookupd-tcp-address=127.0.0.1:{nsqlookupd.tcp_port}")
    nsqd.create("checked", "archive")
    wait_until(lambda: nsqlookupd.channels("checked") == ["archive"])
    assert "checked" not in run(*by(nsqlookupd), "--check", "--filter=checked*").stderr
    nsqd.post("/pub?topic=checked", b"1")
    nsqd.wait_for_channel("checked", "archive", depth=1)
    nsqd.post("/topic/pause?topic=checked")
    nsqlookupd.create_channel("checked-lost", "c")
    result = run(*by(nsqlookupd), "--check", "--filter=checked*", "--format=json")
    assert result.returncode == 2
    assert rows_by_name(json.loads(result.stdout))["checked/archive"]["depth"] == 1
    assert re.findall(r"(?:checked).*", result.stderr) == [
        "checked/archive: no consumer: 1 message waits, and no consumer is connected",
        "checked: paused: The topic is paused; 0 messages wait in it",
        "checked-lost: no nsqd: listed by an nsqlookupd, but no nsqd has it",
    ]
    assert "checked" not in run(*by(nsqlookupd), "--check", "--filter=none").stderr


# --- one report after the other


def test_csv_goes_on_with_one_head(nsqd):
    nsqd.create("orders", "archive")
    rows = list(csv.reader(io.StringIO(succeed(*of(nsqd), "--format=csv", "--count=2", FAST))))
    assert rows[0][:3] == ["time", "topic", "channel"]
    assert [row[1:3] for row in rows[1:]] == [["orders", ""], ["orders", "archive"]] * 2
    assert {row[4] for row in rows[1:]} == {"0"}  # rates are known


def test_who_comes_and_goes_is_told_once(make_nsqd):
    stays, goes = make_nsqd(), make_nsqd()
    stays.create("orders")
    goes.create("users")
    with running(*of(stays, goes), "--format=json", FAST) as process:
        assert len(json.loads(process.stdout.readline())["rows"]) == 2
        goes.stop()
        assert "WARNING" in (line := process.stderr.readline()) and "Connection refused" in line
        for _ in range(3):
            document = json.loads(process.stdout.readline())
        assert list(rows_by_name(document)) == ["orders"]
        assert len(document["failed"]) == 1
        process.terminate()
        assert process.stderr.read() == ""


WAITS = "--http-client-request-timeout=1h"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_at_once(nsqd, number):
    """Also while it waits for an nsqd that does not answer."""
    nsqd.create("orders")
    silent = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{silent.getsockname()[1]}"
    with silent, running(*of(nsqd), f"--nsqd-http-address={address}", "--once", WAITS) as process:
        silent.settimeout(40)
        asked, _ = silent.accept()  # it listens to signals by now
        process.send_signal(number)
        assert process.communicate(timeout=40) == ("", "")
        assert process.returncode == 0
        asked.close()


def test_a_reader_that_goes_away_ends_it_quietly(nsqd):
    nsqd.create("orders")
    with running(*of(nsqd), FAST) as process:
        assert process.stdout.readline().startswith("------rate")
        process.stdout.close()
        assert process.wait(40) == 0
        assert process.stderr.read() == ""
