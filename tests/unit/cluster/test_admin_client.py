"""The admin client: the same cases over both backends, in greenlets and in threads."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nsqd_py.client.options import ClientOptions
from nsqd_py.cluster.access import HttpAccess
from nsqd_py.cluster.admin_client import AdminClient, UpstreamError
from nsqd_py.cluster.upstream import Upstream
from nsqd_py.net.http.client import HttpClient, http_client_tls
from nsqd_py.net.tls_options import HttpClientOptions
from tests.support.certificates import make_certificates
from tests.support.hostile_answers import answering
from tests.support.web_server import HOST, Asked, Reply, WebServer

MakeClient = Callable[..., AdminClient]
NO_ROOM = 100


def of_greenlets(*, answer_s: float = 10.0, most_bytes: int = 1 << 20, authority: str = "") -> Upstream:
    tls = http_client_tls(HttpClientOptions(http_client_tls_root_ca_file=authority))
    return Upstream(HttpClient(5.0, answer_s, tls=tls, max_answer_bytes=most_bytes))


def of_threads(*, answer_s: float = 10.0, most_bytes: int = 1 << 20, authority: str = "") -> HttpAccess:
    options = ClientOptions(tls_root_ca_file=authority)
    return HttpAccess(options, timeout_s=5.0, answer_s=answer_s, max_answer_bytes=most_bytes)


@pytest.fixture(params=[of_greenlets, of_threads])
def make_client(request: pytest.FixtureRequest) -> MakeClient:
    made: MakeClient = request.param
    return made


@pytest.fixture
def server() -> Iterator[WebServer]:
    with WebServer() as server:
        yield server


def answers(server: WebServer, *, status: int = 200, **document: object) -> str:
    """Let the server answer with a document from now on; return its address."""
    server.reply = lambda _: Reply(status, {"X-Nsq-Epoch": "7"}, body=json.dumps(document).encode())
    return f"{HOST}:{server.port}"


def failure_of(client: AdminClient, address: str) -> UpstreamError:
    with pytest.raises(UpstreamError) as caught:
        client.get(address, "/stats")
    return caught.value


def test_a_document_and_its_query(make_client: MakeClient, server: WebServer) -> None:
    address = answers(server, topics=["t"])
    assert make_client().get(address, "/topics", {"a": "b c", "d": "é"}) == {"topics": ["t"]}
    (asked,) = server.asked
    assert (asked.method, asked.target) == ("GET", "/topics?a=b+c&d=%C3%A9")


@pytest.mark.parametrize("scheme", ["", "http://"])
def test_bytes_and_headers(make_client: MakeClient, server: WebServer, scheme: str) -> None:
    address = answers(server)
    client = make_client()
    with client.answer() as answer:
        assert client.get_bytes(answer, f"{scheme}{address}", "/topic/read", {"topic": "t"}) == b"{}"
        assert answer.headers["x-nsq-epoch"] == "7"
        assert answer.date == answer.headers["Date"] != ""


@pytest.mark.parametrize("body", [b"", b"some\r\n\r\nbytes"])
def test_a_post(server: WebServer, body: bytes) -> None:
    address = answers(server)
    of_greenlets().post(address, "/pub", {"topic": "t"}, body)
    (asked,) = server.asked
    assert (asked.method, asked.target, asked.body) == ("POST", "/pub?topic=t", body)


def test_a_refusal(make_client: MakeClient, server: WebServer) -> None:
    address = answers(server, status=404, message="TOPIC_NOT_FOUND")
    error = failure_of(make_client(), address)
    assert (error.status, error.message, error.address) == (404, "TOPIC_NOT_FOUND", address)
    assert error.body == b'{"message": "TOPIC_NOT_FOUND"}'
    assert str(error) == r'got response 404 Not Found "{\"message\": \"TOPIC_NOT_FOUND\"}"'


def test_who_does_not_answer(make_client: MakeClient) -> None:
    error = failure_of(make_client(), f"{HOST}:1")
    assert str(error) == f"GET http://{HOST}:1/stats: Connection refused"
    assert (error.reason, error.status, error.message) == ("Connection refused", 0, "")


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("h:99999", "h:99999: Port out of range 0-65535"),
        ("ftp://h:1", "ftp://h:1: a URL must begin with http:// or https:// and a host"),
    ],
)
def test_what_is_no_address(make_client: MakeClient, address: str, text: str) -> None:
    assert str(failure_of(make_client(), address)) == text


def test_what_is_no_host() -> None:
    host = "h" * 64
    assert failure_of(of_greenlets(), f"{host}:1").reason == f'"{host}" is not a host'
    assert "label" in failure_of(of_threads(), f"{host}:1").reason


def test_what_is_no_json(make_client: MakeClient, server: WebServer) -> None:
    server.reply = lambda _: Reply(body=b"no json")
    error = failure_of(make_client(), f"{HOST}:{server.port}")
    assert str(error).startswith(f"{HOST}:{server.port}: ")


def test_an_answer_that_is_too_long(make_client: MakeClient, server: WebServer) -> None:
    server.reply = lambda _: Reply(body=b" " * NO_ROOM * 10)
    error = failure_of(make_client(most_bytes=NO_ROOM), f"{HOST}:{server.port}")
    assert error.reason == f"the answer is longer than {NO_ROOM} bytes"


def test_one_deadline_for_the_whole_answer(make_client: MakeClient) -> None:
    with answering(b" " * 1000, pause_s=0.01) as address:
        assert failure_of(make_client(answer_s=0.3), address).reason == "no answer within 0.3s"


@pytest.mark.parametrize("answer", [b"", b"x"])
def test_an_answer_that_is_cut_off(make_client: MakeClient, answer: bytes) -> None:
    with answering(answer, status="200 OK\r\nContent-Length: 9") as address:
        assert failure_of(make_client(), address).status == 0


# ---- a server that wants TLS


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[WebServer, str]]:
    """A server with a certificate for localhost, and the file of its authority."""
    certificates = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server_certificate, certificates.server_key)
    with WebServer(tls=context) as server:
        yield server, str(certificates.authority)


def wants_tls(server: WebServer, port: object) -> str:
    answers(server, status=403, message="TLS_REQUIRED", https_port=port)
    return f"localhost:{server.port}"


def test_a_server_that_wants_tls_is_asked_again(
    make_client: MakeClient, server: WebServer, secure: tuple[WebServer, str]
) -> None:
    secure_server, authority = secure
    answers(secure_server, topics=[])
    address = wants_tls(server, secure_server.port)
    assert make_client(authority=authority).get(address, "/stats", {"a": "b"}) == {"topics": []}
    assert [asked.target for asked in [*server.asked, *secure_server.asked]] == ["/stats?a=b"] * 2


def test_certificates_that_are_replaced_while_the_program_runs(
    make_client: MakeClient, tmp_path: Path
) -> None:
    certificates = make_certificates(tmp_path)
    context = certificates.server_context()
    with WebServer(tls=context) as server:
        address = f"https://{answers(server, topics=[]).replace(HOST, 'localhost')}"
        client = make_client(authority=str(certificates.authority))
        assert client.get(address, "/stats") == {"topics": []}
        make_certificates(tmp_path)  # of another authority, in the same files
        context.load_cert_chain(certificates.server_certificate, certificates.server_key)
        assert client.get(address, "/stats") == {"topics": []}


def test_new_certificates_that_cannot_be_used_leave_those_before(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    warned: list[str] = []
    options = HttpClientOptions(http_client_tls_root_ca_file=str(certificates.authority))
    client = Upstream(HttpClient(5.0, 10.0, tls=http_client_tls(options, warned.append)))
    with WebServer(tls=certificates.server_context()) as server:
        address = f"https://{answers(server, topics=[]).replace(HOST, 'localhost')}"
        certificates.authority.write_text("half a file")
        assert client.get(address, "/stats") == {"topics": []}
        assert client.get(address, "/stats") == {"topics": []}
    (text,) = warned
    assert str(certificates.authority) in text


def test_a_refusal_over_tls_is_the_last_one(
    make_client: MakeClient, server: WebServer, secure: tuple[WebServer, str]
) -> None:
    secure_server, authority = secure
    wants_tls(secure_server, secure_server.port)
    error = failure_of(make_client(authority=authority), wants_tls(server, secure_server.port))
    assert (error.status, error.address) == (403, f"https://localhost:{secure_server.port}")
    assert len(secure_server.asked) == 1


def test_a_certificate_of_another_authority(
    make_client: MakeClient, server: WebServer, secure: tuple[WebServer, str]
) -> None:
    secure_server, _ = secure
    error = failure_of(make_client(), wants_tls(server, secure_server.port))
    assert str(error).startswith(f"GET https://localhost:{secure_server.port}/stats: ")
    assert "CERTIFICATE_VERIFY_FAILED" in error.reason or "certificate verify failed" in error.reason


@pytest.mark.parametrize("port", [None, 0, 65536, True, "4152", -1])
def test_a_refusal_without_a_port(make_client: MakeClient, server: WebServer, port: object) -> None:
    assert failure_of(make_client(), wants_tls(server, port)).status == 403
    assert len(server.asked) == 1


# ---- threads


def test_who_gets_no_token_learns_the_port_from_info(
    server: WebServer, secure: tuple[WebServer, str]
) -> None:
    """An nsqd with an --http-auth-file answers 401 to plain requests, and names its HTTPS port only in /info."""
    secure_server, authority = secure

    def reply(asked: Asked) -> Reply:
        info = json.dumps({"https_port": secure_server.port}).encode()
        return Reply(body=info) if asked.target == "/info" else Reply(401)

    server.reply = reply
    answers(secure_server, topics=[])
    assert of_threads(authority=authority).get(f"localhost:{server.port}", "/stats") == {"topics": []}
    assert [asked.target for asked in server.asked] == ["/stats", "/info"]


def test_an_address_with_http_stays_so(server: WebServer) -> None:
    assert failure_of(of_threads(), f"http://{wants_tls(server, 1)}").status == 403
