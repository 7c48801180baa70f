"""A shell completes names of topics and channels: those of running nsqds and nsqlookupds."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.nsqd_process import MakeNsqd, NsqdProcess, wait_until
from tests.support.nsqlookupd_process import MakeNsqlookupd, NsqlookupdProcess
from tests.support.tool_process import ENVIRONMENT

pytestmark = pytest.mark.ours


@pytest.fixture
def nsqlookupd(make_nsqlookupd: MakeNsqlookupd) -> NsqlookupdProcess:
    return make_nsqlookupd()


@pytest.fixture
def nsqd(make_nsqd: MakeNsqd, nsqlookupd: NsqlookupdProcess) -> NsqdProcess:
    nsqd = make_nsqd(f"--lookupd-tcp-address=127.0.0.1:{nsqlookupd.tcp_port}")
    nsqd.create("orders", "archive", "audit")
    nsqd.create("events", "other")
    wait_until(lambda: nsqlookupd.http("GET", "/channels?topic=events").json()["channels"] == ["other"])
    return nsqd


def offered(*words: str, command: str = "nsq_tail", **variables: str) -> list[str]:
    """The words that bash gets, after Tab behind the last of these."""
    name = command.replace("_", "-")
    line = " ".join((name, *words))
    environment = {
        **ENVIRONMENT,
        f"_{command.upper()}_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words)),
        **variables,
    }
    run = subprocess.run([sys.executable, "-m", "nsq_apps", command], env=environment, capture_output=True, text=True, timeout=60)
    assert run.stderr == ""
    return [one.partition(",")[2] for one in run.stdout.splitlines() if one]


def test_names_come_from_where_the_command_line_says(nsqd: NsqdProcess, nsqlookupd: NsqlookupdProcess) -> None:
    of_lookupd = f"--lookupd-http-address=127.0.0.1:{nsqlookupd.http_port}"
    assert offered(of_lookupd, "--topic", "o") == ["orders"]
    assert offered(of_lookupd, "--topic=") == ["events", "orders"]
    assert offered(of_lookupd, "-t=e") == ["events"]
    assert offered(of_lookupd, "--topic=orders", "--channel", "a") == ["archive", "audit"]
    assert offered(f"--nsqd-http-address=127.0.0.1:{nsqd.http_port}", "--topic=orders", "--channel=au") == ["audit"]
    tcp_address = f"127.0.0.1:{nsqd.http_port - 1}"  # the HTTP port is the one after it, as it is by default
    assert offered("--nsqd-tcp-address", tcp_address, "--topic", "ev", command="to_nsq") == ["events"]


def test_names_come_from_where_the_environment_says(nsqd: NsqdProcess, nsqlookupd: NsqlookupdProcess) -> None:
    address = f"127.0.0.1:{nsqlookupd.http_port}"
    assert offered("--topic", "", command="nsq_to_file", NSQLOOKUPD_HTTP_ADDRESS=address) == ["events", "orders"]


def test_without_an_answer_there_are_no_names() -> None:
    assert offered("--lookupd-http-address=127.0.0.1:1", "--topic", "") == []
    assert offered("--nsqd-tcp-address=nonsense", "--topic", "") == []
