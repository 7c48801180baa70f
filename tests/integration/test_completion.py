"""A shell completes names of topics and channels: those of running nsqds and nsqlookupds."""

from __future__ import annotations

import pytest

from tests.support.module_servers import module_nsqlookupd
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.tool_process import ENVIRONMENT, run_tool

pytestmark = pytest.mark.ours


nsqlookupd = module_nsqlookupd()


@pytest.fixture(scope="module")
def nsqd(make_shared_nsqd, nsqlookupd) -> NsqdProcess:
    nsqd = make_shared_nsqd(f"--lookupd-tcp-address=127.0.0.1:{nsqlookupd.tcp_port}")
    nsqd.create("orders", "archive", "audit")
    nsqd.create("events", "other")
    wait_until(lambda: nsqlookupd.channels("events") == ["other"])
    return nsqd


def offered(*words: str, command: str = "nsq_tail", **variables: str) -> list[str]:
    """The words that bash gets, after Tab behind the last of these."""
    variables |= {
        f"_{command.upper()}_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join((command.replace("_", "-"), *words)),
        "COMP_CWORD": str(len(words)),
    }
    run = run_tool("nsq_apps", command, env=ENVIRONMENT | variables)
    assert run.stderr == ""
    return [one.partition(",")[2] for one in run.stdout.splitlines() if one]


def test_names_come_from_where_the_command_line_says(nsqd, nsqlookupd):
    of_lookupd = f"--lookupd-http-address={nsqlookupd.http_address}"
    assert offered(of_lookupd, "--topic", "o") == ["orders"]
    assert offered(of_lookupd, "--topic=") == ["events", "orders"]
    assert offered(of_lookupd, "-t=e") == ["events"]
    assert offered(of_lookupd, "--topic=orders", "--channel", "a") == ["archive", "audit"]
    assert offered(f"--nsqd-http-address=127.0.0.1:{nsqd.http_port}", "--topic=orders", "--channel=au") == [
        "audit"
    ]
    tcp_address = f"127.0.0.1:{nsqd.http_port - 1}"  # the HTTP port is the one after it, as it is by default
    assert offered("--nsqd-tcp-address", tcp_address, "--topic", "ev", command="to_nsq") == ["events"]


def test_names_come_from_where_the_environment_says(nsqd, nsqlookupd):
    found = offered("--topic", "", command="nsq_to_file", NSQLOOKUPD_HTTP_ADDRESS=nsqlookupd.http_address)
    assert found == ["events", "orders"]


def test_without_an_answer_there_are_no_names():
    assert offered("--lookupd-http-address=127.0.0.1:1", "--topic", "") == []
    assert offered("--nsqd-tcp-address=nonsense", "--topic", "") == []
