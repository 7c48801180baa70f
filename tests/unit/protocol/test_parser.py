"""What the parser asks permission for, where clients have to be authorized."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd_py.errors import BadBody, BadMessage, ClientError, Invalid
from nsqd_py.protocol.commands import DPUB, MPUB, NOP, PUB, Auth, Command, PermissionRequest, Publish, Sub
from nsqd_py.protocol.parser import GuardedParser
from nsqd_py.protocol.session import Limits, Session
from tests.support.wire import auth, dpub, int32, mpub, pub, sub


def guarded() -> GuardedParser:
    return GuardedParser(Session(Limits(auth_required=True)))


def commands(parser: GuardedParser, *parts: bytes) -> list[Command]:
    found = []
    for data in parts:
        parser.feed(data)
        while (command := parser.next_command()) is not None:
            found.append(command)
    return found


def one_pub(body: bytes) -> Command:
    return Publish(PUB, b"t", int32(len(body)) + body, 1, len(body) + 4)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (auth(b"s"), [Auth(b"s")]),
        (b"NOP\n", [NOP]),
        (sub("t", "c"), [PermissionRequest("SUB", b"t", b"c", Sub(b"t", b"c"))]),
        (pub("t", b"1"), [PermissionRequest("PUB", b"t", b"", one_pub(b"1"))]),
        (
            dpub("t", 5, b"1"),
            [PermissionRequest("DPUB", b"t", b"", Publish(DPUB, b"t", int32(1) + b"1", 1, 5, 5_000_000))],
        ),
        (b"MPUB t\n", [PermissionRequest("MPUB", b"t", b"", None)]),
        (
            mpub("t", [b"1"]),
            [PermissionRequest("MPUB", b"t", b"", None), Publish(MPUB, b"t", int32(1) + b"1", 1, 5)],
        ),
    ],
)
def test_what_is_asked(data: bytes, expected: list[Command]) -> None:
    assert commands(guarded(), data) == expected


def test_a_publish_is_asked_about_again_when_the_last_is_forgotten() -> None:
    parser = guarded()
    commands(parser, pub("t", b"1"))
    parser.forget_pub()
    assert commands(parser, pub("t", b"2") * 2)[0] == PermissionRequest("PUB", b"t", b"", one_pub(b"2"))


def test_a_body_without_a_command_is_no_publish_when_the_last_is_forgotten() -> None:
    parser = guarded()
    commands(parser, pub("t", b"1"))
    parser.forget_pub()
    with pytest.raises(Invalid):
        commands(parser, int32(6) + b"sto\nen")


def test_a_bad_body_of_a_publish_comes_before_the_permission() -> None:
    with pytest.raises(BadMessage):
        commands(guarded(), b"PUB t\n" + int32(0))


def test_a_bad_body_of_many_comes_behind_it() -> None:
    parser = guarded()
    parser.feed(b"MPUB t\n" + int32(0))
    assert parser.next_command() == PermissionRequest("MPUB", b"t", b"", None)
    with pytest.raises(BadBody):
        parser.next_command()


def acted_on(found: Iterable[Command]) -> list[tuple[bytes, bytes]]:
    """(topic, bodies with their sizes) of each publish, when all is permitted."""
    published = []
    for command in found:
        inner = command.command if isinstance(command, PermissionRequest) else command
        if inner is not None:
            published.append((inner.topic_name, inner.body))
    return published


PUBLISHES = st.lists(
    st.tuples(st.sampled_from(["t", "u"]), st.sampled_from([pub, None]), st.binary(min_size=1, max_size=5)),
    max_size=8,
)


@given(PUBLISHES, st.lists(st.integers(1, 30), max_size=20), st.booleans())
def test_nothing_is_lost_or_changed_in_any_chunking(
    publishes: list[tuple[str, object, bytes]], sizes: list[int], forgets: bool
) -> None:
    data = b"".join(pub(topic, body) if kind else mpub(topic, [body]) for topic, kind, body in publishes)
    parser = guarded()
    found = []
    for size in [*sizes, len(data)]:
        found += acted_on(commands(parser, data[:size])) if data[:size] else []
        data = data[size:]
        if forgets:
            parser.forget_pub()
    for topic in (b"t", b"u"):
        expected = b"".join(int32(len(body)) + body for name, _, body in publishes if name.encode() == topic)
        assert b"".join(body for name, body in found if name == topic) == expected


class Revoked:
    """A client whose permission is revoked at times. It lists each publish that nobody was asked about since then."""

    def __init__(self) -> None:
        self.parser = guarded()
        self.permitted: set[bytes] = set()
        self.unpermitted: list[Publish] = []
        self.is_over = False

    def revoke(self) -> None:
        self.parser.forget_pub()
        self.permitted.clear()

    def read(self, data: bytes) -> None:
        try:
            for command in commands(self.parser, data):
                self._act(command)
        except ClientError:
            self.is_over = True

    def _act(self, command: Command) -> None:
        if isinstance(command, PermissionRequest):
            self.permitted.add(command.topic_name)
            if command.command is not None:
                self._act(command.command)
        elif isinstance(command, Publish) and command.topic_name not in self.permitted:
            self.unpermitted.append(command)


REVOKE = None
ANY_INPUT = st.one_of(
    st.sampled_from(
        [pub("t", b"1"), pub("u", b"22") * 2, dpub("t", 1, b"1"), b"NOP\n", b"PUB t\n", int32(1) + b"x"]
    ),
    st.binary(max_size=8),
)


@given(st.lists(st.one_of(st.just(REVOKE), ANY_INPUT), max_size=12))
def test_each_publish_is_permitted_at_that_moment(steps: list[bytes | None]) -> None:
    client = Revoked()
    for step in steps:
        if step is REVOKE:
            client.revoke()
        elif not client.is_over:
            client.read(step)
    assert not client.unpermitted
