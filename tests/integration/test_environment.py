"""Addresses from the environment, for the clients and the tools."""

from __future__ import annotations

import os

import pytest

from nsqd_py.client import BadAddress, Consumer, Producer
from nsqd_py.client.addresses import parse_address
from nsqd_py.settings.flags import addresses_from_environment
from tests.support.tool_process import run_tool

pytestmark = pytest.mark.ours


def test_lists_have_commas_and_nsqds_come_first():
    assert addresses_from_environment({}) == ((), ())
    assert addresses_from_environment({"NSQD_TCP_ADDRESS": " a:1, b:2,"}) == (("a:1", "b:2"), ())
    both = {"NSQD_TCP_ADDRESS": "a:1", "NSQLOOKUPD_HTTP_ADDRESS": "c:3"}
    assert addresses_from_environment(both) == (("a:1",), ())
    assert addresses_from_environment({"NSQLOOKUPD_HTTP_ADDRESS": "c:3,d:4"}) == ((), ("c:3", "d:4"))


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("nsq://queue", "queue:4150"),
        ("nsq://queue/", "queue:4150"),
        ("nsq://queue:5150", "queue:5150"),
        ("nsq://[::1]", "[::1]:4150"),
        ("nsq://[::1]:5150/", "[::1]:5150"),
    ],
)
def test_urls(url, address):
    assert str(parse_address(url)) == address


@pytest.mark.parametrize("url", ["nsq://", "nsq://a:b", "nsq://a/b", "http://a:4150"])
def test_bad_urls(url):
    with pytest.raises(BadAddress):
        parse_address(url)


def test_clients_need_no_address(address, monkeypatch):
    monkeypatch.setenv("NSQD_TCP_ADDRESS", f"nsq://{address}")
    with Producer() as producer:
        producer.publish("environment", b"x")
    with Consumer("environment", "c") as consumer:
        assert next(consumer.messages(idle_timeout_s=40)).body == b"x"


def test_tools_need_no_address(address):
    def run(*words, given="", **variables):
        return run_tool("nsq_apps", *words, input=given, env={**os.environ, **variables})

    published = run("to_nsq", "--topic=environment2", given="hello\n", NSQD_TCP_ADDRESS=address)
    assert published.returncode == 0, published.stderr
    seen = run("nsq_tail", "--topic=environment2", "--channel=c", "-n=1", NSQD_TCP_ADDRESS=address)
    assert "hello" in seen.stdout, seen.stderr
    flag = run(
        "nsq_tail", "--topic=t", f"--nsqd-tcp-address={address}", "--nonsense", NSQLOOKUPD_HTTP_ADDRESS="x:1"
    )
    assert "both" not in flag.stderr  # a flag counts more than the environment
    assert run("to_nsq", "--topic=environment2").returncode == 2
