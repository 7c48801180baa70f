"""What IDENTIFY negotiates."""

import json
from typing import Any

import pytest

from nsqd_py.errors import BadBody
from nsqd_py.protocol.session import MOST_NAME_BYTES, Limits, Session

LIMITS = Limits(version="9.9.9", topology_region="eu", topology_zone="eu-1")
DECODE_ERROR = "IDENTIFY failed to decode JSON body"


def session() -> Session:
    return Session(LIMITS, client_id="10.0.0.1", hostname="10.0.0.1")


def identify(**fields: Any) -> Session:
    made = session()
    made.identify(json.dumps(fields).encode())
    return made


def refusal(body: bytes) -> str:
    with pytest.raises(BadBody) as caught:
        session().identify(body)
    assert caught.value.fatal
    return str(caught.value)


# --- what is accepted

ACCEPTED: list[tuple[str, Any, str, Any]] = [
    ("client_id", "me", "client_id", "me"),
    ("hostname", "box", "hostname", "box"),
    ("user_agent", "go-nsq/1.1", "user_agent", "go-nsq/1.1"),
    ("topology_region", "us", "topology_region", "us"),
    ("topology_zone", "us-2", "topology_zone", "us-2"),
    ("heartbeat_interval", 0, "heartbeat_interval_ms", 30_000),
    ("heartbeat_interval", -1, "heartbeat_interval_ms", 0),
    ("heartbeat_interval", 1_000, "heartbeat_interval_ms", 1_000),
    ("heartbeat_interval", 60_000, "heartbeat_interval_ms", 60_000),
    ("output_buffer_size", 0, "output_buffer_size", 16_384),
    ("output_buffer_size", -1, "output_buffer_size", 1),
    ("output_buffer_size", 64, "output_buffer_size", 64),
    ("output_buffer_size", 65_536, "output_buffer_size", 65_536),
    ("output_buffer_timeout", 0, "output_buffer_timeout_ms", 250),
    ("output_buffer_timeout", -1, "output_buffer_timeout_ms", 0),
    ("output_buffer_timeout", 25, "output_buffer_timeout_ms", 25),
    ("output_buffer_timeout", 30_000, "output_buffer_timeout_ms", 30_000),
    ("sample_rate", 0, "sample_rate", 0),
    ("sample_rate", 99, "sample_rate", 99),
    ("msg_timeout", 0, "msg_timeout_ms", 60_000),
    ("msg_timeout", 1_000, "msg_timeout_ms", 1_000),
    ("msg_timeout", 900_000, "msg_timeout_ms", 900_000),
]


@pytest.mark.parametrize(("field", "value", "attribute", "expected"), ACCEPTED)
def test_accepted(field: str, value: Any, attribute: str, expected: Any) -> None:
    assert getattr(identify(**{field: value}), attribute) == expected


def test_no_output_buffer_needs_no_timeout() -> None:
    made = identify(output_buffer_size=-1, output_buffer_timeout=500)
    assert (made.output_buffer_size, made.output_buffer_timeout_ms) == (1, 0)


# --- what is refused


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"1",
        b'"text"',
        b"true",
        b"{} x",
        b'{"client_id":"a\nb"}',
        b'{"heartbeat_interval":NaN}',
        b'{"heartbeat_interval":Infinity}',
        b'{"unknown":-Infinity}',
        b"[" * 100_000,
        b'{"heartbeat_interval":' + b"9" * 5_000 + b"}",
    ],
)
def test_no_json_object(body: bytes) -> None:
    assert refusal(body) == DECODE_ERROR


# --- forms of JSON


@pytest.mark.parametrize("body", [b"{}", b"null", b' {"unknown":{"a":[1.5]},"other":null} '])
def test_nothing_known_said(body: bytes) -> None:
    made = session()
    assert made.identify(body) == b"OK"
    assert made == identify()
    assert made.heartbeat_interval_ms == 30_000


def test_the_last_of_the_same_keys_counts() -> None:
    made = session()
    made.identify(b'{"msg_timeout":1000,"msg_timeout":2000}')
    assert made.msg_timeout_ms == 2_000


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    made = session()
    made.identify(b'{"client_id":"a\xffb"}')
    assert made.client_id == "a\N{REPLACEMENT CHARACTER}b"


@pytest.mark.parametrize("field", ["client_id", "hostname", "user_agent", "topology_region", "topology_zone"])
def test_half_a_surrogate_pair_is_replaced(field: str) -> None:
    """What a client calls itself goes into logs and /stats, where such a character cannot be written."""
    made = session()
    made.identify(f'{{"{field}":"a\\ud800b"}}'.encode())
    assert getattr(made, field) == "a\N{REPLACEMENT CHARACTER}b"


@pytest.mark.parametrize("field", ["client_id", "hostname", "user_agent", "topology_region", "topology_zone"])
@pytest.mark.parametrize("character", ["c", "\N{EURO SIGN}", "\N{GRINNING FACE}"])
def test_a_long_name_is_cut(field: str, character: str) -> None:
    """Thousands of clients have their names in /stats."""
    size_bytes = len(character.encode())
    made = session()
    made.identify(json.dumps({field: character * (MOST_NAME_BYTES // size_bytes)}).encode())
    assert getattr(made, field) == character * (MOST_NAME_BYTES // size_bytes)
    made.identify(json.dumps({field: character * 20_000}).encode())
    assert getattr(made, field) == character * (MOST_NAME_BYTES // size_bytes)


def test_the_http_port_is_for_clients_that_ask_for_it() -> None:
    """Clients may expect exactly the keys of Go's nsqd."""
    for asked in {}, {"wants_http_port": False}, {"wants_http_port": True}:
        answer = json.loads(
            session().identify(json.dumps({"feature_negotiation": True, **asked}).encode(), 4151)
        )
        assert answer.get("http_port") == (4151 if asked.get("wants_http_port") else None)


# --- twice


def test_a_second_identify_replaces_what_it_names_and_keeps_the_rest() -> None:
    made = session()
    made.identify(b'{"client_id":"first","heartbeat_interval":2000,"msg_timeout":2000,"sample_rate":5}')
    made.identify(b'{"client_id":"second","msg_timeout":3000}')
    assert made.client_id == "second"
    assert made.heartbeat_interval_ms == 2_000  # 0 means: as it is
    assert made.msg_timeout_ms == 3_000
    assert made.sample_rate == 0  # 0 means: none
    assert made.user_agent == ""
