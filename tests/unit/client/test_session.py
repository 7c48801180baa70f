"""One connection's protocol without a socket: handshake, layers, events."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from nsqd_py.client.errors import AuthFailed, ConnectionLost, HandshakeFailed, NsqdSaid, PublishFailed
from nsqd_py.client.options import ClientOptions
from nsqd_py.client.session import Broken, ClientSession, Negotiated
from nsqd_py.errors import LayerError
from nsqd_py.protocol import frames, outgoing
from nsqd_py.protocol.incoming import IncomingMessages, Responses
from tests.support.certificates import Certificates, make_certificates
from tests.support.nsqd_side import ADDRESS, NsqdSide, identity, new_session, shake_hands
from tests.unit.protocol.test_incoming import message


def session_with(**options: Any) -> ClientSession:
    return new_session(ClientOptions.of(**options))


def started(**options: Any) -> ClientSession:
    session = session_with(**options)
    session.start()
    return session


def ready_session(**options: Any) -> ClientSession:
    session = session_with(**options)
    (ready,) = shake_hands(session, NsqdSide(), [])
    assert isinstance(ready, Negotiated)
    return session


def broken(session: ClientSession, data: bytes) -> Exception:
    """The error that these bytes end in, alone."""
    (event,) = session.received(data)
    assert isinstance(event, Broken)
    assert session.received(frames.OK) == []
    return event.error


def test_an_nsqd_that_does_not_negotiate() -> None:
    (ready,) = started(snappy=True).received(frames.OK)
    assert (ready.max_rdy_count, ready.snappy) == (2500, False)


@pytest.mark.parametrize("layer", ["snappy", "deflate"])
def test_what_follows_an_answer_in_the_same_packet_belongs_to_the_new_layer(layer: str) -> None:
    session, side = started(**{layer: True}), NsqdSide()
    packet = identity(**{layer: True})
    side.add(layer)
    packet += side.tell(frames.OK + message(1) + frames.OK)
    ready, messages, response = session.received(packet)
    assert (type(ready), type(messages)) == (Negotiated, IncomingMessages)
    assert response == Responses(b"OK", 1)


def test_many_bytes_out_of_few_come_step_by_step() -> None:
    session, side = session_with(deflate=True), NsqdSide()
    shake_hands(session, side, ["deflate"])
    bodies = [b"x" * 300_000] * 10
    events = session.received(
        side.tell(b"".join(message(number, body) for number, body in enumerate(bodies)))
    )
    assert session.has_more
    assert sum(len(event) for event in events if isinstance(event, IncomingMessages)) < 10
    while session.has_more:
        events += session.received(b"")
    assert [
        body for event in events if isinstance(event, IncomingMessages) for body in event.bodies
    ] == bodies


def test_an_answer_to_a_heartbeat_belongs_to_the_layers_of_its_time() -> None:
    session = started(snappy=True)
    session.take_output()
    assert session.received(frames.HEARTBEAT + identity(snappy=True)) == []
    assert session.take_output() == outgoing.NOP


@pytest.mark.parametrize(
    ("options", "answer", "kind", "text"),
    [
        (
            {},
            frames.error(b"E_BAD_BODY IDENTIFY nonsense"),
            HandshakeFailed,
            "refused the handshake: E_BAD_BODY",
        ),
        ({}, frames.error(b"E_AUTH_FAILED no"), AuthFailed, "E_AUTH_FAILED no"),
        ({}, frames.error(b"E_UNAUTHORIZED no"), AuthFailed, "E_UNAUTHORIZED no"),
        ({}, identity(auth_required=True), AuthFailed, "give auth_secret"),
        ({"tls_v1": True}, identity(tls_v1=False), HandshakeFailed, "offers no TLS"),
        ({"tls_v1": True}, frames.OK, HandshakeFailed, "offers no TLS"),
        ({}, frames.response(b"{nonsense"), HandshakeFailed, "no JSON"),
        (
            {},
            frames.response(b'{"max_rdy_count": "many"}'),
            HandshakeFailed,
            "max_rdy_count is of another type",
        ),
        ({}, message(1), HandshakeFailed, "a message before the handshake was over"),
        ({}, b"HTTP/1.1 400 Bad Request\r\n\r\n", HandshakeFailed, "this is an HTTP port"),
        ({}, b"\0\0\0\x0eE_BAD_PROTOCOL", HandshakeFailed, "this is the TCP port of nsqlookupd"),
        ({}, b"\x15\x03\x01\0\2\2\x16\0", HandshakeFailed, "TLS only"),
        (
            {"snappy": True},
            identity(snappy=True) + frames.OK,
            HandshakeFailed,
            "snappy: the stream has no identifier",
        ),
        ({"tls_v1": True}, identity(tls_v1=True) + b"nonsense", HandshakeFailed, "TLS: "),
        (
            {"tls_v1": True, "tls_root_ca_file": "/nowhere.pem"},
            identity(tls_v1=True),
            HandshakeFailed,
            "cannot use /nowhere.pem: No such file",
        ),
    ],
)
def test_a_handshake_that_fails(
    options: dict[str, Any], answer: bytes, kind: type[Exception], text: str
) -> None:
    error = broken(started(**options), answer)
    assert type(error) is kind
    assert text in str(error)
    assert str(error).startswith(f"{ADDRESS}: ")


def test_a_layer_that_is_not_confirmed() -> None:
    session, side = started(snappy=True), NsqdSide()
    session.received(identity(snappy=True))
    side.add("snappy")
    assert "b'NO' in place of OK" in str(broken(session, side.tell(frames.response(b"NO"))))


def test_numbers_that_cannot_be() -> None:
    assert started(deflate=True).received(identity(deflate=True, deflate_level=99)) == []
    (ready,) = shake_hands(
        session_with(), NsqdSide(), [], msg_timeout=-1, max_msg_timeout=-1, max_rdy_count=-1
    )
    assert ready == Negotiated(deflate_level=1)


def test_good_frames_before_a_bad_one_are_told() -> None:
    session = ready_session()
    response, event = session.received(frames.OK + b"\xff" * 8)
    assert response == Responses(b"OK", 1)
    assert type(event.error) is ConnectionLost
    assert session.received(frames.OK) == []


def test_an_end_in_the_handshake_is_not_one_in_use() -> None:
    assert isinstance(session_with().ended(), HandshakeFailed)
    assert isinstance(ready_session().ended(), ConnectionLost)


def test_frames_above_max_msg_size_end_it() -> None:
    session = ready_session(max_msg_size=300)
    assert "max_msg_size of this client is 300" in str(broken(session, message(1, b"x" * 301)))


@pytest.mark.parametrize(
    "error",
    [
        ConnectionLost(ADDRESS, "gone"),
        HandshakeFailed(ADDRESS, "no"),
        NsqdSaid(ADDRESS, "E_BAD_TOPIC", "PUB x"),
        PublishFailed(ADDRESS, "E_PUB_FAILED", "full"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_travel_between_processes(error: Exception) -> None:
    """Spark's executors send theirs to the driver."""
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_nsqd_hears_why_its_certificate_was_refused(certificates: Certificates, tmp_path: Path) -> None:
    session = session_with(tls_v1=True, tls_root_ca_file=str(make_certificates(tmp_path / "other").authority))
    with pytest.raises(LayerError, match="ALERT_UNKNOWN_CA"):
        shake_hands(session, NsqdSide(certificates), ["tls"])
