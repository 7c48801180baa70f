"""Questions to servers that are no nsqd of ours, or that need too long to answer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("pyspark")

from nsq_spark.archive.splits import ArchiveError
from nsq_spark.source.live import LiveBatchReader, LiveReader
from nsq_spark.source.live_options import live_options
from nsq_spark.source.nsqds import ask
from nsqd_py.client.blocking.http_requests import HttpAccess
from nsqd_py.client.options import ClientOptions
from tests.support.hostile_answers import answering

ACCESS = HttpAccess(ClientOptions(), timeout_s=5, answer_s=0.3)


class GoNsqd(BaseHTTPRequestHandler):
    """What Go's nsqd 1.3.0 answers, also to a path that it does not have."""

    protocol_version = "HTTP/1.1"
    documents: dict[str, dict[str, Any]] = {
        "/info": {"version": "1.3.0", "broadcast_address": "127.0.0.1", "hostname": "h", "http_port": 4151, "tcp_port": 4150},
        "/stats": {"version": "1.3.0", "health": "OK", "start_time": 1, "topics": [{"topic_name": "orders", "channels": []}]},
    }

    def do_GET(self) -> None:
        document = self.documents.get(urlsplit(self.path).path)
        body = json.dumps(document or {"message": "NOT_FOUND"}).encode()
        self.send_response(200 if document else 404)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("X-Nsq-Content-Type", "nsq; version=1.0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def go_nsqd() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), GoNsqd) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def lookupd_that_names(nsqd: str) -> Any:
    host, _, port = nsqd.partition(":")
    producer = {"broadcast_address": host, "tcp_port": 4150, "http_port": int(port)}
    return answering(json.dumps({"producers": [producer]}).encode())


@pytest.mark.parametrize("topic", [{"topic": "orders"}, {"topicPattern": "^ord"}])
@pytest.mark.parametrize("path", ["", "/no/such/archive"])
def test_gos_nsqd_is_refused_at_once(topic: dict[str, str], path: str) -> None:
    began_s = time.monotonic()
    with go_nsqd() as nsqd:
        options = live_options({"nsqd": nsqd, "giveUpAfter": "60s", **topic} | ({"path": path} if path else {}), 0)
        text = rf"^nsq: {nsqd} hands out no kept messages .*: archive topics of Go's nsqd with nsq-to-file, and read the archive$"
        for start in LiveReader(options, ("body",)).initialOffset, LiveBatchReader(options, ("body",)).partitions:
            with pytest.raises(ArchiveError, match=text):
                start()
    assert time.monotonic() - began_s < 30


def test_gos_nsqd_that_nsqlookupd_names_is_refused_at_once() -> None:
    began_s = time.monotonic()
    with go_nsqd() as nsqd, lookupd_that_names(nsqd) as lookupd:
        options = live_options({"nsqlookupd": lookupd, "topic": "orders", "giveUpAfter": "60s"}, 0)
        with pytest.raises(ArchiveError, match=f"^nsq: {nsqd} hands out no kept messages"):
            LiveReader(options, ("body",)).initialOffset()
    assert time.monotonic() - began_s < 30


def test_a_path_that_a_server_does_not_have() -> None:
    with (
        go_nsqd() as nsqd,
        pytest.raises(ArchiveError, match=f"^nsq: {nsqd} has no /lookup: is it the address of another server"),
    ):
        ask(nsqd, "/lookup?topic=orders", ACCESS)


def test_an_answer_that_drips_ends() -> None:
    with answering(b" " * 1000, pause_s=0.01) as server, pytest.raises(ArchiveError, match="no answer within 0.3s"):
        ask(server, "/info", ACCESS)


def test_an_answer_that_is_cut() -> None:
    with answering(b"{}", status="200 OK\r\nContent-Length: 9") as server, pytest.raises(ArchiveError, match="IncompleteRead"):
        ask(server, "/info", ACCESS)
