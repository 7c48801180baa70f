"""nsqlookupd's TCP protocol: each error with its place in the order of checks, and what registering does."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.lookup_wire import LookupClient, identify
from tests.support.memory import resident_bytes
from tests.support.module_servers import module_nsqlookupd
from tests.support.nsqd_process import wait_until
from tests.support.wire import Closed, int32, sized

nsqlookupd = module_nsqlookupd()
OK = b"OK"
KNOWN = identify()
LONG = "t" * 65


class Case(NamedTuple):
    id: str
    sent: bytes
    error: bytes
    # Responses before the error: how many.
    before: int = 0
    end_of_input: bool = False


def known(case_id: str, sent: bytes, error: bytes) -> Case:
    return Case(f"identified-{case_id}", KNOWN + sent, error, before=1)


def bad_identify(case_id: str, error: str, **changes: Any) -> Case:
    return Case(f"IDENTIFY-{case_id}", identify(**changes), f"E_BAD_BODY IDENTIFY {error}".encode())


CASES = [
    Case("unknown", b"HELLO there\n", b"E_INVALID invalid command HELLO"),
    Case("lower-case", b"ping\n", b"E_INVALID invalid command ping"),
    Case("empty-line", b"\n", b"E_INVALID invalid command "),
    Case("only-spaces", b"   \r\n", b"E_INVALID invalid command "),
    Case("raw-bytes", b"\xff\xfe\n", b"E_INVALID invalid command \xff\xfe"),
    Case("REGISTER-first", b"REGISTER t c\n", b"E_INVALID client must IDENTIFY"),
    Case("REGISTER-first-without-a-topic", b"REGISTER\n", b"E_INVALID client must IDENTIFY"),
    Case("UNREGISTER-first", b"UNREGISTER t c\n", b"E_INVALID client must IDENTIFY"),
    Case("after-PING", b"PING\nREGISTER t\n", b"E_INVALID client must IDENTIFY", before=1),
    known("IDENTIFY-again", b"IDENTIFY\n", b"E_INVALID cannot IDENTIFY again"),
    bad_identify("without-address", "missing fields", broadcast_address=None),
    bad_identify("with-empty-address", "missing fields", broadcast_address=""),
    bad_identify("without-tcp-port", "missing fields", tcp_port=None),
    bad_identify("with-tcp-port-0", "missing fields", tcp_port=0),
    bad_identify("without-http-port", "missing fields", http_port=None),
    bad_identify("without-version", "missing fields", version=None),
    bad_identify("port-in-words", "failed to decode JSON body", tcp_port="4150"),
    bad_identify("broken-port", "failed to decode JSON body", http_port=4151.5),
    bad_identify("number-for-address", "failed to decode JSON body", broadcast_address=1),
    bad_identify("bool-for-version", "failed to decode JSON body", version=True),
    Case("IDENTIFY-no-JSON", b"IDENTIFY\n" + sized(b"{"), b"E_BAD_BODY IDENTIFY failed to decode JSON body"),
    Case("IDENTIFY-list", b"IDENTIFY\n" + sized(b"[]"), b"E_BAD_BODY IDENTIFY failed to decode JSON body"),
    Case("IDENTIFY-null", b"IDENTIFY\n" + sized(b"null"), b"E_BAD_BODY IDENTIFY missing fields"),
    Case(
        "IDENTIFY-empty-body", b"IDENTIFY\n" + sized(b""), b"E_BAD_BODY IDENTIFY failed to decode JSON body"
    ),
    Case(
        "IDENTIFY-size-cut-off",
        b"IDENTIFY\n\0\0",
        b"E_BAD_BODY IDENTIFY failed to read body size",
        end_of_input=True,
    ),
    Case(
        "IDENTIFY-body-cut-off",
        b"IDENTIFY\n" + int32(9) + b"{}",
        b"E_BAD_BODY IDENTIFY failed to read body",
        end_of_input=True,
    ),
]
CASES += [
    known(
        f"{command}-{name}",
        f"{command}{words}\n".encode("latin-1"),
        f"{code} {command} {what}".encode("latin-1"),
    )
    for command in ("REGISTER", "UNREGISTER")
    for name, words, code, what in (
        ("alone", "", "E_INVALID", "insufficient number of params"),
        ("bad-topic", " a$b c", "E_BAD_TOPIC", "topic name 'a$b' is not valid"),
        ("empty-topic", "  c", "E_BAD_TOPIC", "topic name '' is not valid"),
        ("long-topic", f" {LONG}", "E_BAD_TOPIC", f"topic name '{LONG}' is not valid"),
        ("bad-channel", " t a$b", "E_BAD_CHANNEL", "channel name 'a$b' is not valid"),
        ("bad-topic-and-channel", " $ $", "E_BAD_TOPIC", "topic name '$' is not valid"),
        ("raw-bytes", " t \xff", "E_BAD_CHANNEL", "channel name '\xff' is not valid"),
    )
]


def refused(client: LookupClient, case: Case) -> None:
    for _ in range(case.before):
        assert not client.read().startswith(b"E_")
    assert client.read() == case.error
    with pytest.raises(Closed):
        client.read()


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
@pytest.mark.parametrize("way", ["whole", "byte-by-byte", "with-more-behind"])
def test_an_error_is_answered_and_ends_the_connection(nsqlookupd, case, way):
    with LookupClient(nsqlookupd.tcp_port) as client:
        if way == "byte-by-byte":
            client.send_byte_by_byte(case.sent)
        elif way == "with-more-behind" and not case.end_of_input:
            client.send(case.sent + b"PING\n" * 3)
        else:
            client.send(case.sent)
        if case.end_of_input:
            client.end_input()
        refused(client, case)


@pytest.mark.parametrize("magic", [b"  V2", b"GET ", b"\0\0\0\0"])
def test_another_magic_is_a_bad_protocol(nsqlookupd, magic):
    with LookupClient(nsqlookupd.tcp_port, magic=magic) as client:
        assert client.read() == b"E_BAD_PROTOCOL"
        with pytest.raises(Closed):
            client.read()


@pytest.mark.ours
@pytest.mark.parametrize("size", [-1, -(1 << 31), (1 << 31) - 1, 64 * 1024 + 1])
def test_a_body_of_an_impossible_size_is_refused_at_once(nsqlookupd, size):
    """Go's dies of a negative one, and waits for any large one."""
    with LookupClient(nsqlookupd.tcp_port) as client:
        client.send(b"IDENTIFY\n" + int32(size))
        refused(client, Case("", b"", b"E_BAD_BODY IDENTIFY failed to read body"))


