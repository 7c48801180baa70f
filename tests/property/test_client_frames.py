"""A client reads: the same events for every chunking, and for any bytes events or an end, never another error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd_py.client.errors import NsqdSaid
from nsqd_py.client.options import ClientOptions
from nsqd_py.client.session import Broken, ClientSession, Event, Negotiated
from nsqd_py.protocol import frames
from nsqd_py.protocol.incoming import IncomingMessages, Responses
from tests.support.examples import examples
from tests.support.nsqd_side import NsqdSide, identity, new_session
from tests.unit.protocol.test_incoming import message

MAX_MSG_SIZE = 500

Fact = tuple[Any, ...]


def facts(event: Event) -> Iterator[Fact]:
    """An event as one fact for each frame, so that rows may be cut anywhere."""
    if isinstance(event, IncomingMessages):
        columns = (event.ids, event.bodies, event.attempts, event.timestamps_ns)
        yield from zip(*columns, strict=True)
    elif isinstance(event, Responses):
        yield from [(event.data,)] * event.times
    elif isinstance(event, NsqdSaid):
        yield event.code, event.text
    elif isinstance(event, Broken):
        yield "broken", type(event.error), str(event.error)
    else:
        yield "ready", event


def read(session: ClientSession, chunks: Sequence[bytes]) -> tuple[list[Fact], bool]:
    """The facts, and True if a heartbeat is answered; one answer is enough for all of a chunk."""
    reported = []
    for chunk in chunks:
        reported += session.received(chunk)
        while session.has_more:
            reported += session.received(b"")
    assert all(not isinstance(event, Broken) for event in reported[:-1])
    return [fact for event in reported for fact in facts(event)], bool(session.take_output())


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def session_with(layer: str) -> ClientSession:
    wanted = {layer: True, "tls_insecure_skip_verify": True} if layer else {}
    session = new_session(ClientOptions.of(max_msg_size=MAX_MSG_SIZE, **wanted))
    session.start()
    session.take_output()
    return session


MESSAGES = st.builds(message, st.integers(0, 1 << 60), st.binary(max_size=60), st.integers(0, 65535))
FRAMES = st.one_of(
    MESSAGES,
    st.sampled_from(
        [frames.OK, frames.OK * 3, frames.HEARTBEAT, frames.CLOSE_WAIT, frames.error(b"E_FIN_FAILED x")]
    ),
    st.binary(max_size=20).map(frames.response),
    st.binary(max_size=20).map(frames.error),
)
PLACES = st.lists(st.integers(0, 5000), max_size=30)


@pytest.mark.parametrize("layer", ["", "snappy", "deflate"])
@given(st.lists(FRAMES, max_size=20), st.binary(max_size=20), PLACES)
@settings(max_examples=examples(150), deadline=None)
def test_any_chunking_gives_the_same(layer: str, parts: list[bytes], rest: bytes, places: list[int]) -> None:
    side = NsqdSide()
    stream = identity(**({layer: True} if layer else {}))
    if layer:
        side.add(layer)
        stream += side.tell(frames.OK)
    stream += b"".join(side.tell(part) for part in [*parts, rest] if part)
    whole = read(session_with(layer), [stream])
    assert read(session_with(layer), cut(stream, places)) == whole
    assert read(session_with(layer), [stream[index : index + 1] for index in range(len(stream))]) == whole
    assert whole[0][0][0] == "ready"


@given(st.lists(FRAMES, min_size=1, max_size=20))
def test_nothing_is_lost_or_made_up(parts: list[bytes]) -> None:
    """Rows are put together again from what a message or an answer alone gives."""

    def reported(data: bytes) -> list[Fact]:
        return read(session_with(""), [identity(), data])[0][1:]

    assert reported(b"".join(parts)) == [fact for part in parts for fact in reported(part)]


@pytest.mark.parametrize("layer", ["", "snappy", "deflate", "tls_v1"])
@given(st.lists(st.one_of(FRAMES, st.binary(max_size=40)), max_size=8), st.booleans(), PLACES)
@settings(max_examples=examples(150), deadline=None)
def test_any_bytes_are_events_or_the_end(
    layer: str, parts: list[bytes], is_agreed: bool, places: list[int]
) -> None:
    session = session_with(layer)
    stream = (identity(**{layer: True}) if is_agreed and layer else b"") + b"".join(parts)
    reported, _ = read(session, cut(stream, places))
    assert len([fact for fact in reported if fact[0] == "ready"]) <= 1


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "max_rdy_count",
                "version",
                "snappy",
                "deflate",
                "deflate_level",
                "tls_v1",
                "msg_timeout",
                "auth_required",
            ]
        ),
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(),
            st.floats(),
            st.text(max_size=5),
            st.lists(st.integers(), max_size=2),
        ),
    )
)
@settings(deadline=None)
def test_any_identity_is_taken_or_refused(fields: dict[str, Any]) -> None:
    events = session_with("").received(identity(**fields))
    assert all(isinstance(event, (Negotiated, Broken)) for event in events)
