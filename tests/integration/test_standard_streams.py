"""Standard streams that are closed, full or without a reader: one line and status 1; no traceback, and no hang."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.nsqd_process import REPOSITORY, wait_until
from tests.support.sweeps import sweep

_PROGRAMS = (
    "nsqd",
    "nsqlookupd",
    "nsqadmin",
    "nsq_tail",
    "nsq_stat",
    "nsq_to_file",
    "nsq_to_http",
    "nsq_to_nsq",
    "nsq_worker",
    "to_nsq",
    "spark_replay",
    "contrib",
)
_DEADLINE_S = 60
_STREAMS = (">/dev/full", ">&-", "2>/dev/full", "2>&-", ">/dev/full 2>&1", ">&- 2>&-", "<&-", "| true")


@contextmanager
def started(streams: str, module: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command of a shell whose status is that of the program."""
    line = f'{"exec " if "|" not in streams else ""}"$@" {streams}'
    script = f"set -o pipefail; {line}; exit $?" if "|" in streams else line
    command = ["bash", "-c", script, "bash", sys.executable, "-m", "nsq_apps", module, *arguments]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        try:
            yield program
        finally:
            program.kill()


def ended(program: subprocess.Popen[bytes], streams: str, status: int) -> None:
    """Check how the program ends."""
    out, err = program.communicate(timeout=_DEADLINE_S)
    assert program.returncode == status, (out, err)
    assert b"Traceback" not in err and b"Exception" not in err, err.decode()
    if status == 1 and "2>" not in streams:
        assert err.count(b"\n") == 1 and b"cannot write to standard output" in err, err.decode()


@pytest.mark.parametrize(
    ("module", "streams"), sweep(_PROGRAMS, [">/dev/full", ">&-", ">/dev/full 2>&1", ">&- 2>&-", "| true"])
)
def test_help(module, streams):
    argument = "systemd/nsqd.service" if module == "contrib" else "--help"
    with started(streams, module, argument) as program:
        ended(program, streams, status=1 if streams.startswith(">") else 0)


@pytest.mark.parametrize(
    ("module", "streams"), sweep(["nsqd", "nsqlookupd", "nsq_cat"], [">/dev/full", ">&-", "| true"])
)
def test_print_config(module, streams):
    loopback = () if module == "nsq_cat" else ("--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0")
    with started(streams, module, "--print-config", *loopback) as program:
        ended(program, streams, status=1 if streams.startswith(">") else 0)


@pytest.mark.parametrize(("module", "streams"), sweep(["nsq_tail", "nsq_stat"], _STREAMS))
def test_a_tool_that_writes(module, streams, nsqd):
    nsqd.create("t", "c")
    nsqd.pub("t", b"a")
    flags = {
        "nsq_tail": (f"--nsqd-tcp-address=127.0.0.1:{nsqd.tcp_port}", "--topic=t", "--channel=c", "--n=1"),
        "nsq_stat": (f"--nsqd-http-address=127.0.0.1:{nsqd.http_port}", "--once"),
    }
    with started(streams, module, *flags[module]) as program:
        out, err = program.communicate(timeout=_DEADLINE_S)
    assert program.returncode == (1 if streams.startswith(">") else 0), (out, err)
    assert b"Traceback" not in err and b"Exception" not in err, err.decode()


@pytest.mark.parametrize("streams", ["2>/dev/full", "2>&-", ">/dev/full 2>&1", "<&- >&- 2>&-"])
@pytest.mark.parametrize("module", ["nsqd", "nsqlookupd"])
def test_a_daemon_runs_and_writes_no_log_line_into_its_files(module, streams, tmp_path):
    sockets = [tmp_path / "tcp.sock", tmp_path / "http.sock"]
    flags = [f"--tcp-address={sockets[0]}", f"--http-address={sockets[1]}"]
    data = [f"--data-path={tmp_path}"] if module == "nsqd" else []
    with started(streams, module, *flags, *data) as program:
        wait_until(lambda: all(path.exists() for path in sockets), what="the sockets")
        program.send_signal(signal.SIGTERM)
        ended(program, streams, status=0)
    assert not any(b"INFO" in path.read_bytes() for path in tmp_path.iterdir() if path.is_file())


def test_no_topic_that_matches_the_pattern(nsqd, tmp_path):
    source = f"--nsqd-tcp-address=127.0.0.1:{nsqd.tcp_port}"
    flags = (source, "--topic=live", "--topic-pattern=x", f"--output-dir={tmp_path}")
    with started("", "nsq_to_file", *flags) as program:
        _, err = program.communicate(timeout=_DEADLINE_S)
    assert program.returncode == 1
    assert err.decode().splitlines()[-1] == "nsq-to-file: no --topic matches --topic-pattern 'x'"