@pytest.mark.ours
def test_a_line_without_an_end_is_refused(nsqlookupd):
    with LookupClient(nsqlookupd.tcp_port) as client:
        client.send(b"x" * 20_000)
        assert client.read() == b"E_INVALID the command is longer than 16384 bytes"


def test_ping_is_answered_before_and_after_identify(nsqlookupd):
    with LookupClient(nsqlookupd.tcp_port) as client:
        assert client.ask("PING") == OK
        client.introduce()
        assert client.ask("PING and more") == OK
        assert client.ask("\t PING\r") == OK


def test_the_response_to_identify_introduces_nsqlookupd(nsqlookupd):
    with LookupClient(nsqlookupd.tcp_port) as client:
        assert client.introduce() == {
            "broadcast_address": "127.0.0.1",
            "hostname": socket.gethostname(),
            "http_port": nsqlookupd.http_port,
            "tcp_port": nsqlookupd.tcp_port,
            "version": nsqlookupd.http("GET", "/info").json()["version"],
        }


def test_names_in_identify_are_read_in_any_case_and_others_are_ignored(nsqlookupd):
    fields = {
        "Broadcast_Address": "any-case",
        "TCP_PORT": 1,
        "http_port": 2,
        "version": "x",
        "remote_address": "no",
    }
    with LookupClient(nsqlookupd.tcp_port) as client:
        client.send(b"IDENTIFY\n" + sized(json.dumps(fields).encode()))
        client.read()
        (node,) = [node for node in nsqlookupd.nodes() if node["broadcast_address"] == "any-case"]
        assert (node["tcp_port"], node["hostname"], node["remote_address"]) == (1, "", client.address)


def test_many_commands_in_one_piece_are_answered_in_order(nsqlookupd):
    commands = b"".join(b"REGISTER pipe%d channel\n" % number for number in range(500))
    with LookupClient(nsqlookupd.tcp_port) as client:
        client.send(KNOWN + commands + b"PING\nUNREGISTER\n")
        responses = [client.read() for _ in range(503)]
        assert responses[0].startswith(b"{")
        assert responses[1:502] == [OK] * 501
        assert responses[502] == b"E_INVALID UNREGISTER insufficient number of params"
    wait_until(lambda: nsqlookupd.lookup("pipe499") == [], what="the producer to leave")


def test_a_client_that_reads_no_answers_is_not_read_from_for_ever(nsqlookupd):
    before_bytes = resident_bytes(nsqlookupd)
    with LookupClient(nsqlookupd.tcp_port) as client:
        client.socket.settimeout(1.0)
        with pytest.raises(TimeoutError):
            for _ in range(2000):
                client.socket.sendall(b"PING\n" * 20_000)
        assert resident_bytes(nsqlookupd) - before_bytes < 20_000_000
    with LookupClient(nsqlookupd.tcp_port) as other:
        assert other.ask("PING") == OK


FRAGMENTS = st.one_of(
    st.sampled_from([KNOWN, b"PING\n"]),
    st.sampled_from([b"REGISTER t c\n", b"UNREGISTER t\n", b"REGISTER a#ephemeral b\n", b"IDENTIFY\n"]),
    st.binary(max_size=30),
    st.binary(max_size=8).map(sized),
)


@settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(parts=st.lists(FRAGMENTS, max_size=12))
def test_any_bytes_lead_to_answers_or_an_error(nsqlookupd, parts):
    with LookupClient(nsqlookupd.tcp_port) as client:
        with contextlib.suppress(Closed):
            client.send(*parts)
        client.end_input()
        with contextlib.suppress(Closed):
            while client.read():
                pass
    with LookupClient(nsqlookupd.tcp_port) as other:
        assert other.ask("PING") == OK
    assert "Traceback" not in nsqlookupd.log_text()
