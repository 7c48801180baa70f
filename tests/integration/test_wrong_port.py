"""An HTTP port that is given for a TCP address, or the other way round, is named as such."""

from __future__ import annotations

import logging

import pytest

from nsq_spark.archive.splits import ArchiveError
from nsq_spark.source.nsqds import ask
from nsqd_py import client
from nsqd_py.client import NoNsqd
from nsqd_py.client.blocking.backend import THREADS
from nsqd_py.client.blocking.lookup import find_nsqds
from nsqd_py.client.gevent import Greenlets
from nsqd_py.client.gevent import Producer as GeventProducer
from nsqd_py.client.lookup import LookupFailed
from nsqd_py.client.options import ClientOptions
from nsqd_py.cluster.access import HttpAccess
from tests.support.module_servers import module_nsqd, module_nsqlookupd
from tests.support.nsqd_process import wait_until
from tests.support.tool_process import ToolProcess, run_tool

HTTP_FOR_TCP = "this is an HTTP port; give nsqd's TCP address (port 4150 by default)"
LOOKUPD_FOR_NSQD = "this is the TCP port of nsqlookupd; give nsqd's TCP address (port 4150 by default)"
TCP_FOR_HTTP = "this is the TCP port of nsqd or nsqlookupd; give an HTTP address"
NSQD_FOR_LOOKUPD = "this HTTP port is not nsqlookupd's; give nsqlookupd's HTTP address (port 4161 by default)"


nsqd = module_nsqd()


lookupd = module_nsqlookupd()


@pytest.mark.parametrize("producer_type", [GeventProducer, client.Producer], ids=["gevent", "threads"])
def test_a_producer(nsqd, lookupd, producer_type):
    for port, text in ((nsqd.http_port, HTTP_FOR_TCP), (lookupd.tcp_port, LOOKUPD_FOR_NSQD)):
        producer = producer_type(f"127.0.0.1:{port}")
        with pytest.raises(NoNsqd) as raised:
            producer.publish("t", b"x")
        assert text in str(raised.value)
        producer.close()


def test_a_consumer(nsqd, caplog):
    caplog.set_level(logging.DEBUG)
    consumer = client.Consumer("t", "c", nsqd_tcp_addresses=[f"127.0.0.1:{nsqd.http_port}"])
    assert list(consumer.messages(idle_timeout_s=0.3)) == []
    assert f"{HTTP_FOR_TCP}; trying again" in caplog.text


@pytest.mark.parametrize("backend", [Greenlets(), THREADS], ids=["gevent", "threads"])
def test_a_question_to_nsqlookupd(nsqd, lookupd, backend):
    """nsqd's HTTP port says 404 to it, which is not that nsqlookupd does not know the topic."""
    for port, text in (
        (nsqd.tcp_port, TCP_FOR_HTTP),
        (lookupd.tcp_port, TCP_FOR_HTTP),
        (nsqd.http_port, NSQD_FOR_LOOKUPD),
    ):
        with pytest.raises(LookupFailed) as raised:
            find_nsqds(f"127.0.0.1:{port}", "t", ClientOptions(), backend)
        assert text in str(raised.value)
    assert find_nsqds(lookupd.http_address, "t", ClientOptions(), backend) == ()


def test_the_spark_source(nsqd):
    with pytest.raises(ArchiveError) as raised:
        ask(f"127.0.0.1:{nsqd.tcp_port}", "/topic/read", HttpAccess(ClientOptions()))
    assert TCP_FOR_HTTP in str(raised.value)


def test_tools(nsqd, lookupd, tmp_path):
    run = run_tool("nsq_apps", "nsq_stat", f"--nsqd-http-address=127.0.0.1:{nsqd.tcp_port}", "--once")
    assert (run.returncode, TCP_FOR_HTTP in run.stderr) == (1, True)
    runs = (
        ("nsq_tail", f"--nsqd-tcp-address=127.0.0.1:{nsqd.http_port}", "--topic=t", HTTP_FOR_TCP),
        ("nsq_tail", f"--lookupd-http-address=127.0.0.1:{lookupd.tcp_port}", "--topic=t", TCP_FOR_HTTP),
        (
            "nsq_to_file",
            f"--lookupd-http-address=127.0.0.1:{lookupd.tcp_port}",
            "--topic-pattern=t",
            TCP_FOR_HTTP,
        ),
    )
    for command, *flags, text in runs:
        more = [f"--output-dir={tmp_path}"] if "file" in command else []
        with ToolProcess("nsq_apps", command, *flags, *more, log_path=tmp_path / "log") as tool:
            tool.wait_for_log(text)
            tool.stop()


def test_nsqd_and_its_nsqlookupds(nsqd, lookupd, make_nsqd):
    wrong = {
        lookupd.http_address.rpartition(":")[2]: "an HTTP port",
        str(nsqd.tcp_port): "the TCP port of nsqd",
    }
    asking = make_nsqd(*(f"--lookupd-tcp-address=127.0.0.1:{port}" for port in wrong))
    for port, what in wrong.items():
        said = (
            f"LOOKUPD(127.0.0.1:{port}): this is {what}; give nsqlookupd's TCP address (port 4160 by default)"
        )
        wait_until(lambda said=said: said in asking.log_text(), what=said)
