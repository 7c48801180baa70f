"""Questions to servers that are no nsqd of ours, or that need too long to answer."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("pyspark")

from nsq_spark.archive.splits import ArchiveError
from nsq_spark.source.live import LiveBatchReader, LiveReader
from nsq_spark.source.live_options import LogKey, live_options
from nsq_spark.source.nsqds import LiveTopics, ask
from nsqd_py.client.options import ClientOptions
from nsqd_py.cluster.access import HttpAccess
from tests.support.certificates import make_certificates
from tests.support.hostile_answers import answering
from tests.support.web_server import Reply, WebServer

ACCESS = HttpAccess(ClientOptions(), timeout_s=5, answer_s=0.3)


class GoNsqd(BaseHTTPRequestHandler):
    """What Go's nsqd 1.3.0 answers, also to a path that it does not have."""

    protocol_version = "HTTP/1.1"
    documents: dict[str, dict[str, Any]] = {
        "/info": {
            "version": "1.3.0",
            "broadcast_address": "127.0.0.1",
            "hostname": "h",
            "http_port": 4151,
            "tcp_port": 4150,
        },
        "/stats": {
            "version": "1.3.0",
            "health": "OK",
            "start_time": 1,
            "topics": [{"topic_name": "orders", "channels": []}],
        },
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
        options = live_options(
            {"nsqd": nsqd, "giveUpAfter": "60s", **topic} | ({"path": path} if path else {}), 0
        )
        text = rf"^nsq: {nsqd} hands out no kept messages .*: archive topics of Go's nsqd with nsq-to-file, and read the archive$"
        for start in (
            LiveReader(options, ("body",)).initialOffset,
            LiveBatchReader(options, ("body",)).partitions,
        ):
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
        pytest.raises(
            ArchiveError, match=f"^nsq: {nsqd} has no /lookup: is it the address of another server"
        ),
    ):
        ask(nsqd, "/lookup?topic=orders", ACCESS)


def test_an_answer_that_drips_ends() -> None:
    with (
        answering(b" " * 1000, pause_s=0.01) as server,
        pytest.raises(ArchiveError, match="no answer within 0.3s"),
    ):
        ask(server, "/info", ACCESS)


def test_an_answer_that_is_cut() -> None:
    with (
        answering(b"{}", status="200 OK\r\nContent-Length: 9") as server,
        pytest.raises(ArchiveError, match="IncompleteRead"),
    ):
        ask(server, "/info", ACCESS)


# ---- secrets


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[WebServer, WebServer, str]]:
    """A server that answers plain requests with the port of another one, whose certificate the system trusts; its authority."""
    certificates = make_certificates(tmp_path / "certificates")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server_certificate, certificates.server_key)
    with WebServer(lambda _: Reply(401, body=b"{}"), tls=context) as secure:
        refusal = json.dumps({"message": "TLS_REQUIRED", "https_port": secure.port}).encode()
        with WebServer(lambda _: Reply(403, body=refusal)) as plain:
            yield plain, secure, str(certificates.authority)


WITHHELD = "Logins and tokens are sent over TLS to addresses that options name"


@pytest.mark.parametrize("by", ["nsqlookupd", "plain", "secure"])
@pytest.mark.parametrize("authority", ["the system's", "own", "unchecked"])
def test_an_answer_moves_no_secret_to_a_server_that_options_do_not_name(
    servers: tuple[WebServer, WebServer, str], by: str, authority: str
) -> None:
    """Everybody can register with an nsqlookupd, and get a certificate for a name of his own."""
    plain, secure, file = servers
    given = {"topic": "orders", "giveUpAfter": "100ms", "nsq.auth_secret": "s3cret"}
    given |= {
        "own": {"nsq.tls_root_ca_file": file},
        "unchecked": {"nsq.tls_insecure_skip_verify": "true"},
    }.get(authority, {})
    with lookupd_that_names(f"localhost:{plain.port}") as lookupd:
        places = {
            "nsqlookupd": {"nsqlookupd": lookupd},
            "plain": {"nsqd": f"localhost:{plain.port}"},
            "secure": {"nsqd": f"https://LOCALHOST:{secure.port}"},
        }
        options = live_options(given | places[by], 0)
        with pytest.raises(ArchiveError, match="answers 401") as refused:
            LiveReader(options, ("body",)).initialOffset()
    may_see = authority == "own" or by == "secure"
    assert not any("authorization" in asked.headers for asked in plain.asked)
    assert {asked.headers.get("authorization") for asked in secure.asked} == {
        "Bearer s3cret" if may_see else None
    }
    assert (WITHHELD in str(refused.value)) == (not may_see)


def test_a_login_is_for_the_same_servers_as_a_token() -> None:
    options = live_options({"nsqd": "https://me:pass%3Aword@a:4152", "nsqlookupd": "b:4161", "topic": "t"}, 0)
    shown = {
        server: "Authorization" in options.access.headers_for(server)
        for server in ("a:4152", "a:4153", "b:4161", "c:4152")
    }
    assert shown == {"a:4152": True, "a:4153": False, "b:4161": True, "c:4152": False}


def test_how_many_messages_an_nsqd_keeps_before_its_earliest_one() -> None:
    """Of files that it has compacted. An nsqd that does not say has none that are known."""
    spans = ((0, 428, 8), (428, 500, 2), (500, 610, 110))
    names = ("first_seq", "end_seq", "message_count")
    files = [dict(zip(names, one, strict=True)) for one in spans]
    answers = {"/topic/log?topic=a+b": Reply(200, body=json.dumps({"files": files}).encode())}
    with WebServer(lambda asked: answers.get(asked.target, Reply(403, body=b"{}"))) as nsqd:
        address = f"127.0.0.1:{nsqd.port}"
        topics = LiveTopics(live_options({"nsqd": address, "topic": "a"}, 0))
        assert topics.waiting(LogKey("a b", address), 500) == 10
        assert topics.waiting(LogKey("a b", address), 0) == 0
        assert topics.waiting(LogKey("other", address), 500) == 0
